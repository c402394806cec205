"""A poll wake ends a consumer's wait for records from another thread.

librdkafka has the call (`rd_kafka_queue_yield`), and confluent-kafka does not offer it. So this module loads librdkafka
through confluent-kafka's extension module. The pointer to librdkafka's client is the first field of a consumer object;
it is used only in tested versions, and only if librdkafka returns the object for it.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from importlib import metadata
from typing import Final

from confluent_kafka import Consumer, cimpl

_TESTED: Final = ("2.16.",)
"""Versions of confluent-kafka. With any other one a wait ends by records or its time limit."""


class PollWake:
    """The wake of one consumer, which ends `Consumer.consume`: `Consumer.poll` waits in parts of 200 ms, and continues
    after each. A wake before the wait ends the next one at once. Thread-safe."""

    def __init__(self, handle: Consumer) -> None:
        self._lock = threading.Lock()
        self._queue = _queue_of(handle)

    @property
    def works(self) -> bool:
        """Whether `wake` has an effect in this version of confluent-kafka, until `close`."""
        return self._queue is not None

    def wake(self) -> None:
        with self._lock:
            library = _library()
            if self._queue is not None and library is not None:
                library.rd_kafka_queue_yield(self._queue)

    def close(self) -> None:
        """Release librdkafka's queue: call it before the consumer's `close`. Later wakes do nothing."""
        with self._lock:
            library, queue = _library(), self._queue
            self._queue = None
            if queue is not None and library is not None:
                library.rd_kafka_queue_destroy(queue)


@cache
def _library() -> ctypes.CDLL | None:
    if not metadata.version("confluent-kafka").startswith(_TESTED):
        return None
    library = ctypes.CDLL(cimpl.__file__)
    try:
        for function, result in (
            (library.rd_kafka_opaque, ctypes.c_void_p),
            (library.rd_kafka_queue_get_consumer, ctypes.c_void_p),
            (library.rd_kafka_queue_yield, None),
            (library.rd_kafka_queue_destroy, None),
        ):
            function.argtypes, function.restype = [ctypes.c_void_p], result
    except AttributeError:  # an extension module that hides librdkafka's functions
        return None
    return library


def _queue_of(handle: Consumer) -> int | None:
    library = _library()
    if library is None:
        return None
    client = ctypes.c_void_p.from_address(id(handle) + object.__basicsize__).value
    if client is None or library.rd_kafka_opaque(client) != id(handle):
        return None
    queue: int | None = library.rd_kafka_queue_get_consumer(client)
    return queue
