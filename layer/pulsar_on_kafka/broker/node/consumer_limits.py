"""The limits of a topic's and of a subscription's consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.policies import (
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_CONSUMERS_PER_TOPIC,
    applied,
)
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.broker.subscriptions.requests.cursor_admin import LiveCursors
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of

OwnConsumers = Callable[[Subscription], Mapping[int, tuple[str, int]]]
"""This process's memberships of a subscription, by partition (-1: of the whole topic): client id, and consumers."""
_WHOLE = -1


class ConsumerLimits:
    """Counts consumers in all processes, where a policy limits them. Without such a policy no request is sent."""

    def __init__(self, services: Services, live_cursors: LiveCursors, own: OwnConsumers) -> None:
        self._services = services
        self._live_cursors = live_cursors
        self._own = own

    def check(self, topic: Topic, name: str, partition: int | None, deadline: Deadline) -> None:
        """Checks the policies for one more consumer of a subscription, on one partition or on the whole topic.

        A consumer of the whole topic counts on each partition. A process that does not reply within 3 s counts as one
        consumer. Consumers that subscribe at the same moment do not count each other. Readers are not counted.

        Raises:
            SubscriptionBusy: the topic or the subscription has as many consumers as it may.
        """
        levels = self._services.policies_when_opened(topic, deadline)
        of_topic, of_subscription = (
            applied(policy, *levels) for policy in (MAX_CONSUMERS_PER_TOPIC, MAX_CONSUMERS_PER_SUBSCRIPTION)
        )
        if not of_topic and not of_subscription:
            return
        found = {
            each.name: self._count(each, partition, deadline)
            for each in self._services.subscriptions.list(topic, deadline)
            if each.name == name or (of_topic and cluster_of(each.name) is None)
        }
        if of_subscription and found.get(name, 0) >= of_subscription:
            raise errors.SubscriptionBusy(
                f"Subscription reached max consumers limit: {name} of {topic.name} may have {of_subscription}"
            )
        if of_topic and sum(found.values()) >= of_topic:
            raise errors.SubscriptionBusy(f"Topic reached max consumers limit: {topic.name} may have {of_topic}")

    def _count(self, subscription: Subscription, partition: int | None, deadline: Deadline) -> int:
        """The consumers on a partition; for the whole topic those of the fullest one."""
        groups = subscription.partition_groups
        if not subscription.by_partition:
            return self._on(subscription, _WHOLE, deadline)
        return max(
            (
                self._on(replace(subscription, partition=each, partition_groups={each: groups[each]}), each, deadline)
                for each in (groups if partition is None else groups.keys() & {partition})
            ),
            default=0,
        )

    def _on(self, subscription: Subscription, place: int, deadline: Deadline) -> int:
        client_id, own = self._own(subscription).get(place, ("", 0))
        reported = self._live_cursors.consumers(subscription, deadline)
        others = (each for member, each in reported.items() if member != client_id)
        return own + sum(1 if each is None else len(each.consumers) for each in others)
