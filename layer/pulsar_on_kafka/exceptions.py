"""The exceptions and result codes of the official client, by their official names.

Source: `pulsar-client` 3.13.0 (`pulsar.exceptions`, `pulsar.Result`). `NotSupported` is ours: a call or option of the
official client that this version does not have yet.
"""

from __future__ import annotations

from enum import IntEnum as _IntEnum  # not of the official names, which others take by `*`
from typing import Any as _Any


class Result(_IntEnum):
    """Outcome of an asynchronous call, as the official client numbers them."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45

    def __str__(self) -> str:
        return f"Result.{self.name}"


class PulsarException(Exception):
    """Base of every error that a Pulsar program catches. `result` is the official code, that of the same name."""

    result: Result = Result.UnknownError

    def __init_subclass__(cls, **options: _Any) -> None:
        super().__init_subclass__(**options)
        if "result" not in cls.__dict__:  # a program's own class may have another one
            cls.result = Result.__members__.get(cls.__name__, cls.result)


class UnknownError(PulsarException): ...


class InvalidConfiguration(PulsarException): ...


class Timeout(PulsarException): ...


class LookupError(PulsarException): ...  # noqa: A001 - the official name


class ConnectError(PulsarException): ...


class ReadError(PulsarException): ...


class AuthenticationError(PulsarException): ...


class AuthorizationError(PulsarException): ...


class ErrorGettingAuthenticationData(PulsarException): ...


class BrokerMetadataError(PulsarException): ...


class BrokerPersistenceError(PulsarException): ...


class ChecksumError(PulsarException): ...


class ConsumerBusy(PulsarException): ...


class NotConnected(PulsarException): ...


class AlreadyClosed(PulsarException): ...


class InvalidMessage(PulsarException): ...


class ConsumerNotInitialized(PulsarException): ...


class ProducerNotInitialized(PulsarException): ...


class ProducerBusy(PulsarException): ...


class TooManyLookupRequestException(PulsarException): ...


class InvalidTopicName(PulsarException): ...


class InvalidUrl(PulsarException): ...


class ServiceUnitNotReady(PulsarException): ...


class OperationNotSupported(PulsarException): ...


class NotSupported(OperationNotSupported):
    """Not supported in this version; the message names the feature. Differs from Pulsar: the official client has it."""


class ProducerBlockedQuotaExceededError(PulsarException): ...


class ProducerBlockedQuotaExceededException(PulsarException): ...


class ProducerQueueIsFull(PulsarException): ...


class MessageTooBig(PulsarException): ...


class TopicNotFound(PulsarException): ...


class SubscriptionNotFound(PulsarException): ...


class ConsumerNotFound(PulsarException): ...


class UnsupportedVersionError(PulsarException): ...


class TopicTerminated(PulsarException): ...


class CryptoError(PulsarException): ...


class IncompatibleSchema(PulsarException): ...


class ConsumerAssignError(PulsarException): ...


class CumulativeAcknowledgementNotAllowedError(PulsarException): ...


class TransactionCoordinatorNotFoundError(PulsarException): ...


class InvalidTxnStatusError(PulsarException): ...


class NotAllowedError(PulsarException): ...


class TransactionConflict(PulsarException): ...


class TransactionNotFound(PulsarException): ...


class ProducerFenced(PulsarException): ...


class MemoryBufferIsFull(PulsarException): ...


class Interrupted(PulsarException): ...
