"""`acknowledge`: the messages of any DataFrame, on a subscription."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from layer import errors
from layer.cursor.ledger_acks import of_offsets
from layer.deadline import Deadline
from layer.node import Node
from mapping.topic_name import TopicName
from spark_connector.connection import node_of
from spark_connector.errors import InvalidReadOption, NotReadable
from spark_connector.located_messages import located
from spark_connector.stream_options import StreamOptions, parse_stream_options
from spark_connector.stream_plan import ByTopic
from spark_connector.visibility import SNAPSHOT_S, find_subscription, find_topic


def acknowledge(messages: DataFrame, **options: Any) -> int:
    """Acknowledge the messages of a DataFrame; gives how many entries that are (a batch entry of which only some
    messages are named counts, too). Durable when it returns; what was acknowledged already stays so.

    The rows are found by `__messageId`, or by `__partition` and `__offset`, and are put together in the JVM; no row
    comes to Python. The DataFrame is evaluated once, twice when it has messages of batch entries: `cache()` it where
    that costs much. Of a chunked message all chunks are acknowledged by a live consumer that knows it.

    Options: `service.url`, `topic` or `topics`, `subscription`; `ackTimeoutSeconds`, and how to reach the cluster, as
    those of a stream.

    Raises:
        InvalidReadOption, NotReadable: see `spark_connector.errors`. Some may be acknowledged.
    """
    checked = parse_stream_options(options)
    wanted = checked.read.subscription
    if wanted is None:
        raise InvalidReadOption("no subscription is given: expected subscription, on which to acknowledge")
    with node_of(checked.read) as node:
        deadline = Deadline.after(SNAPSHOT_S)
        topics = [find_topic(node, TopicName.parse(name), deadline) for name in checked.read.topics]
        found = located(messages, topics)
        acknowledge_entries(node, checked, found)
    return sum(len(e.whole) + len(e.batches) for partitions in found.values() for e in partitions.values())


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
