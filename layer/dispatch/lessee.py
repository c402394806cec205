"""A member's side of leases: what this process holds of partitions that others own, and what it has to say of it.

No I/O, no clock of its own. What owners write is heard in the order of the log; records that were leased wait in
`to_read` until somebody has read them from Kafka (`LeasedRecords`). What is to be said is one `Report` at a time, which
is said again as it is until it is in the log.

The process begins anew, in another epoch, when an owner expelled it or when something that an owner wrote to it was not
heard: it drops what was not received yet, and holds nothing any more. What the application acknowledges all the same
counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pyroaring import BitMap64

from layer.cursor.batch_acks import BatchAckSet
from layer.dispatch.batches import gathered
from layer.dispatch.delivery import PartitionSlot
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.in_flight import InFlight
from mapping.state_records.cursor_requests import CursorLife
from mapping.state_records.leases import (
    Expel,
    Held,
    Lease,
    LeasedEntry,
    LeaseRecord,
    MemberId,
    Nack,
    Recall,
    RemoteConsumer,
    Report,
    Saved,
    TakeOver,
    Welcome,
)

RENEW_S: Final = 3.0
KNOCK_S: Final = 0.5
ACKS_S: Final = 0.05
"""Acknowledgements are gathered for so long."""
_MOST_NACKS: Final = 20_000
_MOST_SAVES: Final = 1000


class ToRead(NamedTuple):
    """Leased entries whose records are not here yet."""

    partition: LeasedPartition
    endpoint: Endpoint
    entries: tuple[LeasedEntry, ...]
    messages: int


class LeasedPartition:
    """Memory: as InFlight, a number for each entry that was delivered before, and ack sets of batch entries."""

    def __init__(self, slot: PartitionSlot) -> None:
        self.slot = slot
        self.in_flight = InFlight()
        self.redeliveries: dict[int, int] = {}
        self.batches: dict[int, BatchAckSet] = {}
        """What is acknowledged of batch entries that are held."""
        self.chunks: dict[int, tuple[int, ...]] = {}
        """By last offset, of messages in chunks that are held."""
        self.version = 0
        """Of the newest TAKE_OVER."""
        self.owner = b""
        self.asked: int | None = None
        """A TAKE_OVER of this version is to be answered."""
        self.durable_upto = 0
        self.written_upto = 0
        """Behind the last report that acknowledges something here."""

    def let_go(self, offsets: Sequence[int]) -> None:
        self.in_flight.let_go(offsets)
        if self.redeliveries or self.batches or self.chunks:
            for offset in offsets:
                self.redeliveries.pop(offset, None)
                self.batches.pop(offset, None)
                self.chunks.pop(offset, None)

    def held(self) -> dict[tuple[Endpoint, int], BitMap64]:
        """By consumer and redeliveries; without messages in chunks, which come again under a new owner."""
        found: dict[tuple[Endpoint, int], list[int]] = {}
        for offset, feed in self.in_flight.holders.items():
            if offset not in self.chunks:
                found.setdefault((feed.endpoint, self.redeliveries.get(offset, 0)), []).append(offset)
        return {key: BitMap64(offsets) for key, offsets in found.items()}


@dataclass(slots=True)
class _Account:
    """What one owner wrote to us. `leased`: messages, by number of the consumer."""

    number: int = 0
    leased: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Pending:
    """To be said with the next report."""

    acks: dict[int, BitMap64] = field(default_factory=dict)
    batch_acks: dict[int, dict[int, BatchAckSet]] = field(default_factory=dict)
    nacks: dict[int, list[Nack]] = field(default_factory=dict)
    since_s: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.acks or self.batch_acks or self.nacks)


class Lessee:
    """One for each membership. `endpoints` is the dispatcher's list, of which only this process's own ones count.

    Memory: what LeasedPartition says for each partition, one report of at most 20,000 refusals, and an entry for each
    of 1,000 reports that owners did not save yet.
    """

    def __init__(self, life: CursorLife, client_id: str, consumers: Sequence[Endpoint]) -> None:
        self._life = life
        self._client_id = client_id
        self._consumers = consumers
        self._epoch = 1
        self._sequence = 0
        self._numbers: dict[Endpoint, int] = {}
        self._next_number = 1
        self._accounts: dict[bytes, _Account] = {}
        self._told: dict[tuple[bytes, int], int] = {}
        """Limits, by owner and consumer."""
        self._pending = _Pending()
        self._said_s = -KNOCK_S
        self._said_consumers: frozenset[int] = frozenset()
        self._unwritten: Report | None = None
        self._reports = 0
        """How many were made, in all epochs."""
        self._asked_to_save = 0
        """The last report that asked for a save, by the same count."""
        self._saves: deque[tuple[int, dict[int, int]]] = deque()
        """Reports that acknowledge something and are written but not known to be saved: the number of each, and up to
        where owners' saves have to reach, by partition."""
        self._leased_s: dict[Endpoint, float] = {}
        """When a consumer was leased something last."""
        self.partitions: dict[int, LeasedPartition] = {}
        self.to_read: deque[ToRead] = deque()
        self.asking = False
        """This process wants messages of others' partitions."""
        self.save_wanted = False
        self.now_s = 0.0

    @property
    def id(self) -> MemberId:
        return MemberId(self._client_id, self._epoch)

    def lease_age_s(self, endpoint: Endpoint) -> float:
        """Since this consumer was leased something last, in seconds; -1 when it never was."""
        leased_s = self._leased_s.get(endpoint)
        return -1.0 if leased_s is None else round(self.now_s - leased_s, 3)

    @property
    def holds_any(self) -> bool:
        return any(leased.in_flight.holders for leased in self.partitions.values())

    # What owners say ----------------------------------------------------------------------------------------------

    def hear(self, slot: PartitionSlot | None, record: LeaseRecord) -> None:
        """A record about one partition (None: about all). Of partitions that this process owns it is not told."""
        match record:
            case TakeOver(life, owner, version) if slot is not None and life == self._life:
                self._taken_over(self._partition(slot), owner, version)
            case Lease() if record.to == self.id and slot is not None:
                if self._counts(self._partition(slot), record):
                    self._leased(slot, record)
            case Recall() if record.to == self.id and slot is not None:
                if self._counts(self._partition(slot), record) and record.version >= self._partition(slot).version:
                    self._forget(self._partition(slot))
            case Saved(_, version, upto) if slot is not None and slot.number in self.partitions:
                leased = self.partitions[slot.number]
                if version >= leased.version:
                    leased.durable_upto = max(leased.durable_upto, upto)
            case Welcome() if record.to == self.id:
                self._accounts.setdefault(record.owner, _Account())
            case Expel() if record.to == self.id:
                self.begin_anew()
            case _:
                return

    def _partition(self, slot: PartitionSlot) -> LeasedPartition:
        leased = self.partitions.get(slot.number)
        if leased is None:
            leased = self.partitions[slot.number] = LeasedPartition(slot)
        return leased

    def _taken_over(self, leased: LeasedPartition, owner: bytes, version: int) -> None:
        if version <= leased.version:
            return
        leased.version = leased.asked = version
        former, leased.owner = leased.owner, owner
        self._accounts.setdefault(owner, _Account())
        if former != owner and all(other.owner != former for other in self.partitions.values()):
            self._accounts.pop(former, None)
        leased.in_flight.let_go(list(leased.chunks))  # whoever acknowledges them acknowledges all chunks all the same

    def _counts(self, leased: LeasedPartition, record: Lease | Recall) -> bool:
        """It is the next one of its owner's; otherwise something was not heard."""
        if record.version < leased.version and record.owner not in self._accounts:
            return False  # a former owner does not know yet that it is one
        account = self._accounts.setdefault(record.owner, _Account())
        if record.number != account.number + 1:
            self.begin_anew()
            return False
        account.number = record.number
        return True

    def _leased(self, slot: PartitionSlot, lease: Lease) -> None:
        account = self._accounts[lease.owner]
        messages = sum(entry.messages for entry in lease.entries)
        account.leased[lease.consumer] = account.leased.get(lease.consumer, 0) + messages
        leased = self._partition(slot)
        endpoint = next((each for each, number in self._numbers.items() if number == lease.consumer), None)
        if lease.version < leased.version or endpoint is None:
            return
        leased.owner = lease.owner
        self._leased_s[endpoint] = self.now_s
        feed = endpoint.feed(slot)
        plain: list[int] = []
        for entry in lease.entries:
            if entry.redeliveries:
                leased.redeliveries[entry.offset] = entry.redeliveries
            if entry.is_plain:
                plain.append(entry.offset)
                continue
            if entry.acked is not None:
                leased.batches[entry.offset] = BatchAckSet(*entry.acked)
            if entry.chunks:
                leased.chunks[entry.offset] = entry.chunks
            leased.in_flight.hold_batch(entry.offset, feed, entry.messages)
        leased.in_flight.hold(plain, feed)
        self.to_read.append(ToRead(leased, endpoint, lease.entries, messages))

    def begin_anew(self) -> None:
        """Hold nothing, and say so, in another epoch."""
        self._epoch += 1
        self._sequence = 0
        self._accounts.clear()
        self._told.clear()
        self._said_s = -KNOCK_S
        self._pending.nacks.clear()
        for leased in self.partitions.values():
            self._forget(leased)
            leased.asked = leased.version or None

    def _forget(self, leased: LeasedPartition) -> None:
        self.to_read = deque(each for each in self.to_read if each.partition is not leased)
        for endpoint in self._numbers:
            endpoint.discard(leased.slot)
            if endpoint.ack_timeouts is not None:
                endpoint.ack_timeouts.forget_partition(leased.slot.number)
        leased.let_go(list(leased.in_flight.holders))

    # What consumers say -------------------------------------------------------------------------------------------

    def drain(self, slots: Sequence[PartitionSlot]) -> None:
        """Take what they acknowledged and refused of partitions that this process does not own."""
        for slot in slots:
            if slot.has_acknowledgements():
                self._drain_acks(self._partition(slot))
            if slot.nacks:
                self._drain_nacks(self._partition(slot))

    def _drain_acks(self, leased: LeasedPartition) -> None:
        slot = leased.slot
        self._begin_pending()
        slot.cumulative.clear()
        slot.cumulative_in_batch.clear()
        offsets = [slot.acks.popleft() for _ in range(len(slot.acks))]
        if offsets:
            acked = self._pending.acks.setdefault(slot.number, BitMap64())
            acked |= BitMap64(offsets)
            for offset in offsets:
                if offset in leased.chunks:
                    acked |= BitMap64(leased.chunks[offset])
            self._pending.acks[slot.number] = acked
            leased.let_go(offsets)
        single = slot.acks_in_batch
        if single:
            batches = self._pending.batch_acks.setdefault(slot.number, {})
            for offset, acks in gathered([single.popleft() for _ in range(len(single))]).items():
                batches[offset] = _merged(batches.get(offset), acks)
                if offset in leased.in_flight.unacked_in:
                    self._acknowledge_in_batch(leased, offset, acks)

    def _acknowledge_in_batch(self, leased: LeasedPartition, offset: int, acks: BatchAckSet) -> None:
        known = leased.batches.get(offset) or BatchAckSet(acks.batch_size, 0)
        merged = _merged(known, acks)
        leased.batches[offset] = merged
        leased.in_flight.acknowledged_in_batch(offset, merged.acked.bit_count() - known.acked.bit_count())
        if merged.complete:
            leased.let_go([offset])

    def _drain_nacks(self, leased: LeasedPartition) -> None:
        slot = leased.slot
        timed: dict[Endpoint, list[int]] = {}
        for _ in range(len(slot.nacks)):
            said_s, delay_s, offset, endpoint = slot.nacks.popleft()
            feed = leased.in_flight.holders.get(offset)
            if feed is None or feed.endpoint is not endpoint or endpoint not in self._numbers:
                continue
            self._refuse(leased, [offset], endpoint, max(0.0, said_s + delay_s - self.now_s))
            timed.setdefault(endpoint, []).append(offset)
        for endpoint, offsets in timed.items():
            if endpoint.ack_timeouts is not None:
                endpoint.ack_timeouts.forget(slot.number, BitMap64(offsets))

    def _refuse(self, leased: LeasedPartition, offsets: Sequence[int], endpoint: Endpoint, delay_s: float) -> None:
        self._begin_pending()
        number, delay_ms = self._numbers[endpoint], round(delay_s * 1000)
        nacks = self._pending.nacks.setdefault(leased.slot.number, [])
        seen = leased.redeliveries
        nacks += [Nack(number, offset, delay_ms, seen.get(offset, 0)) for offset in offsets]
        leased.let_go(offsets)

    def late(self, partition: int, offsets: BitMap64, endpoint: Endpoint) -> None:
        """These were received and not acknowledged in time."""
        leased = self.partitions.get(partition)
        if leased is None or endpoint not in self._numbers:
            return
        feed = endpoint.feed(leased.slot)
        self._refuse(leased, [o for o in offsets if leased.in_flight.holders.get(o) is feed], endpoint, 0.0)

    def redeliver_all(self, endpoint: Endpoint) -> None:
        """Everything that this consumer holds is to come again."""
        if endpoint not in self._numbers:
            return
        for leased in self.partitions.values():
            held = leased.in_flight.held_by(endpoint.feed(leased.slot))
            if held:
                endpoint.discard(leased.slot)
                self._refuse(leased, held, endpoint, 0.0)

    def gone(self, partition: LeasedPartition, offsets: Sequence[int]) -> None:
        """There is nothing to read there (any more), or it cannot be read: it counts as acknowledged."""
        self._begin_pending()
        acked = self._pending.acks.setdefault(partition.slot.number, BitMap64())
        acked |= BitMap64(offsets)
        self._pending.acks[partition.slot.number] = acked
        partition.let_go(offsets)

    def _begin_pending(self) -> None:
        if not self._pending:
            self._pending.since_s = self.now_s

    def detach(self, endpoint: Endpoint) -> None:
        """A consumer is gone; the next report says so, and its messages come again elsewhere."""
        self._leased_s.pop(endpoint, None)
        if self._numbers.pop(endpoint, None) is None:
            return
        self.to_read = deque(each for each in self.to_read if each.endpoint is not endpoint)
        for leased in self.partitions.values():
            leased.let_go(leased.in_flight.held_by(endpoint.feed(leased.slot)))

    def unwritten(self, number: int) -> tuple[list[int], dict[int, tuple[int, int]], dict[int, Nack]]:
        """What is acknowledged of a partition, of batch entries in it, and refused, and perhaps not said yet."""
        acks = BitMap64(self._pending.acks.get(number, ()))
        batches = {o: (a.batch_size, a.acked) for o, a in self._pending.batch_acks.get(number, {}).items()}
        nacks = list(self._pending.nacks.get(number, ()))
        if self._unwritten is not None:
            acks |= self._unwritten.acks.get(number, BitMap64())
            for offset, (size, bits) in self._unwritten.batch_acks.get(number, {}).items():
                batches[offset] = (size, bits | batches.get(offset, (0, 0))[1])
            nacks += self._unwritten.nacks.get(number, ())
        return list(acks), batches, {nack.offset: nack for nack in nacks}

    def owned_now(self, number: int) -> LeasedPartition | None:
        """This process owns the partition: what its consumers hold is given to it, without what was not read yet."""
        leased = self.partitions.pop(number, None)
        if leased is not None:
            for each in [each for each in self.to_read if each.partition is leased]:
                leased.let_go([entry.offset for entry in each.entries])
            self.to_read = deque(each for each in self.to_read if each.partition is not leased)
        return leased

    # What is to be said -------------------------------------------------------------------------------------------

    @property
    def unsaved(self) -> bool:
        """Something acknowledged is not known to be durable."""
        return (
            bool(self._pending.acks or self._pending.batch_acks)
            or (self._unwritten is not None and bool(self._unwritten.acks or self._unwritten.batch_acks))
            or any(leased.durable_upto < leased.written_upto for leased in self.partitions.values())
        )

    def mark(self) -> int:
        """The number of the report that acknowledges what was drained up to now, for `is_saved`."""
        return self._reports + bool(self._pending.acks or self._pending.batch_acks)

    def is_saved(self, mark: int) -> bool:
        """Owners have saved what the report of this number and all before it acknowledge, as far as they own it still;
        what became this process's own since is for it to save."""
        if self._reports < mark or (self._reports == mark and self._unwritten is not None):
            return False
        self._forget_saved()
        return not self._saves or self._saves[0][0] > mark

    def _forget_saved(self) -> None:
        while self._saves and all(
            number not in self.partitions or self.partitions[number].durable_upto >= upto
            for number, upto in self._saves[0][1].items()
        ):
            self._saves.popleft()

    def report(self) -> Report | None:
        """What is to be written now; None when nothing is. Tell `written`, or ask again: it is the same."""
        if self._unwritten is not None:
            return self._unwritten
        asked = {n: leased for n, leased in self.partitions.items() if leased.asked is not None}
        if not self._is_due(bool(asked)):
            return None
        self._sequence += 1
        self._reports += 1
        consumers = self._described() if self.asking or self.holds_any else ()
        pending, self._pending = self._pending, _Pending()
        nacks, late = _split(pending.nacks)
        if late:
            self._pending.nacks, self._pending.since_s = late, pending.since_s
        self._unwritten = Report(
            self._life,
            self.id,
            self._sequence,
            consumers,
            {owner: account.number for owner, account in self._accounts.items()},
            pending.acks,
            {n: {o: (a.batch_size, a.acked) for o, a in acks.items()} for n, acks in pending.batch_acks.items()},
            nacks,
            {n: self._answer(leased, leased.asked or 0) for n, leased in asked.items()},
            leaving=not consumers,
            save=self.save_wanted and self.unsaved,
        )
        if self._unwritten.save:
            self._asked_to_save = self._reports
        for leased in asked.values():
            leased.asked = None
        self._said_s = self.now_s
        self._said_consumers = frozenset(each.number for each in consumers)
        return self._unwritten

    def written(self, offset: int) -> None:
        """The report is in the log, at this offset."""
        report, self._unwritten = self._unwritten, None
        if report is None:
            return
        acknowledged = {*report.acks, *report.batch_acks} & self.partitions.keys()
        for number in acknowledged:
            self.partitions[number].written_upto = offset + 1
        if acknowledged:
            self._forget_saved()
            upto = dict.fromkeys(acknowledged, offset + 1)
            if len(self._saves) >= _MOST_SAVES:
                upto = {**self._saves.pop()[1], **upto}
            self._saves.append((self._reports, upto))

    def _is_due(self, asked: bool) -> bool:
        if asked or self._pending.nacks:
            return True
        if self._pending and self.now_s - self._pending.since_s >= ACKS_S:
            return True
        if self.save_wanted and self.unsaved:
            not_asked = bool(self._saves) and self._saves[-1][0] > self._asked_to_save
            return bool(self._pending) or not_asked or self.now_s - self._said_s >= KNOCK_S
        if not self.asking:
            return bool(self._said_consumers) and (not self.holds_any or self.now_s - self._said_s >= RENEW_S)
        self._number_consumers()
        if frozenset(self._numbers.values()) != self._said_consumers:
            return True
        if self.now_s - self._said_s >= (RENEW_S if self._accounts else KNOCK_S):
            return True
        return any(
            self._is_worth_telling(owner, account, endpoint, number)
            for endpoint, number in self._numbers.items()
            for owner, account in self._accounts.items()
        )

    def _is_worth_telling(self, owner: bytes, account: _Account, endpoint: Endpoint, number: int) -> bool:
        """The owner could go on leasing, and has less than half of what this consumer takes."""
        limit, told = self._limit(account, endpoint, number), self._told.get((owner, number), 0)
        if limit <= told:
            return False
        left = told - account.leased.get(number, 0)
        return left <= 0 or limit - told >= max(1, endpoint.capacity // (2 * len(self._accounts)))

    def _limit(self, account: _Account, endpoint: Endpoint, number: int) -> int:
        leased = account.leased.get(number, 0)
        if not self.asking:
            return leased
        on_the_way = sum(each.messages for each in self.to_read if each.endpoint is endpoint)
        room = max(0, endpoint.permits() - on_the_way)
        share = room // len(self._accounts)
        return leased + (share or min(1, room))

    def _number_consumers(self) -> None:
        for endpoint in self._consumers:
            if not endpoint.closed and not endpoint.is_remote and endpoint not in self._numbers:
                self._numbers[endpoint] = self._next_number
                self._next_number += 1

    def _described(self) -> tuple[RemoteConsumer, ...]:
        self._number_consumers()
        found = []
        for endpoint, number in self._numbers.items():
            limits = {}
            for owner, account in self._accounts.items():
                limit = max(self._limit(account, endpoint, number), self._told.get((owner, number), 0))
                limits[owner] = self._told[owner, number] = limit
            rule = endpoint.key_shared
            found.append(
                RemoteConsumer(
                    number,
                    endpoint.name,
                    endpoint.priority,
                    endpoint.max_unacked,
                    None if rule is None else rule.sticky_ranges,
                    rule is not None and rule.allow_out_of_order,
                    limits,
                    endpoint.delivered,
                    endpoint.unacked,
                    None if endpoint.dead_letters is None else endpoint.dead_letters.max_redeliver_count,
                )
            )
        return tuple(found)

    def _answer(self, leased: LeasedPartition, version: int) -> Held:
        offsets = {
            (self._numbers[endpoint], redeliveries): held
            for (endpoint, redeliveries), held in leased.held().items()
            if endpoint in self._numbers
        }
        return Held(version, offsets, dict(leased.in_flight.unacked_in))


def _merged(known: BatchAckSet | None, more: BatchAckSet) -> BatchAckSet:
    if known is None or known.batch_size != more.batch_size:
        return more
    return BatchAckSet(known.batch_size, known.acked | more.acked)


def _split(nacks: Mapping[int, list[Nack]]) -> tuple[dict[int, tuple[Nack, ...]], dict[int, list[Nack]]]:
    """As many as one report takes, and the rest."""
    now: dict[int, tuple[Nack, ...]] = {}
    later: dict[int, list[Nack]] = {}
    room = _MOST_NACKS
    for partition, each in nacks.items():
        if room:
            now[partition] = tuple(each[:room])
        if len(each) > room:
            later[partition] = each[room:]
        room -= min(room, len(each))
    return now, later
