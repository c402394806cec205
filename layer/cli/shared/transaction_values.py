"""Transactions as JSON, and what it means when a buffer differs from its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Final

from pulsar_on_kafka.admin import CoordinatorStats, TransactionDetails, TransactionInfo, VerifiedBuffer
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.transactions.buffer.verify import Finding

MEANINGS: Final[Mapping[Finding, str]] = {
    Finding.TWO_OUTCOMES: "Readers may have seen it and may not: this must never happen; keep the topic and report it.",
    Finding.COMMITTED_BUT_ABORTED: "Its records are hidden although it was committed: they are lost to readers.",
    Finding.ABORTED_BUT_READABLE: "Its records are delivered although it was aborted.",
    Finding.NO_OUTCOME: "Its records are delivered although nothing says that it was committed.",
    Finding.STILL_OPEN: "Harmless while it is being ended; readers wait at its first record. If it stays, look at its "
    "coordinator: pok transactions show.",
    Finding.BOUND_TOO_HIGH: "Readers without headers (Spark) deliver these records although it is open or aborted.",
    Finding.OFFSETS_MISSING: "Readers without headers (Spark) deliver these records although it was aborted.",
    Finding.OFFSETS_TOO_MANY: "These records are hidden although they are not its own: they are lost to readers.",
    Finding.LATE_NOT_VOID: "Readers that begin behind its marker deliver these records, others do not.",
    Finding.VOID_NOT_LATE: "These records are hidden although they came in time: they are lost to readers.",
}


def fields_as_json(value: Any) -> dict[str, Any]:
    """The fields of a flat dataclass; ids of transactions as Pulsar prints them."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> Any:
    if isinstance(value, TxnId):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def info_as_json(info: TransactionInfo) -> dict[str, Any]:
    return {
        "txn_id": str(info.id),
        "status": info.status.value,
        "opened_at_ms": info.opened_at_ms,
        "timeout_at_ms": info.timeout_at_ms,
        "partitions": [each._asdict() for each in info.partitions],
        "subscriptions": [each._asdict() for each in info.subscriptions],
    }


def details_as_json(details: TransactionDetails) -> dict[str, Any]:
    return {
        **info_as_json(details.info),
        "left_ms": details.left_ms,
        "buffers": [fields_as_json(each) for each in details.buffers],
        "pending_acks": [fields_as_json(each) for each in details.pending_acks],
        "gone": [each._asdict() for each in details.gone],
    }


def coordinator_as_json(stats: CoordinatorStats) -> dict[str, Any]:
    owner = None if stats.owner is None else {"session": stats.owner[0], "version": stats.owner[1]}
    return {**fields_as_json(stats), "owner": owner}


def verified_as_json(verified: VerifiedBuffer) -> dict[str, Any]:
    return {
        "partition": verified.where.partition,
        "start": verified.start,
        "end": verified.end,
        "transactions": verified.transactions,
        "records": verified.records,
        "differences": [
            {
                "txn": str(each.txn),
                "finding": each.finding.name,
                "text": each.finding.value,
                "means": MEANINGS[each.finding],
                "harmless": each.finding.is_harmless,
                "offsets": list(each.offsets[:100]),
                "records": len(each.offsets),
            }
            for each in verified.differences
        ],
    }
