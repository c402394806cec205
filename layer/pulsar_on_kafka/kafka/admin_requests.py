"""Requests of Kafka's admin API: their time-outs, and their futures turned into results and our errors."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Final, TypeVar

from confluent_kafka import KafkaException

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.rights import Right

_T = TypeVar("_T")
_MAX_WAIT_S: Final = 3600.0


def budget(deadline: Deadline) -> dict[str, float]:
    """The argument by which librdkafka gives a request up at the deadline."""
    return {"request_timeout": max(0.05, min(deadline.remaining_s(), _MAX_WAIT_S))}


def result(future: Future[_T], deadline: Deadline, what: str, *needed: Right) -> _T:
    """The future's result. Errors name the request (`what`) and the rights that it needs."""
    with translated(what, *needed):
        return future.result(timeout=min(deadline.remaining_s(), _MAX_WAIT_S) + 1.0)


@contextmanager
def translated(what: str, *needed: Right) -> Iterator[None]:
    """Translates errors of librdkafka, which then name the request and the rights that it needs."""
    try:
        yield
    except KafkaException as failure:
        raise translate(failure, what, *needed) from failure
    except FutureTimeoutError as late:
        raise errors.DeadlineExceeded(f"{what}: no answer in time") from late
