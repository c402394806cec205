"""Our errors become the exceptions that a Pulsar program catches, in one place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.base import errors
from pulsar_on_kafka_mapping.errors import (
    ForeignLedger,
    InvalidMessageId,
    InvalidSubscriptionName,
    InvalidTopicName,
    MappingError,
)

_log: Final = logging.getLogger(__name__)

_NAMES: Final[tuple[tuple[type[Exception], type[exceptions.PulsarException]], ...]] = (
    (InvalidTopicName, exceptions.InvalidTopicName),
    (InvalidSubscriptionName, exceptions.InvalidConfiguration),
    (ForeignLedger, exceptions.InvalidMessage),
    (InvalidMessageId, exceptions.InvalidMessage),
    (MappingError, exceptions.InvalidMessage),
    (errors.NotSupportedYet, exceptions.NotSupported),
    (errors.InvalidOption, exceptions.InvalidConfiguration),
    (errors.NoSuchNamespace, exceptions.TopicNotFound),
    (errors.NoSuchTopic, exceptions.TopicNotFound),
    (errors.TopicIsTerminated, exceptions.TopicTerminated),
    (errors.NoSuchSubscription, exceptions.SubscriptionNotFound),
    (errors.ProducerNameTaken, exceptions.ProducerBusy),
    (errors.TooManyProducers, exceptions.ProducerBusy),
    (errors.ProducerExcluded, exceptions.ProducerFenced),
    (errors.BacklogQuotaHolds, exceptions.ProducerBlockedQuotaExceededError),
    (errors.BacklogQuotaRefuses, exceptions.ProducerBlockedQuotaExceededException),
    (errors.SubscriptionBusy, exceptions.ConsumerBusy),
    (errors.HashRangeConflict, exceptions.ConsumerAssignError),
    (errors.TopicIncarnationChanged, exceptions.TopicNotFound),
    (errors.IncompatibleSchema, exceptions.IncompatibleSchema),
    (errors.NoSuchSchema, exceptions.TopicNotFound),
    (errors.TransactionConflict, exceptions.TransactionConflict),
    (errors.TransactionNotFound, exceptions.TransactionNotFound),
    (errors.InvalidTxnStatus, exceptions.InvalidTxnStatusError),
    (errors.TransactionHasFailed, exceptions.InvalidTxnStatusError),
    (errors.Closed, exceptions.AlreadyClosed),
    (errors.Refused, exceptions.NotAllowedError),
    (errors.Corrupt, exceptions.BrokerMetadataError),
    (errors.ConnectFailed, exceptions.ConnectError),
    (errors.TlsFailed, exceptions.ConnectError),
    (errors.NotAuthenticated, exceptions.AuthenticationError),
    (errors.NoCredentials, exceptions.AuthenticationError),
    (errors.NotAuthorized, exceptions.AuthorizationError),
    (errors.CryptoFailed, exceptions.CryptoError),
    (errors.RecordTooLarge, exceptions.MessageTooBig),
    (errors.AppendOutcomeUnknown, exceptions.Timeout),
    (errors.CommitOutcomeUnknown, exceptions.Timeout),
    (errors.TransactionCoordinatorNotFound, exceptions.TransactionCoordinatorNotFoundError),
    (errors.TransactionOutcomeUnknown, exceptions.Timeout),
    (errors.DeadlineExceeded, exceptions.Timeout),
    (errors.Fenced, exceptions.NotConnected),
    (errors.TenantIsMoving, exceptions.NotConnected),
    (errors.TooManyHandles, exceptions.TooManyLookupRequestException),
    (errors.StoreError, exceptions.BrokerPersistenceError),
)


def as_pulsar(error: Exception) -> exceptions.PulsarException:
    """The official exception for an error of this product; `UnknownError` for anything unforeseen."""
    if isinstance(error, exceptions.PulsarException):
        return error
    for ours, theirs in _NAMES:
        if isinstance(error, ours):
            return theirs(str(error))
    return exceptions.UnknownError(f"{type(error).__name__}: {error}")


@contextmanager
def pulsar_errors() -> Iterator[None]:
    """Raise what a Pulsar program expects, with our error as its one cause. Causes of that one are in the log (DEBUG):
    their text is in ours. Ctrl-C becomes `Interrupted`, as officially."""
    try:
        yield
    except (errors.LayerError, MappingError) as error:
        if error.__cause__ is not None or error.__context__ is not None:
            _log.debug("an error with its causes", exc_info=error)
            error.__cause__ = error.__context__ = None
        raise as_pulsar(error) from error
    except KeyboardInterrupt as interrupt:
        raise exceptions.Interrupted("interrupted by a signal") from interrupt
    except SystemError as error:
        # A signal handled inside one of confluent-kafka's C calls comes out like this.
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise exceptions.Interrupted("interrupted by a signal") from error
        raise
