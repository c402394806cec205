"""`acknowledge` acknowledges the messages of any DataFrame on a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import MARKER
from pulsar_on_kafka_spark.acknowledging.located_messages import located, located_offsets
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import EARLIEST, LATEST, ReadOptions
from pulsar_on_kafka_spark.options.stream_options import StreamOptions, parse_stream_options
from pulsar_on_kafka_spark.planning.batch_plan import ByTopic, Entries, both, spread
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from pulsar_on_kafka_spark.planning.planned_views import view_of, visible
from pulsar_on_kafka_spark.planning.visibility import (
    SNAPSHOT_S,
    RequestedView,
    TopicView,
    find_subscription,
    find_topic,
    view_topics,
)
from pulsar_on_kafka_spark.reading import header_columns
from pulsar_on_kafka_spark.reading.chunk_frames import looked_for, records_of
from pulsar_on_kafka_spark.reading.connection import node_of
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster


def acknowledge(messages: DataFrame, **options: Any) -> int:
    """Acknowledge the messages of a DataFrame; gives how many entries that are (a batch entry of which only some
    messages are named counts, too). Durable when it returns; what was acknowledged already stays so.

    The rows are found by `__messageId`, or by `__partition` and `__offset`, and are put together in the JVM; no row
    comes to Python. The DataFrame is evaluated once, twice when it has messages of batch entries: `cache()` it where
    that costs much. Of a message in chunks all chunks are acknowledged. What holds no message (markers, records of
    aborted transactions) is passed up to the last one, as consumers pass it (see `markers_between`).

    Options: `service.url`, `topic` or `topics`, `subscription`; `ackTimeoutSeconds`, and how to reach the cluster, as
    those of a stream.

    Raises:
        InvalidReadOption, NotReadable: see `spark.base.errors`. Some may be acknowledged.
    """
    checked = parse_stream_options(options)
    checked = replace(checked, read=on_cluster(checked.read))
    required = checked.read.subscription
    if required is None:
        raise InvalidReadOption("no subscription is given: expected subscription, on which to acknowledge")
    with node_of(checked.read) as node:
        deadline = Deadline.after(SNAPSHOT_S)
        topics = [find_topic(node, TopicName.parse(name), deadline) for name in checked.read.topics]
        found = located(messages, topics)
        spark = messages.sparkSession
        whole = {name: with_what_goes_along(spark, node, checked, name, each) for name, each in found.items()}
        acknowledge_entries(node, checked, whole)
    return sum(len(e.whole) + len(e.batches) for partitions in found.values() for e in partitions.values())


def with_what_goes_along(
    spark: SparkSession, node: Node, options: StreamOptions, name: str, named: Mapping[int, Entries]
) -> Mapping[int, Entries]:
    """The same with all chunks of messages in chunks, and with what is no message below the last one."""
    deadline = Deadline.after(SNAPSHOT_S)
    topic = find_topic(node, TopicName.parse(name), deadline)
    subscription = find_subscription(node, topic, options.read.subscription or "", deadline)
    read = replace(options.read, starting=EARLIEST, ending=LATEST, fail_on_data_loss=False)
    (view,) = view_topics(node, [RequestedView(topic, subscription, sorted(named))], read)
    upto = {p: replace(one, whole=until(one.whole, named[p])) for p, one in view.partitions.items()}
    view = replace(view, partitions=upto)
    markers = markers_between(spark, read, view, named)
    delivered = {
        p: Entries(named[p].whole, chunked=one.chunked) for p, one in looked_for(spark, read, view).partitions.items()
    }
    spread_out = spread({name: named}, {name: delivered})[name]
    along = {p: Entries(one.never & one.whole.offsets() | markers.get(p, BitMap64())) for p, one in upto.items()}
    return both({name: spread_out}, {name: along})[name]


def acknowledge_entries(node: Node, options: StreamOptions, accepted: ByTopic) -> None:
    """Make it durable that these are acknowledged on the stream's subscription.

    Raises:
        NotReadable: it is not known to be; some of it may be.
    """
    deadline = Deadline.after(options.ack_timeout_s)
    for name, partitions in accepted.items():
        topic = find_topic(node, TopicName.parse(name), deadline)
        subscription = find_subscription(node, topic, options.read.subscription or "", deadline)
        acks = {
            partition: of_offsets(entries.whole, entries.batches, topic.layout.entries_per_ledger)
            for partition, entries in partitions.items()
        }
        try:
            node.memberships.acknowledge(subscription, acks, deadline)
        except errors.LayerError as failure:
            raise NotReadable(f"acknowledgements on {name} are not known to be durable: {failure}") from failure


MAX_SCANNED: Final = 100_000
"""The limit of one partition, at a time: the rest is scanned with the next acknowledgement."""


def markers_between(
    spark: SparkSession, options: ReadOptions, view: TopicView, named: Mapping[int, Entries]
) -> dict[int, BitMap64]:
    """Unpassed markers below the last one of the named messages: they are acknowledged along.

    A consumer passes markers, and aborted messages, while it reads. An acknowledgement of a DataFrame's messages passes
    nothing: the cursor would stay before the first marker, the log could not be trimmed there, and where Kafka deletes
    by itself, markers would count as lost messages.

    One job scans the headers of the lowest `MAX_SCANNED` records that are neither acknowledged nor named; no job runs
    where there are none, or where the topic has only plain messages, and never had a transaction.
    """
    if view.plain and not view.marked:
        return {}
    left: dict[int, BitMap64] = {}
    for partition, one in view.partitions.items():
        entries = named[partition]
        between = visible(one, one.whole.start, until(one.whole, entries).end) - entries.whole
        if between:
            left[partition] = BitMap64(between[:MAX_SCANNED])
    if not left:
        return {}
    records = records_of(spark, options, view.topic, {p: view_of(Entries(offsets)) for p, offsets in left.items()})
    return located_offsets(records.where(header_columns.has(MARKER)))


def until(whole: Range, named: Entries) -> Range:
    """`whole` up to the last one of the named messages."""
    last = max((*named.batches, *named.whole[-1:]), default=-1)
    return Range(whole.start, max(whole.start, min(whole.end, last + 1)))
