"""`KafkaError` to ours, once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.kafka.rights import Right

_log = logging.getLogger(__name__)

_BY_CODE: Final[dict[int, type[errors.LayerError]]] = {
    KafkaError.TOPIC_ALREADY_EXISTS: errors.AlreadyExists,
    KafkaError.GROUP_ID_NOT_FOUND: errors.NoSuchSubscription,
    KafkaError.NOT_COORDINATOR: errors.NoCoordinatorNow,
    KafkaError.COORDINATOR_NOT_AVAILABLE: errors.NoCoordinatorNow,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: errors.NoCoordinatorNow,
    KafkaError.NON_EMPTY_GROUP: errors.SubscriptionBusy,
    KafkaError.SECURITY_DISABLED: errors.NotSupportedYet,
    KafkaError._ALL_BROKERS_DOWN: errors.ConnectFailed,
    KafkaError._TRANSPORT: errors.ConnectFailed,
    KafkaError._RESOLVE: errors.ConnectFailed,
    KafkaError._AUTHENTICATION: errors.NotAuthenticated,
    KafkaError.SASL_AUTHENTICATION_FAILED: errors.NotAuthenticated,
    KafkaError._SSL: errors.TlsFailed,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: errors.NotAuthorized,
    KafkaError.GROUP_AUTHORIZATION_FAILED: errors.NotAuthorized,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: errors.NotAuthorized,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: errors.NotAuthorized,
    KafkaError.MSG_SIZE_TOO_LARGE: errors.RecordTooLarge,
    KafkaError.RECORD_LIST_TOO_LARGE: errors.RecordTooLarge,
    KafkaError._MSG_TIMED_OUT: errors.AppendOutcomeUnknown,
    KafkaError._TIMED_OUT: errors.DeadlineExceeded,
    KafkaError._TIMED_OUT_QUEUE: errors.DeadlineExceeded,
    KafkaError.REQUEST_TIMED_OUT: errors.DeadlineExceeded,
    KafkaError.ILLEGAL_GENERATION: errors.Fenced,
    KafkaError.REBALANCE_IN_PROGRESS: errors.Fenced,
    KafkaError.UNKNOWN_MEMBER_ID: errors.Fenced,
    KafkaError.FENCED_INSTANCE_ID: errors.Fenced,
    KafkaError.FENCED_MEMBER_EPOCH: errors.Fenced,
    KafkaError.STALE_MEMBER_EPOCH: errors.Fenced,
    KafkaError._ASSIGNMENT_LOST: errors.Fenced,
    KafkaError.UNSTABLE_OFFSET_COMMIT: errors.OffsetsUnsettled,
    KafkaError.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    KafkaError._AUTO_OFFSET_RESET: errors.OffsetOutOfRange,
}

_NO_SUCH_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


_NO_LEADER_NOW: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,  # librdkafka's, when none of the requested partitions has a leader
    }
)


def has_no_leader_now(error: KafkaError) -> bool:
    """Whether the partition is getting a leader (a fresh topic, a broker restarting): retry."""
    return error.code() in _NO_LEADER_NOW


def is_of_old_metadata(failure: errors.LayerError) -> bool:
    """Whether the underlying error of librdkafka means that its metadata lacks the partition, or its leader."""
    cause = failure.__cause__
    error = cause.args[0] if isinstance(cause, KafkaException) else None
    return error is not None and (error.code() == KafkaError._UNKNOWN_PARTITION or has_no_leader_now(error))


_NEVER_STORED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._PURGE_QUEUE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


def local_failure(reason: str) -> KafkaError:
    """The error that librdkafka reports for a send that it gave up."""
    return KafkaError(KafkaError._FAIL, reason)


def local_timeout(reason: str) -> KafkaError:
    """The error that librdkafka reports for a send that took too long."""
    return KafkaError(KafkaError._MSG_TIMED_OUT, reason)


def local_refusal(reason: str) -> KafkaError:
    """The error that librdkafka reports for a send that never left it."""
    return KafkaError(KafkaError._PURGE_QUEUE, reason)


def is_local_refusal(error: KafkaError) -> bool:
    return error.code() == KafkaError._PURGE_QUEUE


def answer_for(refused: Exception) -> KafkaError:
    """The error that a delivery report would have for a record that was refused when it was handed over."""
    if isinstance(refused, KafkaException):
        error: KafkaError = refused.args[0]
        return error
    return local_failure(f"{type(refused).__name__}: {refused}")


def is_certainly_not_stored(error: KafkaError) -> bool:
    """Whether no broker can have the record that failed with `error`. A time-out, for example, leaves that open."""
    return error.code() in _NEVER_STORED


def is_answer(failure: errors.LayerError) -> bool:
    """Whether a broker refused the failed request; otherwise the request may still be executed."""
    cause = failure.__cause__
    code = cause.args[0].code() if isinstance(cause, KafkaException) else -1
    return code > 0 and code != KafkaError.REQUEST_TIMED_OUT


def is_no_such_topic(error: KafkaError) -> bool:
    return error.code() in _NO_SUCH_TOPIC


def ours(error: Exception, what: str, *needed: Right) -> Exception:
    """This product's error for one of librdkafka's; any other unchanged (a wrong argument's TypeError, for example)."""
    return translate(error, what, *needed) if isinstance(error, KafkaException) else error


_FORBIDDEN: Final[dict[int, str]] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
}


def is_not_authorized(error: KafkaError) -> bool:
    return error.code() in _FORBIDDEN


def translate(error: KafkaError | KafkaException, what: str, *needed: Right) -> errors.LayerError:
    """The corresponding error of this product; `what` describes the operation in words, `needed` its rights."""
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    text = f"{what}: {kafka_error.str()} ({kafka_error.name()})"
    if has_no_leader_now(kafka_error):
        return errors.NoLeaderNow(text)
    if is_no_such_topic(kafka_error):
        return errors.NoSuchTopic(text)
    missing = [right for right in needed if right.kind == _FORBIDDEN.get(kafka_error.code())]
    if missing:
        text += "; " + "; ".join(map(str, missing))
    return _BY_CODE.get(kafka_error.code(), errors.StoreError)(text)


def translate_code(code: int, what: str, *needed: Right) -> errors.LayerError:
    """The same for the error code of a broker's response."""
    return translate(KafkaError(code), what, *needed)


_NO_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})


_REPORT_INTERVAL_S: Final = 60.0


class ErrorEvents:
    """An `error_cb`. Keeps the last failed login, the error after which a handle does nothing more, and the latest."""

    def __init__(self, what: str, call_later: Callable[[Callable[[], object]], None] | None = None) -> None:
        """`call_later` has its log lines written elsewhere, where a logging handler may call this package."""
        self._what = what
        self._call_later = call_later
        self.no_login: LayerError | None = None
        self.fatal: LayerError | None = None
        self.latest: LayerError | None = None
        """The latest error of one broker; that all are down is less specific."""
        self._reported_s: dict[int, float] = {}
        """The time of the last line about each error code."""
        self.no_topic: LayerError | None = None
        """The error of a deleted topic. librdkafka reports it to a consumer that is assigned by hand only here."""

    def __call__(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.latest = translate(error, self._what)
        if error.fatal():
            self.fatal = translate(error, self._what)
            self._report(logging.ERROR, f"{self._what} gave up: {error.str()}")
        elif error.code() in _NO_LOGIN:
            # librdkafka retries, many times a second.
            level = logging.WARNING if self.no_login is None else logging.DEBUG
            self._report(level, f"{self._what}: {error.str()}")
            self.no_login = translate(error, self._what)
        elif is_no_such_topic(error):
            self.no_topic = translate(error, self._what)
        else:
            level = logging.INFO if self._is_new(error.code()) else logging.DEBUG
            self._report(level, translate(error, self._what))

    def _is_new(self, code: int) -> bool:
        """Whether no line in the last minute was about this error code: librdkafka reports each attempt to connect."""
        now_s = time.monotonic()
        before_s = self._reported_s.get(code)
        if before_s is not None and now_s - before_s < _REPORT_INTERVAL_S:
            return False
        self._reported_s[code] = now_s
        return True

    def _report(self, level: int, line: str | LayerError) -> None:
        if self._call_later is None:
            _log.log(level, "%s", line)
        else:
            self._call_later(lambda: _log.log(level, "%s", line))
