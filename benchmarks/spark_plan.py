"""The plan of Spark's benchmarks, beside its own Kafka source, and their requirements."""

from __future__ import annotations

from typing import Any, Final

from benchmarks.model import MILLION, Cell, Group, Requirement, Rule, System

_WARM: Final = 11
"""Rounds until most of them found Spark's generated code compiled by the JVM: each kind of read has its own."""
_WARM_DRIVER: Final = 25
"""Rounds until that is so of Spark's planning, too: what a filter adds to a read of two million messages goes down from
0.6 s to 0.13 within thirty queries."""


def _spark(name: str, title: str, *cells: Cell, rounds: int = 3) -> Group:
    return Group(f"spark-{name}", f"Spark: {title}", rounds, cells, resident="spark_workers")


def _spark_cell(name: str, worker: str, messages: int = 2 * MILLION, **args: Any) -> Cell:
    """Cells of Spark's own Kafka source are called plain."""
    return Cell(name, System.RAW if name.startswith("plain") else System.LAYER, worker, messages, args)


_WITHOUT_IDS: Final = "value,__key,__topic,__publishTime"

_NARROW: Final = "value,__key"
_SOURCE_READS: Final[dict[str, dict[str, Any]]] = {
    "narrow": {"columns": _NARROW},
    "narrow-half": {"columns": _NARROW, "state": "half"},
    "wide": {},
    "wide-half": {"state": "half"},
}

SPARK: Final = (
    _spark(
        "acks",
        "2 million messages of 200 B in 4 partitions beside Spark's Kafka source: none acknowledged, a random half, "
        "or 100,000 ranges each",
        _spark_cell("plain", "read_plain"),
        _spark_cell("plain-tuned", "read_plain", tuned=True),
        _spark_cell("all", "read"),
        _spark_cell("half", "read", state="half"),
        _spark_cell("ranges", "read", state="ranges"),
        rounds=_WARM_DRIVER,
    ),
    _spark(
        "aborted",
        "2 million messages of 200 B in transactions of 100, one of eleven aborted, beside Spark's Kafka source over "
        "the same records",
        _spark_cell("plain", "read_plain", kind="transactions"),
        _spark_cell("plain-tuned", "read_plain", kind="transactions", tuned=True),
        _spark_cell("plain-headers", "read_plain", kind="transactions", headers=True),
        _spark_cell("committed", "read", kind="transactions"),
        _spark_cell("committed-headers", "read", kind="transactions", headers=True),
        rounds=_WARM_DRIVER,
    ),
    _spark(
        "batches",
        "2 million messages of 200 B in batch entries, beside its own Kafka source over as many single records",
        _spark_cell("plain", "read_plain"),
        _spark_cell("plain-tuned", "read_plain", tuned=True),
        _spark_cell("batches", "read", kind="batches", columns=_WITHOUT_IDS),
        _spark_cell("batches-with-ids", "read", kind="batches"),
        rounds=_WARM,
    ),
    _spark(
        "stream",
        "2 million messages of 200 B in 4 micro-batches, half acknowledged before, beside Spark's Kafka source and "
        "foreachBatch",
        _spark_cell("plain", "stream_plain", batches=4),
        _spark_cell("plain-tuned", "stream_plain", batches=4, tuned=True),
        _spark_cell("fresh", "stream", batches=4, acknowledge=False),
        _spark_cell("acknowledging", "stream", batches=4, acknowledge=True),
        rounds=_WARM,
    ),
    _spark(
        "source",
        "the data source beside the JVM path, of value and key (narrow) or seven columns (wide), all or half of them",
        _spark_cell("plain-tuned", "read_plain", tuned=True),
        *(
            _spark_cell(f"{kind}-{name}", "read_source", jvm=kind == "jvm", **args)
            for name, args in _SOURCE_READS.items()
            for kind in ("jvm", "source")
        ),
        rounds=_WARM,
    ),
    _spark(
        "pruned",
        "2 million messages of 200 B, nine tenths of them below the mark-delete position, beside a read of all",
        _spark_cell("full", "read", state="none"),
        _spark_cell("tenth", "read", state="tenth"),
        rounds=5,
    ),
    _spark(
        "ten-million",
        "what a snapshot takes of the driver: 20 million messages, nothing acknowledged, and a random half",
        _spark_cell("none", "driver", 20 * MILLION, state="none"),
        _spark_cell("half", "driver", 20 * MILLION, state="half"),
    ),
)


def _spark_ratio(what: str, group: str, ours: str, beside: str, most: float) -> Requirement:
    return Requirement(what, f"spark-{group}/{ours}", "read_s", Rule.RATIO_AT_MOST, most, f"spark-{group}/{beside}")


def _beside_both(what: str, group: str, ours: str) -> tuple[Requirement, Requirement]:
    """Beside Spark's own source as it comes, and tuned."""
    return (
        _spark_ratio(f"Spark: {what}, s", group, ours, "plain", 1.15),
        _spark_ratio(f"Spark: {what}, beside the tuned source, s", group, ours, "plain-tuned", 1.15),
    )


SPARK_REQUIREMENTS: Final = (
    *_beside_both("read of which a random half is acknowledged", "acks", "half"),
    *_beside_both("read with 100,000 ranges of acknowledged offsets a partition", "acks", "ranges"),
    *_beside_both("read of a topic with aborted transactions", "aborted", "committed"),
    *_beside_both("read of batch entries, without ids", "batches", "batches"),
    *_beside_both("read of batch entries, all columns", "batches", "batches-with-ids"),
    _spark_ratio("Spark: micro-batches with fresh state, s", "stream", "fresh", "plain", 1.15),
    _spark_ratio(
        "Spark: micro-batches with fresh state, beside the tuned source, s", "stream", "fresh", "plain-tuned", 1.2
    ),
    _spark_ratio(
        "Spark: value and key by the data source, beside the JVM path, s", "source", "source-narrow", "jvm-narrow", 2.86
    ),
    _spark_ratio(
        "Spark: nine tenths below the mark-delete position, beside a full read, s", "pruned", "tenth", "full", 0.25
    ),
)
