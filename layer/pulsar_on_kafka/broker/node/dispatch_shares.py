"""Shares of a topic's dispatch rate: processes divide it by the subscriptions that they serve."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of

_log = logging.getLogger(__name__)

_COUNT_INTERVAL_S: Final = 10.0
_TIMEOUT_S: Final = 10.0
MAX_COUNTED: Final = 100
"""The groups of so many subscriptions of a topic are described; any others count as if they had consumers."""


class DispatchShares:
    """Counts the subscriptions with consumers of topics that have a dispatch rate. For one thread. Without such topics
    it sends no request."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: frozenset[str] = frozenset()
        self._due_s = 0.0

    def look(self, limited: Iterable[Topic]) -> None:
        """Count now, if the last count is old, or a topic has come. `limited`: the topics with a dispatch rate."""
        topics = {topic.kafka_topic: topic for topic in limited}
        now_s = self._services.clock.monotonic()
        if topics.keys() == self._known and (not topics or now_s < self._due_s):
            return
        self._known, self._due_s = frozenset(topics), now_s + _COUNT_INTERVAL_S
        self._services.dispatch_rates.set_subscriptions({name: self._count(topic) for name, topic in topics.items()})

    def _count(self, topic: Topic) -> int:
        deadline, subscriptions = Deadline.after(_TIMEOUT_S), self._services.subscriptions
        try:
            found = [each for each in subscriptions.list(topic, deadline) if cluster_of(each.name) is None]
        except errors.LayerError as failure:  # counted again after the interval
            _log.info("topic=%s its subscriptions are not known: %s", topic.name, failure)
            return 1
        unknown = max(0, len(found) - MAX_COUNTED)
        return unknown + sum(self._has_consumers(each, deadline) for each in found[:MAX_COUNTED])

    def _has_consumers(self, subscription: Subscription, deadline: Deadline) -> bool:
        """Whether it has consumers in any process; also if this is not known."""
        try:
            return self._services.subscriptions.has_consumers(subscription, deadline)
        except errors.LayerError as failure:
            _log.info("subscription=%s its consumers are not known: %s", subscription.name, failure)
            return True
