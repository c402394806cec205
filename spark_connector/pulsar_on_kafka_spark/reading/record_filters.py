"""Filters select the records of a snapshot, as SQL that Spark compiles."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.record_headers import DELIVER_AT, MARKER, TXN
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY
from pulsar_on_kafka_spark.base.java_proxies import driver_jvm
from pulsar_on_kafka_spark.base.spark_session import is_connect
from pulsar_on_kafka_spark.base.sql_text import column, text
from pulsar_on_kafka_spark.base.unsafe_values import arrays, ints, longs, row
from pulsar_on_kafka_spark.planning.excluded_offsets import BLOCK, BLOCK_BITS, SLOT_BITS, BlockRow
from pulsar_on_kafka_spark.planning.visibility import TopicView
from pulsar_on_kafka_spark.reading import header_columns

ACKED: Final = "__acked"
"""The words of bits of a batch entry's acknowledged messages; null: none is."""

_ROW: Final = "__block bigint, __first int, __words array<bigint>, __entries array<int>, __sets array<array<bigint>>"
_IN_PLAN: Final = "array<array<struct<words: array<bigint>, entries: array<int>, sets: array<array<bigint>>>>>"
"""The plan by partition, and by block from the first one that any partition has; null without a block."""
_MAX_IN_PLAN: Final = 128
"""Blocks: with more Spark warns that each task is handed 1 MiB, and a read of so many messages takes long beside what a
join costs it once."""
_WIDEST_IN_PLAN: Final = 65_536
"""Blocks from the first to the last one that has something, over all partitions: 8 bytes each."""
_BLOCKS: Final = "__blocks"
_log = logging.getLogger(__name__)


def without_excluded(spark: SparkSession, records: DataFrame, rows: list[BlockRow]) -> DataFrame:
    """Records that no block excludes; with the column `ACKED`, if any batch entry is excluded in part.

    A test of a bit, which runs in compiled code. The blocks are a literal; many of them, and those of Spark Connect,
    which knows no such literals, are broadcast and joined, which takes 0.2 s more for each read.
    """
    if not rows:
        return records
    low, block = f"cast(`offset` & {BLOCK - 1} as int)", f"shiftright(`offset`, {BLOCK_BITS})"
    number = f"shiftright({low}, 6)"
    made = _literal(spark, rows)
    if made is not None:
        found, first = records.withColumn(_BLOCKS, made[0]), made[1]
        own = f"get(get({_BLOCKS}, `partition`), try_cast({block} - {first}L as int))"
        word, entries, sets = f"get({own}.words, {number})", f"{own}.entries", f"{own}.sets"
    else:
        blocks = spark.createDataFrame(rows, _ROW, verifySchema=False).hint("broadcast")
        key = f"shiftleft(cast(`partition` as bigint), {SLOT_BITS}) | {block}"
        found = records.join(blocks, F.expr(f"({key}) = __block"), "left")
        word, entries, sets = f"get(__words, {number} - __first)", "__entries", "__sets"
    kept = [column(name) for name in records.columns]
    if any(of_batches for *_, of_batches, _ in rows):
        kept.append(f"get({sets}, cast(array_position({entries}, {low}) as int) - 1) as {ACKED}")
    return found.where(f"coalesce({bit(word, low)}, 0) = 0").selectExpr(kept)


def _literal(spark: SparkSession, rows: list[BlockRow]) -> tuple[Column, int] | None:
    """`_IN_PLAN`, and the number of the first block. None: that cannot be."""
    if is_connect(spark) or len(rows) > _MAX_IN_PLAN:
        return None
    places = [(key >> SLOT_BITS, key & (1 << SLOT_BITS) - 1) for key, *_ in rows]
    first = min(block for _, block in places)
    partitions = 1 + max(partition for partition, _ in places)
    width = 1 + max(block for _, block in places) - first
    if partitions * width > _WIDEST_IN_PLAN:
        return None
    found: list[list[bytes | None]] = [[None] * width for _ in range(partitions)]
    for (partition, number), (_, zeros, words, entries, sets) in zip(places, rows, strict=True):
        each = longs(words, zeros), ints(entries), arrays([longs(one) for one in sets])
        found[partition][number - first] = row(each)
    try:
        return driver_jvm(spark).literal(arrays([arrays(each) for each in found]), _IN_PLAN), first
    except (Py4JError, TypeError) as failure:  # what is called there is no public interface of Spark's
        _log.warning("excluded offsets cannot be a literal of the plan, joining them: %s", failure)
        return None


def bit(word: str, number: str) -> str:
    """Bit `number` modulo 64 of a word."""
    return f"(shiftright({word}, {number} & 63) & 1)"


def without_markers(records: DataFrame) -> DataFrame:
    """Records without headers that are no markers of transactions, by their key (see
    `mapping.records.transaction_headers`)."""
    return records.where(f"`value` is not null or `key` is null or `key` != X'{MARKER_KEY.hex()}'")


def readable(records: DataFrame, view: TopicView) -> DataFrame:
    """Records that headers do not exclude: no markers, none of aborted transactions of which a record may still come,
    none of a transaction whose id cannot be read, and none that is to be delivered later."""
    conditions = [f"not {header_columns.has(MARKER)}", _READABLE_TXN]
    if view.delayed_until_ms is not None:
        conditions.append(f"coalesce({header_columns.number(DELIVER_AT)} <= {view.delayed_until_ms}L, true)")
    if any(one.unsealed for one in view.partitions.values()):
        records = without_transactions(records, view)
    return records.where(" and ".join(conditions))


def _half_of_txn(count: int) -> str:
    half = f"substring_index({header_columns.text(TXN)}, ':', {count})"
    return f"try_cast({half} as decimal(20, 0)) <= {2**64 - 1}"


_TXN_ID: Final = r"\A[0-9]{1,20}:[0-9]{1,20}\z"
_READABLE_TXN: Final = (
    f"(not {header_columns.has(TXN)} or coalesce({header_columns.text(TXN)} rlike {text(_TXN_ID)} "
    f"and {_half_of_txn(1)} and {_half_of_txn(-1)}, false))"
)
"""As `TxnId.from_bytes` decides it. Never null."""


def without_transactions(records: DataFrame, view: TopicView) -> DataFrame:
    """Records, with headers, of none of the aborted transactions of which a record may still have come."""
    transactions = {txn for one in view.partitions.values() for txn in one.unsealed}
    return records.where(f"not {of_transactions(transactions)}")


def of_transactions(transactions: Collection[TxnId]) -> str:
    """Whether a record belongs to one of these transactions. Never null."""
    names = ", ".join(sorted(text(txn.to_bytes().decode()) for txn in transactions))
    return f"coalesce({header_columns.text(TXN)} in ({names}), false)"


def inside_bounds(
    messages: DataFrame, begun: Mapping[int, tuple[int, int]], ended: Mapping[int, tuple[int, int]]
) -> DataFrame:
    """Messages without those of batch entries before the first, or behind the last requested one.

    `begun` and `ended`: by partition, the offset of the entry, and the index of its first (last) message.
    """
    for partition, (offset, first) in begun.items():
        messages = messages.where(_is_not_at(partition, offset, f"__index < {first}"))
    for partition, (offset, last) in ended.items():
        messages = messages.where(_is_not_at(partition, offset, f"__index > {last}"))
    return messages


def _is_not_at(partition: int, offset: int, beside: str) -> str:
    """Never null; a message in no batch is not `beside` anything."""
    return f"not (`partition` = {partition} and `offset` = {offset}L and coalesce({beside}, false))"
