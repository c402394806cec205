"""Requests of Kafka's admin API: their time-outs, and their futures turned into results and our errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from confluent_kafka import KafkaException

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.rights import Right

_T = TypeVar("_T")
_Item = TypeVar("_Item")
_MAX_WAIT_S: Final = 3600.0
_GATHER_S: Final = 1.0
"""The longest time that requests wait for the one under way."""


def budget(deadline: Deadline) -> dict[str, float]:
    """The argument by which librdkafka gives a request up at the deadline."""
    return {"request_timeout": max(0.05, min(deadline.remaining_s(), _MAX_WAIT_S))}


def result(future: Future[_T], deadline: Deadline, what: str, *needed: Right) -> _T:
    """The future's result. Errors name the request (`what`) and the rights that it needs."""
    with translated(what, *needed):
        return future.result(timeout=min(deadline.remaining_s(), _MAX_WAIT_S) + 1.0)


class _Gathering(Generic[_Item, _T]):
    """Items that callers add until the request is sent."""

    def __init__(self) -> None:
        self.items: dict[str, _Item] = {}
        self.remaining_s = 0.0
        self.sent: Future[Mapping[str, Future[_T]]] = Future()


class GatheredRequests(Generic[_Item, _T]):
    """Requests about topics, of which those that threads make while one is under way become the next one. Thread-safe.

    A broker answers the requests of a connection one after the other, and takes as long for one topic as for many.
    """

    def __init__(self, send: Callable[[Mapping[str, _Item], Deadline], Mapping[str, Future[_T]]]) -> None:
        """`send` begins one request about several topics, and returns the future of each."""
        self._send = send
        self._lock = threading.Lock()
        self._requesting = threading.Lock()
        self._next: _Gathering[_Item, _T] | None = None

    def request(self, topic: str, item: _Item, deadline: Deadline) -> Future[_T]:
        """The future of a request that is sent after this call. One for the same topic at a time is shared."""
        with self._lock:
            gathering, first = self._next, self._next is None
            if gathering is None:
                gathering = self._next = _Gathering()
            gathering.items.setdefault(topic, item)
            gathering.remaining_s = max(gathering.remaining_s, deadline.remaining_s())
        if first:
            self._request(gathering)
        return result(gathering.sent, deadline, f"a request about topic {topic}")[topic]

    def _request(self, gathering: _Gathering[_Item, _T]) -> None:
        with self._requesting:  # others join while the request before is under way
            with self._lock:
                self._next = None
            try:
                sent = self._send(gathering.items, Deadline.after(gathering.remaining_s))
            except BaseException as failure:
                gathering.sent.set_exception(failure)
            else:
                gathering.sent.set_result(sent)
                wait(sent.values(), _GATHER_S)


@contextmanager
def translated(what: str, *needed: Right) -> Iterator[None]:
    """Translates errors of librdkafka, which then name the request and the rights that it needs."""
    try:
        yield
    except KafkaException as failure:
        raise translate(failure, what, *needed) from failure
    except FutureTimeoutError as late:
        raise errors.DeadlineExceeded(f"{what}: no answer in time") from late
