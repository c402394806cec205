"""Removes non-durable subscriptions whose last process was killed.

Whoever closes the last consumer removes its subscription. What is left of others counts nowhere and is shown to nobody;
whoever subscribes with the name begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.metadata_records import SubscriptionRecord
from pulsar_on_kafka.mapping.state.state_topics import CURSOR_CHECKPOINTS
from pulsar_on_kafka.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.metadata.topics import Topic

_log: Final = logging.getLogger(__name__)

_JOINING_MS: Final = 300_000
"""Whoever made a subscription has joined its group by then."""


class Topics(Protocol):
    def find(self, name: TopicName, deadline: Deadline) -> Topic | None: ...


class Subscriptions(Protocol):
    def active(self, deadline: Deadline) -> Sequence[SubscriptionRecord]: ...
    def find(self, topic: Topic, name: str, deadline: Deadline) -> Subscription | None: ...


class Memberships(Protocol):
    def remove_if_unused(self, subscription: Subscription, deadline: Deadline) -> bool: ...


class NonDurableHousekeeping:
    """A `Work`. Memory: the records of all subscriptions, while it looks."""

    name = "non_durable_subscriptions"

    def __init__(self, clock: Clock, topics: Topics, subscriptions: Subscriptions, memberships: Memberships) -> None:
        self._clock = clock
        self._topics = topics
        self._subscriptions = subscriptions
        self._memberships = memberships

    def run(self, partition: int, deadline: Deadline) -> int:
        """Remove what is left over of this partition's topics; gives how many subscriptions that were."""
        old_ms = self._clock.now_ms() - _JOINING_MS
        done = 0
        for record in self._subscriptions.active(deadline):
            if not record.non_durable or record.created_ms > old_ms:
                continue
            if CURSOR_CHECKPOINTS.partition_for(record.topic) != partition:
                continue
            try:
                topic = self._topics.find(TopicName.parse(record.topic), deadline)
                found = None if topic is None else self._subscriptions.find(topic, record.subscription, deadline)
                done += found is not None and self._memberships.remove_if_unused(found, deadline)
            except LayerError as failure:
                deadline.check("non-durable subscriptions to be removed")
                _log.warning("subscription=%s/%s cannot be removed now: %s", record.topic, record.subscription, failure)
        return done
