"""Spark finds the chunks by one job, and assembles messages in chunks inside the JVM.

Only for topics with a record that a message in chunks was sent (`ProducerClaims.unchunked`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.records.message_record import ChunkInfo
from pulsar_on_kafka_mapping.records.record_headers import CHUNK
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.batch_plan import Entries
from pulsar_on_kafka_spark.planning.chunked_messages import (
    MAX_CHUNKS,
    Chunks,
    KnownChunks,
    all_together,
    check_count,
    read_chunk,
)
from pulsar_on_kafka_spark.planning.excluded_offsets import block_rows
from pulsar_on_kafka_spark.planning.offset_ranges import Range, without_holes
from pulsar_on_kafka_spark.planning.planned_views import view_of, with_chunks
from pulsar_on_kafka_spark.planning.visibility import PartitionView, TopicView
from pulsar_on_kafka_spark.reading import header_columns
from pulsar_on_kafka_spark.reading.kafka_scan import scan_all
from pulsar_on_kafka_spark.reading.record_filters import of_transactions, without_excluded
from pulsar_on_kafka_spark.reading.sealed_messages import SEALED

FIRST_CHUNK: Final = "__firstChunk"
"""Offset of a message's first chunk; null for a record that is no chunk."""

_WORTH_A_SCAN: Final = 10_000
"""Offsets without a chunk; fewer of them take less time to read than another scan."""
_PARTS: Final = "__of_partition int, __at bigint, __last bigint, __number int, __chunks int, __bytes bigint"
_OF_MESSAGE: Final = ("__last", "__number", "__chunks", "__bytes")


def looked_for(spark: SparkSession, options: ReadOptions, view: TopicView) -> TopicView:
    """The same snapshot with its chunked messages, where there may be any. Runs a job then, which reads the records'
    headers.

    Raises:
        NotReadable: see `check_count`.
    """
    if not view.may_have_chunks:
        return view
    found = _found(spark, options, view.topic, view.partitions)
    return with_chunks(view, {partition: all_together(chunks) for partition, chunks in found.items()})


def look(
    spark: SparkSession,
    options: ReadOptions,
    view: TopicView,
    known: Mapping[int, KnownChunks],
    offsets: Mapping[int, BitMap64],
) -> None:
    """Finds the chunks among these offsets that were not examined yet; one job reads their headers, if there are any.

    Raises:
        NotReadable: see `check_count`.
    """
    fresh = {p: known[p].unknown(each) for p, each in offsets.items()}
    partitions = {p: view_of(Entries(each, unsealed=view.partitions[p].unsealed)) for p, each in fresh.items() if each}
    for partition, chunks in _found(spark, options, view.topic, partitions).items():
        known[partition].learn(fresh[partition], chunks)


def _found(
    spark: SparkSession, options: ReadOptions, topic: Topic, partitions: Mapping[int, PartitionView]
) -> Mapping[int, Chunks]:
    """The chunks among the records that these snapshots show; no job where they show none."""
    found: dict[int, dict[int, ChunkInfo | None]] = {p: {} for p in partitions}
    if not any(one.whole.length for one in partitions.values()):
        return found
    records = records_of(spark, options, topic, partitions)
    required = header_columns.has(CHUNK)
    unsealed = {txn for one in partitions.values() for txn in one.unsealed}
    if unsealed:
        required = f"{required} and not {of_transactions(unsealed)}"
    chunks = records.where(required).selectExpr("`partition`", "`offset`", f"{header_columns.text(CHUNK)} as header")
    rows = chunks.limit(MAX_CHUNKS + 1).collect()
    check_count(rows)
    for partition, offset, header in rows:
        found[partition][offset] = read_chunk(header or "")
    return found


def records_of(
    spark: SparkSession, options: ReadOptions, topic: Topic, partitions: Mapping[int, PartitionView]
) -> DataFrame:
    """The records that these snapshots show, of all kinds, with their headers."""
    worth = max(1_000_000, sum(one.whole.length for one in partitions.values()) // 10)
    ranges = {p: without_holes(one.whole, one.excluded.holes(one.whole), worth) for p, one in partitions.items()}
    records = scan_all(spark, options, topic, ranges, headers=True)
    return without_excluded(spark, records, block_rows({p: one.excluded for p, one in partitions.items()}))


def chunk_records(spark: SparkSession, options: ReadOptions, view: TopicView) -> DataFrame | None:
    """The chunks of a snapshot's chunked messages, each with what it is a part of. None where there are none."""
    rows = [
        (partition, offset, last, number, len(message.offsets), message.total_bytes)
        for partition, one in view.partitions.items()
        for last, message in one.chunked.items()
        for number, offset in enumerate(message.offsets)
    ]
    if not rows:
        return None
    parts = spark.createDataFrame(rows, _PARTS, verifySchema=False)
    records = scan_all(spark, options, view.topic, _ranges(view), headers=True)
    here = (records["partition"] == parts["__of_partition"]) & (records["offset"] == parts["__at"])
    return records.join(F.broadcast(parts), here).drop("__of_partition", "__at")


def put_together(chunks: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Messages as records with these columns, and `FIRST_CHUNK`: each at its last chunk's offset, with that one's key,
    headers and time.

    Chunks are grouped by sorting, so that a task holds one message at a time: that is what a key with a collation has
    Spark do, which otherwise keeps up to 128 of them in memory.
    """
    message = F.collate(F.concat_ws(":", chunks["partition"], chunks["__last"]), "UTF8_LCASE").alias("__message")
    others = [name for name in chunks.columns if name not in ("value", SEALED, *_OF_MESSAGE)]
    grouped = chunks.groupBy(message).agg(
        F.max_by(F.struct(*others), "__number").alias("__end"),
        F.min("offset").alias(FIRST_CHUNK),
        F.expr("listagg(value) within group (order by __number)").alias("value"),
        F.count("*").alias("__count"),
        F.max("__chunks").alias("__chunks"),
        F.sum(F.octet_length("value")).alias("__sum"),
        F.max("__bytes").alias("__bytes"),
        F.max(SEALED).alias(SEALED),
    )
    whole = grouped.where(f"__count = __chunks and ({SEALED} or __sum = __bytes)")
    return whole.select(*(_column(name, others) for name in columns), FIRST_CHUNK)


def _column(name: str, others: Sequence[str]) -> Column:
    if name in ("value", SEALED):
        return F.col(name)
    if name in others:
        return F.col("__end")[name].alias(name)
    return F.lit(None).alias(name)


def _ranges(view: TopicView) -> dict[int, list[Range]]:
    """The ranges to fetch for chunks: without the largest stretches that have none."""
    found = {}
    for partition, one in view.partitions.items():
        offsets = sorted(offset for message in one.chunked.values() for offset in message.offsets)
        if not offsets:
            continue
        holes = [Range(a + 1, b) for a, b in pairwise(offsets) if b > a + 1]
        whole = Range(offsets[0], offsets[-1] + 1)
        found[partition] = without_holes(whole, holes, max(_WORTH_A_SCAN, whole.length // 10))
    return found
