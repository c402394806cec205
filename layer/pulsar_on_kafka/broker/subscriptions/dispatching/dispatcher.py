"""Hands messages to this process's consumers, takes their acknowledgements, and delivers again.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks, below
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.batch_nacks import BatchRefusals, HeldHere
from pulsar_on_kafka.broker.subscriptions.dispatching.delivery_counts import DeadLettering, DeliveryCounting
from pulsar_on_kafka.broker.subscriptions.dispatching.key_shared import KeyShared
from pulsar_on_kafka.broker.subscriptions.dispatching.negative_acks import NegativeAcks
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import DelayedPrefetch, RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.dispatching.strategy import RoundRobin, active_consumer
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import Departure
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import WaitingFor
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import deliver_again
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly, HeldMessages, Known, joint_rules
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import DEFAULT_MAX_UNACKED, Endpoint
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.kafka.groups.membership import GroupConsumer
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka_mapping.state.cursors.lease_records import Nack

_REPLAY_BATCH: Final = 1000
_LOG_END_TIMEOUT_S: Final = 2.0
MAX_UNACKED_PER_SUBSCRIPTION: Final = 200_000
"""Pulsar's `maxUnackedMessagesPerSubscription`; here of the partitions that this process owns."""


class Dispatcher:
    """`owned` is the owner's own dictionary, seen from here.

    Memory: what NegativeAcks and the endpoints' AckTimeouts say, besides what OwnedPartition and Endpoint hold.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        fetcher: Fetcher,
        clock: Clock,
        consumer: GroupConsumer,
        owned: Mapping[int, OwnedPartition],
        endpoints: list[Endpoint],
    ) -> None:
        self._handle = handle
        self._shared = handle.type.is_shared
        self._fetcher = fetcher
        self._clock = clock
        self._consumer = consumer
        self._owned = owned
        self._endpoints = endpoints
        self._nacks = NegativeAcks()
        self._round_robin = RoundRobin()
        self.looking = TransactionWaits(f"subscription={handle}", handle.buffer, clock)
        self._read_again = RedeliveryReads(handle.kafka_topic, fetcher, self.looking, handle.incarnation)
        self._reading_ahead = DelayedPrefetch(handle.kafka_topic, fetcher, clock)
        self._dead_lettering = DeadLettering(clock, endpoints)
        key_shared = handle.type is SubscriptionType.KEY_SHARED
        self.counting = DeliveryCounting(
            clock, owned, endpoints, self._nacks, self._dead_lettering, self.log_end, by_slot=key_shared
        )
        self._keys = (
            KeyShared(clock, self._read_again, self._dead_lettering, self.counting, owned, endpoints)
            if key_shared
            else None
        )
        self._blocked = False
        self.late_elsewhere: Callable[[int, BitMap64, Endpoint], None] = lambda partition, offsets, endpoint: None
        """Told of messages of other processes' partitions that were not acknowledged in time."""
        self.held_elsewhere: Callable[[int], HeldHere | None] = lambda partition: None
        """What this process's consumers hold of another process's partition."""
        self.refusals = BatchRefusals(handle.kafka_topic, fetcher, clock, self._held, self._redeliver_late)
        self.came_again: Callable[[int], None] = lambda partition: None
        """Told of partitions whose messages come again, whoever has them."""

    # What there is to do ------------------------------------------------------------------------------------------

    @property
    def replay_failed(self) -> bool:
        """Messages wait to be read again, and that did not work just now."""
        return self._read_again.failed

    def has_undelivered(self) -> bool:
        """There are messages, and no reason to read more before some of them went out."""
        if self._keys is not None:
            return self._keys.is_stuck()
        return any(owned.waits_for_room() for owned in self._owned.values())

    def waiting(self, owned: OwnedPartition) -> tuple[WaitingFor, ...]:
        """Which consumers messages of a partition wait for (Key_Shared)."""
        return () if self._keys is None else self._keys.waiting(owned)

    def next_due(self) -> float | None:
        """When, on the monotonic clock, the next delayed message or redelivery is due."""
        if self._reading_ahead.under_way:
            return self._clock.monotonic()
        times = [e.ack_timeouts.next_due() for e in self._endpoints if e.ack_timeouts]
        times += [self._nacks.next_due(), self.refusals.next_due()]
        for owned in self._owned.values():
            if owned.delayed:
                times.append(self._next_delayed(owned.delayed))
        return min((time for time in times if time is not None), default=None)

    def _next_delayed(self, delayed: DelayedMessages) -> float | None:
        now_s, due_ms = self._clock.monotonic(), delayed.next_due_ms()
        if delayed.has_due:
            return now_s
        return None if due_ms is None else now_s + (due_ms - self._clock.now_ms()) / 1000

    def takes_any(self) -> bool:
        """Some inbox is half empty or better and has messages waiting here for it."""
        if self._keys is not None:
            return self._keys.takes_any()
        if self._shared:
            return any(e.has_room_again() and e.shared_permits() > 0 for e in self._endpoints)
        return any(
            owned.buffered
            and owned.active is not None
            and owned.active.endpoint.has_room_again()
            and owned.active.endpoint.permits() > 0
            for owned in self._owned.values()
        )

    def other_partition_flows(self) -> bool:
        """Some consumer has room while the messages at hand are for another one (Failover inside a process)."""
        return not self._shared and any(
            owned.active is not None and not owned.buffered and owned.active.endpoint.permits() > 0
            for owned in self._owned.values()
        )

    # Dispatch -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> bool:
        """Hand out what inboxes take; True when anything was."""
        if not self._endpoints:
            return False
        if self._keys is not None:
            return self._keys.dispatch(only_again=self._too_many_unacked())
        if self._shared:
            return self._dispatch_shared()
        handed = False
        for owned in self._owned.values():
            if owned.buffered and owned.active is not None and not owned.quiet:
                handed = self._dispatch_to_active(owned) or handed
        return handed

    def _dispatch_to_active(self, owned: OwnedPartition) -> bool:
        feed = owned.active
        assert feed is not None  # noqa: S101 - the caller looked
        handed = False
        while owned.buffered and (permits := feed.endpoint.permits()) > 0:
            offsets, records = owned.take(permits)
            if not offsets:
                break
            if offsets[0] < owned.kept_upto:  # as what a transaction held and does not hold any more: its turn is over
                self._rewind(owned)
                break
            owned.deliver(feed, offsets, records, hold=False)
            handed = True
        return handed

    def _too_many_unacked(self) -> bool:
        """The limit of the subscription was reached, and half of it is not acknowledged yet.

        Redeliveries go on. Source: PersistentDispatcherMultipleConsumers.blockedDispatcherOnUnackedMsgs.
        """
        unacked = sum(endpoint.unacked for endpoint in self._endpoints)
        limit = MAX_UNACKED_PER_SUBSCRIPTION
        self._blocked = unacked >= (limit // 2 if self._blocked else limit)
        return self._blocked

    def _dispatch_shared(self) -> bool:
        handed = False
        isolating = [each for each in self._owned.values() if each.guard is not None and each.guard.isolates]
        others = [each for each in self._owned.values() if each not in isolating]
        for owned in others:
            self._read_again.forget(owned)
            if owned.comes_again:
                handed = self._dispatch_replays(owned, self._endpoints) or handed
        blocked = self._too_many_unacked()
        for owned in isolating:
            if not owned.quiet:
                handed = self._dispatch_beside_suspects(owned, new=not blocked) or handed
        if blocked:
            return handed
        for owned in others:
            while owned.buffered and owned.waits_for_room():
                turn = self._round_robin.next(self._endpoints, owned.buffered)
                if turn is None:
                    return handed
                endpoint, permits = turn
                offsets, records = owned.take(permits)
                if not offsets:
                    break
                owned.deliver(endpoint.feed(owned.slot), offsets, records, hold=True)
                handed = True
        return handed

    def _dispatch_beside_suspects(self, owned: OwnedPartition, *, new: bool) -> bool:
        """One process after the other gets what its turn allows: suspects, other redeliveries, what was never out."""
        guard, handed = owned.guard, False
        assert guard is not None  # noqa: S101 - the caller looked
        nodes = self.counting.nodes()
        guard.begin(nodes)
        for node in nodes:
            endpoints = [endpoint for endpoint in self._endpoints if endpoint.node == node]
            if not any(endpoint.shared_permits() > 0 for endpoint in endpoints):
                continue
            handed = self._dispatch_replays(owned, endpoints, node, new=new and owned.buffered > 0) or handed
            while new and owned.buffered:
                place = self.counting.place(owned, node, new=True)
                turn = self._round_robin.next(endpoints, owned.buffered)
                room = guard.room(place)
                if turn is None or not room:
                    break
                endpoint, permits = turn
                offsets, records = owned.take(min(permits, room))
                if not offsets:
                    break
                owned.deliver(endpoint.feed(owned.slot), offsets, records, hold=True)
                guard.flowed(node, len(offsets))
                handed = True
        return handed

    def _dispatch_replays(
        self, owned: OwnedPartition, endpoints: Sequence[Endpoint], node: str | None = None, *, new: bool = False
    ) -> bool:
        """Read again from Kafka what is to be delivered again, lowest first, as much as inboxes take. `node`: these are
        the consumers of that process alone, as there are suspects (`new`: and messages that were never out)."""
        room = sum(max(0, endpoint.shared_permits()) for endpoint in endpoints)
        owned.release_due(min(room, _REPLAY_BATCH) - len(owned.replay))
        place = None if node is None else self.counting.place(owned, node, new=new)
        lowest = owned.next_replays(_REPLAY_BATCH if place else min(room, _REPLAY_BATCH))
        wanted = self.counting.admit(owned, lowest, place)[:room]
        if not wanted:
            return False
        found = self._read_again.read(owned, wanted, lowest if place else ())
        records = found.records
        owned.replayed(records)
        if owned.guard is not None:
            owned.set_aside_again(records)
        offsets = owned.readable({offset: records[offset] for offset in wanted if offset in records})
        offsets = self._dead_lettering.divert(owned, offsets, records)
        while offsets:
            turn = self._round_robin.next(endpoints, len(offsets))
            if turn is None:
                owned.put_back(offsets)
                break
            endpoint, permits = turn
            count = owned.fitting(offsets, permits)
            part, offsets = offsets[:count], offsets[count:]
            if owned.guard is not None:
                owned.guard.handed_out_again(part)
                if node is not None:
                    owned.guard.flowed(node, len(part))
            owned.deliver(endpoint.feed(owned.slot), part, [records[offset] for offset in part], hold=True)
        return bool(records or found.gone)

    # Chunked messages ---------------------------------------------------------------------------------------------

    def record(self, partition: int, offset: int) -> Any | None:
        return self._read_again.read(self._owned[partition], (offset,)).records.get(offset)

    def chunk_assembly(self) -> ChunkAssembly:
        return ChunkAssembly(
            lambda: joint_rules(endpoint.chunk_rules for endpoint in self._endpoints), self._clock.monotonic
        )

    def _expire_chunks(self, owned: OwnedPartition) -> None:
        # A chunk may be among what a former owner put off; then the others have to wait for it.
        if owned.guard is None or not (owned.replay or self._nacks.any_of_nobody(owned.number)):
            owned.expire_chunks()

    # Acknowledgements and redelivery ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Fold in what consumers acknowledged.

        Raises:
            StoreError: an id made by hand lies beyond what was read, and the log's end could not be asked for; its
                partition's acknowledgements wait for the next call.
        """
        if self._shared:
            for partition, offset in self.refusals.drain(self._handle.slots()):
                if partition in self._owned:
                    self._owned[partition].survived((offset,))
        for owned in self._owned.values():
            slot = owned.slot
            if slot.has_acknowledgements():
                owned.drain_acknowledgements(partial(self.log_end, owned.number))
            if slot.nacks:
                self._drain_negative_acks(owned)

    def log_end(self, partition: int) -> int:
        """Where a partition's log ends, as Kafka says now. Raises StoreError."""
        return self._consumer.watermarks(partition, _LOG_END_TIMEOUT_S)[1]

    def _drain_negative_acks(self, owned: OwnedPartition) -> None:
        slot = owned.slot
        timed: dict[AckTimeouts, list[int]] = {}
        for _ in range(len(slot.nacks)):
            now_s, delay_s, offset, endpoint = slot.nacks.popleft()
            if endpoint.closed and endpoint not in self._endpoints:
                continue  # it is gone, and what it had comes again; one that is closing said this before
            holder = owned.holders.get(offset)
            if not self._shared or (holder is not None and holder.endpoint is endpoint):
                # Of what was taken from it, as by a seek, it says nothing that counts: its holder may refuse it sooner.
                self.refused(owned, now_s, delay_s, offset, endpoint)
            if endpoint.ack_timeouts is not None:
                timed.setdefault(endpoint.ack_timeouts, []).append(offset)
        for timeouts, offsets in timed.items():
            timeouts.forget(slot.number, BitMap64(offsets))

    def refused(self, owned: OwnedPartition, now_s: float, delay_s: float, offset: int, endpoint: Endpoint) -> None:
        """This consumer refused an entry at `now_s` (monotonic); it is to come again after the delay."""
        self._nacks.add(now_s, delay_s, owned.number, offset, endpoint)
        owned.in_flight.set_apart((offset,))
        owned.survived((offset,))

    def redeliver_due(self) -> None:
        """Deliver again what was negatively acknowledged or not acknowledged in time, and is due now."""
        for owned in self._owned.values():
            if owned.delayed:
                owned.delayed.advance(self._clock.now_ms())
                self._reading_ahead.step(owned)
            if owned.chunks.pending:
                self._expire_chunks(owned)
        now = self._clock.monotonic()
        for partition, holder, offsets in self._nacks.due(now):
            self._redeliver(partition, offsets, holder)
        for endpoint in self._endpoints:
            if endpoint.ack_timeouts is not None:
                for partition, offsets in endpoint.ack_timeouts.expired(now).items():
                    whole = self.refusals.late(partition, offsets, endpoint) if self._shared else offsets
                    if whole:
                        self._redeliver_late(partition, whole, endpoint)
        self.refusals.step()

    def _held(self, partition: int) -> HeldHere | None:
        owned = self._owned.get(partition)
        if owned is None:
            return self.held_elsewhere(partition)
        return HeldHere(owned.slot, owned.in_flight, owned.acked_of, owned.redeliveries)

    def _redeliver(self, partition: int, offsets: BitMap64, endpoint: Endpoint | None) -> None:
        owned = self._owned.get(partition)
        if owned is None:
            return
        if self._shared:
            owned.redeliver(offsets, endpoint)
        elif owned.active is None or owned.went_out(offsets.min()):  # even if it is acknowledged, as in Pulsar
            self._rewind(owned)

    def _redeliver_late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        owned = self._owned.get(partition)
        if owned is None:
            self.late_elsewhere(partition, offsets, endpoint)
        elif self._shared:
            owned.redeliver(offsets, endpoint)
        elif owned.active in (None, endpoint.feed(owned.slot)) and not all(
            owned.is_acknowledged(offset) or offset in owned.held for offset in offsets
        ):
            self._rewind(owned)

    def deliver_again(self, owned: OwnedPartition, offsets: BitMap64) -> None:
        """Transactions held these and do not hold them any more, and they are not acknowledged."""
        if not offsets:
            return
        if self._shared:
            deliver_again(owned, offsets)
        elif owned.active is None or owned.went_out(offsets.min()):
            self._rewind(owned)

    def redeliver_all(self, endpoint: Endpoint) -> None:
        self.refusals.forget_consumer(endpoint)
        for owned in self._owned.values():
            feed = endpoint.feed(owned.slot)
            if self._shared:
                endpoint.discard(owned.slot)
                self._nacks.forget_consumer(endpoint, owned.number)  # what it put off comes now, too
                owned.redeliver(owned.in_flight.held_by(feed), endpoint)
            elif owned.active in (None, feed):
                self._rewind(owned)

    def _rewind(self, owned: OwnedPartition) -> None:
        """Deliver everything unacknowledged of a partition again, in order."""
        self._forget_deliveries(owned)
        self._consumer.seek(owned.number, owned.rewind())

    def _forget_deliveries(self, owned: OwnedPartition) -> None:
        """What was handed out of this partition matters no more: it comes again, here or elsewhere."""
        owned.slot.forgotten += 1
        self.came_again(owned.number)
        self._nacks.forget_partition(owned.number)
        self._reading_ahead.forget(owned)
        self._read_again.forget(owned)
        for endpoint in self._endpoints:
            endpoint.take_back(owned.slot)

    # Consumers ----------------------------------------------------------------------------------------------------

    def attach(self, endpoint: Endpoint) -> None:
        """Add a consumer.

        Raises:
            SubscriptionBusy, HashRangeConflict: it does not go together with the Key_Shared consumers there.
        """
        if self._keys is not None:
            self._keys.attach(endpoint)
        else:
            self._endpoints.append(endpoint)
            self.choose_active()
        self.count_deliveries()

    def detach(self, endpoint: Endpoint, how: Departure = Departure.CLOSED) -> None:
        """Remove a consumer; what it holds is delivered to others."""
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
        endpoint.close()
        for owned in self._owned.values():
            if self._shared:
                self.counting.give_back(owned, endpoint, how)
        if self._keys is not None:
            self._keys.detach(endpoint)
        self.choose_active()

    def still_held(
        self, owned: OwnedPartition, endpoint: Endpoint, offsets: Mapping[int, int], chunked: Mapping[int, Known]
    ) -> None:
        """Of a partition that was taken over: these are the consumer's, each with its number of messages; `chunked` are
        those of them that came in chunks, by their last one's offset."""
        owned.still_held(endpoint.feed(owned.slot), offsets, chunked)
        if self._keys is not None:
            self._keys.still_held(owned, endpoint, sorted(offsets))

    def take_up(self, owned: OwnedPartition, held: Mapping[Endpoint, HeldMessages]) -> None:
        """Everybody has said what they hold of a partition that was taken over (Failover): its active consumer keeps
        that, and what others hold comes again."""
        self.choose_active()
        for endpoint, (messages, chunked) in held.items():
            if len(held) == 1 and owned.active is endpoint.feed(owned.slot):
                owned.still_out(messages, chunked)
                owned.kept_upto = max(messages) + 1
                return
        if held:
            self._forget_deliveries(owned)

    def redeliver_later(self, owned: OwnedPartition, refusals: Mapping[int, Nack]) -> None:
        """These were refused under a former owner, and nobody holds them.

        What counted for it already comes by what it saved: a refusal may stand in the log twice, on both sides of that.
        """
        now_s = self._clock.monotonic()
        waiting = self._nacks.offsets(owned.number).copy()
        for offset, nack in refusals.items():
            if offset in waiting or owned.redeliveries.get(offset, 0) > nack.redeliveries:
                continue
            if nack.redeliveries:
                owned.redeliveries[offset] = nack.redeliveries
            owned.pass_over(BitMap64((offset,)))
            owned.replay.discard(offset)
            self._nacks.add(now_s, nack.delay_ms / 1000, owned.number, offset, None)
            owned.survived((offset,))
            if owned.guard is not None:
                owned.guard.still_held((offset,))

    def count_deliveries(self) -> None:
        """Partitions were taken over, or a consumer came that may have a dead letter policy."""
        if self._shared:
            for owned in self._owned.values():
                self.counting.begin(owned)

    def choose_active(self) -> None:
        if self._shared:
            return
        for owned in self._owned.values():
            if owned.quiet:  # it is chosen when everybody is known
                continue
            chosen = active_consumer(self._endpoints, owned.slot)
            for endpoint in self._endpoints:
                endpoint.hear_active(active=endpoint is chosen)
            feed = chosen.feed(owned.slot) if chosen is not None else None
            if feed is owned.active:
                continue
            had_one = owned.active is not None
            owned.active = feed
            if had_one and feed is not None:
                self._rewind(owned)

    def seek(self, owned: OwnedPartition, target: int, begun: BatchAckSet | None) -> None:
        """Set the cursor to `target`, a batch entry without what `begun` has of it, and go on from there."""
        self._forget_deliveries(owned)
        active = None if self._shared else owned.active
        for endpoint in self._endpoints if active is None else (active.endpoint,):
            endpoint.sought()
        owned.slot.forget_acknowledgements()  # what came since they were drained is of before the seek
        position = owned.seek(target, begun)
        owned.intake.stopped = None
        self._consumer.seek(owned.number, position)

    def acknowledge_up_to(self, owned: OwnedPartition, upto: int) -> None:
        """Nothing at or before `upto` is wanted any more; what consumers hold of it is not theirs now.

        Raises:
            StoreError: the log's end, or what the cursor knows, cannot be had; nothing was changed.
        """
        if upto >= owned.read_position:
            upto = min(upto, self.log_end(owned.number) - 1)
        if owned.acknowledge_up_to(upto):
            self._consumer.seek(owned.number, owned.read_position)

    def acknowledge_ledgers(self, owned: OwnedPartition, ledgers: LedgerAcks) -> int:
        """Acknowledge what somebody read elsewhere, by ledger index and entry id, whoever holds it; what lies beyond
        the log's end is passed over. Gives how many ledgers changed.

        Raises:
            StoreError: the log's end, or what the cursor knows, cannot be had; nothing was changed.
        """
        size = owned.identity.entries_per_ledger
        if max(ledgers, default=-1) * size + size > owned.read_position:
            ledgers = below(ledgers, self.log_end(owned.number), size)
        return owned.acknowledge_ledgers(ledgers)

    def withdraw(self, owned: OwnedPartition) -> None:
        """The partition is about to be given up (Shared, Key_Shared): nothing more of it goes out, and this process's
        consumers hold only what they have received and not refused."""
        owned.quiet = True
        refused = self._nacks.offsets(owned.number)
        for endpoint in self._endpoints:
            if not endpoint.is_remote:
                owned.withdraw(endpoint.feed(owned.slot), refused)

    def withdraw_in_order(self, owned: OwnedPartition, *, unanswered: bool = False) -> None:
        """Stops a partition that is about to be given up (Failover): nothing more of it goes out.

        The active consumer keeps what it was handed, unless it refused some of it or that is more than 50,000 entries.
        `unanswered`: members have yet to answer this owner, so every consumer keeps what it holds of former owners.
        """
        owned.quiet = True
        refused = self._nacks.offsets(owned.number)
        keeps = unanswered or owned.active is not None
        owned.stays_out = keeps and not refused and len(owned.out_in_order()) <= DEFAULT_MAX_UNACKED

    def forget(self, owned: OwnedPartition) -> None:
        """The partition is not ours any more: take its messages out of every inbox, unless what was received stays."""
        self._read_again.forget(owned)
        if owned.stays_out:
            self._nacks.forget_partition(owned.number)
            self._reading_ahead.forget(owned)
            owned.rewind()
            return
        self._forget_deliveries(owned)
        owned.slot.nacks_in_batch.clear()
        owned.slot.nacks.clear()  # of what comes again anyway; the partition may be ours again in a moment
        owned.rewind()
