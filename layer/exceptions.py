"""The exceptions and result codes of the official client, by their official names.

Source: `pulsar-client` 3.13.0 (`pulsar.exceptions`, `pulsar.Result`). `NotSupported` is ours: a call or option of the
official client that this version does not have yet.
"""

from __future__ import annotations

from enum import IntEnum


class Result(IntEnum):
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
    """Base of every error that a Pulsar program catches. `result` is the official code."""

    result: Result = Result.UnknownError


class UnknownError(PulsarException):
    result = Result.UnknownError


class InvalidConfiguration(PulsarException):
    result = Result.InvalidConfiguration


class Timeout(PulsarException):
    result = Result.Timeout


class LookupError(PulsarException):  # noqa: A001 - the official name
    result = Result.LookupError


class ConnectError(PulsarException):
    result = Result.ConnectError


class ReadError(PulsarException):
    result = Result.ReadError


class AuthenticationError(PulsarException):
    result = Result.AuthenticationError


class AuthorizationError(PulsarException):
    result = Result.AuthorizationError


class ErrorGettingAuthenticationData(PulsarException):
    result = Result.ErrorGettingAuthenticationData


class BrokerMetadataError(PulsarException):
    result = Result.BrokerMetadataError


class BrokerPersistenceError(PulsarException):
    result = Result.BrokerPersistenceError


class ChecksumError(PulsarException):
    result = Result.ChecksumError


class ConsumerBusy(PulsarException):
    result = Result.ConsumerBusy


class NotConnected(PulsarException):
    result = Result.NotConnected


class AlreadyClosed(PulsarException):
    result = Result.AlreadyClosed


class InvalidMessage(PulsarException):
    result = Result.InvalidMessage


class ConsumerNotInitialized(PulsarException):
    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(PulsarException):
    result = Result.ProducerNotInitialized


class ProducerBusy(PulsarException):
    result = Result.ProducerBusy


class TooManyLookupRequestException(PulsarException):
    result = Result.TooManyLookupRequestException


class InvalidTopicName(PulsarException):
    result = Result.InvalidTopicName


class InvalidUrl(PulsarException):
    result = Result.InvalidUrl


class ServiceUnitNotReady(PulsarException):
    result = Result.ServiceUnitNotReady


class OperationNotSupported(PulsarException):
    result = Result.OperationNotSupported


class NotSupported(OperationNotSupported):
    """Not in this version; the message names the feature. Differs from Pulsar: the official client has it."""


class ProducerBlockedQuotaExceededError(PulsarException):
    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(PulsarException):
    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(PulsarException):
    result = Result.ProducerQueueIsFull


class MessageTooBig(PulsarException):
    result = Result.MessageTooBig


class TopicNotFound(PulsarException):
    result = Result.TopicNotFound


class SubscriptionNotFound(PulsarException):
    result = Result.SubscriptionNotFound


class ConsumerNotFound(PulsarException):
    result = Result.ConsumerNotFound


class UnsupportedVersionError(PulsarException):
    result = Result.UnsupportedVersionError


class TopicTerminated(PulsarException):
    result = Result.TopicTerminated


class CryptoError(PulsarException):
    result = Result.CryptoError


class IncompatibleSchema(PulsarException):
    result = Result.IncompatibleSchema


class ConsumerAssignError(PulsarException):
    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(PulsarException):
    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(PulsarException):
    result = Result.InvalidTxnStatusError


class NotAllowedError(PulsarException):
    result = Result.NotAllowedError


class TransactionConflict(PulsarException):
    result = Result.TransactionConflict


class TransactionNotFound(PulsarException):
    result = Result.TransactionNotFound


class ProducerFenced(PulsarException):
    result = Result.ProducerFenced


class MemoryBufferIsFull(PulsarException):
    result = Result.MemoryBufferIsFull


class Interrupted(PulsarException):
    result = Result.Interrupted


__all__ = [
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "NotSupported",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Result",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
]
