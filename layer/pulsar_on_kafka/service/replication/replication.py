"""The role of copying topics to other clusters, shared among services by a Kafka group.

The member with partition i of `subscriptions` copies the topics whose subscriptions lie there, to all the clusters that
their policies name. The group of each replicator's own subscription prevents two copiers of one partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.role_state import ReplicatorState, RoleName
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS, applied
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import Target
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.shared_role import SharedRole
from pulsar_on_kafka.client.connection.cluster_settings import peer_settings
from pulsar_on_kafka.service.replication.remote import RemoteCluster
from pulsar_on_kafka.service.replication.replicator import ReplicationCounts, ReplicatorSession
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of, replicator_subscription
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterRegistry
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS

_log: Final = logging.getLogger(__name__)

_OPEN_S: Final = 60.0
_RETRY_INTERVAL_S: Final = 0.5
_MAX_RETRY_INTERVAL_S: Final = 15.0


class Replicator:
    """Thread-safe; begins when it is made. A cluster that is away is waited for."""

    def __init__(self, node: Node, topic: TopicName, remote: RemoteCluster, origin: str, member: str) -> None:
        """`origin`: this cluster's name. `member` begins the client ids of its memberships."""
        self.topic = topic
        self.cluster = remote.name
        self.settings = remote.settings
        """Connection settings of the other cluster."""
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
            retry=Retry(_RETRY_INTERVAL_S, _MAX_RETRY_INTERVAL_S),
            expected=(errors.LayerError, MappingError),
        )
        self._worker.start()

    def is_alive(self) -> bool:
        return self._worker.is_alive()

    def end(self) -> None:
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
        except Exception as failure:  # the stats show it
            self.waits_for = f"{type(failure).__name__}: {failure}"
            self.counts.failures += 1
            raise
        finally:
            if self.counts.records > before:
                self._worker.well()
        return _RETRY_INTERVAL_S

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
        topic = there.topics.find_or_create_like(
            here.name,
            here.partitions if here.partitioned else 0,
            deadline,
            entries_per_ledger=here.layout.entries_per_ledger,
            sides=("there", "here: it must be partitioned on both or neither"),
            or_more=True,
        )
        target = Target(there, topic, self._origin, here.layout.incarnation, "none")
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


EVERY_S: Final = 2.0
_ROUND_S: Final = 60.0
_LOOK_FOR_OBSOLETE_S: Final = 60.0
_CLOSE_S: Final = 10.0

Wanted: TypeAlias = tuple[str, str]
"""A topic and a cluster that it is copied to."""


class Replication(SharedRole):
    """The replication role of this process. Thread-safe; the constructor joins the group, `close` leaves it. A round
    every two seconds.

    Memory: for each topic and cluster see `ReplicatorSession`, with a thread of its own and a group membership (4
    threads of librdkafka, 8 file descriptors).
    """

    role = RoleName.REPLICATION
    topic = SUBSCRIPTIONS
    work = "replication"
    thread = "pok-replication"
    turns = "replication"
    failing = "what is to be copied to other clusters is not known now"
    without = "this process copies nothing to other clusters"

    def __init__(
        self,
        node: Node,
        member: str,
        secrets: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        *,
        every_s: float = EVERY_S,
    ) -> None:
        """`member`: see `Services.member_sharing`. `secrets`: more of librdkafka's options, by cluster."""
        super().__init__(node, member, every_s, Retry(every_s))
        self._secrets = secrets
        self._remotes: dict[str, RemoteCluster] = {}
        self._running: dict[Wanted, Replicator] = {}
        self._obsolete_looked_s = float("-inf")
        self.begin()

    # Any thread ---------------------------------------------------------------------------------------------------

    def _replicators(self) -> tuple[ReplicatorState, ...]:
        with self._lock:
            running = list(self._running.values())
        return tuple(_state_of(each) for each in running)

    def close(self, deadline: Deadline) -> None:
        """Let what is under way arrive, leave all groups, and end the threads; a second call does nothing."""
        super().close(deadline)
        self._end(list(self._running), deadline)
        for remote in self._remotes.values():
            remote.close()
        self._remotes.clear()

    # Its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> float:
        with self._worker.turns.one():
            self._round(Deadline.after(_ROUND_S))
        return self._every_s

    def _round(self, deadline: Deadline) -> None:
        partitions = set(self.owned())
        registry = self._node.clusters.registry(deadline)
        named = self._named(partitions, deadline) if partitions else {}
        retired = self._connect(registry)
        requested = {
            (topic, cluster)
            for topic, clusters in named.items()
            for cluster in clusters
            if registry.local and cluster in self._remotes
        }
        over = [
            each
            for each, replicator in self._running.items()
            if each not in requested
            or self._remotes[each[1]].settings is not replicator.settings
            or not replicator.is_alive()
        ]
        self._end(over, Deadline.after(_CLOSE_S))
        for remote in retired:
            remote.close()
        for topic, cluster in sorted(requested - self._running.keys()):
            if self._worker.ended:
                return
            made = Replicator(self._node, TopicName.parse(topic), self._remotes[cluster], registry.local, self._member)
            with self._lock:
                self._running[topic, cluster] = made
        self._remove_obsolete(named, bool(over), deadline)

    def _named(self, partitions: set[int], deadline: Deadline) -> Mapping[str, Iterable[str]]:
        """The clusters that the policies of this process's topics name, this one's own among them."""
        records = [
            record
            for record in self._node.topics.records.active(deadline)
            if SUBSCRIPTIONS.partition_for(record.name) in partitions and TopicName.parse(record.name).is_persistent
        ]
        namespaces = {record.name: TopicName.parse(record.name).namespace_name for record in records}
        theirs = self._node.namespaces.policies_of(set(namespaces.values()), deadline, required=True)
        return {
            record.name: applied(REPLICATION_CLUSTERS, record.policies, theirs[namespaces[record.name]])
            for record in records
        }

    def _connect(self, registry: ClusterRegistry) -> list[RemoteCluster]:
        """Know how each registered cluster is reached; what cannot be understood is logged, and waited for. Gives what
        is not needed any more, once its replicators have ended."""
        retired = [self._remotes.pop(name) for name in self._remotes.keys() - registry.clusters.keys()]
        for name in registry.clusters:
            address = registry.remote(name)
            if address is None:
                continue
            try:
                settings = peer_settings(address, self._secrets.get(name, {}))
            except (errors.LayerError, ValueError) as failure:
                _log.warning("cluster=%s nothing is copied there: %s", name, failure)
                continue
            known = self._remotes.get(name)
            if known is None or known.settings.identity != settings.identity:
                retired += [] if known is None else [known]
                self._remotes[name] = RemoteCluster(name, settings)
        return retired

    def _end(self, over: Iterable[Wanted], deadline: Deadline) -> None:
        ending = {each: self._running[each] for each in over}
        for replicator in ending.values():
            replicator.end()
        for each, replicator in ending.items():
            replicator.close(deadline)
            with self._lock:
                self._running.pop(each, None)

    def _remove_obsolete(self, named: Mapping[str, Iterable[str]], ended: bool, deadline: Deadline) -> None:
        """Deletes the subscriptions of replicators without a policy, which prevent data from being removed. One that no
        replicator ever used waits for a policy: it marks where copying is to begin."""
        now_s = self._node.clock.monotonic()
        if not ended and now_s - self._obsolete_looked_s < _LOOK_FOR_OBSOLETE_S:
            return
        self._obsolete_looked_s = now_s
        for record in self._node.subscriptions.active(deadline):
            cluster = cluster_of(record.subscription)
            if cluster is None or record.topic not in named or cluster in named[record.topic]:
                continue
            topic = self._node.topics.find(TopicName.parse(record.topic), deadline)
            found = None if topic is None else self._node.subscriptions.find(topic, record.subscription, deadline)
            if found is None or not self._was_used(found, deadline):
                continue
            try:
                self._node.memberships.delete_subscription(found, deadline)
                _log.info("topic=%s is not copied to %s any more", record.topic, cluster)
            except errors.Refused as failure:
                self._obsolete_looked_s = float("-inf")
                _log.info("topic=%s cluster=%s its replicator is not gone yet: %s", record.topic, cluster, failure)

    def _was_used(self, subscription: Subscription, deadline: Deadline) -> bool:
        """Replicators commit as soon as they own a partition."""
        topic, partitions = subscription.topic.kafka_topic, list(subscription.served)
        return bool(self._node.admin.committed(subscription.whole_group, topic, partitions, deadline))


def _state_of(replicator: Replicator) -> ReplicatorState:
    counts = replicator.counts
    return ReplicatorState(
        str(replicator.topic),
        replicator.cluster,
        replicator.waits_for,
        counts.records,
        counts.bytes,
        counts.failures,
        counts.under_way,
        counts.behind,
    )
