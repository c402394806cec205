"""One owned partition: its cursor, what was read and not handed out, what is in flight, what comes again.

No I/O and no threads: the member feeds it records and asks it what to hand out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from pyroaring import BitMap64

from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.budget import HoleBudget, Residency
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.ledger_acks import LedgerAcks
from pulsar_on_kafka.broker.cursor.saved_cursor import Save, SavedCursor, Unneeded
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition.acknowledging import Acknowledging
from pulsar_on_kafka.broker.subscriptions.partition.delayed import DelayedMessages
from pulsar_on_kafka.broker.subscriptions.partition.delivery_guard import DeliveryGuard, Departure
from pulsar_on_kafka.broker.subscriptions.partition.entry_delivery import EntriesAtHand, HandingOut
from pulsar_on_kafka.broker.subscriptions.partition.in_flight import DeliveriesInFlight, TransactionHolds
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KeyOrder
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionStats, PartitionTerms, WaitingFor
from pulsar_on_kafka.broker.subscriptions.partition.partition_saves import PartitionSaves, counts_to_save
from pulsar_on_kafka.broker.subscriptions.partition.record_filter import Intake, ReadAhead, without_acknowledged
from pulsar_on_kafka.broker.subscriptions.records.batches import UnreadableMessages, report_beyond_end
from pulsar_on_kafka.broker.subscriptions.records.chunks import Known, WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    Endpoint,
    PartitionAcks,
    PartitionConsumer,
)
from pulsar_on_kafka.broker.subscriptions.records.remote_endpoint import RemoteEndpoint
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry


class OwnedPartition:
    """Everything this process knows of a partition while it owns it; its parts meet here.

    Memory: `buffered` records at most (the member stops reading above its limit); `in_flight` and `replay` hold offsets
    only, at most one each for every entry handed out and unacknowledged.
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
        self._log = terms.log
        self.slot = slot
        self.number = slot.number
        self.identity = identity
        self.cursor = cursor
        self.is_acknowledged = cursor.is_acknowledged
        self.saves = PartitionSaves(cursor, saved)
        self.residency = self._kept_within(terms.store)
        self.entries = EntriesAtHand(terms.chunks)
        self.chunks = terms.chunks
        self.fitting = self.entries.fitting
        self.held = TransactionHolds()
        self.intake = Intake(identity, cursor, self.entries, self.held, terms)
        self.committed = self.intake.committed
        self.in_flight = DeliveriesInFlight()
        self.holders = self.in_flight.holders
        self.replay = BitMap64()
        self.redeliveries: dict[int, int] = {}
        self.saves_seen = False
        """Without a guard the counts of `redeliveries` travel with the saves."""
        self.guard: DeliveryGuard | None = None
        """Where a dead letter policy is set."""
        self.active: PartitionConsumer | None = None
        """The one consumer that gets this partition (Exclusive and Failover)."""
        self.keys: KeyOrder[Endpoint] | None = None
        """What waits for its key's turn (Key_Shared)."""
        self.quiet = False
        """Nothing goes out: others may hold messages of it, and have not said which."""
        self.kept_upto = 0
        """Below it what is unacknowledged went out under a former owner, to the consumer that is active still."""
        self.stays_out = False
        """It is being given up, and what its consumers have received stays with them."""
        self.folded = 0
        """What stands in `deliveries` below this offset has been taken in."""
        self.acks_from = 0
        """What reports below this offset of `deliveries` acknowledge does not count: they were told before a seek."""
        self.folded_since = 0
        """From this offset of `deliveries` on nothing that stands there was missed."""
        self.meter = SubscriptionMeter()
        """Its owner's, once it is owned."""
        self._log_end_seen = 0
        self.delayed_soon = self.intake.delayed_soon
        self._read_ahead = ReadAhead()
        self._absent: deque[int] = deque()
        """Chunked messages in `_read_ahead` without payload, lowest first."""
        self._acknowledging = Acknowledging(slot, cursor, self.entries.chunks, self.in_flight, self.settle)
        self._handing_out = HandingOut(
            self.acked_of, self._held_back, self.entries, self.in_flight, self.redeliveries, self._unreadable
        )

    def _kept_within(self, store: CursorStore | None) -> Residency:
        if store is None:
            return Residency(HoleBudget())
        self.cursor.loader = lambda indexes: store.loader(self.identity, self.saves.saved)(indexes)
        return Residency(store.budget)

    @property
    def next_unacked(self) -> int:
        return self.cursor.next_unacked

    @property
    def saved(self) -> SavedCursor:
        return self.saves.saved

    @property
    def version(self) -> int:
        """The cursor's version: higher with every owner."""
        return self.saves.saved.lineage.version

    def stats(self, known_end: int, waiting: tuple[WaitingFor, ...] = ()) -> PartitionStats:
        """What operators see of it; `known_end` is the log's end, as Kafka told it last."""
        cursor = self.cursor
        return PartitionStats(
            self.number,
            cursor.mark_delete,
            self.read_position,
            len(cursor.deleted),
            self.in_flight.messages(),
            len(self.replay),
            self.buffered,
            len(self.delayed or ()),
            self.intake.stopped,
            self.intake.corrupt_entries,
            backlog=cursor.backlog(max(known_end, self.read_position)),
            holes=cursor.deleted.count_gaps(),
            state_bytes=self.saves.state_bytes,
            ledgers_in_memory=len(cursor.ledgers_here()),
            given_up_chunks=self.chunks.given_up_chunks,
            suspects=0 if self.guard is None else self.guard.suspects,
            waiting=waiting,
        )

    # What comes from Kafka ----------------------------------------------------------------------------------------

    @property
    def read_position(self) -> int:
        """The offset below which everything was looked at (`Intake.read_position`)."""
        return self.intake.read_position

    @property
    def delayed(self) -> DelayedMessages | None:
        """What is to be delivered later; None on Exclusive and Failover."""
        return self.intake.delayed

    @property
    def taken_upto(self) -> int:
        """Nothing below it waits to be handed out for the first time, unless somebody took it for that."""
        waiting = self._read_ahead.next_offset()
        return self.read_position if waiting is None else waiting

    @property
    def buffered(self) -> int:
        return self._read_ahead.entries

    @property
    def buffered_bytes(self) -> int:
        return self._read_ahead.size_bytes

    @property
    def may_read_on(self) -> bool:
        """What made reading stop is handed out, or readable by now."""
        return not self.buffered and not self.committed.full

    def accept(self, offsets: list[int], records: list[Any]) -> None:
        """Take a run of records in offset order. Offsets that no fetch returned count as deleted."""
        self._take_in(*self.intake.sift(offsets, records))

    def release(self) -> None:
        """Go on with what `ReadCommitted` held back, as far as that is readable now. Raises StoreError as `accept`."""
        self._take_in(*self.intake.release())

    def _take_in(self, offsets: list[int], records: list[Any]) -> None:
        if offsets:
            size = sum(map(len, records))
            self._read_ahead.add(offsets, records, size)
            self.meter.received_bytes += size
        if self.chunks:
            self._absent += [
                record.offset() for record in records if type(record) is WholeMessage and not record.present
            ]
        self._after_chunks()

    def _after_chunks(self) -> None:
        """Chunks were looked at: some are no use, some messages are complete."""
        complete, self.intake.complete_elsewhere = self.intake.complete_elsewhere, []
        if complete:
            self.replay.update(complete)
        if self.chunks.given_up:
            offsets = self.chunks.take_given_up(self.identity)
            self.cursor.acknowledge(offsets)
            self.settle(offsets)

    def expire_chunks(self) -> None:
        """Give up chunked messages of which the log had nothing for too long."""
        if self.chunks.expire(self.read_position, self._ask_log_end):
            self._after_chunks()

    def _ask_log_end(self) -> int:
        """Where the log ends, as Kafka says now; of a partition that no process reads, as far as it is known. Raises
        StoreError."""
        if self._log is not None:
            self._log_end_seen = self._log.log_end(self.number)
        return self._log_end_seen

    def readable(self, records: Mapping[int, Any]) -> list[int]:
        """The offsets of records that were read again, without what cannot be read; batch entries are noted, chunks
        that belong to no known message are put together."""
        found, unreadable, chunks = self.intake.readable(records)
        if unreadable:
            self.settle(unreadable)
        if chunks:
            if self.guard is not None:
                self.guard.never_out(chunks)
            self._after_chunks()
        return found

    def acked_of(self, offset: int) -> BatchAckSet | None:
        """The messages of a batch entry that are acknowledged, or held by a transaction."""
        return self.held.with_held(offset, self.cursor.batches.get(offset))

    def _held_back(self, offset: int) -> None:
        if not self.cursor.is_acknowledged(offset):
            self.held.back.add(offset)

    def _unreadable(self, offset: int, reason: CorruptRecord | UnreadableMessages) -> None:
        self.intake.skip(offset, reason)
        if self.cursor.is_acknowledged(offset):
            self.settle([offset])

    @property
    def has_due(self) -> bool:
        """Delayed messages are due."""
        return self.delayed is not None and self.delayed.has_due

    def release_due(self, limit: int) -> None:
        """Let up to `limit` messages whose time has come be read again and delivered."""
        if self.delayed is not None and self.has_due:
            offsets = self.delayed.take_due(max(0, limit), self.delayed_soon.wanted)
            due = [offset for offset in offsets if not self.cursor.is_acknowledged(offset)]
            if len(due) < len(offsets):
                self.delayed_soon.take(set(offsets).difference(due))
            self.replay.update(due)
            if self.guard is not None:
                self.guard.never_out(due)

    def set_aside_again(self, records: dict[int, Any]) -> None:
        """Take out of these what a crash made look delivered, though its time has not come yet."""
        if self.guard is None:
            return
        early = self.intake.not_yet_due(records)
        self.guard.never_out(early)
        for offset in early:
            del records[offset]

    @property
    def comes_again(self) -> bool:
        if self.quiet:
            return False
        return bool(self.replay) or (
            self.delayed is not None and self.delayed.has_due_besides(self.delayed_soon.wanted)
        )

    # What goes to consumers ---------------------------------------------------------------------------------------

    def handed_to(self, feed: PartitionConsumer) -> int:
        """How many entries this consumer has in hand, without those that suspects do not wait for: what it held when
        the suspects came, and what it refused, which its application is done with."""
        return self.in_flight.waited_for(feed)

    def take(self, limit: int, *, after_replay: bool = False) -> tuple[list[int], list[Any]]:
        """Records not handed out before, from one run: up to `limit` messages, beyond it to the end of a batch.

        None while a save must come first (`guard`). `after_replay`: what lies behind a message that is to be delivered
        again waits until that is taken out of `replay`.
        """
        while self.buffered:
            below = None if self.guard is None else self.guard.new_below()
            if after_replay and self.replay and (below is None or self.replay.min() < below):
                below = self.replay.min()
            if self._absent:
                if not self._has_next_payload():
                    break
                if self._absent and (below is None or self._absent[0] < below):
                    below = self._absent[0]
            fitting = self.entries.fitting if self.entries.differ else None
            offsets, records = self._read_ahead.take(limit, fitting, below)
            if not offsets:
                break
            if self.guard is not None:
                self.guard.handed_out(offsets[-1])
            # Acknowledged by id while they waited here.
            if self.cursor.next_unacked > offsets[0] or self.cursor.deleted:
                before = offsets
                offsets, records = without_acknowledged(self.cursor, offsets, records)
                if len(offsets) < len(before):
                    self.entries.forget(set(before).difference(offsets))
            if self.held and offsets:
                before = offsets
                offsets, records = self.held.without(offsets, records)
                self.entries.forget(set(before).difference(offsets))
            if offsets:
                return offsets, records
        return [], []

    def _has_next_payload(self) -> bool:
        """The next entry can be handed out; it may have been read again for that."""
        offset = self._absent[0]
        if self._read_ahead.next_offset() == offset:
            record = None if self._log is None else self._log.record(self.number, offset)
            if record is None and not self.cursor.is_acknowledged(offset):
                return False
            self._absent.popleft()
            if record is not None:
                self._read_ahead.replace_next(record)
        return True

    def deliver(self, feed: PartitionConsumer, offsets: Sequence[int], records: Sequence[Any], *, hold: bool) -> None:
        """Hand entries to a consumer, and remember that it holds them (`hold`: shared subscriptions)."""
        if isinstance(feed.endpoint, RemoteEndpoint):
            entries = self._handing_out.leases(offsets, records, feed if hold else None)
            feed.endpoint.lend(feed, self._counted(entries, feed.endpoint.max_redeliver_count))
            return
        feed.endpoint.deliver(self._handing_out.messages(offsets, records, feed, feed if hold else None))

    def _counted(self, entries: list[LeasedEntry], most: int | None) -> list[LeasedEntry]:
        """What killed too many processes is dead, though it was not refused so often: its redeliveries say so."""
        if most is None or self.guard is None:
            return entries
        delivered = self.guard.next_delivery
        return [
            replace(entry, redeliveries=most + 1)
            if entry.redeliveries <= most and delivered(entry.offset) > most + 2
            else entry
            for entry in entries
        ]

    def hand_out(
        self, offsets: Sequence[int], records: Sequence[Any], feed: PartitionConsumer, holder: PartitionConsumer | None
    ) -> list[Delivery]:
        """The messages of these entries, without what cannot be read; `holder` (None: nobody) has them from now on."""
        return self._handing_out.messages(offsets, records, feed, holder)

    def waits_for_room(self) -> bool:
        """There are messages at hand that only lack room in an inbox."""
        if self.quiet or (not self.buffered and not self.comes_again):
            return False
        if self.guard is None:
            return True
        return not self.guard.waits(self._read_ahead.next_offset(), again=self.comes_again)

    def next_replays(self, limit: int) -> list[int]:
        """The lowest offsets waiting to be delivered again; they stay in `replay` until `replayed`."""
        self.held.take_from(self.replay)
        return list(islice(self.replay, limit))

    def put_back(self, offsets: Sequence[int]) -> None:
        self.replay.update(offsets)
        self.entries.forget(offsets)

    def replayed(self, offsets: Iterable[int]) -> None:
        self.replay.difference_update(BitMap64(offsets))

    def pass_by(self) -> None:
        """Everything that was handed out is acknowledged (non-persistent topics, see `NonPersistentDispatch`)."""
        done = self.taken_upto
        if self.cursor.next_unacked < done:
            self.cursor.acknowledge_cumulative(done - 1)
            self.settle(list(self.holders))

    def drop_waiting(self) -> None:
        self.meter.dropped += self.buffered
        if self.keys is not None:
            self.meter.dropped += self.keys.waiting + self.keys.parked
        self._read_ahead.clear()
        self.entries.clear()
        if self.keys is not None:
            self.keys.clear()

    # What comes back ----------------------------------------------------------------------------------------------

    def drain_acknowledgements(self, log_end: Callable[[], int]) -> bool:
        """Fold in what consumers acknowledged since the last call; True when the cursor changed. `log_end` may raise
        StoreError (`Acknowledging.drain`)."""
        changed = self._acknowledging.drain(self.read_position, log_end, self.meter)
        if changed:
            self.passed(self.cursor.next_unacked - 1)
        return changed

    def settle(self, offsets: list[int]) -> None:
        """These were acknowledged: nobody holds them, and they do not come again."""
        if self.holders:
            self.in_flight.let_go(offsets)
        if self.replay:
            self.replayed(offsets)
        if self.redeliveries:
            for offset in offsets:
                self.redeliveries.pop(offset, None)
        if self.keys is not None:
            self.keys.acknowledged(offsets)
        if self.guard is not None:
            self.guard.settled(offsets)

    def redeliver(self, offsets: Iterable[int], endpoint: Endpoint | None) -> None:
        """Deliver again what this consumer still holds of these; with None, what nobody holds."""
        again: list[int] = []
        for offset in offsets:
            feed = self.holders.get(offset)
            if endpoint is None:
                if feed is not None or self.cursor.is_acknowledged(offset):
                    continue
            elif feed is not None and feed.endpoint is endpoint:
                self.in_flight.let_go_of_one(offset)
                self.survived((offset,))
            else:
                continue
            again.append(offset)
        self.come_again(again)

    def come_again(self, offsets: Sequence[int]) -> None:
        """Nobody holds these any more: they are to be delivered once more."""
        for offset in offsets:
            self.redeliveries[offset] = self.redeliveries.get(offset, 0) + 1
        self.replay.update(offsets)
        self.meter.redelivered += len(offsets)

    def still_held(self, feed: PartitionConsumer, messages: Mapping[int, int], chunked: Mapping[int, Known]) -> None:
        """The partition was taken over, and this consumer has these, each with its number of messages; `chunked` are
        those of them that came in chunks."""
        offsets = self.still_out(messages, chunked)
        plain = [offset for offset, number in messages.items() if number == 1]
        self.in_flight.hold(plain, feed)
        for offset, number in messages.items():
            if number != 1:
                self.in_flight.hold_batch(offset, feed, number)
        self.in_flight.set_apart(messages)
        self.replay -= offsets
        if self.guard is not None:
            self.guard.still_held(offsets)

    def never_received(self, offsets: BitMap64) -> None:
        """A former owner leased these to this process's consumers, which did not get them."""
        if self.guard is not None:
            self.guard.never_received(offsets)

    def still_out(self, messages: Iterable[int], chunked: Mapping[int, Known]) -> BitMap64:
        """The same as far as reading is concerned, which passes them over; gives them with all chunks."""
        offsets = BitMap64(messages)
        for last, known in chunked.items():
            self.chunks.known[last] = known
            offsets |= BitMap64(known.offsets)
        self.intake.apart |= offsets
        return offsets

    def pass_over(self, offsets: BitMap64) -> None:
        """These come in another way than by being read."""
        self.intake.apart |= offsets

    def survived(self, offsets: Sequence[int] | BitMap64) -> None:
        """Their consumers got these and live."""
        if self.guard is not None:
            self.guard.survived(offsets)

    def passed(self, upto: int) -> None:
        """Nothing at or before `upto` is to be handed out for the first time any more."""
        if self.guard is not None:
            self.guard.handed_out(upto)

    def deleted_below(self, low: int) -> int:
        """Kafka deleted what is below this offset; gives how many entries of it were not acknowledged."""
        lost = self.cursor.backlog(low)
        self.meter.deleted_unacknowledged += lost
        self.cursor.acknowledge_cumulative(low - 1)
        return lost

    def went_out(self, offset: int) -> bool:
        """Under this owner, or a former one whose active consumer kept it (Failover)."""
        return offset < max(self.read_position, self.kept_upto)

    @property
    def acks_known(self) -> int:
        """What reports below this offset of `deliveries` acknowledge is in the cursor, or does not count."""
        return max(self.folded, self.acks_from)

    def bounded(self, position: int) -> int:
        """A position that another process named, but none beyond the log's end: what is not written yet is nobody's to
        acknowledge. Kafka is asked for that only when it lies beyond what is known. Raises StoreError."""
        known = max(self.read_position, self._log_end_seen)
        if position <= known or self._log is None:
            return position
        end = self._ask_log_end()
        if position > end:
            report_beyond_end(self.identity, position - 1, end)
        return min(position, max(end, self.read_position))

    def acknowledge_elsewhere(self, offsets: list[int], batches: Mapping[int, tuple[int, int]]) -> None:
        """Consumers in other processes acknowledged these entries, and messages of batch entries, whoever holds them.

        Raises:
            StoreError: what the cursor knows of them is out of memory and cannot be read back; nothing was changed.
        """
        if offsets or batches:
            end = self.bounded(max(max(offsets, default=0), max(batches, default=0)) + 1)
            offsets = [offset for offset in offsets if offset < end]
            batches = {offset: acks for offset, acks in batches.items() if offset < end}
        self._acknowledging.elsewhere(offsets, batches, self.meter)
        self.passed(self.cursor.next_unacked - 1)

    def give_back(
        self, feed: PartitionConsumer, put_off: BitMap64 | None = None, how: Departure = Departure.CLOSED
    ) -> None:
        """The consumer is gone: its messages come again, those that are `put_off` at their time.

        Pulsar does not count that as a redelivery.
        """
        offsets = self.in_flight.held_by(feed)
        self.in_flight.let_go(offsets)
        back = BitMap64(offsets) if put_off is None else BitMap64(offsets) - put_off
        self.replay.update(back)
        if self.guard is not None:
            if how is Departure.DIED and not self.guard.isolates:
                self.in_flight.set_apart(self.holders)
            self.guard.departed(back, how)

    def not_received(self, taken: Sequence[Delivery]) -> BitMap64:
        """The entries of which all that is unacknowledged is among these, which were `taken` out of an inbox."""
        whole, unacked = self.chunks.known, self.in_flight.unacked_in
        waiting = Counter(delivery.offset for delivery in taken)
        return BitMap64(o for o, messages in waiting.items() if o in whole or messages >= unacked.get(o, 1))

    def withdraw(self, feed: PartitionConsumer, refused: BitMap64) -> None:
        """Take back what this consumer did not receive; what it `refused` is not its own any more either.

        Of a batch entry of which it received something, the rest stays in its inbox: an entry has one holder.
        """
        in_flight = self.in_flight
        taken = feed.endpoint.discard(self.slot)
        not_received = self.not_received(taken)
        feed.endpoint.restore([delivery for delivery in taken if delivery.offset not in not_received])
        back = [o for o in not_received if in_flight.holders.get(o) is feed]
        in_flight.let_go(back)
        in_flight.let_go([o for o in in_flight.held_by(feed) if o in refused])
        self.replay.update(back)
        if self.guard is not None:
            self.guard.given_back(back)

    def received(self) -> dict[PartitionConsumer, list[LeasedEntry]]:
        """What this process's consumers hold, as if it had been leased to them."""
        found: dict[PartitionConsumer, list[LeasedEntry]] = {}
        unacked, known = self.in_flight.unacked_in, self.chunks.known
        for offset, feed in self.holders.items():
            if feed.endpoint.is_remote:
                continue
            chunks = known.get(offset)
            acked = None if chunks is not None else self.acked_of(offset)
            found.setdefault(feed, []).append(
                LeasedEntry(
                    offset,
                    self.redeliveries.get(offset, 0),
                    unacked.get(offset, 1),
                    acked,
                    () if chunks is None else tuple(chunks.offsets),
                    0 if chunks is None else chunks.total_bytes,
                )
            )
        return found

    def out_in_order(self) -> BitMap64:
        """What the active consumer was handed and has not acknowledged (Failover), with all chunks."""
        apart, end = self.intake.apart, self.taken_upto
        out = self.cursor.unacknowledged(self.cursor.next_unacked, end)
        out |= BitMap64(offset for offset in apart if not self.cursor.is_acknowledged(offset))
        out -= self.held.among(out)
        return out - (BitMap64(self.chunks.ending_behind(end - 1)) - apart)

    def received_in_order(self) -> list[LeasedEntry]:
        """The same as if it had been leased to it. How many messages a batch entry has nobody knows any more."""
        out = self.out_in_order()
        found: list[LeasedEntry] = []
        for last, known in self.chunks.known.items():
            if last in out:
                out -= BitMap64(known.offsets)
                found.append(LeasedEntry(last, 0, len(known.offsets), None, tuple(known.offsets), known.total_bytes))
        for offset in out:
            acked = self.acked_of(offset)
            found.append(LeasedEntry(offset, 0, 1 if acked is None else acked.left, acked))
        return found

    def rewind(self) -> int:
        """Forget what was read and handed out; gives the offset to read from (Exclusive, Failover, seek)."""
        self._read_ahead.clear()
        self._absent.clear()
        self.chunks.forget_pending()
        self.entries.clear()
        self.in_flight.let_go_of_all()
        self.replay.clear()
        self.held.back.clear()
        if self.keys is not None:
            self.keys.clear()
        if self.delayed is not None:
            self.delayed.clear()
            self.delayed_soon.clear()
        self.intake.apart.clear()
        self.kept_upto = 0
        self.intake.rewind(self.cursor.next_unacked)
        return self.read_position

    def seek(self, offset: int, begun: BatchAckSet | None = None) -> int:
        """Set the cursor to `offset`, which becomes the next entry to be delivered, without what `begun` has of it."""
        self.cursor.reset(offset)
        self.chunks.clear()
        if begun is not None:
            self.cursor.acknowledge_batches({offset: begun})
        self.redeliveries.clear()
        if self.guard is not None:
            self.guard.start_over(offset)
        return self.rewind()

    def acknowledge_through(self, upto: int) -> bool:
        """Acknowledge all messages whose place is at or before `upto`; True when the cursor changed."""
        return self._acknowledging.up_to(upto)

    def acknowledge_up_to(self, upto: int) -> bool:
        """An administrator's wish: nothing at or before `upto` is wanted any more, whoever holds it. What waits in
        inboxes stays there, as on Pulsar. True when reading has to go on at another position, `read_position`.

        Raises:
            StoreError: what the cursor knows of it is out of memory and cannot be read back; nothing was changed.
        """
        self.cursor.need((upto + 1,))
        self._acknowledging.up_to(upto)
        self.settle([offset for offset in self._known() if offset <= upto and self.cursor.is_acknowledged(offset)])
        if self.delayed is not None:
            self.delayed.forget_below(upto + 1)
            self.delayed_soon.forget_below(upto + 1)
        self.passed(upto)  # or what waits above the limit would wait for ever: none of it goes out
        if upto < self.read_position:
            return False
        self.intake.read_position = upto + 1
        self.intake.stopped = None
        return True

    def acknowledge_ledgers(self, ledgers: LedgerAcks) -> int:
        """Somebody who read them elsewhere acknowledges these, by ledger index and entry id. What waits in inboxes
        stays there. Gives how many ledgers changed.

        Raises:
            StoreError: what the cursor knows of them is out of memory and cannot be read back; nothing was changed.
        """
        changed, newly = self.cursor.acknowledge_ledgers(ledgers)
        for offset, count in newly.items():
            self.in_flight.acknowledged_in_batch(offset, count)
        done = [offset for offset in self.chunks.known if self.cursor.is_acknowledged(offset)]
        if done:
            self.cursor.acknowledge(self.chunks.acknowledged(done))
        self.settle([offset for offset in self._known() if self.cursor.is_acknowledged(offset)])
        if changed:
            self.passed(self.cursor.next_unacked - 1)
        return changed

    def _known(self) -> BitMap64:
        known = BitMap64([*self.holders, *self.redeliveries]) | self.replay
        if self.guard is not None:
            known |= self.guard.offsets()
        if self.keys is not None:
            known |= self.keys.offsets_waiting()
        return known

    # Saves --------------------------------------------------------------------------------------------------------

    def save_accepted(self, save: Save) -> Unneeded:
        """The group has accepted the save; gives the segments and markers that nothing refers to any more."""
        if self.guard is not None:
            self.guard.accepted(save.saved.lineage.save)
        return self.saves.accepted(save)

    def save_refused(self, save: Save) -> None:
        if self.guard is not None:
            self.guard.refused(save.saved.lineage.save)
        self.saves.refused(save)

    @property
    def dirty(self) -> bool:
        """There is something that no accepted save holds."""
        return self.saves.dirty or (self.guard is not None and self.guard.unsaved)

    def want_save(self) -> None:
        """Have the next save be made, also where nothing of it is new."""
        self.cursor.revision += 1

    @property
    def leased_from(self) -> int | None:
        """What stands in `deliveries` from this offset on may say that others hold messages; None: nobody does."""
        return self.cursor.leased_from

    def lease_from(self, offset: int | None) -> None:
        self.cursor.leased_from = offset
        self.want_save()

    def lay_down_deliveries(self) -> None:
        """Give the cursor what the next save is to hold of deliveries. Call it right before the save is prepared."""
        if self.cursor.leased_from is not None:
            self.cursor.leased_from = self.acks_known
        acknowledged = self.cursor.is_acknowledged
        if self.guard is not None:
            self.cursor.deliveries = self.guard.snapshot(self.saves.next_save, self.redeliveries, acknowledged)
        else:
            self.cursor.deliveries = counts_to_save(self.redeliveries, acknowledged) if self.saves_seen else None

    def tell_seen(self) -> None:
        """Have the next save be made for the counts that the last one may lack. For who gives the partition up."""
        if self.guard is None and self.saves_seen and self.redeliveries:
            self.want_save()
