"""A member's reports are unsaved until owners have saved them, which a flush waits for.

An owner that took its partition over without a trace of leases has not heard what was told before; it says from where
on it has (`Saved.since`). What was told before that is told again, unless an owner says meanwhile that it has saved it,
or that it does not count, because it was told before a seek.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.mapping.state.cursors.lease_records import LeasedEntry, Report
from pulsar_on_kafka.subscriptions.leases.leased_partition import merged_acks

_MOST_TOLD: Final = 1000


@dataclass(slots=True)
class Acks:
    """Acknowledgements of one partition: entries, and messages of batch entries."""

    whole: BitMap64 = field(default_factory=BitMap64)
    batches: dict[int, BatchAckSet] = field(default_factory=dict)

    def add(self, whole: BitMap64, batches: Mapping[int, BatchAckSet]) -> None:
        self.whole |= whole
        for offset, acked in batches.items():
            self.batches[offset] = merged_acks(self.batches.get(offset), acked)

    def __bool__(self) -> bool:
        return bool(self.whole or self.batches)

    def left_of(self, entry: LeasedEntry) -> LeasedEntry | None:
        """`entry` without what these acknowledge of it; None where that is all."""
        more = self.batches.get(entry.offset)
        if entry.offset in self.whole:
            return None
        if more is None:
            return entry
        acked = merged_acks(None if entry.acked is None else BatchAckSet(*entry.acked), more)
        if acked.complete:
            return None
        left = acked.batch_size - acked.acked.bit_count()
        return replace(entry, messages=left, acked=(acked.batch_size, acked.acked))


@dataclass(slots=True)
class _Unheard:
    """Acknowledgements of one partition that its owner saved without having heard them, and where they were told."""

    first: int
    last: int
    acks: Acks = field(default_factory=Acks)


@dataclass(slots=True)
class _Told:
    """Acknowledgements by partition, told in reports from offset `first` to `last` of `deliveries`; the number of the
    first of these reports."""

    number: int
    first: int
    last: int
    acks: dict[int, Acks]


class UnsavedReports:
    """Reports that acknowledge something and are written, but not known to be saved.

    Memory: bitmaps and ack sets of 1,000 reports; beyond that the newest ones are one, which is saved when all are.
    """

    def __init__(self) -> None:
        self._told: deque[_Told] = deque()
        self._unheard: dict[int, _Unheard] = {}
        """By partition."""
        self._unheard_number = 0
        self.newest = 0
        """The number of the last report that acknowledged something."""

    def __bool__(self) -> bool:
        return bool(self._told or self._unheard)

    @property
    def has_unheard(self) -> bool:
        """Something is to be told again (`take_unheard`)."""
        return bool(self._unheard)

    def written(self, number: int, offset: int, report: Report) -> None:
        """The report, which acknowledges from report `number` on, is in the log at this offset."""
        acks: dict[int, Acks] = {}
        for partition in {*report.acks, *report.batch_acks}:
            batches = {o: BatchAckSet(*each) for o, each in report.batch_acks.get(partition, {}).items()}
            acks[partition] = Acks(BitMap64(report.acks.get(partition, ())), batches)
        if not acks:
            return
        self.newest = number
        if len(self._told) < _MOST_TOLD:
            self._told.append(_Told(number, offset, offset, acks))
            return
        newest = self._told[-1]
        newest.number, newest.last = min(newest.number, number), offset
        for partition, each in acks.items():
            newest.acks.setdefault(partition, Acks()).add(each.whole, each.batches)

    def saved(self, partition: int, since: int, upto: int) -> None:
        """The partition's owner has saved what reports in [since, upto) acknowledge."""
        unheard = self._unheard.get(partition)
        if unheard is not None and since <= unheard.first and unheard.last < upto:
            del self._unheard[partition]
        for told in self._told:
            if told.last >= upto or partition not in told.acks:
                continue
            acks = told.acks.pop(partition)
            if told.first < since:
                self._unheard_number = min(told.number, self._unheard_number if self._unheard else told.number)
                unheard = self._unheard.setdefault(partition, _Unheard(told.first, told.last))
                unheard.last = max(unheard.last, told.last)
                unheard.acks.add(acks.whole, acks.batches)
        self._forget_saved()

    def taken_in(self, partition: int, upto: int) -> None:
        """A save of the partition's cursor holds what reports below this offset acknowledge, or that it does not count;
        what an owner has said not to have heard is still to be told."""
        for told in self._told:
            if told.last < upto:
                told.acks.pop(partition, None)
        self._forget_saved()

    def told_from(self, partition: int, offset: int) -> Acks:
        """What is acknowledged of it in reports at this offset and behind."""
        found = Acks()
        for told in reversed(self._told):
            if told.first < offset:
                break
            acks = told.acks.get(partition)
            if acks is not None:
                found.add(acks.whole, acks.batches)
        return found

    def take_unheard(self, number: int) -> tuple[int, dict[int, Acks]]:
        """What report `number` is to tell again, and from which report on it acknowledges then."""
        if not self._unheard:
            return number, {}
        unheard, self._unheard = self._unheard, {}
        return min(number, self._unheard_number), {partition: each.acks for partition, each in unheard.items()}

    def take(self, partitions: Collection[int]) -> Acks:
        """Their owner is this process itself now, which saves this on its own. Together, so ask for one at a time where
        it matters which."""
        found = Acks()
        for partition in self._unheard.keys() & partitions:
            unheard = self._unheard.pop(partition).acks
            found.add(unheard.whole, unheard.batches)
        for told in self._told:
            for partition in told.acks.keys() & partitions:
                acks = told.acks.pop(partition)
                found.add(acks.whole, acks.batches)
        self._forget_saved()
        return found

    def are_saved(self, upto: int) -> bool:
        """All reports up to this number are, as far as their partitions are others' still."""
        if self._unheard and self._unheard_number <= upto:
            return False
        return all(told.number > upto for told in self._told)

    def _forget_saved(self) -> None:
        if any(not told.acks for told in self._told):
            self._told = deque(told for told in self._told if told.acks)
