"""Durable delivery counts for the partitions of a member: their guards, from take-over to giving up, and the way to a
dead letter topic.

All of it runs in the member's thread, but for the answer of a dead letter that could not be stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.subscriptions.dispatching.negative_acks import NegativeAcks
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard, Departure
from pulsar_on_kafka.broker.subscriptions.partition.isolation import ProcessLoad
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, Endpoint, PartitionConsumer
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries

_log = logging.getLogger(__name__)

_MAX_DEAD_LETTERS: Final = 1000
_DEAD_LETTER_RETRY_INTERVAL_S: Final = 1.0
_SUSPECTS_INTERVAL_S: Final = 0.001
"""Suspects wait for each other: for a save, then an acknowledgement."""
_HELD_SUSPECTS_INTERVAL_S: Final = 0.01
"""No save is awaited, and the consumers have held their messages for long, or have no room."""
_END_RETRY_INTERVAL_S: Final = 10.0
"""Between two requests for a log's end; the member waits for each reply."""
_SETTLED_SOON_S: Final = 1.0
"""After so long, messages count as held for long."""


class DeadLettering:
    """Sends messages above the redelivery limit to a dead letter topic. At most 1,000 dead letters are in flight;
    others wait among the redeliveries."""

    def __init__(self, clock: Clock, endpoints: Sequence[Endpoint]) -> None:
        self._clock = clock
        self._endpoints = endpoints
        self._under_way = Endpoint("dead letters", 0, delivery_type=Delivery)
        """Holds the messages that are in flight."""

    def divert(self, owned: OwnedPartition, offsets: list[int], records: Mapping[int, Any]) -> list[int]:
        """Send messages above the redelivery limit to the dead letter topic; returns the others.

        The first consumer of this process with a dead letter policy sends all dead letters, which keeps their order.
        Without such a consumer none is sent here; consumers of other processes dead-letter their leased messages.
        """
        consumer = self._dead_letterer()
        if consumer is None or consumer.dead_letters is None:
            return offsets
        letters_to, topic_name = consumer.dead_letters, owned.slot.topic_name
        most = letters_to.max_redeliver_count
        guard = owned.guard
        if guard is None:
            dead = [offset for offset in offsets if owned.redeliveries.count(offset) > most]
        else:
            dead = [offset for offset in offsets if guard.next_delivery(offset) > most + 1]
        dead = [offset for offset in dead if not letters_to.take_refused(topic_name, offset)]
        if not dead:
            return offsets
        if guard is not None:
            guard.survived(dead)
        room = max(0, _MAX_DEAD_LETTERS - self._under_way.unacked)
        now = owned.entries.fitting(dead, room) if room else 0
        owned.redeliveries.put_back(dead[now:])
        bodies = [records[offset] for offset in dead[:now]]
        letters = owned.hand_out(dead[:now], bodies, consumer.feed(owned.slot), self._under_way.feed(owned.slot))
        consumer.dead_letters.publish_dead_letters(letters, self._not_stored)
        gone = set(dead)
        return [offset for offset in offsets if offset not in gone]

    def max_redeliver_count(self) -> int | None:
        """The limit of the policy in use: this process's, or the highest of other processes' consumers. None without a
        policy."""
        consumer = self._dead_letterer()
        if consumer is not None and consumer.dead_letters is not None:
            return consumer.dead_letters.max_redeliver_count
        elsewhere = (e.max_redeliver_count for e in self._endpoints if isinstance(e, RemoteEndpoint))
        return max((most for most in elsewhere if most is not None), default=None)

    def has(self, feed: PartitionConsumer) -> bool:
        """The consumer's messages are on their way to the dead letter topic."""
        return feed.endpoint is self._under_way

    def _dead_letterer(self) -> Endpoint | None:
        return next((e for e in self._endpoints if e.dead_letters is not None and not e.closed), None)

    def _not_stored(self, letter: Delivery) -> None:
        """Retry a dead letter that could not be stored, after a second. Any thread."""
        slot = letter.feed.slot
        slot.nacks.append((self._clock.monotonic(), _DEAD_LETTER_RETRY_INTERVAL_S, letter.offset, self._under_way))
        slot.wake()


class DeliveryCounting:
    """Counts deliveries durably. Without a dead letter policy only the messages that the application received are
    saved.

    `log_end` returns a log's end from Kafka, or raises StoreError.
    """

    def __init__(
        self,
        clock: Clock,
        owned: Mapping[int, OwnedPartition],
        endpoints: Sequence[Endpoint],
        nacks: NegativeAcks,
        dead_lettering: DeadLettering,
        log_end: Callable[[int], int],
        *,
        by_slot: bool,
    ) -> None:
        """`by_slot`: messages wait for earlier ones of their hash slot (Key_Shared)."""
        self._by_slot = by_slot
        self._clock = clock
        self._owned = owned
        self._endpoints = endpoints
        self._nacks = nacks
        self._dead_lettering = dead_lettering
        self._log_end = log_end
        self._without_end: dict[int, float] = {}
        """Partitions whose log's end was unknown at their take-over, and the time of the next request for it."""

    def requires_save(self) -> bool:
        return any(owned.guard is not None and owned.guard.requires_save for owned in self._owned.values())

    @property
    def has_guards(self) -> bool:
        """Deliveries of some partition are counted durably."""
        return any(owned.guard is not None for owned in self._owned.values())

    @property
    def has_suspects(self) -> bool:
        return any(owned.guard is not None and owned.guard.suspects for owned in self._owned.values())

    def poll_limit(self, since_handed_s: float) -> float:
        """The time in seconds until the member looks again, `since_handed_s` after the last delivery."""
        if not self.has_suspects:
            return inf
        soon = since_handed_s < _SETTLED_SOON_S or self.requires_save()
        return _SUSPECTS_INTERVAL_S if soon else _HELD_SUSPECTS_INTERVAL_S

    def begin(self, owned: OwnedPartition) -> None:
        """Count this partition's deliveries if some consumer has a dead letter policy, or a former owner counted.

        The former owner's counts are known before the first read, so they are right if the policy comes later.
        """
        if owned.guard is not None:
            return
        owned.saves.includes_counts = True
        redeliveries, saved = owned.redeliveries, owned.cursor.deliveries
        seen = BitMap64()
        if saved is not None and saved.only_seen:
            seen, saved = self._take_seen(owned, saved), None
        if saved is not None and not saved.matter_from(owned.next_unacked):
            saved = None
        if saved is None and self._dead_lettering.max_redeliver_count() is None:
            return
        number = owned.number
        guard = DeliveryGuard(
            owned.read_position,
            lambda: self._put_off(number),
            lambda: {} if owned.keys is None else owned.keys.floors(),
        )
        if saved is None:
            kept = BitMap64() if owned.keys is None else owned.keys.offsets_waiting()
            guard.adopt(redeliveries.counts, kept - BitMap64(redeliveries.counts))
            guard.departed(seen, Departure.CLOSED)  # no consumer holds them under this owner
        else:
            floors = saved.floors if self._by_slot else None
            end = self._end_of_log(owned, saved)
            again = guard.recover(saved, saved.limit if end is None else min(saved.limit, end), owned.cursor, floors)
            if end is not None:
                again -= guard.ends_at(end)
            redeliveries.waiting.update(again)
            owned.intake.passed_over.update(again)
            for (_, count), offsets in saved.counts.items():
                if count:
                    redeliveries.recover(dict.fromkeys(offsets, count))
            self._put_off_again(owned, saved.put_off)
            guard.survived(owned.held.among(again))
        owned.count_deliveries(guard)
        owned.chunks.in_order = False  # some are redelivered, others read

    def report_suspects(self) -> None:
        """Log that suspects slow a partition down, and the end of that."""
        for owned in self._owned.values():
            guard = owned.guard
            if guard is None or owned.quiet:  # quiet: members may still report that they hold them
                continue
            if self._without_end.get(owned.number, inf) <= self._clock.monotonic():
                self._forget_beyond_end(owned, guard)
            if guard.suspects and not guard.reported:
                _log.warning(
                    "cursor=%s %d messages are delivered alone, or in small windows, because their consumer died",
                    owned.identity, guard.suspects,
                )  # fmt: skip
            elif guard.reported and not guard.suspects:
                _log.info("cursor=%s all messages of consumers that died were delivered", owned.identity)
            guard.reported = bool(guard.suspects)

    def end_where_over(self) -> None:
        """Stop counting without a dead letter policy when all counts of former owners are settled."""
        if self._dead_lettering.max_redeliver_count() is not None:
            return
        for owned in self._owned.values():
            if owned.guard is not None and owned.guard.over:
                owned.count_deliveries(None)
                owned.cursor.deliveries = None  # the guard's own: a later policy must not take it for a former owner's

    def admit(
        self, owned: OwnedPartition, lowest: list[int], place: ProcessLoad | None = None, *, in_order: bool = True
    ) -> list[int]:
        """The entries that may be redelivered now (`DeliveryGuard.admit`), in order; all of them without a guard.
        `place`: the process to receive them."""
        if owned.guard is None or not (lowest or place):
            return lowest
        return owned.guard.admit(lowest, self._most_deliveries(), place, in_order=in_order)

    def lasts(self, owned: OwnedPartition, offsets: Iterable[int]) -> BitMap64:
        """The suspects among these entries that are delivered alone."""
        return BitMap64() if owned.guard is None else owned.guard.lasts(offsets, self._most_deliveries())

    def _most_deliveries(self) -> int | None:
        most = self._dead_lettering.max_redeliver_count()
        return None if most is None else most + 1

    def nodes(self) -> list[str]:
        """The processes whose consumers get messages, this one first: '' and the others' names."""
        return sorted({endpoint.node for endpoint in self._endpoints if not endpoint.closed})

    def place(self, owned: OwnedPartition, node: str, *, new: bool) -> ProcessLoad:
        """The load of one of these processes, for the partition's guard.

        Suspects are isolated on this process, which sees acknowledgements at once. Other processes report later, and
        isolate only where no consumer of this process has permits. On Key_Shared the key decides. Negatively
        acknowledged entries do not count as out: the application is done with them.
        """
        guard, endpoints = owned.guard, [endpoint for endpoint in self._endpoints if endpoint.node == node]
        out = sum(owned.in_flight.waited_for(endpoint.feed(owned.slot)) for endpoint in endpoints)
        here = any(not endpoint.is_remote and endpoint.shared_permits() > 0 for endpoint in self._endpoints)
        isolates = self._by_slot or not node or not here or guard is None or guard.isolation.is_stalled("")
        return ProcessLoad(node, out, isolates, new, self._clock.monotonic())

    def give_back(self, owned: OwnedPartition, endpoint: Endpoint, how: Departure) -> None:
        """Redeliver a detached consumer's entries. Its negatively acknowledged ones still wait for their delay if
        deliveries are counted durably, with ordered redelivery, or if the consumer is another process's."""
        consumer, put_off = endpoint.feed(owned.slot), None
        if owned.guard is None and not endpoint.is_remote and not endpoint.ordered_redelivery:
            self._nacks.forget_consumer(endpoint, owned.number)
        else:
            put_off = self._nacks.disown(endpoint, owned.number, BitMap64(owned.in_flight.held_by(consumer)))
        owned.give_back(consumer, put_off, how)

    def retire(self, partitions: Iterable[int], *, orderly: bool) -> None:
        """Settle counts before the last save of these partitions. Not `orderly`: the program ends with consumers
        open."""
        for number in partitions:
            owned = self._owned.get(number)
            if owned is None:
                continue
            if owned.guard is None:
                if owned.refused or owned.refused.unplaced:  # its next owner knows refused messages by their counts
                    counts = owned.redeliveries.counts
                    counts.update((offset, counts.get(offset, 0) + 1) for offset in self._nacks.offsets(number))
                owned.saves.request_for_counts()
                continue
            held = BitMap64(o for o, feed in owned.holders.items() if not self._dead_lettering.has(feed))
            held -= self._nacks.offsets(number)
            holders = owned.holders
            elsewhere = BitMap64(o for o in held if owned.stays_out or holders[o].endpoint.is_remote)
            held -= elsewhere
            owned.guard.held_elsewhere(elsewhere)
            again = owned.redeliveries.waiting.copy()
            if owned.keys is not None:
                again |= owned.keys.offsets_waiting()
            waiting = BitMap64()
            if not owned.stays_out:
                for endpoint in [each for each in self._endpoints if not each.is_remote]:
                    waiting |= owned.in_flight.not_received(endpoint.discard(owned.slot), owned.chunks.known) & held
            held -= waiting
            if orderly:
                owned.guard.retire(waiting, held | again, owned.cursor)
            else:
                owned.guard.retire(waiting, again, owned.cursor, received=held)

    def _take_seen(self, owned: OwnedPartition, saved: Deliveries) -> BitMap64:
        """Take the counts of messages that a former owner's application received, unless a report contained newer
        ones."""
        owned.cursor.deliveries = None  # once: later they are what `owned` knows
        taken, counts = BitMap64(), owned.redeliveries.counts
        for (_, count), offsets in saved.counts.items():
            for offset in offsets:
                if not owned.is_acknowledged(offset) and offset not in counts:
                    counts[offset] = count
                    taken.add(offset)
        return taken - BitMap64(owned.holders)

    def _end_of_log(self, owned: OwnedPartition, saved: Deliveries) -> int | None:
        """The log's end, which limits what a former owner delivered; None if nothing depends on it, or if Kafka does
        not reply."""
        self._without_end.pop(owned.number, None)
        if max(saved.limit - 1, max(saved.suspects, default=-1)) < owned.next_unacked:
            return None
        try:
            return self._log_end(owned.number)
        except errors.StoreError:
            self._without_end[owned.number] = self._clock.monotonic()
            return None

    def _forget_beyond_end(self, owned: OwnedPartition, guard: DeliveryGuard) -> None:
        """Forget suspects that were never written: each attempt to read them would wait for records."""
        try:
            end = self._log_end(owned.number)
        except errors.StoreError:
            self._without_end[owned.number] = self._clock.monotonic() + _END_RETRY_INTERVAL_S
            return
        del self._without_end[owned.number]
        beyond = guard.ends_at(end)
        owned.redeliveries.taken(beyond)
        owned.intake.passed_over.difference_update(beyond)

    def _put_off_again(self, owned: OwnedPartition, put_off: Mapping[int, BitMap64]) -> None:
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        for due_ms, offsets in put_off.items():
            owned.intake.passed_over.update(offsets)
            owned.refused.unplaced.update(offsets)
            for offset in offsets:
                self._nacks.add(now_s, max(0, due_ms - now_ms) / 1000, owned.number, offset, None)

    def _put_off(self, partition: int) -> Mapping[int, BitMap64]:
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        waiting = self._nacks.waiting(partition)
        return {now_ms + round((due_s - now_s) * 1000): offsets for due_s, offsets in waiting.items()}
