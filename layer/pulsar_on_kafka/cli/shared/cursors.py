"""A subscription's cursors: what is acknowledged where, as text and as a PNG, and what that costs on Kafka."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pulsar_on_kafka.base.text import counted, eighths
from pulsar_on_kafka.cli.shared.output import show_pairs, show_table, write_line

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

    from pulsar_on_kafka.admin.cursor_view import LedgerCost, PartitionCursor

_CELLS = 200


def show_costs(cursors: Sequence[PartitionCursor]) -> None:
    """A line for each ledger above mark-delete, one for each partition's commit and marker, and the totals."""
    rows: list[tuple[object, ...]] = []
    for cursor in cursors:
        rows += [
            (
                cursor.partition, f"{ledger.start:,} - {ledger.end - 1:,}", str(ledger.ledger_id), ledger.acknowledged,
                ledger.holes, ledger.batches, _record_of(ledger), f"{ledger.size_bytes:,}" if ledger.size_bytes else "",
            )
            for ledger in cursor.ledgers
        ]  # fmt: skip
        rows += [
            (cursor.partition, "", "", "", "", "", f"{name} at {cursor.marker_offset}", f"{size:,}")
            for name, size in _marker_records(cursor)
        ]
        rows.append((cursor.partition, "", "", "", "", "", "commit", f"{cursor.commit_bytes:,}"))
    show_table(("partition", "offsets", "ledger", "acknowledged", "holes", "batches", "record", "bytes"), rows)
    write_line("")
    show_pairs(
        {
            "acknowledged above mark-delete": sum(cursor.acknowledged for cursor in cursors),
            "holes": sum(cursor.holes for cursor in cursors),
            "batches acknowledged in part": sum(cursor.batches for cursor in cursors),
            "bytes in commits": sum(cursor.commit_bytes for cursor in cursors),
            "bytes in segments": sum(cursor.segment_bytes for cursor in cursors),
            "bytes in markers": sum(sum(cursor.marker_bytes) for cursor in cursors),
            "bytes on Kafka": sum(cursor.total_bytes for cursor in cursors),
        }
    )


def cursors_as_json(cursors: Sequence[PartitionCursor], read_positions: Mapping[int, int]) -> dict[str, Any]:
    """All data of `show`; the picture is `acknowledged_share`, of up to 200 cells between the `edges`.

    `read_position` is null where the owner did not reply. `acknowledged_ranges` are first and last offsets of
    what is acknowledged above mark-delete. `batch_indexes` has the acknowledged messages of batches with others, by
    offset.
    """
    return {
        "partitions": [_partition(cursor, read_positions.get(cursor.partition)) for cursor in cursors],
        "acknowledged": sum(cursor.acknowledged for cursor in cursors),
        "holes": sum(cursor.holes for cursor in cursors),
        "total_bytes": sum(cursor.total_bytes for cursor in cursors),
    }


def _partition(cursor: PartitionCursor, read_position: int | None) -> dict[str, Any]:
    from pulsar_on_kafka.admin.cursor_view import LedgerCost

    edges = cursor.edges(_CELLS)
    plain = (
        "partition", "start", "end", "mark_delete", "backlog", "acknowledged", "holes", "batches", "saved_in",
        "commit_bytes", "marker_offset", "segment_bytes", "total_bytes",
    )  # fmt: skip
    return {
        **{name: getattr(cursor, name) for name in plain},
        "read_position": read_position,
        "acknowledged_ranges": list(cursor.acknowledged_ranges()),
        "batch_indexes": dict(cursor.acknowledged_in_batches()),
        "marker_bytes": list(cursor.marker_bytes),
        "ledgers": [{name: getattr(ledger, name) for name in LedgerCost.__slots__} for ledger in cursor.ledgers],
        "edges": edges,
        "acknowledged_share": [round(share, 4) for share in cursor.shares(edges)],
    }


def _record_of(ledger: LedgerCost) -> str:
    if ledger.record == "commit":
        return "commit"
    return "segment at " + ", ".join(map(str, ledger.segment_offsets))


def _marker_records(cursor: PartitionCursor) -> list[tuple[str, int]]:
    return [("marker" if not page else f"page {page} of the marker", size) for page, size in
            enumerate(cursor.marker_bytes)]  # fmt: skip


_SHADES: Final = "▁▂▃▄▅▆▇"
LEGEND: Final = f"█ acknowledged   {_SHADES} by eighths   · nothing   ┬ a ledger begins   ▲ mark-delete"

_WIDTH: Final = 1000
_MARGIN: Final = 12
_AXIS: Final = 110
"""Room to the left of a field, for the offset with which a line of cells begins."""
_TICK: Final = 5
"""Lines of cells from one such offset to the next."""
_HEADING: Final = 34
_CELL: Final = 4
_ROWS: Final = 40
_GAP: Final = 14
_WHITE: Final = (255, 255, 255)
_INK: Final = (30, 30, 40)
_NOTHING: Final = (236, 240, 245)
_ALL: Final = (22, 84, 150)
_BEHIND: Final = (150, 158, 168)
_LEDGER: Final = (214, 69, 56)


def drawn(cursor: PartitionCursor, width: int) -> list[str]:
    """Lines of `width` characters at most: the entries from the ledger of mark-delete to the log's end, and below them
    where ledgers begin, with the offsets at both ends."""
    edges = cursor.edges(max(1, width))
    if cursor.end <= cursor.drawn_from:
        return [f"everything up to the log's end, {cursor.end:,}, is acknowledged"]
    blocks = "".join(map(_block, cursor.shares(edges)))
    ruler = [" "] * len(blocks)
    for cell in _ledger_cells(cursor, edges):
        ruler[cell] = "┬"
    if edges[0] <= cursor.mark_delete < edges[-1]:
        ruler[_cell_of(edges, cursor.mark_delete)] = "▲"
    scale = -(-(edges[-1] - edges[0]) // len(blocks))
    left, right = f"{edges[0]:,}", f"{edges[-1] - 1:,}"
    middle = f"{scale:,} offsets a character" if scale > 1 else ""
    room = max(len(blocks) - len(left) - len(right), len(middle) + 2)
    return [blocks, "".join(ruler).rstrip(), f"{left}{middle:^{room}}{right}"]


def save_png(cursors: Sequence[PartitionCursor], title: str, state: str, file: Path) -> None:
    """Draws one field of cells for each partition, read line by line, with the offsets of lines to its left. A ledger
    begins at a red cell, grey cells lie at or below mark-delete, and the bluer another one is the more of it is
    acknowledged. The subscription's state stands below the title, and the legend at the end.

    Raises:
        ModuleNotFoundError: Pillow is not installed.
        OSError: the file cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont

    fields = [(cursor, cursor.edges(_columns() * _ROWS)) for cursor in cursors]
    heights = [_HEADING + _CELL * -(-(len(edges) - 1) // _columns()) + _GAP for _, edges in fields]
    image = Image.new("RGB", (_WIDTH, 2 * _MARGIN + 2 * _HEADING + sum(heights)), _WHITE)
    draw, small, large = ImageDraw.Draw(image), ImageFont.load_default(13), ImageFont.load_default(17)
    draw.text((_MARGIN, _MARGIN), title, _INK, large)
    draw.text((_MARGIN, _MARGIN + 22), state, _INK, small)
    top = _MARGIN + _HEADING + 16
    for (cursor, edges), height in zip(fields, heights, strict=True):
        draw.text((_MARGIN, top), _heading(cursor, edges), _INK, small)
        _draw_field(draw, cursor, edges, top + _HEADING - 12)
        for cell in range(0, len(edges) - 1, _TICK * _columns()):
            draw.text(
                (_AXIS - 8, top + _HEADING - 12 + _CELL * (cell // _columns())), f"{edges[cell]:,}", _INK, small, "rt"
            )
        top += height
    _draw_legend(draw, small, top)
    image.save(file, "PNG")


def _draw_field(draw: ImageDraw, cursor: PartitionCursor, edges: Sequence[int], top: int) -> None:
    begins = set(_ledger_cells(cursor, edges))
    for cell, share in enumerate(cursor.shares(edges)):
        line, column = divmod(cell, _columns())
        x, y = _AXIS + _CELL * column, top + _CELL * line
        behind = edges[cell + 1] - 1 <= cursor.mark_delete
        colour = _LEDGER if cell in begins else _BEHIND if behind else _between(_NOTHING, _ALL, share)
        draw.rectangle((x, y, x + _CELL - 1, y + _CELL - 1), colour)


def _draw_legend(draw: ImageDraw, font: Any, top: int) -> None:
    x = _AXIS
    half = _between(_NOTHING, _ALL, 0.5)
    meanings = ((_BEHIND, "up to mark-delete"), (_ALL, "acknowledged"), (half, "half of it"), (_NOTHING, "nothing"))
    for colour, meaning in (*meanings, (_LEDGER, "a ledger begins")):
        draw.rectangle((x, top, x + 3 * _CELL - 1, top + 3 * _CELL - 1), colour)
        draw.text((x + 4 * _CELL, top - 1), meaning, _INK, font)
        x += 160


def _heading(cursor: PartitionCursor, edges: Sequence[int]) -> str:
    scale = -(-(edges[-1] - edges[0]) // (len(edges) - 1))
    return (
        f"partition {cursor.partition}: offsets {edges[0]:,} to {edges[-1]:,}, {scale:,} a cell; mark-delete "
        f"{cursor.mark_delete:,}, {cursor.acknowledged:,} acknowledged above it, {counted(cursor.holes, 'hole')}, "
        f"{counted(cursor.total_bytes, 'byte')} on Kafka"
    )


def _columns() -> int:
    return (_WIDTH - _MARGIN - _AXIS) // _CELL


def _between(low: tuple[int, int, int], high: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _block(share: float) -> str:
    return f"·{_SHADES}█"[eighths(share)]


def _ledger_cells(cursor: PartitionCursor, edges: Sequence[int]) -> list[int]:
    size = cursor.entries_per_ledger
    first = -(-edges[0] // size) * size
    return sorted({_cell_of(edges, offset) for offset in range(first, edges[-1], size)})


def _cell_of(edges: Sequence[int], offset: int) -> int:
    return bisect_left(edges, offset + 1) - 1
