"""Reading partitions by offset, outside of any group: for state topics and for records that are wanted again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, NoLeaderNow, NoSuchTopic
from pulsar_on_kafka.base.waiting import pause
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka.kafka.errors import has_no_leader_now, is_no_such_topic, translate
from pulsar_on_kafka.kafka.events import ErrorEvents
from pulsar_on_kafka.kafka.reading.batches import next_batch
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka.kafka.rights import on_topic

_log = logging.getLogger(__name__)

_BATCH: Final = 1000
READ_THROUGH: Final = 2000
"""A gap below so many records is read through."""
_STALE_S: Final = 2.0
_SILENT_S: Final = 5.0
"""Longer, because a new handle first connects: on a busy machine that alone takes a second."""
_JUST_MADE_S: Final = 2.0
_AGAIN_S: Final = 0.02


class Fetcher:
    """Reads ranges of partitions. Used by one thread at a time (callers queue on a lock).

    Memory: one librdkafka fetch queue, bounded by the `queued.max.messages.kbytes` of its configuration.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._handle: Consumer | None = None
        self._closed = False
        self._assigned_to: object | None = None  # which reading the consumer's assignment belongs to
        self._unknown_since_s: dict[str, float] = {}
        """By topic: since when librdkafka does not know a partition that is asked for, or its leader, or is silent."""
        self._lock = threading.RLock()  # reentrant: an abandoned iterator may be finalized in here

    def open(self) -> None:
        """Make the librdkafka handle, which the first reading else does."""
        with self._lock:
            self._consumer()

    def _consumer(self) -> Consumer:
        if self._closed:
            raise Closed("the fetcher is closed")
        if self._handle is None:
            self._handle = Consumer({**self._config, "error_cb": ErrorEvents("fetcher")})
            handles.track(self._handle)
        return self._handle

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        """(log start, high watermark) as the leader says now.

        Brokers, and librdkafka, hear one after the other of a partition that was made just now: one that is not known,
        or has no leader, is asked for again for two seconds.

        Raises:
            NoSuchTopic, NoLeaderNow: so it was for two seconds, or until the deadline. Other StoreErrors at once.
        """
        patience = Deadline.after(min(_JUST_MADE_S, deadline.remaining_s()))
        while True:
            try:
                return self._watermarks(topic, partition, deadline)
            except (NoSuchTopic, NoLeaderNow):
                if patience.passed():
                    raise
            pause(min(_AGAIN_S, patience.remaining_s()))
            self._learn(topic, patience)

    def _learn(self, topic: str, deadline: Deadline) -> None:
        """librdkafka answers for a topic that it knows by what it heard last: have it ask."""
        with self._lock, suppress(KafkaException):  # asking for an offset tells what is wrong
            self._consumer().list_topics(topic, timeout=max(0.001, deadline.remaining_s()))

    def _watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        with self._lock:
            began_s = time.monotonic()
            try:
                low, high = self._consumer().get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=max(0.001, min(deadline.remaining_s(), 3600))
                )
            except KafkaException as failure:
                error = failure.args[0]
                if error.code() == KafkaError._UNKNOWN_PARTITION or has_no_leader_now(error):
                    self._renew_when_stale(topic, began_s, _STALE_S)
                elif error.code() == KafkaError._TIMED_OUT:
                    self._renew_when_stale(topic, began_s, _SILENT_S)
                raise translate(
                    failure, f"asking for the end of {topic}-{partition}", on_topic("Read", topic)
                ) from failure
            self._unknown_since_s.pop(topic, None)
            return low, high

    def _renew_when_stale(self, topic: str, since_s: float, after_s: float) -> None:
        """Go on with another handle once this one has not known a partition of `topic`, or its leader, or not answered,
        for `after_s`. `since_s`: when the call began that heard so.

        What a handle knows of a topic that was made, or grew, while it looked for it may stay as it is until its
        metadata expires (seen with librdkafka 2.16: for more than a minute, while other processes knew better).
        """
        now_s = time.monotonic()
        if now_s - self._unknown_since_s.setdefault(topic, since_s) < after_s:
            return
        self._unknown_since_s.clear()
        if self._handle is not None:
            _log.info("librdkafka does not know %s or its leaders, or does not answer: asking with a new handle", topic)
            self._release()

    def _release(self) -> None:
        if self._handle is not None and handles.is_ours(self._handle):
            self._handle.close()
            handles.release(self._handle)
        self._handle = self._assigned_to = None

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[KafkaRecord]]:
        """Batches of the records in [start, end), in offset order; compacted offsets are simply missing.

        The fetcher is taken for one batch at a time, never while the caller works on one: an iterator that is left
        unfinished blocks nobody, and one that takes turns with others only fetches again what it had prefetched.

        Raises:
            OffsetOutOfRange: `start` lies below the log start.
            DeadlineExceeded: the position did not reach `end` in time.
        """
        position = start
        reading = object()
        began_s = time.monotonic()
        asked = False
        try:
            while position < end:
                if asked and position == start and deadline.passed():  # nothing came at all
                    with self._lock:
                        self._renew_when_stale(topic, began_s, _SILENT_S)
                asked = True
                deadline.check(f"{topic}-{partition} to be read to {end}, now at {position}")
                with self._lock:
                    if self._assigned_to is not reading:
                        self._assigned_to = reading  # first, so that no finalizer takes the assignment away
                        self._consumer().assign([TopicPartition(topic, partition, position)])
                    records, position = self._next(topic, partition, position, end, deadline)
                    if position > start:
                        self._unknown_since_s.pop(topic, None)
                if records:
                    yield records
        finally:
            with self._lock:
                if self._assigned_to is reading:
                    self._assigned_to = None
                    if self._handle is not None and handles.is_ours(self._handle):
                        self._handle.unassign()

    def _next(
        self, topic: str, partition: int, position: int, end: int, deadline: Deadline
    ) -> tuple[list[KafkaRecord], int]:
        """What there is of the assigned partition below `end` (perhaps nothing yet), and the position after it."""
        wanted: list[KafkaRecord] = []
        for record in next_batch(self._consumer(), _BATCH, min(deadline.remaining_s(), 0.5)):
            error = record.error()
            if error is None:
                offset = record.offset()
                position = offset + 1
                if offset < end:
                    wanted.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                position = max(position, record.offset())
            elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                continue  # librdkafka looks for a coordinator that is never used here
            elif is_no_such_topic(error) or error.fatal() or not error.retriable():
                raise translate(error, f"reading {topic}-{partition} at {position}", on_topic("Read", topic))
        return wanted, position

    def read_at(
        self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline
    ) -> Iterator[list[KafkaRecord]]:
        """The records at exactly these offsets, given in ascending order; the missing ones are simply missing.

        Neighbours are read in one go: a gap below 2,000 records is read through, a wider one is jumped over (a jump
        takes as long as 5,000 small records).
        """
        runs: list[tuple[int, int]] = []
        for offset in offsets:
            if runs and offset - runs[-1][1] < READ_THROUGH:
                runs[-1] = (runs[-1][0], offset + 1)
            else:
                runs.append((offset, offset + 1))
        wanted = set(offsets)
        for start, end in runs:
            for batch in self.read(topic, partition, start, end, deadline):
                hits = [record for record in batch if record.offset() in wanted]
                if hits:
                    yield hits

    def offset_at_time(self, topic: str, partition: int, timestamp_ms: int, deadline: Deadline) -> int | None:
        """Offset of the first record whose timestamp is at or above `timestamp_ms`; None when there is none."""
        with self._lock:
            try:
                found = self._consumer().offsets_for_times(
                    [TopicPartition(topic, partition, timestamp_ms)],
                    timeout=max(0.001, min(deadline.remaining_s(), 3600)),
                )[0]
            except KafkaException as failure:
                raise translate(
                    failure, f"looking up {timestamp_ms} ms in {topic}-{partition}", on_topic("Read", topic)
                ) from failure
        if found.error is not None:
            raise translate(
                found.error, f"looking up {timestamp_ms} ms in {topic}-{partition}", on_topic("Read", topic)
            )
        return None if found.offset == OFFSET_END or found.offset < 0 else int(found.offset)

    def close(self) -> None:
        with self._lock:
            self._release()
            self._closed = True
