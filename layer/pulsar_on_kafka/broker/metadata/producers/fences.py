"""Fences void records of a partition whose writer another one had replaced: an exclusive producer of the topic, the
holder of a producer name, or a replicator of one cluster. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.records.epoch_fences import END_ORIGIN, Fence, RecordWriter, begun_by, writer_of
from pulsar_on_kafka_mapping.records.original_position import EPOCH_MAX


class Fences:
    """The beginnings of epochs in one partition.

    The rule: behind the beginning of an epoch the records of lower epochs, of the same origin, are void. Behind the end
    of a terminated topic all records of producers and replicators are void. It judges every record by itself, so all
    readers judge alike, wherever they begin. A record without this product's headers has
    no epoch and is never void. Memory: one entry per exclusive producer that wrote here, and per replicator or
    deduplicating producer that took over from one that had not closed.
    """

    def __init__(self, known: Iterable[tuple[int, int] | Fence] = ()) -> None:
        """`known`: (where it begins, epoch), or with the origin as a `Fence`."""
        self._of: dict[bytes, _Epochs] = {}
        """Epochs by origin."""
        self._highest = 0
        """The highest epoch of all origins; no record of it, or of a higher one, is void."""
        self._end: int | None = None
        """The offset of the marker that ends the topic, which is terminated; None: it is not known to be."""
        self.add(known)

    def __bool__(self) -> bool:
        return bool(self._of)

    def learn(self, offsets: Sequence[int], records: Sequence[Any], odd: Iterable[int]) -> None:
        """Take in what begins with the records at the indices `odd`."""
        for i in odd:
            begun = begun_by(headers_of(records[i]))
            if begun is not None:
                self._add(Fence(offsets[i], begun.epoch, begun.origin))

    def void_in(self, offsets: Sequence[int], records: Sequence[Any]) -> list[int]:
        void, highest = [], self._highest
        for i, record in enumerate(records):
            writer = writer_of(headers_of(record), highest)
            if writer is not None and self._is_void(writer, offsets[i]):
                void.append(i)
        return void

    def _is_void(self, writer: RecordWriter, offset: int) -> bool:
        if self._end is not None and offset > self._end:
            return True
        for origin in writer.origins:
            epochs = self._of.get(origin)
            if epochs is not None and writer.epoch < epochs.before(offset):
                return True
        return False

    def valid(self, records: list[Any], odd: Iterable[int]) -> list[Any]:
        """`learn`, then a run of records without the void ones."""
        offsets = [record.offset() for record in records]
        self.learn(offsets, records, odd)
        void = set(self.void_in(offsets, records)) if self else set()
        return [record for i, record in enumerate(records) if i not in void] if void else records

    def add(self, found: Iterable[tuple[int, int] | Fence]) -> None:
        for each in found:
            self._add(Fence(*each))

    def _add(self, fence: Fence) -> None:
        self._of.setdefault(fence.origin.encode("utf-8"), _Epochs()).add(fence.offset, fence.epoch)
        self._highest = max(self._highest, fence.epoch)
        if fence.origin == END_ORIGIN:
            self._end = fence.offset if self._end is None else min(self._end, fence.offset)
            self._highest = EPOCH_MAX + 1


class _Epochs:
    """The epochs of one origin that are above all that began before them, and where they begin."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._offsets: list[int] = []
        self._highest: list[int] = []

    def before(self, offset: int) -> int:
        """The highest epoch that began before `offset`; 0 for none."""
        at = bisect_left(self._offsets, offset)
        return self._highest[at - 1] if at else 0

    def add(self, offset: int, epoch: int) -> None:
        if offset >= self._first.get(epoch, offset + 1):
            return
        self._first[epoch] = offset
        self._offsets, self._highest = [], []
        highest = 0
        for begins, number in sorted((begins, number) for number, begins in self._first.items()):
            if number > highest:
                highest = number
                self._offsets.append(begins)
                self._highest.append(number)
