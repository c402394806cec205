"""A member's acknowledgements and negative acknowledgements of leased entries, until owners have saved them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.subscriptions.leases.leased_partition import LeasedPartition, LeasedPartitions
from pulsar_on_kafka.broker.subscriptions.records.batches import gathered, up_to
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeasedEntry, Nack, Report
from pulsar_on_kafka_mapping.wire.ack_sets import indexes_of

_MAX_REPORTED: Final = 1000


@dataclass(slots=True)
class LeasedAcks:
    """Acknowledgements of one partition: entries, and messages of batch entries."""

    whole: BitMap64 = field(default_factory=BitMap64)
    batches: dict[int, BatchAckSet] = field(default_factory=dict)

    def add(self, whole: Iterable[int], batches: Mapping[int, tuple[int, int]]) -> None:
        self.whole |= BitMap64(whole)
        for offset, acked in batches.items():
            self.batches[offset] = BatchAckSet(*acked).and_also(self.batches.get(offset))

    def __bool__(self) -> bool:
        return bool(self.whole or self.batches)

    def left_of(self, entry: LeasedEntry) -> LeasedEntry | None:
        """`entry` without the messages that these acknowledge; None if no message is left."""
        more = self.batches.get(entry.offset)
        if entry.offset in self.whole:
            return None
        if more is None:
            return entry
        acked = more.and_also(None if entry.acked is None else BatchAckSet(*entry.acked))
        return None if acked.complete else replace(entry, messages=acked.left, acked=acked)


@dataclass(slots=True)
class _Unheard:
    """Acknowledgements of one partition that its owner's save does not contain, and the offsets of their reports."""

    first: int
    last: int
    acks: LeasedAcks = field(default_factory=LeasedAcks)


@dataclass(slots=True)
class _Reported:
    """Acknowledgements by partition, in reports from offset `first` to `last` of `deliveries`, of which the first has
    this number."""

    number: int
    first: int
    last: int
    acks: dict[int, LeasedAcks]


class UnsavedReports:
    """Written reports with acknowledgements that owners may not have saved. Flushes wait for the saves.

    An owner that took its partition over without a trace of leases has not read older reports; its notice contains the
    offset from which it has (`Saved.since`). The member repeats older acknowledgements, unless a notice says meanwhile
    that they are saved, or that they came before a seek.

    Memory: bitmaps and ack sets of 1,000 reports. Newer reports are merged into one, which is saved when all are.
    """

    def __init__(self) -> None:
        self._reports: deque[_Reported] = deque()
        self._unheard: dict[int, _Unheard] = {}
        """By partition."""
        self._unheard_number = 0
        self.newest = 0
        """The number of the last report with acknowledgements."""

    def __bool__(self) -> bool:
        return bool(self._reports or self._unheard)

    @property
    def has_unheard(self) -> bool:
        return bool(self._unheard)

    def written(self, number: int, offset: int, report: Report) -> None:
        """The report is in the log at this offset. It contains the acknowledgements of reports from `number` on."""
        acks: dict[int, LeasedAcks] = {}
        for partition in {*report.acks, *report.batch_acks}:
            acks[partition] = LeasedAcks()
            acks[partition].add(report.acks.get(partition, ()), report.batch_acks.get(partition, {}))
        if not acks:
            return
        self.newest = number
        if len(self._reports) < _MAX_REPORTED:
            self._reports.append(_Reported(number, offset, offset, acks))
            return
        newest = self._reports[-1]
        newest.number, newest.last = min(newest.number, number), offset
        for partition, each in acks.items():
            newest.acks.setdefault(partition, LeasedAcks()).add(each.whole, each.batches)

    def saved(self, partition: int, since: int, upto: int) -> None:
        """The partition's owner has saved the acknowledgements in reports in [since, upto)."""
        unheard = self._unheard.get(partition)
        if unheard is not None and since <= unheard.first and unheard.last < upto:
            del self._unheard[partition]
        for report in self._reports:
            if report.last >= upto or partition not in report.acks:
                continue
            acks = report.acks.pop(partition)
            if report.first < since:
                self._unheard_number = min(report.number, self._unheard_number if self._unheard else report.number)
                unheard = self._unheard.setdefault(partition, _Unheard(report.first, report.last))
                unheard.last = max(unheard.last, report.last)
                unheard.acks.add(acks.whole, acks.batches)
        self._forget_saved()

    def taken_in(self, partition: int, upto: int) -> None:
        """A save of the partition's cursor decides about all acknowledgements in reports below this offset, except
        those that are to be repeated."""
        for report in self._reports:
            if report.last < upto:
                report.acks.pop(partition, None)
        self._forget_saved()

    def reported_from(self, partition: int, offset: int) -> LeasedAcks:
        """The partition's acknowledgements in reports at or after this offset."""
        found = LeasedAcks()
        for report in reversed(self._reports):
            if report.first < offset:
                break
            acks = report.acks.get(partition)
            if acks is not None:
                found.add(acks.whole, acks.batches)
        return found

    def take_unheard(self, number: int) -> tuple[int, dict[int, LeasedAcks]]:
        """Acknowledgements for report `number` to repeat, and the first report that they come from."""
        if not self._unheard:
            return number, {}
        unheard, self._unheard = self._unheard, {}
        return min(number, self._unheard_number), {partition: each.acks for partition, each in unheard.items()}

    def take(self, partitions: Collection[int]) -> LeasedAcks:
        """Take the acknowledgements of partitions that this process owns now, and saves itself. They are merged: call
        it for one partition at a time where it matters which."""
        found = LeasedAcks()
        for partition in self._unheard.keys() & partitions:
            unheard = self._unheard.pop(partition).acks
            found.add(unheard.whole, unheard.batches)
        for report in self._reports:
            for partition in report.acks.keys() & partitions:
                acks = report.acks.pop(partition)
                found.add(acks.whole, acks.batches)
        self._forget_saved()
        return found

    def are_saved(self, upto: int) -> bool:
        """Owners have saved all reports up to this number, except partitions that this process owns since."""
        if self._unheard and self._unheard_number <= upto:
            return False
        return all(report.number > upto for report in self._reports)

    def _forget_saved(self) -> None:
        if any(not report.acks for report in self._reports):
            self._reports = deque(report for report in self._reports if report.acks)


_MAX_NACKS: Final = 20_000


class LeaseAcks:
    """Acknowledgements count, whichever consumer holds the message; negative ones count while their consumer holds it.
    `numbers` are those of the announced consumers, seen from here.

    Memory, since the last report: bitmaps of offsets, an ack set for each batch entry, and a tuple for each negative
    acknowledgement. A report takes 20,000 of these.
    """

    def __init__(self, holdings: LeasedPartitions, numbers: Mapping[Endpoint, int], *, in_order: bool = False) -> None:
        self._in_order = in_order
        self._holdings = holdings
        self._numbers = numbers
        self._acks: dict[int, BitMap64] = {}
        self._batch_acks: dict[int, dict[int, BatchAckSet]] = {}
        self._nacks: dict[int, list[Nack]] = {}
        self._returned: dict[int, dict[int, BitMap64]] = {}
        """By partition and consumer."""

    def __bool__(self) -> bool:
        return bool(self.acknowledges or self.refuses)

    @property
    def acknowledges(self) -> bool:
        return bool(self._acks or self._batch_acks)

    @property
    def refuses(self) -> bool:
        """There are negative acknowledgements, or entries to be given back."""
        return bool(self._nacks or self._returned)

    def drain(self, slot: PartitionAcks, now_s: float) -> dict[Endpoint, list[int]]:
        """Returns the negatively acknowledged entries, whether or not their consumers hold them."""
        if slot.has_acknowledgements():
            self._drain_acks(self._holdings.of(slot))
        return self._drain_nacks(self._holdings.of(slot), now_s) if slot.nacks else {}

    def _drain_acks(self, leased: LeasedPartition) -> None:
        slot = leased.slot
        self._drain_cumulative(leased)
        offsets = [slot.acks.popleft() for _ in range(len(slot.acks))]
        if offsets:
            in_chunks = [each for o in offsets if o in leased.chunks for each in leased.chunks[o].offsets]
            self._acknowledge(slot.number, offsets + in_chunks)
            leased.let_go(offsets)
            leased.held_before.acknowledged(offsets)
            if slot.reasons:
                slot.reasons.forget(offsets)
        single, sets = slot.acks_in_batch, slot.ack_sets
        if single or sets:
            batches = self._batch_acks.setdefault(slot.number, {})
            taken = [sets.popleft() for _ in range(len(sets))]
            for offset, acks in gathered([single.popleft() for _ in range(len(single))], taken).items():
                batches[offset] = acks.and_also(batches.get(offset))
                if offset in leased.in_flight.holders:
                    leased.acknowledge_in_batch(offset, acks)
                elif acks.complete:
                    leased.let_go([offset])

    def _drain_cumulative(self, leased: LeasedPartition) -> None:
        """Apply cumulative acknowledgements: they count for all messages that consumers received up to there."""
        slot = leased.slot
        plain = [slot.cumulative.popleft() for _ in range(len(slot.cumulative))]
        in_batch = [slot.cumulative_in_batch.popleft() for _ in range(len(slot.cumulative_in_batch))]
        upto = max(plain, default=-1)
        if in_batch:
            offset, acks = up_to(in_batch)
            upto = max(upto, offset - 1)
            bits, size = acks[offset].acked, acks[offset].batch_size
            slot.acks_in_batch.extend((offset, index, size) for index in indexes_of(bits))
        acked = leased.acknowledge_up_to(upto) if upto >= 0 else None
        if acked:
            self._acknowledge(slot.number, acked)

    def _drain_nacks(self, leased: LeasedPartition, now_s: float) -> dict[Endpoint, list[int]]:
        slot = leased.slot
        drained: dict[Endpoint, list[int]] = {}
        timed: dict[Endpoint, list[int]] = {}
        for _ in range(len(slot.nacks)):
            said_s, delay_s, offset, endpoint = slot.nacks.popleft()
            drained.setdefault(endpoint, []).append(offset)
            feed = leased.in_flight.holders.get(offset)
            if feed is None or feed.endpoint is not endpoint or endpoint not in self._numbers:
                continue
            self.refuse(leased, [offset], endpoint, max(0.0, said_s + delay_s - now_s))
            timed.setdefault(endpoint, []).append(offset)
        for endpoint, offsets in timed.items():
            if endpoint.ack_timeouts is not None:
                endpoint.ack_timeouts.forget(slot.number, BitMap64(offsets))
        return drained

    def give_back(self, leased: LeasedPartition, offsets: Sequence[int], endpoint: Endpoint) -> None:
        """An announced consumer did not receive these, which is no refusal."""
        feed, number = endpoint.feed(leased.slot), self._numbers.get(endpoint)
        held = [offset for offset in offsets if leased.in_flight.holders.get(offset) is feed]
        if held and number is not None:
            returned = self._returned.setdefault(leased.slot.number, {})
            returned[number] = returned.get(number, BitMap64()) | BitMap64(held)
            leased.let_go(held)

    def returned(self, partition: int) -> BitMap64:
        """The entries of a partition that were given back since the last report."""
        return BitMap64.union(BitMap64(), *self._returned.get(partition, {}).values())

    def take_returned(self) -> dict[int, dict[int, BitMap64]]:
        returned, self._returned = self._returned, {}
        return returned

    def forget_returned(self, partition: int) -> None:
        """All entries of the partition are given up."""
        self._returned.pop(partition, None)

    def refuse(self, leased: LeasedPartition, offsets: Sequence[int], endpoint: Endpoint, delay_s: float) -> None:
        """Apply negative acknowledgements by an announced consumer. With `in_order` it holds the entries until
        everything is redelivered: a cumulative acknowledgement of a later message counts for them."""
        number, delay_ms = self._numbers[endpoint], round(delay_s * 1000)
        nacks = self._nacks.setdefault(leased.slot.number, [])
        seen = leased.redeliveries
        nacks += [Nack(number, offset, delay_ms, seen.get(offset, 0)) for offset in offsets]
        leased.keys.refuse(offsets)
        if self._in_order:
            leased.refused.update(offsets)
        else:
            leased.let_go(offsets)

    def gone(self, leased: LeasedPartition, offsets: Sequence[int]) -> None:
        self._acknowledge(leased.slot.number, offsets)
        leased.let_go(offsets)

    def _acknowledge(self, partition: int, offsets: Iterable[int]) -> None:
        acked = self._acks.setdefault(partition, BitMap64())
        acked |= BitMap64(offsets)
        self._acks[partition] = acked

    def repeat(self, partition: int, acks: LeasedAcks) -> None:
        self._acknowledge(partition, acks.whole)
        if acks.batches:
            batches = self._batch_acks.setdefault(partition, {})
            for offset, each in acks.batches.items():
                batches[offset] = each.and_also(batches.get(offset))

    def forget_refusals(self) -> None:
        """Forget negative acknowledgements: all entries are given up, and redelivered anyway."""
        self._nacks.clear()

    def take(self) -> tuple[dict[int, BitMap64], dict[int, dict[int, BatchAckSet]], dict[int, tuple[Nack, ...]]]:
        """Take the contents of one report, by partition. Negative acknowledgements beyond its limit stay."""
        acks, self._acks = self._acks, {}
        batches, self._batch_acks = self._batch_acks, {}
        nacks, self._nacks = _split(self._nacks)
        return acks, batches, nacks

    def add_unreported(self, number: int, report: Report | None, found: LeasedAcks) -> None:
        """Add the partition's acknowledgements here and in this report to `found`."""
        found.add(self._acks.get(number, BitMap64()), self._batch_acks.get(number, {}))
        if report is not None:
            found.add(report.acks.get(number, ()), report.batch_acks.get(number, {}))

    def refused(self, number: int, report: Report | None) -> dict[int, Nack]:
        """The partition's negative acknowledgements here and in this report, by offset."""
        nacks = list(self._nacks.get(number, ()))
        if report is not None:
            nacks += report.nacks.get(number, ())
        return {nack.offset: nack for nack in nacks}


def _split(nacks: Mapping[int, list[Nack]]) -> tuple[dict[int, tuple[Nack, ...]], dict[int, list[Nack]]]:
    now: dict[int, tuple[Nack, ...]] = {}
    later: dict[int, list[Nack]] = {}
    room = _MAX_NACKS
    for partition, each in nacks.items():
        if room:
            now[partition] = tuple(each[:room])
        if len(each) > room:
            later[partition] = each[room:]
        room -= min(room, len(each))
    return now, later
