"""The topics that a read names: their names, snapshots and schemas."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.consumer.consumer_opening import NamespacePattern
from pulsar_on_kafka.client.values.enums import RegexSubscriptionMode
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import ReadOptions
from pulsar_on_kafka_spark.planning.read_bounds import check_names
from pulsar_on_kafka_spark.planning.visibility import SNAPSHOT_S, TopicView, view_named
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas, together, topic_schemas


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
