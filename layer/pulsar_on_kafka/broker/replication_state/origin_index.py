"""The origin index maps the records of one partition to their originals elsewhere. Pure.

Headers of a copy name the place where the record was first published.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.original_position import copy_headers, decode_original
from pulsar_on_kafka_mapping.records.record_headers import MARKER
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

Headers = Iterable[tuple[str, bytes | None]] | None

_PLAIN_DIGITS: Final = 19
"""Fewer of them are an offset for certain."""


class CopiedOriginal(NamedTuple):
    """`there`: the original's offset. `epoch`: of the replicator that copied it."""

    origin: Origin
    there: int
    epoch: int


def copied(headers: Headers, partition: int) -> CopiedOriginal | None:
    """The original of a record; None for one that was published here, or copied from a partition of another number
    (which cannot be mapped).

    Raises:
        CorruptRecord: the headers mark it as a copy, and cannot be read.
    """
    reported = copy_headers(headers)
    if reported is None:
        return None
    offset, _, of_all = reported.position.partition(b":")
    try:
        origin, its_partition, epoch = _of_all(reported.cluster, of_all)
        there = (
            int(offset) if len(offset) < _PLAIN_DIGITS and offset.isdigit() else decode_original(reported.position)[0]
        )
    except ValueError as error:
        raise CorruptRecord(
            f"a copy from {reported.cluster!r:.100} names position {reported.position!r:.100}: {error}"
        ) from error
    return CopiedOriginal(origin, there, epoch) if its_partition == partition else None


@lru_cache(maxsize=256)
def _of_all(cluster: bytes, behind_offset: bytes) -> tuple[Origin, int, int]:
    """The part that all copies of one partition by one owner of a replicator have in common; raises ValueError."""
    found = decode_original(b"0:" + behind_offset)
    return Origin(cluster.decode("utf-8"), found.incarnation), found.partition, found.epoch


def is_marker(headers: Headers) -> bool:
    return MARKER in dict(headers or ())


class CopiedRun(NamedTuple):
    """Records that follow each other here and there: `length` from `there` on, whose copies lie from `here` on."""

    there: int
    here: int
    length: int


class _Runs:
    __slots__ = ("here", "length", "seen", "there")

    def __init__(self) -> None:
        self.there, self.here, self.length = array("Q"), array("Q"), array("Q")
        self.seen = BitMap64()

    def add(self, there: int, here: int) -> None:
        self.seen.add(there)
        if self.length:
            length = self.length[-1]
            if self.there[-1] + length == there and self.here[-1] + length == here:
                self.length[-1] = length + 1
                return
        self.there.append(there)
        self.here.append(here)
        self.length.append(1)


class OriginIndex:
    """Index of the log from `start` to `end`. Every record that is not in it was published here.

    Only the first valid copy of a record counts: a second one (resent after a crash of a replicator) is ignored.
    Records that a replicator appends after another one took over are void (`mapping.records.epoch_fences`): their state
    does not count for the message.

    Memory: 24 bytes for each run (a copied backlog is one, copies that alternate with messages published here are one
    each), and a bitmap of the copied offsets for each origin.
    """

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self._origins: dict[Origin, _Runs] = {}
        self._epochs: dict[str, int] = {}
        self.nothing = BitMap64()
        """Offsets without a message to acknowledge: markers, second copies, gaps."""

    def published_here(self, offset: int) -> None:
        """Adds a record that was published here. Records are added in the order of their offsets; missing offsets do
        not exist (any more)."""
        self._reach(offset)

    def begun(self, cluster: str, epoch: int) -> None:
        """Begins an epoch: behind this, copies of replicators of lower epochs from the cluster are void."""
        self._epochs[cluster] = max(epoch, self._epochs.get(cluster, 0))

    def copied(self, offset: int, origin: Origin, there: int, epoch: int) -> bool:
        """Adds a copy; returns whether it is the first valid one."""
        self._reach(offset)
        runs = self._origins.get(origin)
        if runs is None:
            runs = self._origins[origin] = _Runs()
        if there in runs.seen or epoch < self._epochs.get(origin.cluster, 0):
            self.nothing.add(offset)
            return False
        runs.add(there, offset)
        return True

    def no_message(self, offset: int) -> None:
        self._reach(offset)
        self.nothing.add(offset)

    def reached(self, end: int) -> None:
        """Marks everything below `end` as added."""
        if end > self.end:
            self.nothing.add_range(self.end, end)
            self.end = end

    def _reach(self, offset: int) -> None:
        self.reached(offset)
        self.end = max(self.end, offset + 1)

    def origins(self) -> Mapping[Origin, int]:
        return {origin: len(runs.length) for origin, runs in self._origins.items()}

    def runs(self, origin: Origin, first: int = 0) -> Iterator[CopiedRun]:
        """Runs of copies from number `first` on, in the order in which the copies lie here."""
        runs = self._origins.get(origin)
        if runs is not None:
            for number in range(first, len(runs.length)):
                yield CopiedRun(runs.there[number], runs.here[number], runs.length[number])

    def copies(self, origin: Origin) -> BitMap64:
        """The offsets, in their origin, of what was copied. Live: do not change it."""
        runs = self._origins.get(origin)
        return BitMap64() if runs is None else runs.seen

    def nothing_within(self, start: int, end: int) -> BitMap:
        """`nothing` in [start, end), counted from `start`."""
        window = BitMap64()
        window.add_range(start, end)
        return BitMap((self.nothing & window).shift(-start))
