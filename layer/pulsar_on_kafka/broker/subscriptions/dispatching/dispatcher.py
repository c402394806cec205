"""The dispatcher moves messages to consumers' inboxes, applies acknowledgements, and moves a partition's cursor.

All of it runs in the member's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks, below
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.delivery_counts import DeadLettering, DeliveryCounting
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatch_limits import DispatchLimits
from pulsar_on_kafka.broker.subscriptions.dispatching.key_shared import KeyShared
from pulsar_on_kafka.broker.subscriptions.dispatching.negative_acks import NegativeAcks
from pulsar_on_kafka.broker.subscriptions.dispatching.ordered_redelivery import OrderedRedelivery
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery import LeasedEntries, Redelivery
from pulsar_on_kafka.broker.subscriptions.dispatching.redelivery_reads import RedeliveryReads
from pulsar_on_kafka.broker.subscriptions.dispatching.shared import SharedDispatch
from pulsar_on_kafka.broker.subscriptions.dispatching.strategy import active_consumer
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.dispatching.unacked_limits import UnackedLimits
from pulsar_on_kafka.broker.subscriptions.partition import held_entries
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import Departure
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats, WaitingFor
from pulsar_on_kafka.broker.subscriptions.records.chunks import ChunkAssembly, HeldMessages, Known, joint_rules
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import DEFAULT_MAX_UNACKED, Endpoint
from pulsar_on_kafka.broker.subscriptions.records.open_transactions import TransactionWaits
from pulsar_on_kafka.kafka.groups.group_membership import GroupMembership
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher

_LOG_END_TIMEOUT_S: Final = 2.0


class Dispatcher:
    """Dispatches one subscription's partitions. `owned` is the owner's own dictionary, seen from here. `leased`: None
    where messages go to this process's consumers only.

    Memory: that of Redelivery, besides that of OwnedPartition and Endpoint.
    """

    def __init__(
        self,
        handle: SubscriptionHandle,
        fetcher: Fetcher,
        clock: Clock,
        consumer: GroupMembership,
        owned: Mapping[int, OwnedPartition],
        endpoints: list[Endpoint],
        leased: LeasedEntries | None = None,
    ) -> None:
        self._handle = handle
        self._clock = clock
        self._consumer = consumer
        self._owned = owned
        self._endpoints = endpoints
        self._nacks = nacks = NegativeAcks()
        self.looking = TransactionWaits(f"subscription={handle}", handle.buffer, clock)
        self._reads = reads = RedeliveryReads(handle.kafka_topic, fetcher, self.looking, handle.incarnation)
        self._dead_lettering = dead_lettering = DeadLettering(clock, endpoints)
        key_shared = handle.type is SubscriptionType.KEY_SHARED
        self.counting = counting = DeliveryCounting(
            clock, owned, endpoints, nacks, dead_lettering, self.log_end, by_slot=key_shared
        )
        self.ordered = ordered = OrderedRedelivery(
            clock,
            owned,
            endpoints,
            nacks,
            (lambda partition, offset: None) if leased is None else leased.slot_of,
            by_key=key_shared,
            whole=not handle.type.is_shared,
        )
        self.redelivery = Redelivery(handle, fetcher, clock, consumer, owned, endpoints, nacks, reads, leased, ordered)
        self.limits = DispatchLimits(handle, clock, owned, self.log_end)
        self.unacked_limits = UnackedLimits(handle, clock, endpoints)
        self._keys = (
            KeyShared(clock, reads, dead_lettering, counting, owned, endpoints, ordered) if key_shared else None
        )
        self._shared = (
            SharedDispatch(reads, dead_lettering, counting, owned, endpoints) if handle.type.is_shared else None
        )

    # What there is to do ------------------------------------------------------------------------------------------

    @property
    def replay_failed(self) -> bool:
        """Entries wait for a redelivery read, and the last one failed."""
        return self._reads.failed

    def has_undelivered(self) -> bool:
        """Messages wait, and reading more has no use before some of them are delivered."""
        if self._keys is not None:
            return self._keys.is_stuck()
        return any(owned.waits_for_room() for owned in self._owned.values())

    def has_waiting(self) -> bool:
        """Messages were read and are in no inbox: they wait for room, for acknowledgements, or for their turn."""
        return any(
            not owned.is_held_back
            and (
                owned.buffered
                or owned.awaits_rewind
                or owned.has_redeliveries
                or (owned.keys is not None and owned.keys.waiting > 0)
            )
            for owned in self._owned.values()
        )

    def awaits_acknowledgements(self) -> bool:
        """Acknowledgements of other messages may let those go that wait."""
        if self._shared is None:
            return any(owned.awaits_rewind or owned.refused for owned in self._owned.values())
        return (
            self.unacked_limits.is_blocked
            or self.counting.has_guards
            or any(each.awaits_acknowledgements and each.permits() > 0 for each in self._endpoints)
            or any(owned.keys is not None and owned.keys.holders_awaited() for owned in self._owned.values())
        )

    def waiting(self, owned: OwnedPartition) -> tuple[WaitingFor, ...]:
        """The consumers that messages of a partition wait for (Key_Shared)."""
        return () if self._keys is None else self._keys.waiting(owned)

    def stats(self, owned: OwnedPartition, known_end: int) -> PartitionStats:
        """Statistics for operators; `known_end` is the log's end, as Kafka reported it last."""
        return owned.stats(known_end, self.waiting(owned), self.ordered.waiting(owned))

    def takes_any(self) -> bool:
        """Some inbox is at most half full, and messages for it wait here."""
        if self._keys is not None:
            return self._keys.takes_any()
        if self._shared is not None:
            return self._shared.takes_any()
        return any(
            owned.waits_for_room()
            and owned.active is not None
            and owned.active.endpoint.has_room_again()
            and owned.active.endpoint.permits() > 0
            for owned in self._owned.values()
        )

    def other_partition_flows(self) -> bool:
        """Some consumer has room, and the waiting messages are for another consumer (Failover inside a process), or
        wait for a redelivery read, which failed (Shared)."""
        if self._shared is not None:
            return self._keys is None and self._reads.failed and self._shared.takes_any()
        return any(
            owned.active is not None and not owned.buffered and owned.active.endpoint.permits() > 0
            for owned in self._owned.values()
        )

    # Dispatch -----------------------------------------------------------------------------------------------------

    def dispatch(self) -> bool:
        """Move messages to inboxes by their permits; True when any moved."""
        if not self._endpoints:
            return False
        self.limits.begin()
        if self._shared is not None:
            room = self.unacked_limits.room()
            handed = self._shared.dispatch(room) if self._keys is None else self._keys.dispatch(room)
            if handed:
                self.unacked_limits.note()
            return handed
        handed = False
        for owned in self._owned.values():
            if (owned.buffered or owned.awaits_rewind) and owned.active is not None and not owned.quiet:
                handed = self._dispatch_to_active(owned) or handed
        return handed

    def _dispatch_to_active(self, owned: OwnedPartition) -> bool:
        consumer = owned.active
        assert consumer is not None  # noqa: S101 - the caller has checked
        handed = False
        if owned.awaits_rewind:
            # All refused messages are acknowledged by now, or none waits for its delay.
            if owned.refused.below(owned.is_acknowledged) is None or not self._nacks.offsets(owned.number):
                self.redelivery.rewind(owned)
            return False
        while owned.buffered and (permits := owned.room(consumer.endpoint.permits())) > 0:
            offsets, records = owned.take(permits)
            if not offsets:
                break
            if offsets[0] < owned.kept_upto:  # a transaction held the entry and released it: later ones were delivered
                self.redelivery.rewind(owned)
                break
            owned.deliver(consumer, offsets, records, hold=False)
            handed = True
        return handed

    @property
    def slot_of_record(self) -> Callable[[int, Any], int] | None:
        """Returns the hash slot of a record by offset; None on other subscriptions than Key_Shared."""
        return None if self._keys is None else self._keys.slot

    # The log of a partition (`PartitionLog`) ----------------------------------------------------------------------

    def record(self, partition: int, offset: int) -> Any | None:
        return self._reads.read(self._owned[partition], (offset,)).records.get(offset)

    def log_end(self, partition: int) -> int:
        """The end of a partition's log, as Kafka reports it now. Raises StoreError."""
        return self._consumer.watermarks(partition, _LOG_END_TIMEOUT_S)[1]

    def chunk_assembly(self) -> ChunkAssembly:
        return ChunkAssembly(
            lambda: joint_rules(endpoint.chunk_rules for endpoint in self._endpoints), self._clock.monotonic
        )

    # Acknowledgements ---------------------------------------------------------------------------------------------

    def drain(self) -> bool:
        """Apply the consumers' acknowledgements and negative acknowledgements; True if there were acknowledgements.

        Raises:
            StoreError: a message id that the application made lies beyond the read position, and Kafka did not report
                the log's end. The partition's acknowledgements wait for the next call.
        """
        self.redelivery.drain_batches(self._handle.slots())
        acknowledged = False
        for owned in self._owned.values():
            slot = owned.slot
            if slot.has_acknowledgements():
                acknowledged = True
                owned.drain_acknowledgements(partial(self.log_end, owned.number))
            if slot.nacks:
                self.redelivery.drain(owned)
            if slot.reasons.take_changed():
                owned.saves.request()
        return acknowledged

    def acknowledge_up_to(self, owned: OwnedPartition, upto: int) -> None:
        """Acknowledge everything at or before `upto`, also what consumers hold.

        Raises:
            StoreError: the log's end, or a part of the cursor, cannot be read; nothing was changed.
        """
        if upto >= owned.read_position:
            upto = min(upto, self.log_end(owned.number) - 1)
        if owned.acknowledge_up_to(upto):
            self._consumer.seek(owned.number, owned.read_position)

    def acknowledge_ledgers(self, owned: OwnedPartition, ledgers: LedgerAcks) -> int:
        """Acknowledge entries that another program read, by ledger index and entry id, also what consumers hold. Ids
        beyond the log's end are ignored. Returns how many messages were not acknowledged before.

        Raises:
            StoreError: the log's end, or a part of the cursor, cannot be read; nothing was changed.
        """
        size = owned.identity.entries_per_ledger
        if max(ledgers, default=-1) * size + size > owned.read_position:
            ledgers = below(ledgers, self.log_end(owned.number), size)
        return owned.acknowledge_ledgers(ledgers)

    # Consumers ----------------------------------------------------------------------------------------------------

    def attach(self, endpoint: Endpoint) -> None:
        """Add a consumer.

        Raises:
            SubscriptionBusy, HashRangeConflict: its Key_Shared options conflict with those of the other consumers.
        """
        if self._keys is not None:
            self._keys.attach(endpoint)
        else:
            self._endpoints.append(endpoint)
            self.choose_active()
        self.redelivery.attach(endpoint)
        self.count_deliveries()

    def detach(self, endpoint: Endpoint, how: Departure = Departure.CLOSED) -> None:
        """Remove a consumer; the entries that it holds are redelivered to others."""
        for owned in self._owned.values():
            self.ordered.refuse_first(owned, owned.in_flight.held_by(endpoint.feed(owned.slot)))
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
        self.redelivery.detach(endpoint)
        endpoint.close()
        if self._shared is not None:
            for owned in self._owned.values():
                self.counting.give_back(owned, endpoint, how)
        if self._keys is not None:
            self._keys.detach(endpoint)
        self.choose_active()

    def stop_serving(self, endpoint: Endpoint) -> None:
        """Serve a draining consumer no more. It holds what it received, and stays the active one until it is detached
        (Exclusive, Failover), because another one would begin with what this one holds."""
        if self._keys is not None:
            self._keys.stop_serving(endpoint)

    def choose_active(self) -> None:
        if self._shared is not None:
            return
        for owned in self._owned.values():
            if owned.quiet:  # the owner chooses after all members have replied
                continue
            if owned.active is not None and owned.active.endpoint.draining and owned.active.endpoint in self._endpoints:
                continue
            chosen = active_consumer(self._endpoints, owned.slot)
            for endpoint in self._endpoints:
                endpoint.notify_active(active=endpoint is chosen)
            consumer = chosen.feed(owned.slot) if chosen is not None else None
            if consumer is owned.active:
                continue
            had_one = owned.active is not None
            owned.active = consumer
            if had_one and consumer is not None:
                self.redelivery.rewind(owned)

    def count_deliveries(self) -> None:
        """Begin to count deliveries where needed: of new partitions, or for a new consumer's dead letter policy."""
        if self._shared is not None:
            for owned in self._owned.values():
                self.counting.begin(owned)
                owned.refused.recover(owned.redeliveries.counts, owned.intake.passed_over)

    # Partitions come and go ---------------------------------------------------------------------------------------

    def still_held(
        self, owned: OwnedPartition, endpoint: Endpoint, offsets: Mapping[int, int], chunked: Mapping[int, Known]
    ) -> None:
        """Record that the consumer holds these entries of a partition that was taken over, each with its number of
        messages. `chunked`: those that came in chunks, by the last chunk's offset."""
        held_entries.still_held(owned, endpoint.feed(owned.slot), offsets, chunked)
        if self._keys is not None:
            self._keys.still_held(owned, endpoint, sorted(offsets))

    def take_up(self, owned: OwnedPartition, held: Mapping[Endpoint, HeldMessages]) -> None:
        """Serve a partition that was taken over, after all members have reported what they hold (Failover). The active
        consumer keeps its messages if no other consumer holds any; otherwise all are redelivered. A draining consumer
        stays the active one, if it holds some."""
        self.choose_active()
        for endpoint, (messages, chunked) in held.items():
            if len(held) == 1 and endpoint.draining and endpoint in self._endpoints:
                owned.active = endpoint.feed(owned.slot)
            if len(held) == 1 and owned.active is endpoint.feed(owned.slot):
                held_entries.still_out(owned, messages, chunked)
                owned.kept_upto = max(messages) + 1
                return
        if held:
            self.redelivery.forget_deliveries(owned)

    def seek(self, owned: OwnedPartition, target: int, begun: BatchAckSet | None) -> None:
        """Set the cursor to `target`, and deliver from there; `begun`: the acknowledged messages of a batch entry."""
        self.redelivery.forget_deliveries(owned)
        active = None if self._shared is not None else owned.active
        for endpoint in self._endpoints if active is None else (active.endpoint,):
            endpoint.sought()
        owned.slot.forget_acknowledgements()  # they came before the seek
        position = owned.seek(target, begun)
        owned.intake.stopped = None
        self._consumer.seek(owned.number, position)

    def withdraw(self, owned: OwnedPartition) -> None:
        """Stop a partition before it is given up (Shared, Key_Shared). This process's consumers keep only the messages
        that they received and did not negatively acknowledge."""
        owned.quiet = True
        refused = self._nacks.offsets(owned.number)
        for endpoint in self._endpoints:
            if not endpoint.is_remote:
                owned.withdraw(endpoint.feed(owned.slot), refused)

    def withdraw_in_order(self, owned: OwnedPartition, *, unanswered: bool = False) -> None:
        """Stop a partition before it is given up (Failover).

        The active consumer keeps its messages, unless it negatively acknowledged one or holds more than 50,000 entries.
        `unanswered`: members have yet to reply to this owner, so every consumer keeps what it holds of former owners.
        """
        owned.quiet = True
        refused = self._nacks.offsets(owned.number)
        keeps = unanswered or owned.active is not None
        owned.stays_out = keeps and not refused and len(held_entries.out_in_order(owned)) <= DEFAULT_MAX_UNACKED

    def forget(self, owned: OwnedPartition) -> None:
        """Forget a partition that was given up: take its messages out of every inbox, unless consumers keep them."""
        if owned.stays_out:
            self._reads.forget(owned)
            self.redelivery.forget_delays(owned)
        else:
            self.redelivery.forget_deliveries(owned)
            owned.slot.nacks_in_batch.clear()
            owned.slot.nacks.clear()  # their entries are redelivered anyway; the partition may return in a moment
        owned.rewind()
