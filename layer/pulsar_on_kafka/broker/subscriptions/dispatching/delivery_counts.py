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
_SUSPECTS_POLL_S: Final = 0.001
"""Suspects wait for one another: a save, then an acknowledgement, neither of which ends a poll. librdkafka's least."""
_HELD_SUSPECTS_POLL_S: Final = 0.01
"""No save is awaited, and the consumers work for long on what they were handed, or take nothing."""
_SETTLED_SOON_S: Final = 1.0
"""What was handed out longer ago is held for long."""


class DeadLettering:
    """Messages that were delivered often enough go to a dead letter topic. At most 1,000 dead letters are under way at
    a time; further ones wait among the redeliveries."""

    def __init__(self, clock: Clock, endpoints: Sequence[Endpoint]) -> None:
        self._clock = clock
        self._endpoints = endpoints
        self._under_way = Endpoint("dead letters", 0, delivery_type=Delivery)
        """Holds the messages that are under way."""

    def divert(self, owned: OwnedPartition, offsets: list[int], records: Mapping[int, Any]) -> list[int]:
        """Send messages that were delivered often enough to the dead letter topic; gives the others.

        The first consumer of this process with a dead letter policy does it for all of them, so that dead letters come
        in order. Without one nobody does it here; other processes' consumers dead-letter what they are leased.
        """
        consumer = self._dead_letterer()
        if consumer is None or consumer.dead_letters is None:
            return offsets
        letters_to, topic_name = consumer.dead_letters, owned.slot.topic_name
        most = letters_to.max_redeliver_count
        guard = owned.guard
        if guard is None:
            dead = [offset for offset in offsets if owned.redeliveries.get(offset, 0) > most]
        else:
            dead = [offset for offset in offsets if guard.next_delivery(offset) > most + 1]
        dead = [offset for offset in dead if not letters_to.take_refused(topic_name, offset)]
        if not dead:
            return offsets
        if guard is not None:
            guard.survived(dead)
        room = max(0, _MAX_DEAD_LETTERS - self._under_way.unacked)
        now = owned.fitting(dead, room) if room else 0
        owned.put_back(dead[now:])
        bodies = [records[offset] for offset in dead[:now]]
        letters = owned.hand_out(dead[:now], bodies, consumer.feed(owned.slot), self._under_way.feed(owned.slot))
        consumer.dead_letters.publish_dead_letters(letters, self._not_stored)
        gone = set(dead)
        return [offset for offset in offsets if offset not in gone]

    def max_redeliver_count(self) -> int | None:
        """Of the policy that counts now; without one here the highest of other processes' consumers. None: there is
        no policy."""
        consumer = self._dead_letterer()
        if consumer is not None and consumer.dead_letters is not None:
            return consumer.dead_letters.max_redeliver_count
        elsewhere = (e.max_redeliver_count for e in self._endpoints if isinstance(e, RemoteEndpoint))
        return max((most for most in elsewhere if most is not None), default=None)

    def has(self, feed: PartitionConsumer) -> bool:
        """What this feed holds is on its way to the dead letter topic."""
        return feed.endpoint is self._under_way

    def _dead_letterer(self) -> Endpoint | None:
        return next((e for e in self._endpoints if e.dead_letters is not None and not e.closed), None)

    def _not_stored(self, letter: Delivery) -> None:
        """A dead letter could not be stored: try again in a second. Any thread."""
        slot = letter.feed.slot
        slot.nacks.append((self._clock.monotonic(), _DEAD_LETTER_RETRY_INTERVAL_S, letter.offset, self._under_way))


class DeliveryCounting:
    """Deliveries are counted durably; where no consumer has a dead letter policy only what the application saw is
    saved.

    `log_end` asks Kafka; it may raise StoreError.
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
        """`by_slot`: messages wait for their keys' turn (Key_Shared)."""
        self._by_slot = by_slot
        self._clock = clock
        self._owned = owned
        self._endpoints = endpoints
        self._nacks = nacks
        self._dead_lettering = dead_lettering
        self._log_end = log_end

    def wants_save(self) -> bool:
        return any(owned.guard is not None and owned.guard.wants_save for owned in self._owned.values())

    def poll_limit(self, since_handed_s: float) -> float:
        """How long the member may wait for records, in seconds, that long after consumers were handed something."""
        if not any(owned.guard is not None and owned.guard.suspects for owned in self._owned.values()):
            return inf
        soon = since_handed_s < _SETTLED_SOON_S or self.wants_save()
        return _SUSPECTS_POLL_S if soon else _HELD_SUSPECTS_POLL_S

    def begin(self, owned: OwnedPartition) -> None:
        """Count this partition's deliveries, if some consumer has a dead letter policy, or a former owner's had one.

        The latter is known before anything is read, so that his counts are right when the policy comes later.
        """
        if owned.guard is not None:
            return
        owned.saves_seen = True
        saved = owned.cursor.deliveries
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
            guard.adopt(owned.redeliveries, kept - BitMap64(owned.redeliveries))
            guard.given_back(seen)  # nobody has them, under this owner
        else:
            floors = saved.floors if self._by_slot else None
            again = guard.recover(saved, self._end_of_deliveries(owned, saved.limit), owned.cursor, floors)
            owned.replay |= again
            owned.pass_over(again)
            for (_, count), offsets in saved.counts.items():
                if count:
                    owned.redeliveries.update(dict.fromkeys(offsets, count))
            self._put_off_again(owned, saved.put_off)
            guard.survived(owned.held.among(again))
        owned.guard = guard
        owned.chunks.in_order = False  # some come by redelivery, others are read

    def tell(self) -> None:
        """Say where messages come slowly because their consumer died, and when that is over."""
        for owned in self._owned.values():
            guard = owned.guard
            if guard is None or owned.quiet:  # quiet: others may still say that they have them
                continue
            if guard.suspects and not guard.told:
                _log.warning(
                    "cursor=%s %d messages are delivered alone, or in small windows, because their consumer died",
                    owned.identity, guard.suspects,
                )  # fmt: skip
            elif guard.told and not guard.suspects:
                _log.info("cursor=%s all messages of consumers that died were delivered", owned.identity)
            guard.told = bool(guard.suspects)

    def end_where_over(self) -> None:
        """Stop counting where no consumer has a dead letter policy and nothing that a former owner counted is left."""
        if self._dead_lettering.max_redeliver_count() is not None:
            return
        for owned in self._owned.values():
            if owned.guard is not None and owned.guard.over:
                owned.guard = None

    def admit(
        self, owned: OwnedPartition, lowest: list[int], place: ProcessLoad | None = None, *, in_order: bool = True
    ) -> list[int]:
        """Of these, in order, the ones that may be delivered again now (`DeliveryGuard.admit`); all of them without a
        guard. `place`: to this process."""
        if owned.guard is None or not (lowest or place):
            return lowest
        return owned.guard.admit(lowest, self._most_deliveries(), place, in_order=in_order)

    def lasts(self, owned: OwnedPartition, offsets: Iterable[int]) -> BitMap64:
        """Of these the suspects that are delivered alone."""
        return BitMap64() if owned.guard is None else owned.guard.lasts(offsets, self._most_deliveries())

    def _most_deliveries(self) -> int | None:
        most = self._dead_lettering.max_redeliver_count()
        return None if most is None else most + 1

    def nodes(self) -> list[str]:
        """The processes whose consumers get messages, this one first: '' and the others' names."""
        return sorted({endpoint.node for endpoint in self._endpoints if not endpoint.closed})

    def place(self, owned: OwnedPartition, node: str, *, new: bool) -> ProcessLoad:
        """One of these, as far as suspects are concerned. Its guard is there.

        Suspects go alone to this process, as it sees their acknowledgements at once; to others, which report them some
        time later, where this one has no consumer that takes any. On Key_Shared the key decides. What was refused is
        not out: its application is done with it, though it waits for its time.
        """
        guard, endpoints = owned.guard, [endpoint for endpoint in self._endpoints if endpoint.node == node]
        out = sum(owned.handed_to(endpoint.feed(owned.slot)) for endpoint in endpoints)
        here = any(not endpoint.is_remote and endpoint.shared_permits() > 0 for endpoint in self._endpoints)
        isolates = self._by_slot or not node or not here or guard is None or guard.is_stalled("")
        return ProcessLoad(node, out, isolates, new, self._clock.monotonic())

    def give_back(self, owned: OwnedPartition, endpoint: Endpoint, how: Departure) -> None:
        """The consumer is gone. What it put off still waits for its time where deliveries are
        counted durably, and where it is another process's, which is not known any more once it holds nothing."""
        put_off = None
        if owned.guard is None and not endpoint.is_remote:
            self._nacks.forget_consumer(endpoint, owned.number)
        else:
            put_off = self._nacks.disown(endpoint, owned.number)
        owned.give_back(endpoint.feed(owned.slot), put_off, how)

    def retire(self, partitions: Iterable[int], *, orderly: bool) -> None:
        """These partitions are given up; not `orderly` when the program ends without having closed its consumers."""
        for number in partitions:
            owned = self._owned.get(number)
            if owned is None:
                continue
            if owned.guard is None:
                owned.tell_seen()
                continue
            held = BitMap64(o for o, feed in owned.holders.items() if not self._dead_lettering.has(feed))
            held -= self._nacks.offsets(number)
            holders = owned.holders
            elsewhere = BitMap64(o for o in held if owned.stays_out or holders[o].endpoint.is_remote)
            held -= elsewhere
            owned.guard.held_elsewhere(elsewhere)
            again = owned.replay.copy()
            if owned.keys is not None:
                again |= owned.keys.offsets_waiting()
            waiting = BitMap64()
            if not owned.stays_out:
                for endpoint in [each for each in self._endpoints if not each.is_remote]:
                    waiting |= owned.not_received(endpoint.discard(owned.slot)) & held
            held -= waiting
            if orderly:
                owned.guard.retire(waiting, held | again, owned.cursor)
            else:
                owned.guard.retire(waiting, again, owned.cursor, received=held)

    def _take_seen(self, owned: OwnedPartition, saved: Deliveries) -> BitMap64:
        """What a former owner's application saw of messages of which nobody has told since."""
        owned.cursor.deliveries = None  # once: later they are what `owned` knows
        taken = BitMap64()
        for (_, count), offsets in saved.counts.items():
            for offset in offsets:
                if not owned.is_acknowledged(offset) and offset not in owned.redeliveries:
                    owned.redeliveries[offset] = count
                    taken.add(offset)
        return taken - BitMap64(owned.holders)

    def _end_of_deliveries(self, owned: OwnedPartition, limit: int) -> int:
        """What was reserved beyond the log's end was not handed out."""
        if limit <= owned.next_unacked:
            return limit
        try:
            return min(limit, self._log_end(owned.number))
        except errors.StoreError:
            return limit

    def _put_off_again(self, owned: OwnedPartition, put_off: Mapping[int, BitMap64]) -> None:
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        for due_ms, offsets in put_off.items():
            owned.pass_over(offsets)
            for offset in offsets:
                self._nacks.add(now_s, max(0, due_ms - now_ms) / 1000, owned.number, offset, None)

    def _put_off(self, partition: int) -> Mapping[int, BitMap64]:
        now_s, now_ms = self._clock.monotonic(), self._clock.now_ms()
        waiting = self._nacks.waiting(partition)
        return {now_ms + round((due_s - now_s) * 1000): offsets for due_s, offsets in waiting.items()}
