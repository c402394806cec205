"""Offsets that hold no message are acknowledged along with messages that were not received by a consumer.

A consumer passes markers, and what was aborted, as it comes by. Who acknowledges what a DataFrame names came by
nowhere: the cursor would stay before the first of them, the log could not be trimmed there, and where Kafka deletes by
itself, they would count as messages that were lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap64
from pyspark.sql import SparkSession

from pulsar_on_kafka.mapping.records.record_headers import MARKER
from pulsar_on_kafka.spark.acknowledging.located_messages import located_offsets
from pulsar_on_kafka.spark.options.read_options import ReadOptions
from pulsar_on_kafka.spark.planning.batch_plan import Entries
from pulsar_on_kafka.spark.planning.offset_ranges import Range
from pulsar_on_kafka.spark.planning.planned_views import view_of, visible
from pulsar_on_kafka.spark.planning.visibility import TopicView
from pulsar_on_kafka.spark.reading.chunk_frames import records_of
from pulsar_on_kafka.spark.reading.header_columns import RecordHeaders

MOST_LOOKED_AT: Final = 100_000
"""Of one partition, at a time: what is left is looked at when the next messages are acknowledged."""


def markers_between(
    spark: SparkSession, options: ReadOptions, view: TopicView, named: Mapping[int, Entries]
) -> dict[int, BitMap64]:
    """Markers below the last one of the named messages that nobody passed yet.

    The lowest `MOST_LOOKED_AT` records that are neither acknowledged nor named are looked at, by one job over their
    headers; no job where there are none, or the topic has nothing but plain messages, and never had a transaction.
    """
    if view.plain and not view.marked:
        return {}
    left: dict[int, BitMap64] = {}
    for partition, one in view.partitions.items():
        entries = named[partition]
        between = visible(one, one.whole.start, until(one.whole, entries).end) - entries.whole
        if between:
            left[partition] = BitMap64(between[:MOST_LOOKED_AT])
    if not left:
        return {}
    records = records_of(spark, options, view.topic, {p: view_of(Entries(offsets)) for p, offsets in left.items()})
    return located_offsets(records.where(RecordHeaders().has(MARKER)))


def until(whole: Range, named: Entries) -> Range:
    """`whole` up to the last one of the named messages."""
    last = max((*named.batches, *named.whole[-1:]), default=-1)
    return Range(whole.start, max(whole.start, min(whole.end, last + 1)))
