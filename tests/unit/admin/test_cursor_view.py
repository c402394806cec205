"""Pictures of cursors: every acknowledged entry is in them once."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image

from pulsar_on_kafka.admin.cursor_view import PartitionCursor, view_of
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.cli.shared.cursors import drawn, save_png
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.seeds import for_each_seed


def a_view(state: CursorState, end: int, size: int) -> PartitionCursor:
    return view_of(0, RecoveredCursor(state, None, "commit"), LedgerLayout(7, size), 0, end, "commit", 120, [])


@for_each_seed(range(200))
def test_shares_are_those_of_a_plain_set(seed: int) -> None:
    rng = random.Random(seed)
    size, end = rng.choice((1, 7, 10, 100)), rng.randrange(1, 300)
    state = CursorState(rng.randrange(end + 1), size)
    state.acknowledge([rng.randrange(end) for _ in range(rng.randrange(200))])
    view = a_view(state, end, size)
    edges = view.edges(rng.randrange(1, 120))
    assert (edges[0], edges[-1]) == (view.drawn_from, end)
    shares = view.shares(edges)
    for start, following, share in zip(edges, edges[1:], shares, strict=False):
        acked = sum(map(state.is_acknowledged, range(start, following)))
        assert share == (acked / (following - start) if following > start else 0.0)
    assert view.acknowledged == sum(ledger.acknowledged for ledger in view.ledgers)
    width = rng.randrange(20, 120)
    assert all(len(line) <= max(width, 60) for line in drawn(view, width))


def test_a_picture_shows_holes_ledgers_and_mark_delete() -> None:
    state = CursorState(3, 10)
    state.acknowledge([5, 6, 7, *range(20, 30)])
    assert drawn(a_view(state, 30, 10), 80) == [
        "███··███············██████████",
        "┬ ▲       ┬         ┬",
        "0                           29",
    ]


def test_what_does_not_fit_is_drawn_in_shares() -> None:
    state = CursorState(0, 1000)
    state.acknowledge([*range(1000, 2000), *range(2000, 2800), *range(3000, 3400), 4000])
    blocks, ruler, scale = drawn(a_view(state, 5000, 1000), 5)
    assert blocks == "·█▆▃▁"
    assert ruler == "┬┬┬┬┬"
    assert scale.split() == ["0", "1,000", "offsets", "a", "character", "4,999"]


def test_nothing_to_draw() -> None:
    assert drawn(a_view(CursorState(20, 10), 20, 10), 80) == ["everything up to the log's end, 20, is acknowledged"]


def test_a_png_has_the_colours_of_what_is_drawn(tmp_path: Path) -> None:
    state = CursorState(100, 1000)
    state.acknowledge(list(range(101, 3000, 2)))
    file = tmp_path / "holes.png"
    save_png([a_view(state, 4000, 1000), a_view(CursorState(0, 10), 0, 10)], "s of orders", "Shared", file)
    with Image.open(file) as image:
        assert image.size[0] == 1000
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20) or []}
    assert {(22, 84, 150), (236, 240, 245), (150, 158, 168), (214, 69, 56)} <= colours
