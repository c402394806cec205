"""A topic that is copied to one other cluster: a thread that begins session after session."""

from __future__ import annotations

import logging
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.names.replicator_names import replicator_subscription
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.subscriptions.subscription_type import SubscriptionType
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.node.sides.target import Target, target_topic
from pulsar_on_kafka.service.replication.remote import RemoteCluster
from pulsar_on_kafka.service.replication.session import ReplicationCounts, ReplicatorSession

_log: Final = logging.getLogger(__name__)
_OPEN_S: Final = 60.0
_AGAIN_S: Final = 0.5
_AGAIN_MOST_S: Final = 15.0


class Replicator:
    """Thread-safe; begins when it is made. A cluster that is away is waited for."""

    def __init__(self, node: Node, topic: TopicName, remote: RemoteCluster, origin: str, member: str) -> None:
        """`origin`: this cluster's name. `member` begins the client ids of its memberships."""
        self.topic = topic
        self.cluster = remote.name
        self.settings = remote.settings
        """How the other cluster is reached."""
        self.counts = ReplicationCounts()
        self.waits_for = "it has not begun yet"
        """Why nothing is copied; '' while it is."""
        self._node = node
        self._remote = remote
        self._origin = origin
        self._member = member
        self._worker = Worker(
            f"pok-replicator {topic} {remote.name}",
            self._copy,
            f"topic={topic} is not copied to {remote.name} now",
            retry=Retry(_AGAIN_S, _AGAIN_MOST_S),
            expected=(errors.LayerError, MappingError),
        )
        self._worker.start()

    def is_alive(self) -> bool:
        return self._worker.is_alive()

    def end(self) -> None:
        """Begin to end; see `close`."""
        self._worker.end()

    def close(self, deadline: Deadline) -> None:
        """Let what is under way arrive, save, leave the group and end the thread. A second call does nothing."""
        self._worker.close(deadline)

    def _copy(self) -> float:
        before = self.counts.records
        try:
            session = self._session(Deadline.after(_OPEN_S))
            self.waits_for = ""
            session.run()
        except Exception as failure:  # stats tell it
            self.waits_for = f"{type(failure).__name__}: {failure}"
            self.counts.failures += 1
            raise
        finally:
            if self.counts.records > before:
                self._worker.well()
        return _AGAIN_S

    def _session(self, deadline: Deadline) -> ReplicatorSession:
        here = self._node.topics.find(self.topic, deadline)
        if here is None:
            raise errors.NoSuchTopic(f"topic {self.topic} does not exist")
        # First: from now on nothing is removed that has not been copied, also while the other cluster is away.
        subscription = self._node.subscriptions.open(
            here,
            replicator_subscription(self.cluster),
            SubscriptionType.FAILOVER,
            from_earliest=True,
            claimant=None,
            deadline=deadline,
        )
        there = self._remote.node(lambda: self._worker.ended)
        topic = target_topic(there, here, deadline)
        target = Target(there, topic, self._origin, here.layout.incarnation, self._remote.compression)
        target.producer().learn_partitions(topic.kafka_topic, here.partitions, deadline)
        return ReplicatorSession(
            self._node,
            subscription,
            target,
            self._origin,
            self.cluster,
            lambda: self._worker.ended,
            self.counts,
            self._member,
        )
