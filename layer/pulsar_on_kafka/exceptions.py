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


class UnknownError(PulsarException):
    """An error that has no official name; the text has ours."""


class InvalidConfiguration(PulsarException):
    """An option has a value out of its range, or does not fit another one; the text names it."""


class Timeout(PulsarException):
    """The time-out passed first. A send or an acknowledgement may have taken effect all the same."""


class LookupError(PulsarException):  # noqa: A001 - the official name
    """Not raised by the SDK: it has no lookup of topics."""


class ConnectError(PulsarException):
    """No broker of the cluster replies, or all refuse the connection."""


class ReadError(PulsarException):
    """Not raised by the SDK."""


class AuthenticationError(PulsarException):
    """The brokers reject the login, or there is none."""


class AuthorizationError(PulsarException):
    """The login lacks a right in Kafka; the text names it."""


class ErrorGettingAuthenticationData(PulsarException):
    """Not raised by the SDK."""


class BrokerMetadataError(PulsarException):
    """A record that the cluster's state consists of cannot be read; the text names it."""


class BrokerPersistenceError(PulsarException):
    """Kafka did not store a record."""


class ChecksumError(PulsarException):
    """Not raised by the SDK."""


class ConsumerBusy(PulsarException):
    """The subscription has a consumer that excludes this one."""


class NotConnected(PulsarException):
    """The process lost what it owned to another one, or its tenant is moving."""


class AlreadyClosed(PulsarException):
    """The object was closed before."""


class InvalidMessage(PulsarException):
    """A message, or a message id, cannot be read or written; the text says why."""


class ConsumerNotInitialized(PulsarException):
    """A table view was closed, as officially."""


class ProducerNotInitialized(PulsarException):
    """Not raised by the SDK."""


class ProducerBusy(PulsarException):
    """Another producer has the name, or the topic has as many producers as its policy allows."""


class TooManyLookupRequestException(PulsarException):
    """The process has as many librdkafka handles as it may."""


class InvalidTopicName(PulsarException):
    """No topic can have this name."""


class InvalidUrl(PulsarException):
    """Not raised by the SDK: a wrong URL is a ValueError, as officially."""


class ServiceUnitNotReady(PulsarException):
    """Not raised by the SDK."""


class OperationNotSupported(PulsarException):
    """The object does not have this operation, as officially."""


class NotSupported(OperationNotSupported):
    """Not supported in this version; the message names the feature. Differs from Pulsar: the official client has it."""


class ProducerBlockedQuotaExceededError(PulsarException):
    """The topic's backlog exceeds its quota, and producers are held back."""


class ProducerBlockedQuotaExceededException(PulsarException):
    """The topic's backlog exceeds its quota, and producers are rejected."""


class ProducerQueueIsFull(PulsarException):
    """As many messages as `max_pending_messages` are waiting to be stored."""


class MessageTooBig(PulsarException):
    """A message exceeds the topic's limit, and is not to be sent in chunks."""


class TopicNotFound(PulsarException):
    """The topic, its namespace or its schema does not exist, or the topic was deleted meanwhile."""


class SubscriptionNotFound(PulsarException):
    """The subscription does not exist."""


class ConsumerNotFound(PulsarException):
    """Not raised by the SDK."""


class UnsupportedVersionError(PulsarException):
    """Not raised by the SDK."""


class TopicTerminated(PulsarException):
    """The topic takes no more messages."""


class CryptoError(PulsarException):
    """A message cannot be encrypted or decrypted."""


class IncompatibleSchema(PulsarException):
    """The schema does not fit those of the topic; the text names every difference."""


class ConsumerAssignError(PulsarException):
    """The hash ranges of a Key_Shared consumer overlap those of another one."""


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """A Shared or Key_Shared subscription acknowledges messages one by one."""


class TransactionCoordinatorNotFoundError(PulsarException):
    """No process serves the coordinator of the transaction now."""


class InvalidTxnStatusError(PulsarException):
    """The transaction has ended, or is ending."""


class NotAllowedError(PulsarException):
    """The present state does not allow the call; the text says why."""


class TransactionConflict(PulsarException):
    """Another transaction has acknowledged the message, and is open."""


class TransactionNotFound(PulsarException):
    """The transaction does not exist, or ended long ago."""


class ProducerFenced(PulsarException):
    """A producer with the access mode ExclusiveWithFencing, or one of the same name, has replaced this one."""


class MemoryBufferIsFull(PulsarException):
    """Not raised by the SDK: the limit is a number of messages."""


class Interrupted(PulsarException):
    """A signal interrupted the wait."""
