"""The context of administration is one cluster's node, how long a call may take, and how topics are found by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator
from inspect import isfunction, isgeneratorfunction
from typing import Final, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node, release
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.exceptions import AlreadyClosed
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.producer_records import properties_bytes

MAX_RECORD_PROPERTIES_BYTES: Final = 64 * 1024
"""All properties of a topic, or of a namespace; its record has them."""

T = TypeVar("T")


def methods_within(context: Callable[[], ContextDecorator]) -> Callable[[type[T]], type[T]]:
    """Runs every public method of a class within a context. A generator must enter it by itself: its errors come with
    its items."""

    def decorate(component: type[T]) -> type[T]:
        for name, member in list(vars(component).items()):
            if isfunction(member) and not name.startswith("_") and not isgeneratorfunction(member):
                setattr(component, name, context()(member))
        return component

    return decorate


raising_pulsar_errors: Final = methods_within(pulsar_errors)
"""The public methods of a component raise the official exceptions."""


def checked_properties(of: str, properties: Mapping[str, str], max_bytes: int) -> dict[str, str]:
    """A copy of the properties of a topic, a namespace or a subscription. Raises InvalidOption: they are too large."""
    size = properties_bytes(properties)
    if size > max_bytes:
        raise errors.InvalidOption(f"properties of {of} have up to {max_bytes} bytes, got {size}")
    return dict(properties)


class AdminContext(OfOneProcess):
    """Every component of `AdminClient` administers one noun in this context."""

    def __init__(self, node: Node, timeout_s: float) -> None:
        """The node is released by `close`."""
        self._node: Node | None = node
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Give the connection back; a second call does nothing."""
        node, self._node = self._node, None
        if node is not None:
            release(node)

    @property
    def node(self) -> Node:
        """The connection to the cluster, for code of this package. Raises AlreadyClosed."""
        if self._node is None:
            raise AlreadyClosed("the admin client is closed")
        return self._node

    def _deadline(self) -> Deadline:
        return Deadline.after(self._timeout_s)

    def _topic(self, topic: str, deadline: Deadline) -> Topic:
        """Raises InvalidOption: the name is that of a partition."""
        name = TopicName.parse(topic)
        if name.partition >= 0:
            raise errors.InvalidOption(f"{name} names a partition; use the whole topic, {name.base}")
        return self._topic_around(topic, deadline)

    def _topic_around(self, topic: str, deadline: Deadline) -> Topic:
        name = TopicName.parse(topic).base
        self.node.namespaces.require(name.namespace_name, deadline)
        found = self.node.topics.find(name, deadline)
        if found is None:
            raise errors.NoSuchTopic(f"topic {name} does not exist")
        return found

    def _check_partition(self, topic: Topic, name: TopicName) -> None:
        """Raises NoSuchTopic: the topic has no partition of this name."""
        if not topic.partitioned or name.partition >= topic.partitions:
            count = topic.partitions if topic.partitioned else 0
            raise errors.NoSuchTopic(f"topic {name.base} has {count} partitions, none is {name.partition}")

    def _one_partition(self, topic: str, deadline: Deadline) -> tuple[Topic, int]:
        """Raises InvalidOption: the name is that of a partitioned topic."""
        name, found = TopicName.parse(topic), self._topic_around(topic, deadline)
        if name.partition >= 0:
            self._check_partition(found, name)
            return found, name.partition
        if found.partitioned:
            raise errors.InvalidOption(f"{name} has {counted(found.partitions, 'partition')}: name one of them")
        return found, 0

    def _recorded_subscription(self, topic: Topic, name: str, deadline: Deadline) -> Subscription:
        found = self.node.subscriptions.find(topic, name, deadline)
        if found is None:
            raise errors.NoSuchSubscription(f"topic {topic.name} has no subscription {name}")
        return found

    def _log_ends(
        self, topic: Topic, deadline: Deadline, partitions: Sequence[int] | None = None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """The first offset of each partition's log (or of these), and the one behind its last; of a terminated topic
        behind its last message."""
        partitions = range(topic.partitions) if partitions is None else partitions
        starts = self.node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        ends = self.node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        return starts, {p: max(starts[p], min(end, topic.terminated.get(p, end))) for p, end in ends.items()}
