"""A member's side of leases: entries that this process holds of other owners' partitions, and reports about them.

No I/O, no clock of its own. It applies the owners' records in the order of the log. Leased entries wait in `to_read`
until `LeasedRecords` has read them from Kafka. It makes one `Report` at a time, which is unchanged until it is in the
log.

The member begins a new epoch when an owner expelled it, or when a record of an owner is missing. It then drops the
messages that the application has not received, and holds nothing. Acknowledgements by the application still count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.subscriptions.dispatching.batch_nacks import HeldHere
from pulsar_on_kafka.broker.subscriptions.leases.acks import LeaseAcks, LeasedAcks, UnsavedReports
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartition, LeasedPartitions, ToRead
from pulsar_on_kafka.broker.subscriptions.leases.permits import LeasePermits
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Expel,
    Held,
    Lease,
    LeasedEntry,
    LeaseRecord,
    MemberId,
    Nack,
    Recall,
    Report,
    Saved,
    TakeOver,
    Welcome,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

RENEW_S: Final = 3.0
KNOCK_S: Final = 0.5
ACKS_S: Final = 0.1
"""The time for which acknowledgements are gathered, as in the official clients; longer with many members."""
_MAX_ACKS_S: Final = 2.0
_REPORTS_A_S: Final = 100
"""For all members together, because every member reads all reports."""


class Lessee:
    """The leased entries of one membership. `consumers` is the dispatcher's list; only this process's consumers count.

    `in_order`: a partition's messages go to one consumer at a time (Failover). After a negative acknowledgement, or
    with a new active consumer, all unacknowledged messages are redelivered in order.

    Memory: that of LeasedPartitions, LeasePermits, LeaseAcks and UnsavedReports, and one report.
    """

    def __init__(
        self, life: CursorLife, client_id: str, consumers: Sequence[Endpoint], *, in_order: bool = False
    ) -> None:
        self._life = life
        self._in_order = in_order
        self._client_id = client_id
        self._epoch = 1
        self._sequence = 0
        self._holdings = LeasedPartitions()
        self._permits = LeasePermits(consumers, self._holdings, beside_own=in_order)
        self._acks = LeaseAcks(self._holdings, self._permits.numbers, in_order=in_order)
        self._saves = UnsavedReports()
        self._reported_s = -KNOCK_S
        self._reported_consumers: frozenset[int] = frozenset()
        self._reported_draining: frozenset[int] = frozenset()
        self._unwritten: Report | None = None
        self._reports = 0
        """The number of reports made, in all epochs."""
        self._acknowledges_from = 0
        """The first report whose acknowledgements the last report contains: a report may repeat earlier ones."""
        self._save_requested_at = 0
        """The last report that asked for a save, by the same count."""
        self._leased_s: dict[Endpoint, float] = {}
        """The time of the last lease, by consumer."""
        self.partitions = self._holdings.partitions
        self.take_back = self._holdings.take_back
        """Takes entries back from a draining consumer. The next report contains what it holds."""
        self.gone = self._acks.gone
        """Acknowledges entries that Kafka no longer has, or that cannot be read."""
        self.taken_in = self._saves.taken_in
        """A save of a partition's cursor decides about all acknowledgements in reports below this offset."""
        self.last_received = self._permits.last_received
        """Returns the number of the last record, by owner."""
        self.requesting = False
        """This process requests messages of other owners' partitions."""
        self.announces = False
        """This process is about to hold messages of partitions that it still owns, and must be known before."""
        self.is_known = False
        """A report of this epoch is in the log, and not one that leaves. A process that takes a partition over from now
        on waits for this member's reply."""
        self.reported_at = 0
        """The offset of the last report."""
        self.save_required = False
        self.acks_s = ACKS_S
        """The time for which acknowledgements are gathered now, 0.1 to 2 s."""
        self.now_s = 0.0

    @property
    def id(self) -> MemberId:
        return MemberId(self._client_id, self._epoch)

    @property
    def to_read(self) -> deque[ToRead]:
        return self._holdings.to_read

    @property
    def holds_any(self) -> bool:
        return self._holdings.holds_any

    def lease_age_s(self, endpoint: Endpoint) -> float:
        """The time in seconds since the last lease to this consumer; -1 without a lease."""
        leased_s = self._leased_s.get(endpoint)
        return -1.0 if leased_s is None else round(self.now_s - leased_s, 3)

    # The owners' records ----------------------------------------------------------------------------------------------

    def apply(self, slot: PartitionAcks | None, record: LeaseRecord) -> None:
        """Apply a record about one partition of another owner (None: about all)."""
        match record:
            case TakeOver(life, owner, version) if slot is not None and life == self._life:
                self._taken_over(self._holdings.of(slot), owner, version)
            case Lease() if record.to == self.id and slot is not None:
                if self._counts(self._holdings.of(slot), record):
                    self._leased(self._holdings.of(slot), record)
            case Recall() if record.to == self.id and slot is not None:
                leased = self._holdings.of(slot)
                if self._counts(leased, record) and record.version >= leased.version:
                    self._forget(leased)
            case Saved() if slot is not None:
                self._saves.saved(slot.number, record.since, record.upto)
            case Welcome() if record.to == self.id:
                self._permits.open(record.owner)
            case Expel() if record.to == self.id:
                self.begin_anew()
            case _:
                return

    def _taken_over(self, leased: LeasedPartition, owner: bytes, version: int) -> None:
        if version <= leased.version:
            return
        leased.version = leased.requested = version
        former, leased.owner = leased.owner, owner
        self._permits.open(owner)
        if former != owner and all(other.owner != former for other in self.partitions.values()):
            self._permits.close(former)
        if self._in_order and leased.refused:  # everything is redelivered
            self._forget(leased)

    def _counts(self, leased: LeasedPartition, record: Lease | Recall) -> bool:
        """Count the owner's record; begins a new epoch if a record before it is missing."""
        if record.version < leased.version and record.owner not in self._permits:
            return False  # by a former owner that does not know the new one yet
        if not self._permits.is_next(record.owner, record.number):
            self.begin_anew()
            return False
        return True

    def _leased(self, leased: LeasedPartition, lease: Lease) -> None:
        messages = sum(entry.messages for entry in lease.entries)
        self._permits.count_leased(lease.owner, lease.consumer, messages)
        endpoint = self._permits.consumer(lease.consumer)
        if lease.version < leased.version or endpoint is None:
            return
        leased.owner, leased.version = lease.owner, lease.version
        self._permits.open(lease.owner)
        self._leased_s[endpoint] = self.now_s
        entries = self._not_acknowledged(leased.slot.number, lease)
        if endpoint.emptied:
            return  # the owner takes these back when it has received the report of that
        leased.hold(entries, endpoint.feed(leased.slot))
        leased.slot.reasons.merge(lease.reasons)
        if leased.given_back or not entries:
            return
        self.to_read.append(ToRead(leased, endpoint, entries, lease.heard))
        unread = (each.heard for each in self.to_read if each.partition is leased)
        leased.keys.forget_read_by_owner(min(unread))

    def _not_acknowledged(self, number: int, lease: Lease) -> tuple[LeasedEntry, ...]:
        """Leave out entries that were acknowledged here in reports that the owner had not applied. Official consumers
        also skip messages whose acknowledgements they have not sent yet."""
        unheard = self._saves.reported_from(number, lease.heard)
        self._acks.add_unreported(number, self._unwritten, unheard)
        if not unheard:
            return lease.entries
        return tuple(left for entry in lease.entries if (left := unheard.left_of(entry)) is not None)

    def pass_over(self, record: Lease | Recall) -> None:
        """Count a record about a partition that this process owns by now, without effect."""
        if record.to != self.id or record.owner not in self._permits:
            return
        if not self._permits.is_next(record.owner, record.number):
            self.begin_anew()
        elif isinstance(record, Lease):
            messages = sum(entry.messages for entry in record.entries)
            self._permits.count_leased(record.owner, record.consumer, messages)

    def _next_epoch(self) -> None:
        self._epoch += 1
        self._sequence = 0
        self._reported_draining = frozenset()
        self.is_known = False
        self._permits.close_all()

    def begin_anew(self) -> None:
        """Drop all entries, and report that in a new epoch."""
        self._next_epoch()
        self._reported_s = -KNOCK_S
        self._acks.forget_refusals()
        for leased in self.partitions.values():
            self._forget(leased)
            leased.requested = leased.version or None

    def _forget(self, leased: LeasedPartition) -> None:
        leased.slot.forgotten += 1
        leased.keys.clear()
        self._acks.forget_returned(leased.slot.number)
        self._holdings.do_not_read(lambda each: each.partition is leased)
        for endpoint in self._permits.numbers:
            endpoint.take_back(leased.slot)
        if self._in_order:
            leased.forget()
        else:
            leased.let_go(list(leased.in_flight.holders))

    def take_to_read(self, most: int) -> list[ToRead]:
        """Take at most `most` entries of one partition whose consumers have room, if only for a part of a batch entry's
        messages. The others still wait."""
        taken: list[ToRead] = []
        left: deque[ToRead] = deque()
        rooms: dict[Endpoint, int] = {}
        for each in self.to_read:
            room = rooms.setdefault(each.endpoint, self._permits.room(each.endpoint))
            count = 0
            if not taken or taken[0].partition is each.partition:
                while count < len(each.entries) and count < most and room > 0:
                    room -= each.entries[count].messages
                    count += 1
                most -= count
                rooms[each.endpoint] = room
            if count:
                taken.append(each._replace(entries=each.entries[:count]))
            if count < len(each.entries):
                left.append(each._replace(entries=each.entries[count:]))
        self._holdings.to_read = left
        return taken

    # Consumers --------------------------------------------------------------------------------------------------------

    def drain(self, slots: Sequence[PartitionAcks]) -> None:
        """Apply the consumers' acknowledgements and negative acknowledgements of partitions of other owners."""
        for slot in slots:
            for endpoint, offsets in self._acks.drain(slot, self.now_s).items():
                if endpoint.refused_here is not None:
                    self._take_back_behind(self._holdings.of(slot), endpoint, frozenset(offsets))
                    endpoint.refused_here.applied(slot.number, offsets)

    def _take_back_behind(self, leased: LeasedPartition, endpoint: Endpoint, refused: frozenset[int]) -> None:
        """Take messages back that wait in a consumer's inbox behind one of these refused entries, and drop other
        messages of batch entries among these (ordered redelivery)."""
        if self._in_order:
            if leased.refused:
                leased.given_back = True
                endpoint.discard(leased.slot)
                self._holdings.do_not_read(lambda each: each.partition is leased)
            return
        taken = endpoint.take_out(leased.slot, lambda offset: offset in refused or leased.keys.is_waiting(offset))
        self._acks.give_back(leased, sorted({delivery.offset for delivery in taken}), endpoint)

    def slot_of(self, partition: int, offset: int) -> int | None:
        leased = self.partitions.get(partition)
        return None if leased is None else leased.keys.slots.get(offset)

    def passed_over(self, partition: int, offsets: Sequence[int], endpoint: Endpoint) -> None:
        leased = self.partitions.get(partition)
        if leased is None or endpoint not in self._permits.numbers:
            return
        if self._in_order:
            self._give_back(leased, offsets, endpoint)
            return
        endpoint.take_out(leased.slot, frozenset(offsets).__contains__)
        self._acks.give_back(leased, offsets, endpoint)

    def waiting(self, read: ToRead, slots: Mapping[int, int]) -> frozenset[int]:
        """Give back those of these entries, which were read and have these hash slots, that wait behind a refused one;
        returns them. Their consumer gets the others."""
        leased = read.partition
        waiting = frozenset(offset for offset, slot in slots.items() if leased.keys.wait(offset, slot, read.heard))
        leased.keys.slots.update((offset, slot) for offset, slot in slots.items() if offset not in waiting)
        self._acks.give_back(leased, sorted(waiting), read.endpoint)
        return waiting

    def late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        """The consumer received these entries and did not acknowledge them in time."""
        leased = self.partitions.get(partition)
        if leased is None or endpoint not in self._permits.numbers:
            return
        feed = endpoint.feed(leased.slot)
        held = [offset for offset in offsets if leased.in_flight.holders.get(offset) is feed]
        if held:
            self._give_back(leased, held, endpoint)

    def held(self, partition: int) -> HeldHere | None:
        leased = self.partitions.get(partition)
        return None if leased is None else leased.as_held()

    def redeliver_all(self, endpoint: Endpoint) -> None:
        if endpoint not in self._permits.numbers:
            return
        self._holdings.do_not_read(lambda each: each.endpoint is endpoint)
        for leased in self.partitions.values():
            held = leased.in_flight.held_by(endpoint.feed(leased.slot))
            if held:
                endpoint.discard(leased.slot)
                self._give_back(leased, held, endpoint)

    def _give_back(self, leased: LeasedPartition, held: Sequence[int], endpoint: Endpoint) -> None:
        if not self._in_order:
            self._acks.refuse(leased, held, endpoint, 0.0)
            if endpoint.ordered_redelivery:
                self._take_back_behind(leased, endpoint, frozenset(held))
        elif not leased.given_back:  # one negative acknowledgement redelivers everything
            leased.given_back = True
            endpoint.discard(leased.slot)
            self._holdings.do_not_read(lambda each: each.partition is leased)
            self._acks.refuse(leased, [min(held)], endpoint, 0.0)

    def hold_for_transaction(self, partition: int, ack: TxnAck) -> None:
        leased = self.partitions.get(partition)
        if leased is not None:
            leased.hold_for_transaction(ack)

    def detach(self, endpoint: Endpoint) -> None:
        """Remove a consumer. The next report contains that, and the owners redeliver its messages."""
        self._leased_s.pop(endpoint, None)
        if self._permits.numbers.pop(endpoint, None) is not None:
            self._holdings.drop_consumer(endpoint)

    def take_unsaved(self, number: int) -> tuple[LeasedAcks, dict[int, Nack]]:
        """Take acknowledgements and negative acknowledgements of a partition that former owners may not have saved:
        this process owns it now."""
        acks = self._saves.take([number])
        self._acks.add_unreported(number, self._unwritten, acks)
        return acks, self._acks.refused(number, self._unwritten)

    def unheard(self, leases: Sequence[Lease]) -> BitMap64:
        """The entries that these leases, in the order of the log, leased last to a consumer here that has not received
        the lease."""
        missed = BitMap64()
        for lease in leases:
            offsets = BitMap64(entry.offset for entry in lease.entries)
            if lease.to == self.id and self._permits.awaits(lease.owner, lease.number, lease.consumer):
                missed |= offsets
            else:
                missed -= offsets
        return missed

    def unread(self, number: int) -> BitMap64:
        """Entries of a partition that were leased to a consumer here, which did not receive them."""
        waiting = (each.entries for each in self.to_read if each.partition.slot.number == number)
        unread = BitMap64(entry.offset for entries in waiting for entry in entries)
        return unread | self._acks.returned(number)

    def owned_now(self, number: int, *, requests: bool) -> LeasedPartition | None:
        """Take the entries that consumers hold of a partition that this process owns now, without unread ones. With
        `in_order` there are none, unless the owner `requests` other members too and no entry was negatively
        acknowledged."""
        leased = self.partitions.get(number)
        if self._in_order and leased is not None and (leased.refused or not requests):
            self._forget(leased)
        self._acks.forget_returned(number)
        return self._holdings.give_back(number)

    def owned_before(self, slot: PartitionAcks, version: int) -> LeasedPartition:
        """Hold a partition that this process owned with this version and gives up. Records of earlier owners are
        void."""
        leased = self._holdings.of(slot)
        leased.version = max(leased.version, version)
        return leased

    # Reports ----------------------------------------------------------------------------------------------------------

    @property
    def unsaved(self) -> bool:
        reported = self._unwritten is not None and bool(self._unwritten.acks or self._unwritten.batch_acks)
        return self._acks.acknowledges or reported or bool(self._saves)

    def mark(self) -> int:
        """The number of the report that contains all acknowledgements drained up to now, for `is_saved`."""
        return self._reports + self._acks.acknowledges

    def is_saved(self, mark: int) -> bool:
        """Owners have saved the acknowledgements in all reports up to this number, except those of partitions that this
        process owns since."""
        if self._reports < mark or (self._unwritten is not None and self._acknowledges_from <= mark):
            return False
        return self._saves.are_saved(mark)

    def report(self) -> Report | None:
        """The report to be written now, or None. It is the same until `written` is called."""
        if self._unwritten is not None:
            return self._unwritten
        requested = {n: leased for n, leased in self.partitions.items() if leased.requested is not None}
        draining = self._permits.draining()
        if not requested and not self._is_due():
            return None
        self._sequence += 1
        self._reports += 1
        save = self.save_required and self.unsaved
        self._acknowledges_from, again = self._saves.take_unheard(self._reports)
        for number, each in again.items():
            self._acks.repeat(number, each)
        stays = self.requesting or self.announces or self.holds_any
        consumers = self._permits.described(requesting=self.requesting) if stays else ()
        acks, batch_acks, nacks = self._acks.take()
        returned = self._acks.take_returned()
        if save:
            self._save_requested_at = self._reports
        replied = requested if draining <= self._reported_draining else self.partitions
        self._unwritten = Report(
            self._life,
            self.id,
            self._sequence,
            consumers,
            self._permits.last_received(),
            acks,
            batch_acks,
            nacks,
            {
                n: _reply(leased, leased.requested or leased.version, self._permits.numbers)
                for n, leased in replied.items()
            },
            leaving=not consumers,
            save=save,
            reasons=self._holdings.reasons_of(nacks),
            returned=returned,
        )
        for leased in requested.values():
            leased.requested = None
        self._reported_s = self.now_s
        self._reported_consumers = frozenset(each.number for each in consumers)
        self._reported_draining = draining & self._reported_consumers
        if self._unwritten.leaving:
            # Owners forget a member that leaves, and redeliver its entries. They count from 1 in its next epoch.
            self._next_epoch()
        return self._unwritten

    def written(self, offset: int, owned: Collection[int] = ()) -> None:
        """The report is in the log at this offset. This process itself saves its acknowledgements of `owned`
        partitions."""
        report, self._unwritten = self._unwritten, None
        if report is None:
            return
        self._saves.written(self._acknowledges_from, offset, report)
        for number, nacks in report.nacks.items():
            if number in self.partitions:
                self.partitions[number].keys.written({nack.offset for nack in nacks}, offset)
        self._saves.take(owned)
        if report.member == self.id:  # otherwise a new epoch has begun since
            self.reported_at = offset
            self.is_known = True

    def next_due(self) -> float:
        """The time of the next report, on the monotonic clock, without new acknowledgements and new room."""
        due_s = self._reported_s + self.acks_s if self._acks else inf
        if self.save_required and self.unsaved:
            due_s = min(due_s, self._reported_s + KNOCK_S)
        if self.announces:
            return due_s
        if self.requesting:
            return min(due_s, self._reported_s + (RENEW_S if self._permits else KNOCK_S))
        return min(due_s, self._reported_s + RENEW_S) if self._reported_consumers else due_s

    def _is_due(self) -> bool:
        if self._acks.refuses or self._saves.has_unheard:
            return True
        if self._reported_consumers and not self._permits.draining() <= self._reported_draining:
            return True
        if self._acks and self.now_s - self._reported_s >= self.acks_s:
            return True
        if self.save_required and self.unsaved:
            not_requested = self._saves.newest > self._save_requested_at
            return bool(self._acks) or not_requested or self.now_s - self._reported_s >= KNOCK_S
        if self.announces:
            return not self.is_known
        if not self.requesting:
            gone = self._reported_consumers - frozenset(self._permits.numbers.values())
            over = not self.holds_any or bool(gone) or self.now_s - self._reported_s >= RENEW_S
            return bool(self._reported_consumers) and over
        if self._permits.number_consumers() != self._reported_consumers:
            return True
        if self.now_s - self._reported_s >= (RENEW_S if self._permits else KNOCK_S):
            return True
        return self._permits.worth_reporting()

    def pace(self, reports_a_s: float) -> None:
        """Adapt the time for which acknowledgements are gathered to the rate of all members' reports."""
        self.acks_s = min(_MAX_ACKS_S, max(ACKS_S, self.acks_s * reports_a_s / _REPORTS_A_S))

    def until_worth_reporting(self, endpoint: Endpoint) -> int | None:
        """The number of messages to be received from this inbox until a report is due for its room alone, or None."""
        return self._permits.until_worth_reporting(endpoint) if self.requesting else None


def _reply(leased: LeasedPartition, version: int, numbers: Mapping[Endpoint, int]) -> Held:
    offsets = {
        (numbers[endpoint], redeliveries): held
        for (endpoint, redeliveries), held in leased.held().items()
        if endpoint in numbers
    }
    chunked = {
        last: (tuple(known.offsets), known.total_bytes)
        for last, known in leased.chunks.items()
        if last in leased.in_flight.holders
    }
    return Held(version, offsets, dict(leased.in_flight.unacked_in), chunked)
