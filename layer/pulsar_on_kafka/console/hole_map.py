"""A map of holes draws a window of one partition's cursor: rows of cells, each of which stands for some offsets. A cell
has the colour of the worst state among its offsets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from pulsar_on_kafka.admin.cursor_view import PartitionCursor

COLUMNS: Final = 100
ROWS: Final = 16
CELLS: Final = COLUMNS * ROWS
"""Cells of one map at most, whatever the number of holes."""
_ZOOM: Final = 10

GONE: Final = "g"
"""Kafka has these entries no more."""
DONE: Final = "d"
"""At or below mark-delete."""
ACKNOWLEDGED: Final = "a"
"""Above mark-delete, each acknowledged by itself."""
AHEAD: Final = "t"
"""Above the highest acknowledged entry."""
HOLE: Final = "h"
"""Unacknowledged, below the highest acknowledged entry."""
SUSPECT: Final = "s"
"""Unacknowledged, and a consumer may have died of it."""
STATES: Final = (GONE, DONE, ACKNOWLEDGED, AHEAD, HOLE, SUSPECT)
"""The states of an entry; each is worse than those before it."""


@dataclass(frozen=True, slots=True)
class HoleMap:
    """Cells from `first` to `last`, exclusive, in rows of `COLUMNS`, each of `scale` offsets; the last may be cut."""

    partition: int
    start: int
    end: int
    mark_delete: int
    first: int
    last: int
    scale: int
    cells: str
    """The worst state of each, one of `STATES`."""
    left: tuple[int, ...]
    """The number of unacknowledged entries of each."""
    ledgers: tuple[int, ...]
    """Cells in which a ledger begins."""
    hole_before: int | None
    hole_behind: int | None
    """The beginning of holes behind this window."""

    @property
    def rows(self) -> int:
        return max(1, -(-len(self.cells) // COLUMNS))

    @property
    def labels(self) -> list[int]:
        """The offset with which each row begins."""
        return [self.first + row * COLUMNS * self.scale for row in range(self.rows)]

    def paths(self) -> Iterator[tuple[str, str]]:
        """The outline of each kind of cell; a cell is a unit of length."""
        drawn: dict[str, list[str]] = {}
        for row in range(self.rows):
            column = 0
            for kind, run in groupby(self.cells[row * COLUMNS : (row + 1) * COLUMNS]):
                length = len(list(run))
                drawn.setdefault(kind, []).append(f"M{column} {row}h{length}v1h-{length}z")
                column += length
        return ((kind, "".join(outlines)) for kind, outlines in sorted(drawn.items()))

    @property
    def wider(self) -> tuple[int, int] | None:
        """(first offset, scale) of the map around this one; None when this one has everything."""
        if self.first <= self.start and self.last >= self.end:
            return None
        scale = self.scale * _ZOOM
        return max(0, (self.first + self.last) // 2 - scale * CELLS // 2), scale

    @property
    def before(self) -> int | None:
        return self.first - self.scale * CELLS if self.first > self.start else None

    @property
    def behind(self) -> int | None:
        return self.last if self.last < self.end else None


def hole_map(cursor: PartitionCursor, first: int | None = None, scale: int | None = None) -> HoleMap:
    """The window that begins at about the offset `first`; without one all from the first unacknowledged entry's ledger
    on, and without a scale the finest one that shows it."""
    begin = cursor.drawn_from if first is None else max(0, min(first, cursor.end))
    if scale is None:
        scale = _scale_of(cursor.end - begin) if first is None else 1
    scale = max(1, min(scale, _scale_of(cursor.end) * _ZOOM))
    begin = max(0, begin // (scale * COLUMNS) * (scale * COLUMNS))
    last = max(begin, min(begin + scale * CELLS, cursor.end))
    edges = [*range(begin, last, scale), last]
    behind = cursor.next_hole(last)
    return HoleMap(
        cursor.partition,
        cursor.start,
        cursor.end,
        cursor.mark_delete,
        begin,
        last,
        scale,
        "".join(_worst(cursor, edges)),
        tuple(cursor.unacknowledged(edges)),
        tuple(_ledgers(cursor, begin, last, scale)),
        cursor.mark_delete + 1 if cursor.holes and cursor.mark_delete + 1 < begin else None,
        behind,
    )


def _worst(cursor: PartitionCursor, edges: Sequence[int]) -> Iterator[str]:
    """The worst state of each cell."""
    ahead_from = cursor.highest + 1
    counts = zip(pairwise(edges), cursor.unacknowledged(edges), cursor.suspects(edges), strict=True)
    for (start, end), left, suspects in counts:
        ahead = max(0, end - max(start, ahead_from))
        if suspects:
            yield SUSPECT
        elif left > ahead:
            yield HOLE
        elif ahead:
            yield AHEAD
        elif end > cursor.mark_delete + 1:
            yield ACKNOWLEDGED
        else:
            yield DONE if end > cursor.start else GONE


def _ledgers(cursor: PartitionCursor, first: int, last: int, scale: int) -> Iterator[int]:
    size = cursor.entries_per_ledger
    if size < 10 * scale:
        return  # there would be a mark at every cell
    yield from ((offset - first) // scale for offset in range(-(-first // size) * size, last, size))


def _scale_of(length: int) -> int:
    """The finest one of 1, 2, 5, 10, 20 ... with which so many offsets fit."""
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale * (CELLS - COLUMNS) >= length:
                return step * scale
        scale *= 10
