"""`read_pulsar` and `PulsarReader` read topics as a batch, as a DataFrame that runs wholly in the JVM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.consumer.consumer_opening import NamespacePattern
from pulsar_on_kafka.client.values.enums import RegexSubscriptionMode
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.base.spark_session import check_session
from pulsar_on_kafka_spark.options.read_options import ReadOptions, parse_options
from pulsar_on_kafka_spark.planning.read_bounds import check_names
from pulsar_on_kafka_spark.planning.visibility import SNAPSHOT_S, TopicView, view_named
from pulsar_on_kafka_spark.reading import message_frame as frame
from pulsar_on_kafka_spark.reading.chunk_frames import looked_for
from pulsar_on_kafka_spark.reading.connection import node_of
from pulsar_on_kafka_spark.reading.tenant_cluster import on_cluster
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas, together, topic_schemas


def read_pulsar(spark: SparkSession, **options: Any) -> DataFrame:
    """The messages that a subscription's next consumer would get, or (without a subscription) all readable ones.

    The DataFrame shows the moment of this call. It acknowledges nothing, affects no consumer, and may be used any
    number of times, while Kafka keeps the records. Options: docs/spark.md.

    Raises:
        InvalidReadOption, SparkNotReady, NotReadable, DataLoss: see `spark.base.errors`.
    """
    checked = on_cluster(parse_options(options))
    check_session(spark)
    with node_of(checked) as node:
        views = take_views(node, checked)
        schemas = schemas_of(node, checked, [view.topic.name for view in views])
    views = [looked_for(spark, checked, view) for view in views]
    frames = [frame.of_topic(spark, checked, view, own) for view, own in zip(views, schemas, strict=True)]
    return reduce(DataFrame.unionByName, frames)


class PulsarReader:
    """The reader is the fluent form: `PulsarReader(spark).option("service.url", url).option("topic", name).load()`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {}

    def option(self, name: str, value: object) -> PulsarReader:
        """Set one option; the last value counts."""
        self._options[name] = value
        return self

    def options(self, **options: Any) -> PulsarReader:
        """Set several."""
        self._options.update(options)
        return self

    def load(self) -> DataFrame:
        """Read as `read_pulsar` does; it raises the same errors."""
        return read_pulsar(self._spark, **self._options)


def take_views(node: Node, options: ReadOptions) -> list[TopicView]:
    """A snapshot of all topics that the options name."""
    names = named_topics(node, options)
    check_names(options, names)
    return view_named(node, names, options)


def schemas_of(node: Node, options: ReadOptions, topics: Sequence[TopicName]) -> list[TopicSchemas]:
    """The schemas for the values of each topic. After `take_views`: see `topic_schemas`."""
    deadline = Deadline.after(SNAPSHOT_S)
    found = [topic_schemas(node.schemas, topic, options.schema, deadline) for topic in topics]
    return together(found, allowed=options.allow_different_topic_schemas)


def named_topics(node: Node, options: ReadOptions) -> list[TopicName]:
    """The topics that the options name, or whose names match their pattern.

    Raises:
        InvalidReadOption: a name or the pattern is invalid.
        NotReadable: no topic matches.
    """
    try:
        if options.pattern is None:
            return [TopicName.parse(name) for name in options.topics]
        pattern = NamespacePattern.of(re.compile(options.pattern), RegexSubscriptionMode.PersistentOnly)
    except MappingError as wrong:
        raise InvalidReadOption(str(wrong)) from wrong
    except re.error as wrong:
        raise InvalidReadOption(f"topicsPattern is {options.pattern!r}: {wrong}") from wrong
    known = [record.name for record in node.topics.list(pattern.namespace, Deadline.after(SNAPSHOT_S))]
    found = sorted(pattern.matching(known))
    if not found:
        raise NotReadable(f"no topic of {pattern.namespace} matches {options.pattern!r}")
    return [TopicName.parse(name) for name in found]
