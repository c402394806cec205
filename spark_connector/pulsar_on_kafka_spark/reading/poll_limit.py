"""Executors' polls are limited by bytes: Kafka's client limits a fetch by compressed bytes, and a poll by records.

A task holds the decompressed records of one poll. With 50,000 records of a fetch of 4 MB (`connection.BY_DEFAULT`), a
topic of 1 MB of well compressed records took more than the 1 GB of an executor, at each attempt. So the limit of
records is that of `MAX_POLL_BYTES`, by the mean size of a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.visibility import SNAPSHOT_S, TopicView
from pulsar_on_kafka_spark.reading.connection import BY_DEFAULT

MAX_POLL_BYTES: Final = 128 * 1024 * 1024
"""The decompressed records of one poll, while records are of the size of the sample."""
_OPTION: Final = "max.poll.records"
_MAX_RECORDS: Final = int(BY_DEFAULT[_OPTION])
_SAMPLE: Final = 50
"""Records at the beginning and at the end of each topic's largest partition."""


def with_poll_limit(node: Node, options: ReadOptions, views: Iterable[TopicView]) -> ReadOptions:
    """The same options, with a limit of records in a poll if the sampled records require a lower one than the default.
    A limit that the program gives stays."""
    if _OPTION in options.kafka:
        return options
    limit = min((poll_records(_sizes(node, view)) for view in views), default=_MAX_RECORDS)
    return options if limit == _MAX_RECORDS else replace(options, kafka={**options.kafka, _OPTION: str(limit)})


def poll_records(sizes: Sequence[int]) -> int:
    """The limit for records of these sizes: the default one, or a lower power of two, so that later reads of a topic
    mostly have the same and reuse its consumers."""
    fit = MAX_POLL_BYTES * len(sizes) // max(1, sum(sizes))
    return _MAX_RECORDS if not sizes or fit >= _MAX_RECORDS else 1 << max(1, fit).bit_length() - 1


def _sizes(node: Node, view: TopicView) -> list[int]:
    wholes = {partition: one.whole for partition, one in view.partitions.items()}
    largest = max(wholes, key=lambda partition: wholes[partition].length, default=None)
    if largest is None:
        return []
    whole = wholes[largest]
    first = range(whole.start, min(whole.end, whole.start + _SAMPLE))
    last = range(max(first.stop, whole.end - _SAMPLE), whole.end)
    read = node.fetcher.read_at(view.topic.kafka_topic, largest, [*first, *last], Deadline.after(SNAPSHOT_S))
    return [len(each.key() or b"") + len(each.value() or b"") for records in read for each in records]
