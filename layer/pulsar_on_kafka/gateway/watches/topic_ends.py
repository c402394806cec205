"""Sends REACHED_END_OF_TOPIC to consumers and readers that have consumed a terminated topic.

Source: Pulsar's `PersistentSubscription.topicTerminated`: every consumer of a subscription without a backlog gets the
command once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.gateway.handlers.wire_consumer import WireConsumer

_log: Final = logging.getLogger(__name__)


def report_ends(node: Node, watched: Sequence[tuple[WireConsumer, Topic]], deadline: Callable[[], Deadline]) -> None:
    """One look at the topics of these consumers, for a `TopicWatch`. Reads the state topic `topics`, and positions only
    of consumers of terminated topics. `deadline` gives a new one for each call to the cluster."""
    waiting = [(consumer, topic) for consumer, topic in watched if consumer.endpoint.awaits_end]
    if not waiting:
        return
    records = node.topics.records.of({topic.name.base for _, topic in waiting}, deadline())
    for consumer, topic in waiting:
        record = records[topic.name.base]
        if record is None or not record.terminated or record.incarnation != topic.layout.incarnation:
            continue
        try:
            if consumer.has_consumed({int(p): end for p, end in record.terminated.items()}, deadline()):
                consumer.endpoint.reach_end()
        except LayerError as failure:  # the next look tries again
            _log.info("topic=%s it is not known whether its end is reached: %s", topic.name, failure)
