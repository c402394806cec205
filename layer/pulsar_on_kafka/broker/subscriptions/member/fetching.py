"""Reads the owned partitions: fetches records, handles errors, and pauses partitions whose consumers have no room.

All of it runs in the member's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import UnreadableCursor
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.partition.delayed import MAX_DELAYED
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Event, Failed, Gone, OutOfRange, Records

_MAX_BATCH: Final = 1000
"""Records that one step takes, of about 4 MiB at most."""
_GROWTH: Final = 10
_BATCH_BYTES: Final = 4 * 1024 * 1024
_MAX_BUFFERED_BYTES: Final = 16 * 1024 * 1024
_PLENTY_BYTES: Final = 2 * 1024 * 1024
_WATERMARKS_TIMEOUT_S: Final = 2.0
_FENCES_S: Final = 10.0
_RETRY_INTERVAL_S: Final = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Gap:
    """A gap between read position and log: the time of the next look at the log, and the offset that Kafka rejected,
    if any."""

    owned: OwnedPartition
    due_s: float
    refused: int | None


class PartitionReader:
    """The first fetch of an assigned partition waits until a consumer has room.

    Memory: librdkafka's fetch queue, 16 MiB and one batch of about 4 MiB for each partition, and records that wait for
    the end of a transaction (see `ReadCommitted`).

    With a million delayed messages reading stops, until a tenth of them are delivered. Later messages in the log wait,
    too.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        clock: Clock,
        consumer: GroupMembership,
        owned: Mapping[int, OwnedPartition],
        looking: TransactionWaits,
        has_room: Callable[[], bool],
    ) -> None:
        """`has_room`: some consumer has room for messages."""
        self._has_room = has_room
        self._handle = handle
        self._clock = clock
        self._consumer = consumer
        self._owned = owned
        self._looking = looking
        self._paused: set[int] = set()
        self._not_begun: set[int] = set()
        """Paused partitions that were assigned while no consumer had room, and never fetched."""
        self._full_of_delayed = False
        self.affordable = 1
        """The number of records in 4 MiB, by the last batch's average size. The first size is unknown, and librdkafka
        may hold 16 MiB: a batch has at most `_GROWTH` times the records of the one before."""
        self._unreadable: UnreadableCursor | None = None
        self._in_a_gap: dict[int, _Gap] = {}
        """Partitions whose read position Kafka rejected, or whose log may have lost its end."""

    def step(self, events: Sequence[Event]) -> None:
        """Take these events of the membership, and continue where reading had to wait: at gaps, and at the end of
        transactions.

        Raises:
            NoSuchTopic, NotAuthorized, StoreError: a retry does not help.
            UnreadableCursor: a retry does not help for this partition.
        """
        came = self._take(events)
        if self._looking and self._looking.is_due(came):
            self._look_again()
        if self._in_a_gap:
            self._leave_gaps()
        if not self._consumer.notices_deletion:
            self._handle.incarnation.while_idle()

    def next_due(self) -> float:
        """The time of the next look at a gap, at open transactions, or at the topic, on the monotonic clock."""
        due_s = inf if self._consumer.notices_deletion else self._handle.incarnation.due_s
        return min(due_s, self._looking.due_s, *(gap.due_s for gap in self._in_a_gap.values()))

    def _take(self, events: Sequence[Event]) -> int:
        if events and not self._consumer.notices_deletion:
            self._handle.incarnation.before_delivery()
        came = size = 0
        for event in events:
            match event:
                case Records((_, partition), records):
                    came += len(records)
                    size += sum(map(len, records))
                    self._take_records(partition, records)
                case EndOfLog():
                    pass
                case Failed():
                    self._on_failure(event)
        if came:
            affordable = min(_BATCH_BYTES * came // max(1, size), self.affordable * _GROWTH)
            self.affordable = max(1, min(_MAX_BATCH, affordable))
        if self._unreadable is not None:
            reason, self._unreadable = self._unreadable, None
            raise reason
        return came

    def _take_records(self, partition: int, records: list[Any]) -> None:
        owned = self._owned.get(partition)
        if owned is None or owned.quiet or owned.intake.stopped is not None:
            return
        if owned.intake.end_seen or self._sees_end(partition, owned):
            self._accept(partition, owned, list(map(type(records[0]).offset, records)), records)

    def _accept(self, partition: int, owned: OwnedPartition, offsets: list[int], records: list[Any]) -> None:
        intake = owned.intake
        try:
            intake.accept(offsets, records)
        except UnreadableCursor as reason:  # the other partitions' records are read on
            intake.stopped = str(reason)
            self._unreadable = reason
            return
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot tell yet what is acknowledged: %s", owned.identity, failure)
            self._consumer.seek(partition, intake.read_position)
            return
        committed = intake.committed
        if committed.in_use and self._looking.came(partition, committed, self._look_again):
            self._pause([partition])
        if intake.buffer.size_bytes > _MAX_BUFFERED_BYTES:
            self._pause([partition])
        if intake.delayed and self._delayed() >= MAX_DELAYED:
            self._full_of_delayed = True
            self.pause_all()

    def _look_again(self) -> None:
        """Look up transactions that block records."""
        self._looking.look_again({n: c for n, c in self._committed() if c.in_use}, self._release)

    def _release(self, partition: int) -> None:
        try:
            self._owned[partition].intake.release()
        except errors.Corrupt:
            raise
        except errors.StoreError as failure:
            _log.warning("cursor=%s cannot tell yet what is acknowledged: %s", self._owned[partition].identity, failure)

    def put_late_on_record(self) -> None:
        """Write records about messages that came after the end of their transaction."""
        self._looking.put_late_on_record(committed for _, committed in self._committed())

    def has_plenty(self) -> bool:
        """A partition has more read messages than a few inboxes hold; further reading would end in a pause."""
        return any(owned.intake.buffer.size_bytes > _PLENTY_BYTES for owned in self._owned.values())

    def pause_all(self) -> None:
        """Stop fetching. librdkafka discards prefetched records at a pause, so it is not for a short wait."""
        self._pause(self._owned)

    def pause_undelivered(self) -> None:
        """Stop fetching partitions whose messages wait for room; as `pause_all`, not for a short wait."""
        self._pause([number for number, owned in self._owned.items() if owned.buffered])

    def pause_held_back(self) -> None:
        """Stop fetching partitions that a dispatch rate holds back, and that have more read messages than a few inboxes
        hold. So they take no share of the process's fetching and memory from others."""
        self._pause(
            [
                number
                for number, owned in self._owned.items()
                if owned.is_held_back and owned.intake.buffer.size_bytes > _PLENTY_BYTES
            ]
        )

    def _delayed(self) -> int:
        delayed = (owned.intake.delayed for owned in self._owned.values())
        return sum(len(each) for each in delayed if each is not None)

    def _committed(self) -> Iterator[tuple[int, ReadCommitted]]:
        return ((number, owned.intake.committed) for number, owned in self._owned.items())

    def _pause(self, partitions: Iterable[int]) -> None:
        more = [number for number in partitions if number not in self._paused]
        if more:
            self._consumer.pause(more)
            self._paused.update(more)

    def begins(self, partition: int) -> bool:
        """True if an assigned partition is fetched at once; otherwise it waits for a consumer with room."""
        if self._handle.transient or self._has_room():
            return True
        self._paused.add(partition)
        self._not_begun.add(partition)
        return False

    @property
    def awaits_consumer(self) -> bool:
        """Some partition is not fetched, because no consumer has had room since its assignment."""
        return bool(self._not_begun)

    def log_ends(self) -> dict[int, int]:
        """The log's end of each owned partition, from its last fetch. Ends of partitions without a fetch are requested
        from Kafka, in 2 s in all and until a request fails; -1 is unknown."""
        ends = {number: self._consumer.known_end(number) for number in self._owned}
        deadline = Deadline.after(_WATERMARKS_TIMEOUT_S)
        with suppress(errors.StoreError):
            for number in self._not_begun.intersection(number for number, end in ends.items() if end < 0):
                deadline.check("asking for the ends of partitions of which nothing was fetched")
                _, ends[number] = self._consumer.watermarks(number, deadline.remaining_s())
        return ends

    def resume_drained(self) -> None:
        if not self._paused:
            return
        if self._not_begun and self._has_room():
            self._not_begun.clear()
        if self._full_of_delayed:
            if self._delayed() > MAX_DELAYED * 9 // 10:
                return
            self._full_of_delayed = False
        drained = [
            n
            for n in self._paused
            if n not in self._not_begun and n in self._owned and self._owned[n].intake.may_read_on
        ]
        if drained:
            self._paused.difference_update(drained)
            self._consumer.resume(drained)

    def forget(self, partitions: list[int]) -> None:
        self._paused.difference_update(partitions)
        self._not_begun.difference_update(partitions)
        for number in partitions:
            self._in_a_gap.pop(number, None)
            self._looking.forget(number)

    def _on_failure(self, event: Failed) -> None:
        owned = self._owned.get(event.where.partition)
        if isinstance(event, OutOfRange) and owned is not None:
            self._in_a_gap[event.where.partition] = _Gap(owned, self._clock.monotonic(), event.offset)
        elif isinstance(event, Gone):
            raise errors.NoSuchTopic(f"topic {self._handle.topic} is gone: {event.failure}")
        else:
            event.raise_or_log(_log, f"subscription={self._handle}")

    def _sees_end(self, partition: int, owned: OwnedPartition) -> bool:
        """True if the log contains every offset in the cursor; otherwise its ends are looked up."""
        end = self._consumer.known_end(partition)
        if 0 <= end < owned.cursor.known_end():
            self._in_a_gap[partition] = _Gap(owned, self._clock.monotonic(), None)
            return False
        owned.intake.end_seen = end >= 0
        return True

    def _leave_gaps(self) -> None:
        now = self._clock.monotonic()
        for number in [number for number, gap in self._in_a_gap.items() if gap.due_s <= now]:
            gap = self._in_a_gap.pop(number)
            if self._owned.get(number) is not gap.owned:
                continue  # given up or opened again: the first records show its position
            try:
                self._leave_the_gap(gap.owned, gap.refused)
            except errors.StoreError as failure:
                self._in_a_gap[number] = replace(gap, due_s=now + _RETRY_INTERVAL_S)
                _log.warning("cursor=%s cannot find out where its log begins and ends: %s", gap.owned.identity, failure)

    def _leave_the_gap(self, owned: OwnedPartition, refused: int | None) -> None:
        """Handle a read position outside of the log: below the start continue at the start, beyond the end stop.

        The position was also beyond the end if Kafka rejected it (`refused`) and has it now: the log has grown since.
        """
        number = owned.number
        self._handle.incarnation.now(Deadline.after(_WATERMARKS_TIMEOUT_S))
        low, high = self._consumer.watermarks(number, _WATERMARKS_TIMEOUT_S)
        intake = owned.intake
        intake.committed.rewind()
        known = max(intake.read_position, owned.cursor.known_end())
        if known > high or low <= intake.read_position == refused:
            intake.stop(
                f"the cursor knows of offsets up to {known - 1}, but the log ended before that (now at {high}): the "
                "cluster lost data; seek or reset the cursor to go on"
            )
            return
        intake.end_seen = True
        if intake.read_position < low:
            intake.add_fences(self._handle.fences(number, Deadline.after(_FENCES_S)))
            _log.warning(
                "cursor=%s Kafka deleted offsets %d to %d, %d of them unacknowledged", owned.identity,
                intake.read_position, low - 1, owned.deleted_below(low),
            )  # fmt: skip
            intake.skip_to(low)
            owned.passed(low - 1)
        self._consumer.seek(number, intake.read_position)  # fetching ended with the error
