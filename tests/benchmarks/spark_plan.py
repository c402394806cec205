"""The plan of Spark's benchmarks, beside its own Kafka source, and their requirements."""

from __future__ import annotations

from typing import Any, Final

from tests.benchmarks.model import MILLION, Cell, Group, Requirement, Rule, System


def _spark(name: str, title: str, *cells: Cell, rounds: int = 3) -> Group:
    return Group(f"spark-{name}", f"Spark: {title}", rounds, cells, resident="spark_workers")


def _spark_cell(name: str, worker: str, messages: int = 2 * MILLION, **args: Any) -> Cell:
    """Cells of Spark's own Kafka source are called plain."""
    return Cell(name, System.RAW if name.startswith("plain") else System.LAYER, worker, messages, args)


_WITHOUT_IDS: Final = "value,__key,__topic,__publishTime"

SPARK: Final = (
    _spark(
        "acks",
        "2 million messages of 200 B in 4 partitions, all columns, beside Spark's own Kafka source: no subscription, "
        "half of them acknowledged at random, and in 100,000 ranges of each partition",
        _spark_cell("plain", "read_plain"),
        _spark_cell("plain-tuned", "read_plain", tuned=True),
        _spark_cell("all", "read"),
        _spark_cell("half", "read", state="half"),
        _spark_cell("ranges", "read", state="ranges"),
        rounds=5,
    ),
    _spark(
        "aborted",
        "2 million messages of 200 B in transactions of 100, one of eleven aborted some minutes before, all columns, "
        "beside its own Kafka source over the same records, with headers and without them",
        _spark_cell("plain", "read_plain", kind="transactions"),
        _spark_cell("plain-headers", "read_plain", kind="transactions", headers=True),
        _spark_cell("committed", "read", kind="transactions"),
        _spark_cell("committed-headers", "read", kind="transactions", headers=True),
        rounds=5,
    ),
    _spark(
        "batches",
        "2 million messages of 200 B in batch entries, beside its own Kafka source over as many single records",
        _spark_cell("plain", "read_plain"),
        _spark_cell("batches", "read", kind="batches", columns=_WITHOUT_IDS),
        _spark_cell("batches-with-ids", "read", kind="batches"),
    ),
    _spark(
        "stream",
        "2 million messages of 200 B in 4 micro-batches, half of them acknowledged before, beside its own Kafka source "
        "and foreachBatch; and with the rest acknowledged back",
        _spark_cell("plain", "stream_plain", batches=4),
        _spark_cell("fresh", "stream", batches=4, acknowledge=False),
        _spark_cell("acknowledging", "stream", batches=4, acknowledge=True),
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


SPARK_REQUIREMENTS: Final = (
    _spark_ratio("Spark: read of which a random half is acknowledged, s", "acks", "half", "plain", 1.15),
    _spark_ratio(
        "Spark: read with 100,000 ranges of acknowledged offsets a partition, s", "acks", "ranges", "plain", 1.15
    ),
    _spark_ratio("Spark: read of a topic with aborted transactions, s", "aborted", "committed", "plain", 1.15),
    _spark_ratio("Spark: read of batch entries, without ids, s", "batches", "batches", "plain", 1.25),
    _spark_ratio("Spark: read of batch entries, all columns, s", "batches", "batches-with-ids", "plain", 1.25),
    _spark_ratio("Spark: micro-batches with fresh state, s", "stream", "fresh", "plain", 1.15),
    _spark_ratio(
        "Spark: nine tenths below the mark-delete position, beside a full read, s", "pruned", "tenth", "full", 0.25
    ),
)
