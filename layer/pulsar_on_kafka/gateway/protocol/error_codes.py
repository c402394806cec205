"""Maps our errors to the codes of Pulsar's protocol, by which clients decide whether to retry."""

from __future__ import annotations

import logging
from typing import Final

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar
from pulsar_on_kafka_mapping.errors import InvalidSubscriptionName, MappingError
from pulsar_on_kafka_mapping.wire.commands import ServerError

_log: Final = logging.getLogger(__name__)

_CODES: Final[tuple[tuple[type[exceptions.PulsarException], ServerError], ...]] = (
    (exceptions.InvalidTopicName, ServerError.INVALID_TOPIC_NAME),
    (exceptions.TopicNotFound, ServerError.TOPIC_NOT_FOUND),
    (exceptions.TopicTerminated, ServerError.TOPIC_TERMINATED),
    (exceptions.SubscriptionNotFound, ServerError.SUBSCRIPTION_NOT_FOUND),
    (exceptions.ConsumerNotFound, ServerError.CONSUMER_NOT_FOUND),
    (exceptions.ProducerBusy, ServerError.PRODUCER_BUSY),
    (exceptions.ProducerFenced, ServerError.PRODUCER_FENCED),
    (exceptions.ConsumerBusy, ServerError.CONSUMER_BUSY),
    (exceptions.ConsumerAssignError, ServerError.CONSUMER_ASSIGN),
    (exceptions.ProducerBlockedQuotaExceededError, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR),
    (exceptions.ProducerBlockedQuotaExceededException, ServerError.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION),
    (exceptions.IncompatibleSchema, ServerError.INCOMPATIBLE_SCHEMA),
    (exceptions.TransactionConflict, ServerError.TRANSACTION_CONFLICT),
    (exceptions.TransactionNotFound, ServerError.TRANSACTION_NOT_FOUND),
    (exceptions.TransactionCoordinatorNotFoundError, ServerError.TRANSACTION_COORDINATOR_NOT_FOUND),
    (exceptions.InvalidTxnStatusError, ServerError.INVALID_TXN_STATUS),
    (exceptions.AuthenticationError, ServerError.AUTHENTICATION),
    (exceptions.AuthorizationError, ServerError.AUTHORIZATION),
    (exceptions.TooManyLookupRequestException, ServerError.TOO_MANY_REQUESTS),
    (exceptions.BrokerMetadataError, ServerError.METADATA),
    (exceptions.BrokerPersistenceError, ServerError.PERSISTENCE),
    (exceptions.Timeout, ServerError.SERVICE_NOT_READY),
    (exceptions.ConnectError, ServerError.SERVICE_NOT_READY),
    (exceptions.NotConnected, ServerError.SERVICE_NOT_READY),
    (exceptions.AlreadyClosed, ServerError.SERVICE_NOT_READY),
    (exceptions.NotAllowedError, ServerError.NOT_ALLOWED),
    (exceptions.NotSupported, ServerError.NOT_ALLOWED),
    (exceptions.OperationNotSupported, ServerError.NOT_ALLOWED),
    (exceptions.InvalidConfiguration, ServerError.NOT_ALLOWED),
    (exceptions.InvalidMessage, ServerError.NOT_ALLOWED),
)
"""The first match counts. On SERVICE_NOT_READY a client looks the topic up again and retries."""


def error_code_of(failure: Exception) -> tuple[ServerError, str]:
    """Code and text for a client. An unexpected failure is logged with its traceback."""
    if not isinstance(failure, (LayerError, MappingError, exceptions.PulsarException)):
        _log.error("a request failed", exc_info=failure)
    if isinstance(failure, InvalidSubscriptionName):
        return ServerError.PRODUCER_BUSY, str(failure)  # so does Pulsar: its NamingException has that code
    official = as_pulsar(failure)
    code = next((code for kind, code in _CODES if isinstance(official, kind)), ServerError.UNKNOWN)
    return code, str(failure) or type(failure).__name__
