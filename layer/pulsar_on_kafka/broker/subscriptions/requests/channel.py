"""The delivery channel reads and writes records of `deliveries`; one thread of the node reads them (`PartitionTail`).

It reads only the partitions of topics with a listener. A listener misses older records, so callers resend requests.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.tail import PartitionTail
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    ConsumersReport,
    CursorReply,
    CursorTransactionRequest,
    Request,
    decode,
)
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey, decode_key, encode_key
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES

_log = logging.getLogger(__name__)

OutgoingRecord = tuple[DeliveryKey, bytes]
"""A record to be written."""


class DeliveryRecord(NamedTuple):
    """A record at its offset in its partition of `deliveries`."""

    offset: int
    key: DeliveryKey
    value: bytes


Listener = Callable[[Sequence[DeliveryRecord]], None]
"""Called by the channel's thread with a topic's records, in the order of the log. Returns at once."""
Patience = Callable[[], bool]
"""True if a listener's records can wait for a moment; called by the channel's thread."""

REST_S: Final = 0.03


def never() -> bool:
    """The patience of a listener that waits for a reply."""
    return False


class DeliveryChannel:
    """Thread-safe. Memory: an entry for each listener, and that of `PartitionTail`.

    While all listeners are patient, it fetches about thirty times a second. With hundreds of processes, fetching every
    record at once is most of the load on processes and brokers.
    """

    def __init__(self, log: StateLog, reader: AssignedReader) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._listeners: dict[str, dict[Listener, Patience]] = {}
        self._topics: Counter[int] = Counter()
        """The number of topics with listeners, by their partition of `deliveries`; no partition has 0."""
        self._tail = PartitionTail(
            log, DELIVERIES, reader, self._required_partitions, self._hand_on, name="pok-deliveries",
            without="other processes cannot seek, skip or delete by force this one's live subscriptions",
            rest_s=self._rest_s,
        )  # fmt: skip
        self._closed = False
        self.corrupt_records = 0
        """Records that could not be read and were skipped."""
        self.written_records = 0
        self.writes = 0
        """Appends of these records."""
        self._counting = threading.Lock()

    # Any thread ---------------------------------------------------------------------------------------------------

    def listen(self, topic: str, listener: Listener, start: int | None = None, *, patience: Patience = never) -> None:
        """Pass a topic's records to `listener` from now on. If the topic's partition is not being read, reading begins
        at `start`."""
        partition = DELIVERIES.partition_for(topic)
        with self._lock:
            if self._closed:
                return
            if topic not in self._listeners:
                self._listeners[topic] = {}
                self._topics[partition] += 1
            self._listeners[topic][listener] = patience
        self._tail.look(partition, start)

    def unlisten(self, topic: str, listener: Listener) -> None:
        """Stop passing records; a call under way may still end after this. A second call does nothing."""
        with self._lock:
            listeners = self._listeners.get(topic, {})
            listeners.pop(listener, None)
            if not listeners and self._listeners.pop(topic, None) is not None:
                partition = DELIVERIES.partition_for(topic)
                self._topics[partition] -= 1
                if not self._topics[partition]:
                    del self._topics[partition]
        self._tail.look()

    def read_from(self, topic: str, start: int) -> None:
        """Read a topic's records from `start` on, if its partition is not being read already."""
        self._tail.look(DELIVERIES.partition_for(topic), start)

    def start(self, topic: str, deadline: Deadline) -> int:
        """The first retained offset of the topic's partition. Raises StoreError."""
        return self._log.start_offset(DELIVERIES, DELIVERIES.partition_for(topic), deadline)

    def end(self, topic: str, deadline: Deadline) -> int:
        """The end offset of the topic's partition. Raises StoreError."""
        return self._log.end_offset(DELIVERIES, DELIVERIES.partition_for(topic), deadline)

    def written(self, topic: str, start: int, end: int, deadline: Deadline) -> Iterator[DeliveryRecord]:
        """A topic's records in [start, end) of its partition, without deleted ones. Raises StoreError."""
        partition = DELIVERIES.partition_for(topic)
        start = max(start, self._log.start_offset(DELIVERIES, partition, deadline))
        for batch in self._log.read(DELIVERIES, partition, start, end, deadline):
            for record in batch:
                found = self._about(partition, record)
                if found is not None and found.key.topic == topic:
                    yield found

    def write(self, records: Sequence[OutgoingRecord], deadline: Deadline) -> list[int]:
        """Append records of one topic; returns their offsets when they are durable. Raises StoreError."""
        partition = DELIVERIES.partition_for(records[0][0].topic)
        with self._counting:
            self.writes += 1
            self.written_records += len(records)
        return self._log.append_many(
            DELIVERIES, partition, [(encode_key(key), value) for key, value in records], deadline
        )

    @contextmanager
    def listening(self, topic: str, listener: Listener, deadline: Deadline) -> Iterator[None]:
        """Listen to records from now on, while the block runs. Raises StoreError."""
        self.listen(topic, listener, self.end(topic, deadline))
        try:
            yield
        finally:
            self.unlisten(topic, listener)

    def decoded(
        self, records: Sequence[DeliveryRecord], subscription: str | None = None
    ) -> Iterator[tuple[DeliveryKey, Request | CursorTransactionRequest | CursorReply | ConsumersReport]]:
        """The requests and replies of a subscription (None: of any) among these records. For listeners."""
        for _, key, value in records:
            try:
                found = decode(value) if subscription in (None, key.subscription) else None
            except CorruptRecord as reason:
                self.skipped(key, reason)
                continue
            if found is not None:
                yield key, found

    def skipped(self, key: DeliveryKey, reason: CorruptRecord) -> None:
        """Count and log an unreadable value. For listeners."""
        self.corrupt_records += 1
        _log.warning("topic=%s subscription=%s skipped a record: %s", key.topic, key.subscription, reason)

    def close(self, deadline: Deadline) -> None:
        """End the thread; a second call does nothing."""
        with self._lock:
            self._closed = True
            self._listeners.clear()
            self._topics.clear()
        self._tail.close(deadline)

    # The tail's thread --------------------------------------------------------------------------------------------

    def _required_partitions(self) -> set[int]:
        with self._lock:
            return set(self._topics)

    def _rest_s(self) -> float:
        with self._lock:
            every = list(self._listeners.values())
        patient = (each() for listeners in every for each in list(listeners.values()))
        return REST_S if all(patient) else 0.0

    def _hand_on(self, records: Sequence[tuple[int, LogRecord]]) -> None:
        by_topic: dict[str, list[DeliveryRecord]] = {}
        for partition, record in records:
            found = self._about(partition, record)
            if found is not None:
                by_topic.setdefault(found.key.topic, []).append(found)
        for topic, received in by_topic.items():
            with self._lock:
                listeners = list(self._listeners.get(topic, ()))
            for listener in listeners:
                try:
                    listener(received)
                except Exception:  # the other listeners still receive the records
                    self.corrupt_records += 1
                    _log.exception("topic=%s a listener failed on %d records", topic, len(received))

    def _about(self, partition: int, record: LogRecord) -> DeliveryRecord | None:
        try:
            key = decode_key(record.key)
        except CorruptRecord as reason:
            self.corrupt_records += 1
            _log.warning(
                "%s-%d offset %d skipped: %s", self._log.kafka_name(DELIVERIES), partition, record.offset, reason
            )
            return None
        if isinstance(key, DeliveryKey) and record.value is not None:
            return DeliveryRecord(record.offset, key, record.value)
        return None
