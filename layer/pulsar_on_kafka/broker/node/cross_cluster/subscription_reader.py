"""Reads one cluster's side of subscriptions: cursors as their owners save them now, and where messages began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.cross_cluster.origin_reader import AT_ONCE, OriginReading, Seen
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.replication_state.origin_index import OriginIndex
from pulsar_on_kafka.broker.replication_state.progress import SubscriptionSide
from pulsar_on_kafka.kafka.reading.range_reader import RangeReader
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import SaveNow

_QUEUE_KBYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LogRead:
    """A topic's log that was read: by partition, where messages began and where the log ends. The indexes may lag
    behind that, and are live. `origin`: its cluster and life."""

    origin: Origin
    indexes: Mapping[int, OriginIndex]
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CursorsOf:
    """A subscription of a topic whose log was read. Thread-safe, and so are several of one log."""

    node: Node
    subscription: Subscription
    log: LogRead

    def sides(self, deadline: Deadline) -> dict[int, SubscriptionSide]:
        """The partitions that the subscription serves, each with the cursor that its owner saves now.

        Raises:
            DeadlineExceeded, StoreError: they cannot be read in time.
        """
        return _sides(_saved_now(self.node, self.subscription, deadline), self.log)


class SideReading:
    """Reads the sides of subscriptions, in one thread, until `close`. It reads each log once from its start, and
    continues from there later.

    Memory: an `OriginIndex` for each partition of the topic that was read last, or of all topics, and 4 MB of records.
    """

    def __init__(self, node: Node, seen: Seen | None = None, *, every_topic: bool = False) -> None:
        """`seen`: called with each message when it is first read. `every_topic`: keep the indexes of all topics."""
        self.node = node
        self._every_topic = every_topic
        self._reader = RangeReader(node.settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES))
        self._origins = OriginReading(node.admin, self._reader, seen)

    def sides(self, subscription: Subscription, deadline: Deadline) -> dict[int, SubscriptionSide]:
        """The sides of the partitions that the subscription serves.

        Raises:
            Refused: the cluster has no name.
            DeadlineExceeded, StoreError: it cannot be read in time.
        """
        origin = self._origin(subscription.topic, deadline)
        cursors = _saved_now(self.node, subscription, deadline)
        # Afterwards: cursors lie within it.
        return _sides(cursors, self._log(subscription.topic, subscription.served, origin, deadline))

    def log(self, topic: Topic, deadline: Deadline) -> LogRead:
        """Read a topic's log up to where it ends now. Raises as `sides`."""
        return self._log(topic, range(topic.partitions), self._origin(topic, deadline), deadline)

    def known(self, topic: Topic, deadline: Deadline) -> LogRead:
        """The log as far as it was read before, with its ends now. Raises as `sides`."""
        ends = self.node.admin.end_offsets(topic.kafka_topic, range(topic.partitions), deadline)
        return LogRead(self._origin(topic, deadline), self.read_on(topic, ends, deadline, 0), ends)

    def _log(self, topic: Topic, partitions: Iterable[int], origin: Origin, deadline: Deadline) -> LogRead:
        ends = self.node.admin.end_offsets(topic.kafka_topic, [*partitions], deadline)
        return LogRead(origin, self._indexes(topic, ends, deadline), ends)

    def _origin(self, topic: Topic, deadline: Deadline) -> Origin:
        local = self.node.clusters.registry(deadline).local
        if not local:
            raise errors.Refused(f"the cluster at {self.node.settings.bootstrap} has no name (pok clusters local NAME)")
        return Origin(local, topic.layout.incarnation)

    def read_on(
        self, topic: Topic, ends: Mapping[int, int], deadline: Deadline, at_once: int
    ) -> dict[int, OriginIndex]:
        """Call `OriginReading.read_on` again until it answers or time is over; the indexes that it gives go on, as long
        as they are kept."""
        while True:
            try:
                return self._origins.read_on(topic, ends, deadline, at_once)
            except errors.DeadlineExceeded:  # nothing came for some seconds; what did come counts
                deadline.check(f"{topic.name} to be read")

    def close(self) -> None:
        """A second call does nothing."""
        self._reader.close()

    def _indexes(self, topic: Topic, ends: Mapping[int, int], deadline: Deadline) -> dict[int, OriginIndex]:
        if not self._every_topic:
            self._origins.forget({topic.kafka_topic_id: topic})
        while True:
            indexes = self.read_on(topic, ends, deadline, AT_ONCE)
            if all(index.end >= ends[partition] for partition, index in indexes.items()):
                return indexes
            deadline.check(f"{topic.name} to be read")


def _saved_now(node: Node, subscription: Subscription, deadline: Deadline) -> dict[int, RecoveredCursor]:
    node.memberships.live_cursors.change(subscription, dict.fromkeys(subscription.served, SaveNow()), deadline)
    return node.memberships.cursors.read(subscription, deadline)


def _sides(cursors: Mapping[int, RecoveredCursor], log: LogRead) -> dict[int, SubscriptionSide]:
    return {p: SubscriptionSide(log.origin, cursor.state, log.indexes[p], log.ends[p]) for p, cursor in cursors.items()}
