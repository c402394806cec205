"""One owned partition: its cursor, read-ahead buffer, in-flight entries and redeliveries.

No I/O and no threads: the member gives it records, and the dispatcher takes entries for consumers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks, to_offsets
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition.acknowledging import Acknowledging
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard, Departure
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import DeliveryBuilder, EntryNotes, with_dead_entries
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight
from pulsar_on_kafka.broker.subscriptions.partition.intake import Intake
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KeyOrder
from pulsar_on_kafka.broker.subscriptions.partition.log_access import LogAccess
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import (
    DispatchLimit,
    PartitionStats,
    PartitionTerms,
    WaitingFor,
    WaitingKeys,
)
from pulsar_on_kafka.broker.subscriptions.partition.partition_saves import PartitionSaves
from pulsar_on_kafka.broker.subscriptions.partition.record_filter import without_acknowledged
from pulsar_on_kafka.broker.subscriptions.partition.redeliveries import Redeliveries
from pulsar_on_kafka.broker.subscriptions.partition.refused_keys import RefusedKeys
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import TransactionHolds
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import apply_to
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAcks, SettledAck
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck, TxnOutcome


class OwnedPartition:
    """State of one partition while this process owns it; its parts meet here.

    Memory: what Intake, DeliveriesInFlight, Redeliveries and PartitionSaves say.
    """

    def __init__(
        self,
        slot: PartitionAcks,
        identity: CursorIdentity,
        cursor: CursorState,
        saved: SavedCursor,
        terms: PartitionTerms | None = None,
    ) -> None:
        terms = terms or PartitionTerms()
        self.slot = slot
        self.number = slot.number
        self.identity = identity
        self.cursor = cursor
        self.is_acknowledged = cursor.is_acknowledged
        self.log = LogAccess(identity, terms.log)
        self.entries = EntryNotes(terms.chunks)
        self.chunks = terms.chunks
        self.in_flight = DeliveriesInFlight()
        self.holders = self.in_flight.holders
        self.held = TransactionHolds(self.number, cursor, terms.chunks, self.in_flight)
        self.redeliveries = Redeliveries(self.entries, self.held)
        self.intake = Intake(
            identity, cursor, self.entries, self.held, self.log, terms, self.settle, self.redeliveries.waiting.update
        )
        self.saves = PartitionSaves(identity, cursor, saved, terms.store, self.redeliveries.counts, slot.reasons)
        if cursor.deliveries is not None:
            slot.reasons.merge(cursor.deliveries.reasons)
        self.guard: DeliveryGuard | None = None
        """Where a consumer has a dead letter policy (`count_deliveries`)."""
        self.active: PartitionConsumer | None = None
        """The one consumer that gets this partition (Exclusive and Failover)."""
        self.keys: KeyOrder[Endpoint] | None = None
        """Entries that wait for their keys' turn (Key_Shared)."""
        self.refused = RefusedKeys()
        """With ordered redelivery: refused entries, which later ones of their keys wait for."""
        self.awaits_rewind = False
        """With ordered redelivery (Exclusive, Failover): an entry was refused, and the partition is about to be read
        again. Nothing is delivered meanwhile."""
        self.quiet = False
        """Dispatch is paused until all members have reported the entries they hold."""
        self.limit: DispatchLimit | None = None
        """The dispatch rates, if any are set."""
        self.kept_upto = 0
        """Unacknowledged entries below it were delivered under a former owner, to the consumer that is still active."""
        self.stays_out = False
        """The partition is being given up, and its consumers keep what they have received."""
        self.meter = SubscriptionMeter()
        self._buffer = self.intake.buffer
        self._acknowledging = Acknowledging(slot, cursor, self.chunks, self.in_flight, self.settle)
        self._deliveries = DeliveryBuilder(
            self.held.acked_of,
            self.held.put_back,
            self.entries,
            self.in_flight,
            self.redeliveries.counts,
            self.intake.skip_unreadable,
        )

    def attach_meter(self, meter: SubscriptionMeter) -> None:
        """Counts in this meter from now on."""
        self.meter = self.intake.meter = self.redeliveries.meter = meter

    def count_deliveries(self, guard: DeliveryGuard | None) -> None:
        """Counts deliveries durably by this guard from now on, or no longer."""
        self.guard = self.saves.guard = guard

    @property
    def version(self) -> int:
        """The cursor's version: higher with every owner."""
        return self.saves.saved.lineage.version

    @property
    def next_unacked(self) -> int:
        return self.cursor.next_unacked

    def stats(
        self, known_end: int, waiting: tuple[WaitingFor, ...] = (), waiting_keys: WaitingKeys | None = None
    ) -> PartitionStats:
        """Statistics for operators; `known_end` is the log's end, as Kafka reported it last."""
        cursor = self.cursor
        return PartitionStats(
            self.number,
            cursor.mark_delete,
            self.read_position,
            len(cursor.deleted),
            self.in_flight.messages(),
            len(self.redeliveries.waiting),
            self.buffered,
            len(self.intake.delayed or ()),
            self.intake.stopped,
            self.intake.corrupt_entries,
            backlog=cursor.backlog(max(known_end, self.read_position)),
            holes=cursor.deleted.count_gaps(),
            state_bytes=self.saves.state_bytes,
            ledgers_in_memory=len(cursor.ledgers_here()),
            given_up_chunks=self.chunks.given_up_chunks,
            suspects=0 if self.guard is None else self.guard.suspects,
            waiting=waiting,
            waiting_keys=waiting_keys,
        )

    # Reading --------------------------------------------------------------------------------------------------------

    @property
    def read_position(self) -> int:
        """The offset below which everything was judged (`Intake.read_position`)."""
        return self.intake.read_position

    @property
    def buffered(self) -> int:
        return self._buffer.entries

    def readable(self, records: dict[int, Any], *, redelivered: bool = False) -> list[int]:
        """Returns the offsets of those of these records, which were read again, that can be delivered. `redelivered`:
        those whose delivery time has not come are taken out, though a crash made them look delivered."""
        intake, guard = self.intake, self.guard
        if redelivered and guard is not None:
            early = intake.set_aside(records)
            guard.never_out(early)
            for offset in early:
                del records[offset]
        found, chunks = intake.readable(records)
        if chunks:
            if guard is not None:
                guard.never_out(chunks)
            intake.complete_chunks()
        return found

    def release_due(self, limit: int) -> None:
        """Redelivers up to `limit` delayed messages whose time has come."""
        delayed, soon = self.intake.delayed, self.intake.delayed_soon
        if delayed is not None and delayed.has_due:
            offsets = delayed.take_due(max(0, limit), soon.required)
            due = [offset for offset in offsets if not self.cursor.is_acknowledged(offset)]
            if len(due) < len(offsets):
                soon.take(set(offsets).difference(due))
            self.redeliveries.waiting.update(due)
            if self.guard is not None:
                self.guard.never_out(due)

    @property
    def has_redeliveries(self) -> bool:
        """Entries wait to be delivered again, or delayed ones are due."""
        return not (self.quiet or self.is_held_back) and self._has_redeliveries()

    def _has_redeliveries(self) -> bool:
        delayed = self.intake.delayed
        return bool(self.redeliveries.waiting) or (
            delayed is not None and delayed.has_due_besides(self.intake.delayed_soon.required)
        )

    # Dispatch -------------------------------------------------------------------------------------------------------

    @property
    def is_held_back(self) -> bool:
        """Whether a dispatch rate allows no message now."""
        return self.limit is not None and self.limit.allowed <= 0

    @property
    def has_any_waiting(self) -> bool:
        """Whether messages wait for delivery, also while a dispatch rate holds them back."""
        return (
            bool(self._buffer.entries) or self._has_redeliveries() or bool(self.keys is not None and self.keys.waiting)
        )

    def room(self, permits: int) -> int:
        """The number of messages for a consumer with these permits."""
        return permits if self.limit is None else min(permits, self.limit.allowed)

    def take(self, limit: int, *, after_replay: bool = False) -> tuple[list[int], list[Any]]:
        """Takes entries that were not dispatched before, from one run: up to `limit` messages, beyond it to the end of
        a batch. None while a save must come first (`guard`).

        `after_replay`: entries behind one that waits to be delivered again wait, too.
        """
        guard, entries, held, waiting = self.guard, self.entries, self.held, self.redeliveries.waiting
        while self._buffer.entries:
            below = None if guard is None else guard.new_below()
            if after_replay and waiting and (below is None or waiting.min() < below):
                below = waiting.min()
            if self.refused and self.keys is None:
                below = self.refused.below(self.is_acknowledged)
            offsets, records = self._buffer.take(limit, entries.fitting if entries.differ else None, below)
            if not offsets:
                break
            if guard is not None:
                guard.handed_out(offsets[-1])
            # Acknowledged by id while they waited here.
            if self.cursor.next_unacked > offsets[0] or self.cursor.deleted:
                before = offsets
                offsets, records = without_acknowledged(self.cursor, offsets, records)
                if len(offsets) < len(before):
                    entries.forget(set(before).difference(offsets))
            if held.attached and held and offsets:
                before = offsets
                offsets, records = held.without(offsets, records)
                entries.forget(set(before).difference(offsets))
            if offsets:
                return offsets, records
        return [], []

    def deliver(
        self, consumer: PartitionConsumer, offsets: Sequence[int], records: Sequence[Any], *, hold: bool
    ) -> None:
        """Delivers entries to a consumer, and remembers that it holds them (`hold`: shared subscriptions)."""
        endpoint = consumer.endpoint
        if self.limit is not None:
            batches = self.entries.batches
            messages = sum(batches.get(offset, 1) for offset in offsets) if batches else len(offsets)
            self.limit.delivered(len(offsets), messages, sum(map(len, records)))
        if isinstance(endpoint, RemoteEndpoint):
            entries = self._deliveries.leases(offsets, records, consumer if hold else None)
            if endpoint.max_redeliver_count is not None and self.guard is not None:
                entries = with_dead_entries(entries, endpoint.max_redeliver_count, self.guard.next_delivery)
            endpoint.lend(consumer, entries)
            return
        endpoint.deliver(self._deliveries.messages(offsets, records, consumer, consumer if hold else None))

    def hand_out(
        self,
        offsets: Sequence[int],
        records: Sequence[Any],
        consumer: PartitionConsumer,
        holder: PartitionConsumer | None,
    ) -> list[Delivery]:
        """Returns the messages of these entries, without unreadable ones; `holder`, if any, has them from now on."""
        return self._deliveries.messages(offsets, records, consumer, holder)

    def waits_for_room(self) -> bool:
        """Whether there are messages at hand that only lack room in an inbox."""
        if self.quiet or self.is_held_back or (not self._buffer.entries and not self.has_redeliveries):
            return False
        if self.keys is None and (self.awaits_rewind or self.refused):
            below, following = self.refused.below(self.is_acknowledged), self._buffer.next_offset()
            if self.awaits_rewind or (below is not None and following is not None and following >= below):
                return False
        if self.guard is None:
            return True
        return not self.guard.waits(self._buffer.next_offset(), again=self.has_redeliveries)

    def pass_by(self, *, drop: bool) -> None:
        """Acknowledges every entry that was dispatched (non-persistent topics, see `NonPersistentDispatch`). `drop`:
        those that wait, too."""
        keys = self.keys
        if drop:
            self.meter.dropped += self._buffer.entries
            self._buffer.clear()
            self.entries.clear()
            if keys is not None:
                self.meter.dropped += keys.waiting + keys.parked
                keys.clear()
        done = self.intake.taken_upto
        if self.cursor.next_unacked < done:
            self.cursor.acknowledge_cumulative(done - 1)
            self.settle(list(self.holders))

    # Acknowledgements and redelivery --------------------------------------------------------------------------------

    def drain_acknowledgements(self, log_end: Callable[[], int]) -> bool:
        """Applies what consumers acknowledged since the last call; True when the cursor changed. `log_end` may raise
        StoreError (`Acknowledging.drain`)."""
        changed = self._acknowledging.drain(self.intake.read_position, log_end, self.meter)
        if changed:
            self.passed(self.cursor.next_unacked - 1)
        return changed

    def settle(self, offsets: list[int]) -> None:
        """These entries are acknowledged: no consumer holds them, and they are not redelivered."""
        if self.holders:
            self.in_flight.let_go(offsets)
        if self.slot.reasons:
            self.slot.reasons.forget(offsets)
        self.redeliveries.settled(offsets)
        if self.keys is not None:
            self.keys.acknowledged(offsets)
        else:
            self.refused.settled(offsets)
        if self.guard is not None:
            self.guard.settled(offsets)

    def redeliver(self, offsets: Iterable[int], endpoint: Endpoint | None) -> None:
        """Redelivers those of these entries that this consumer holds; with None, those that no consumer holds."""
        again: list[int] = []
        for offset in offsets:
            consumer = self.holders.get(offset)
            if endpoint is None:
                if consumer is not None or self.cursor.is_acknowledged(offset):
                    continue
            elif consumer is not None and consumer.endpoint is endpoint:
                self.in_flight.let_go_of_one(offset)
                self.survived((offset,))
            else:
                continue
            again.append(offset)
        self.redeliveries.add(again)

    def postpone(self, offset: int, redeliveries: int) -> None:
        """An entry was refused under a former owner, and no consumer holds it: it is redelivered later."""
        if redeliveries:
            self.redeliveries.counts[offset] = redeliveries
        self.redeliveries.waiting.discard(offset)
        self.intake.passed_over.add(offset)
        if self.guard is not None:
            self.guard.survived((offset,))
            self.guard.still_held((offset,))

    def survived(self, offsets: Sequence[int] | BitMap64) -> None:
        """The consumers of these entries received them and live."""
        if self.guard is not None:
            self.guard.survived(offsets)

    def passed(self, upto: int) -> None:
        """No entry at or before `upto` is dispatched for the first time any more."""
        if self.guard is not None:
            self.guard.handed_out(upto)

    def deleted_below(self, low: int) -> int:
        """Kafka deleted all entries below this offset; returns how many of them were not acknowledged."""
        lost = self.cursor.backlog(low)
        self.meter.deleted_unacknowledged += lost
        self.cursor.acknowledge_cumulative(low - 1)
        self._settle_known(low)
        return lost

    def went_out(self, offset: int) -> bool:
        """Whether this owner delivered the entry, or a former one whose active consumer kept it (Failover)."""
        return offset < max(self.intake.read_position, self.kept_upto)

    def acknowledge_elsewhere(self, offsets: list[int], batches: Mapping[int, tuple[int, int]]) -> None:
        """Consumers in other processes acknowledged these entries, and messages of batch entries.

        Raises:
            StoreError: the cursor's state of them is out of memory and cannot be read; nothing was changed.
        """
        if offsets or batches:
            end = self.intake.bounded(max(max(offsets, default=0), max(batches, default=0)) + 1)
            offsets = [offset for offset in offsets if offset < end]
            batches = {offset: acks for offset, acks in batches.items() if offset < end}
        self._acknowledging.elsewhere(offsets, batches, self.meter)
        self.passed(self.cursor.next_unacked - 1)

    def give_back(
        self, consumer: PartitionConsumer, put_off: BitMap64 | None = None, how: Departure = Departure.CLOSED
    ) -> None:
        """Redelivers the messages of a consumer that left, those that are `put_off` at their time.

        Pulsar does not count that as a redelivery.
        """
        offsets = self.in_flight.held_by(consumer)
        self.in_flight.let_go(offsets)
        back = BitMap64(offsets) if put_off is None else BitMap64(offsets) - put_off
        self.redeliveries.waiting.update(back)
        if self.guard is not None:
            if how is Departure.DIED and not self.guard.isolates:
                self.in_flight.set_apart(self.holders)
            self.guard.departed(back, how)

    def withdraw(self, consumer: PartitionConsumer, refused: BitMap64) -> None:
        """Takes back what this consumer did not receive, or `refused`.

        If it received some messages of a batch entry, the others stay in its inbox: an entry has one holder.
        """
        in_flight = self.in_flight
        taken = consumer.endpoint.discard(self.slot)
        not_received = in_flight.not_received(taken, self.chunks.known)
        consumer.endpoint.restore([delivery for delivery in taken if delivery.offset not in not_received])
        self.take_back(consumer, not_received)
        in_flight.let_go([o for o in in_flight.held_by(consumer) if o in refused])

    def take_back(self, consumer: PartitionConsumer, not_received: Iterable[int]) -> None:
        """Redelivers those of these entries that this consumer holds and did not receive; that does not count."""
        back = [o for o in not_received if self.holders.get(o) is consumer]
        self.in_flight.let_go(back)
        self.redeliveries.waiting.update(back)
        if self.guard is not None:
            self.guard.departed(back, Departure.CLOSED)

    def rewind(self) -> int:
        """Forgets what was read and delivered; returns the offset to read from (Exclusive, Failover, seek)."""
        self.in_flight.let_go_of_all()
        self.redeliveries.waiting.clear()
        self.held.back.clear()
        if self.keys is not None:
            self.keys.clear()
        self.kept_upto = 0
        self.awaits_rewind = False
        self.intake.rewind()
        return self.intake.read_position

    def seek(self, offset: int, begun: BatchAckSet | None = None) -> int:
        """Sets the cursor to `offset`, the next entry to deliver, without the messages of it in `begun`."""
        self.cursor.reset(offset)
        self.chunks.clear()
        self.refused.clear()
        if begun is not None:
            self.cursor.acknowledge_batches({offset: begun})
        self.redeliveries.counts.clear()
        self.slot.reasons.clear()
        if self.guard is not None:
            self.guard.start_over(offset)
        return self.rewind()

    def acknowledge_up_to(self, upto: int) -> bool:
        """Acknowledges all entries at or before `upto`, for an administrator. What waits in inboxes stays there, as on
        Pulsar. True when reading has to continue at another position, `read_position`.

        Raises:
            StoreError: the cursor's state of it is out of memory and cannot be read; nothing was changed.
        """
        self.cursor.need((upto + 1,))
        self._acknowledging.up_to(upto)
        self._settle_known(upto + 1)
        self.intake.forget_delayed_below(upto + 1)
        self.passed(upto)  # otherwise entries above the limit would wait for ever: none of these is delivered
        if upto < self.intake.read_position:
            return False
        self.intake.skip_to(upto + 1)
        self.intake.stopped = None
        return True

    def acknowledge_ledgers(self, ledgers: LedgerAcks) -> int:
        """Acknowledges entries that another program read, or that are cancelled, by ledger index and entry id. What
        waits in inboxes stays there. Returns how many messages were not acknowledged before.

        Raises:
            StoreError: the cursor's state of them is out of memory and cannot be read; nothing was changed.
        """
        newly = self.cursor.acknowledge_ledgers(ledgers)
        for offset, count in newly.in_batches.items():
            self.in_flight.acknowledged_in_batch(offset, count)
        if newly.entries and self.intake.delayed:
            self.intake.forget_delayed(to_offsets(ledgers, self.identity.entries_per_ledger))
        done = [offset for offset in self.chunks.known if self.cursor.is_acknowledged(offset)]
        if done:
            self.cursor.acknowledge(self.chunks.acknowledged(done))
        self._settle_known()
        if newly.messages:
            self.passed(self.cursor.next_unacked - 1)
        return newly.messages

    def _settle_known(self, below: int | None = None) -> None:
        """Settles the acknowledged entries of which any part has some state; only those below an offset, if given."""
        known = BitMap64([*self.holders, *self.redeliveries.counts]) | self.redeliveries.waiting
        if self.guard is not None:
            known |= self.guard.offsets()
        if self.keys is not None:
            known |= self.keys.offsets_waiting()
        known |= self.refused.offsets()
        considered = known if below is None else (offset for offset in known if offset < below)
        self.settle([offset for offset in considered if self.cursor.is_acknowledged(offset)])

    # Transactions ---------------------------------------------------------------------------------------------------

    def hold(self, ack: TxnAck) -> None:
        """A transaction holds these entries from now on, and no consumer does."""
        let_go = self.held.hold(ack)
        if self.keys is not None:
            self.keys.held_by_transaction([*ack.whole, *(offset for offset in let_go if offset in ack.batches)])
        self.survived(ack.whole)

    def settle_transactions(self, pending: PendingAcks) -> list[SettledAck]:
        """Applies outcomes to the cursor. Entries that have to be redelivered need `redeliver_released`.

        Raises:
            StoreError: the cursor's state is out of memory and cannot be read; what waits is tried again.
        """
        settled = pending.settle(self.cursor, partial(apply_to, through=self._acknowledging.up_to))
        for each in settled:
            if each.outcome is TxnOutcome.COMMITTED:
                done = self.held.committed(each.ack)
                self.settle(done)
                if self.intake.delayed:
                    self.intake.forget_delayed(BitMap64(done))
                self.meter.acknowledged += len(done)
                self.passed(self.cursor.next_unacked - 1)
        return settled

    def redeliver_released(self, offsets: BitMap64) -> list[int]:
        """Redelivers those of these entries, which transactions do not hold any more, that are not read again, and
        returns them."""
        again = self.held.release(offsets)
        self.redeliveries.add(again)
        return again
