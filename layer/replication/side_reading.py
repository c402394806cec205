"""Reads one cluster's side of subscriptions: cursors as their owners save them now, and where messages began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from layer import errors
from layer.deadline import Deadline
from layer.kafka.range_reader import RangeReader
from layer.metadata.subscription import Subscription
from layer.metadata.topics import Topic
from layer.node import Node
from layer.replication.origin_index import OriginIndex
from layer.replication.origin_reading import AT_ONCE, OriginReading, Seen
from layer.replication.progress import Side
from mapping.state_records.cursor_requests import SaveNow
from mapping.state_records.subscription_progress import Origin

_QUEUE_KBYTES: Final = 4096


class SideReading:
    """For one thread, until `close`. Reads each log once from its start, and later on from where it was.

    Memory: an `OriginIndex` for each partition of the topic that was asked for last, or of all, and 4 MB of records.
    """

    def __init__(self, node: Node, seen: Seen | None = None, *, every_topic: bool = False) -> None:
        """`seen`: is told of each message when it is first read. `every_topic`: keep what is known of all of them."""
        self.node = node
        self._every_topic = every_topic
        self._reader = RangeReader(node.settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES))
        self._origins = OriginReading(node.admin, self._reader, seen)

    def sides(self, subscription: Subscription, deadline: Deadline) -> dict[int, Side]:
        """By partition, of those that the subscription serves.

        Raises:
            Refused: the cluster has no name.
            DeadlineExceeded, StoreError: it cannot be read in time.
        """
        node, topic = self.node, subscription.topic
        local = node.clusters.registry(deadline).local
        if not local:
            raise errors.Refused(f"the cluster at {node.settings.bootstrap} has no name (pok clusters local NAME)")
        node.memberships.live_cursors.change(subscription, dict.fromkeys(subscription.served, SaveNow()), deadline)
        cursors = node.memberships.cursors.read(subscription, deadline)
        ends = node.admin.end_offsets(topic.kafka_topic, list(subscription.served), deadline)
        indexes = self._indexes(topic, ends, deadline)
        origin = Origin(local, topic.layout.incarnation)
        return {p: Side(origin, cursors[p].state, indexes[p], ends[p]) for p in subscription.served}

    def read_on(
        self, topic: Topic, ends: Mapping[int, int], deadline: Deadline, at_once: int
    ) -> dict[int, OriginIndex]:
        """As `OriginReading.read_on`, again until time is over; what it gives goes on, as long as it is kept."""
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
