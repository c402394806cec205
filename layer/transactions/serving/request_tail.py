"""Requests of other processes to the coordinators that this process serves: one thread reads them as they come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.assigned import AssignedReader
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_REQUESTS
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.tail import PartitionTail

_MOST_WAITING: Final = 10_000


class RequestTail:
    """Thread-safe. Memory: up to 10,000 requests for each coordinator, and what `PartitionTail` says."""

    def __init__(self, log: StateLog, reader: AssignedReader) -> None:
        self._lock = threading.Lock()
        self._feeds: dict[int, TailedRequests] = {}
        self._tail = PartitionTail(
            log, TRANSACTION_REQUESTS, reader, self._wanted, self._hand_on, name="pok-transaction-requests",
            without="this process does not hear other processes' wishes to begin and end transactions",
        )  # fmt: skip

    def feed(self, coordinator: int) -> TailedRequests:
        return TailedRequests(self, TRANSACTION_REQUESTS.partition_of_coordinator(coordinator))

    def close(self, deadline: Deadline) -> None:
        """End the thread; a second call does nothing."""
        self._tail.close(deadline)

    # Of feeds -----------------------------------------------------------------------------------------------------

    def listen(self, partition: int, feed: TailedRequests) -> None:
        with self._lock:
            self._feeds[partition] = feed
        self._tail.look()

    def unlisten(self, partition: int, feed: TailedRequests) -> None:
        """Unless another one listens there by now."""
        with self._lock:
            if self._feeds.get(partition) is feed:
                del self._feeds[partition]
        self._tail.look()

    # The tail's thread --------------------------------------------------------------------------------------------

    def _wanted(self) -> set[int]:
        with self._lock:
            return set(self._feeds)

    def _hand_on(self, records: Sequence[tuple[int, LogRecord]]) -> None:
        by_partition: dict[int, list[LogRecord]] = {}
        for partition, record in records:
            by_partition.setdefault(partition, []).append(record)
        for partition, those in by_partition.items():
            with self._lock:
                feed = self._feeds.get(partition)
            if feed is not None:
                feed.put(those)


class TailedRequests:
    """Implements `RequestFeed` for one coordinator: `take` asks Kafka nothing, and `wake` is called when there is
    something to take. Of more than 10,000 that wait the oldest are dropped: who is not answered asks again."""

    def __init__(self, tail: RequestTail, partition: int) -> None:
        self._tail = tail
        self._partition = partition
        self._heard: deque[LogRecord] = deque(maxlen=_MOST_WAITING)
        self._listens = False
        self.wake: Callable[[], None] = _nobody

    def take(self) -> list[LogRecord]:
        if not self._listens:
            self._listens = True
            self._tail.listen(self._partition, self)
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def rest(self) -> None:
        if self._listens:
            self._listens = False
            self._tail.unlisten(self._partition, self)
            self._heard.clear()

    def put(self, records: Sequence[LogRecord]) -> None:
        """For the tail's thread."""
        self._heard.extend(records)
        self.wake()


def _nobody() -> None:
    """No coordinator is there yet."""
