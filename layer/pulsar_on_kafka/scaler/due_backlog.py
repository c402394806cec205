"""Counts the backlog of subscriptions without delayed messages that are not yet due.

Kafka has no index of delivery times, so the messages of such a subscription are read once, from the oldest
unacknowledged one on. What was not read yet counts as due: too many workers are better than too few.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Final

from pulsar_on_kafka.admin import AdminClient, PartitionCursor
from pulsar_on_kafka.admin.overview.records import SubscriptionPlace
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, LayerError
from pulsar_on_kafka.base.worker import QueueWorker
from pulsar_on_kafka.broker.subscriptions.partition.delayed import deliver_at_ms
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka.scaler.delayed_offsets import DelayedOffsets
from pulsar_on_kafka_mapping.names.topic_name import TopicName

MAX_DELAYED: Final = 1_000_000
"""Delayed messages of all subscriptions together that are known; more count as due."""
_FORGOTTEN_S: Final = 600.0
"""A subscription without a request for so long is forgotten."""
_READ_S: Final = 3.0
_QUEUE_KBYTES: Final = 4096


class _Followed:
    """One subscription: its partitions, and the last count with the end of its validity."""

    def __init__(self) -> None:
        self.partitions: dict[int, DelayedOffsets] = {}
        self.counted: tuple[int, float] | None = None
        self.requested_s = time.monotonic()
        self.next: Future[int] | None = None

    def known(self) -> int:
        return sum(len(each) for each in self.partitions.values())


class DueBacklogs:
    """The counts. Thread-safe; one thread counts one subscription after the other.

    Memory: `MAX_DELAYED` messages, see `DelayedOffsets`; the cursors of one subscription; and one fetch queue.
    """

    def __init__(self, admin: AdminClient, interval_s: float) -> None:
        """A count is at most `interval_s` old. `admin` stays the caller's."""
        self._admin = admin
        self._interval_s = interval_s
        self._lock = Lock()
        self._followed: dict[SubscriptionPlace, _Followed] = {}
        self._reader: RangeReader | None = None
        self._worker: QueueWorker[SubscriptionPlace] = QueueWorker(
            "pok-scaler-delayed", self._count_all, last=self._release
        )

    def request(self, topic: str, subscription: str) -> Future[int]:
        """The unacknowledged entries of a Shared or Key_Shared subscription that are due. The caller must not cancel
        the result. The result raises LayerError."""
        place = topic, subscription
        with self._lock:
            followed = self._followed.setdefault(place, _Followed())
            followed.requested_s = time.monotonic()
            if followed.counted is not None and followed.requested_s < followed.counted[1]:
                answer: Future[int] = Future()
                answer.set_result(followed.counted[0])
                return answer
            if followed.next is not None:
                return followed.next
            requested: Future[int] = Future()
            followed.next = requested
        if not self._worker.put([place]):
            self._settled(place, None).set_exception(ConnectFailed("it is stopping"))
        return requested

    def close(self, deadline: Deadline) -> None:
        """A second call does nothing."""
        self._worker.close(deadline)

    def _count_all(self, places: Sequence[SubscriptionPlace]) -> None:
        self._forget()
        for place in places:
            until_s = time.monotonic() + self._interval_s
            try:
                counted = self._count(*place)
            except Exception as failure:  # its callers get it
                known = isinstance(failure, LayerError)
                told = failure if known else ConnectFailed(str(failure) or type(failure).__name__)
                self._settled(place, None).set_exception(told)
            else:
                self._settled(place, (counted, until_s)).set_result(counted)

    def _settled(self, place: SubscriptionPlace, counted: tuple[int, float] | None) -> Future[int]:
        with self._lock:
            followed = self._followed[place]
            followed.counted = counted
            answer, followed.next = followed.next, None
        assert answer is not None  # noqa: S101 - a count has one request
        return answer

    def _count(self, topic: str, subscription: str) -> int:
        cursors = self._admin.subscription_cursors(topic, subscription)
        followed = self._followed[topic, subscription]
        firsts = {each.partition: max(each.start, each.state.next_unacked) for each in cursors}
        for each in cursors:
            first, known = firsts[each.partition], followed.partitions.get(each.partition)
            if known is None or known.begins_after(first, each.end):
                known = followed.partitions[each.partition] = DelayedOffsets(first)
            known.position = max(known.position, first)
        now_ms = self._admin.node.clock.now_ms()
        found = self._admin.node.topics.find(TopicName.parse(topic), Deadline.after(_READ_S))
        if found is not None:
            self._read_on(found.kafka_topic, cursors, followed, now_ms)
        due = 0
        for each in cursors:
            first = firsts[each.partition]
            unacknowledged = each.state.unacknowledged(first, each.end)
            due += len(unacknowledged) - followed.partitions[each.partition].not_due(unacknowledged, first, now_ms)
        return due

    def _read_on(self, kafka_topic: str, cursors: Sequence[PartitionCursor], followed: _Followed, now_ms: int) -> None:
        """Reads up to the ends that the cursors name, as far as there is time."""
        with self._lock:
            room = MAX_DELAYED - sum(each.known() for each in self._followed.values())
        parts = [followed.partitions[each.partition] for each in cursors]
        ranges = [
            OffsetRange(kafka_topic, each.partition, part.position, each.end)
            for each, part in zip(cursors, parts, strict=True)
        ]

        def take(number: int, records: list[KafkaRecord]) -> None:
            nonlocal room
            for record in records:
                due_ms = deliver_at_ms(headers_of(record))
                if due_ms > now_ms and room > 0:
                    parts[number].add(record.offset(), due_ms)
                    room -= 1
                parts[number].position = record.offset() + 1

        if all(each.start >= each.end for each in ranges):
            return
        if self._reader is None:
            self._reader = RangeReader(self._admin.node.settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES))
        failed = self._reader.read(ranges, take, Deadline.after(_READ_S))
        for number, each in enumerate(ranges):
            if number not in failed:
                parts[number].position = max(parts[number].position, each.end)

    def _forget(self) -> None:
        oldest_s = time.monotonic() - _FORGOTTEN_S
        with self._lock:
            self._followed = {
                place: each
                for place, each in self._followed.items()
                if each.requested_s >= oldest_s or each.next is not None
            }

    def _release(self) -> None:
        if self._reader is not None:
            self._reader.close()
