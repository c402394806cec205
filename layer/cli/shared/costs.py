"""Costs of cursors on Kafka, in tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulsar_on_kafka.admin.cursor_view import LedgerCost, PartitionCursor
from pulsar_on_kafka.cli.shared.output import show_pairs, show_table, write_line

_CELLS = 200


def show_costs(cursors: Sequence[PartitionCursor]) -> None:
    """A line for each ledger above mark-delete, one for each partition's commit and marker, and the totals."""
    rows: list[tuple[object, ...]] = []
    for cursor in cursors:
        rows += [
            (
                cursor.partition, f"{ledger.start:,} - {ledger.end - 1:,}", ledger.ledger_id, ledger.acknowledged,
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


def cursors_as_json(cursors: Sequence[PartitionCursor]) -> dict[str, Any]:
    """Everything that `show` tells; the picture is `acknowledged_share`, of up to 200 cells between the `edges`."""
    return {
        "partitions": [_partition(cursor) for cursor in cursors],
        "acknowledged": sum(cursor.acknowledged for cursor in cursors),
        "holes": sum(cursor.holes for cursor in cursors),
        "total_bytes": sum(cursor.total_bytes for cursor in cursors),
    }


def _partition(cursor: PartitionCursor) -> dict[str, Any]:
    edges = cursor.edges(_CELLS)
    plain = (
        "partition", "start", "end", "mark_delete", "backlog", "acknowledged", "holes", "batches", "saved_in",
        "commit_bytes", "marker_offset", "segment_bytes", "total_bytes",
    )  # fmt: skip
    return {
        **{name: getattr(cursor, name) for name in plain},
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
