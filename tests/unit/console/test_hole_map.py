"""Maps of holes: each cell has the worst state of its offsets."""

from __future__ import annotations

import random
import re

from pyroaring import BitMap64

from pulsar_on_kafka.admin.cursor_view import PartitionCursor, view_of
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.console.hole_map import CELLS, COLUMNS, STATES, hole_map
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Deliveries
from tests.seeds import for_each_seed


def a_view(state: CursorState, end: int, size: int, start: int = 0) -> PartitionCursor:
    return view_of(0, RecoveredCursor(state, None, "commit"), LedgerLayout(7, size), start, end, "commit", 120, [])


def state_of(state: CursorState, offset: int, start: int, highest: int) -> str:
    if offset < start:
        return "g"
    if offset < state.next_unacked:
        return "d"
    if state.is_acknowledged(offset):
        return "a"
    if state.deliveries is not None and offset in state.deliveries.suspects:
        return "s"
    return "t" if offset > highest else "h"


@for_each_seed(range(100))
def test_cells_are_those_of_a_plain_set(seed: int) -> None:
    rng = random.Random(seed)
    end, size = rng.randrange(1, 6000), rng.choice((7, 100, 1000))
    start = rng.randrange(end)
    state = CursorState(rng.randrange(start, end + 1), size)
    state.acknowledge([rng.randrange(end) for _ in range(rng.randrange(2000))])
    if rng.random() < 0.3:
        state.deliveries = Deliveries(0, BitMap64(rng.randrange(end) for _ in range(20)))
    found = hole_map(a_view(state, end, size, start), rng.randrange(end), rng.choice((None, 1, 2, 10, 500)))
    assert found.first <= found.last <= end
    assert len(found.cells) == -(-(found.last - found.first) // found.scale) <= CELLS
    deleted = state.deleted.max()
    highest = state.mark_delete if deleted is None else deleted
    for number, (worst, left) in enumerate(zip(found.cells, found.left, strict=True)):
        first = found.first + number * found.scale
        offsets = range(first, min(first + found.scale, end))
        assert worst == max((state_of(state, each, start, highest) for each in offsets), key=STATES.index), number
        assert left == sum(not state.is_acknowledged(each) for each in offsets), number
    assert sum(width for width in drawn_widths(found.paths())) == len(found.cells)


def drawn_widths(paths: object) -> list[int]:
    return [int(width) for _, outline in paths for width in re.findall(r"M\d+ \d+h(\d+)v1", outline)]  # type: ignore[attr-defined]


def test_one_hole_among_many_is_seen_at_every_scale() -> None:
    state = CursorState(0, 50_000)
    state.acknowledge_range(1, 7_000_000)
    for scale in (1, 10, 1000, 100_000):
        found = hole_map(a_view(state, 7_000_000, 50_000), 0, scale)
        assert (found.cells[0], found.left[0]) == ("h", 1)
        assert set(found.cells[1:]) == {"a"}


def test_millions_of_holes_are_as_many_cells_as_any() -> None:
    state = CursorState(0, 50_000)
    state.acknowledge(list(range(1, 2_000_000, 2)))
    found = hole_map(a_view(state, 2_000_000, 50_000))
    assert (found.first, found.last) == (0, 2_000_000)
    assert len(found.cells) <= CELLS
    assert set(found.cells) == {"h"}
    assert len("".join(outline for _, outline in found.paths())) < 2000


def test_zooming_out_ends_where_all_is_seen() -> None:
    state = CursorState(3, 100)
    view, seen = a_view(state, 1_000_000, 100), 0
    found = hole_map(view, 500_000, 1)
    while (wider := found.wider) is not None:
        found, seen = hole_map(view, *wider), seen + 1
        assert seen < 10
    assert (found.first, found.last) == (0, 1_000_000)


def test_windows_begin_with_round_offsets_and_follow_one_another() -> None:
    view = a_view(CursorState(0, 100), 1_000_000, 100)
    found = hole_map(view, 123_456, 10)
    assert found.first == 123_000
    assert found.first % (COLUMNS * 10) == 0
    assert hole_map(view, found.behind, 10).first == found.last
    before = found.before
    assert before is not None
    assert hole_map(view, before, 10).last == found.first


def test_the_next_hole_is_outside_of_the_window() -> None:
    state = CursorState(10, 1000)
    state.acknowledge([*range(11, 9000), *range(9001, 20_000)])
    found = hole_map(a_view(state, 30_000, 1000), 2000, 1)
    assert (found.hole_before, found.hole_behind) == (10, 9000)
    assert hole_map(a_view(state, 30_000, 1000), 9100, 1).hole_behind is None


def test_nothing_to_see() -> None:
    assert hole_map(a_view(CursorState(0, 10), 0, 10)).cells == ""
