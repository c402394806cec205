"""`AdminClient`: what `pulsar-admin` does, for the parts of Pulsar that this version has.

Source of names and meaning: Pulsar's `pulsar-admin`. Every call is idempotent or fails with a clear error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from types import TracebackType

from pulsar_on_kafka.admin.clusters import ClusterAdmin, TenantAdmin, TenantInfoAdmin
from pulsar_on_kafka.admin.context import MAX_RECORD_PROPERTIES_BYTES, checked_properties, raising_pulsar_errors
from pulsar_on_kafka.admin.dead_letters import DeadLetterAdmin
from pulsar_on_kafka.admin.deletions import DeletionAdmin
from pulsar_on_kafka.admin.ledgers import LedgerAdmin
from pulsar_on_kafka.admin.permissions import PermissionAdmin
from pulsar_on_kafka.admin.rescheduling import RescheduleAdmin
from pulsar_on_kafka.admin.schemas import SchemaAdmin
from pulsar_on_kafka.admin.stats import PublisherStats, ReplicationStats, TopicStats
from pulsar_on_kafka.admin.topics import TopicAdmin
from pulsar_on_kafka.admin.transactions import TransactionAdmin
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.permissions import NO_PERMISSIONS
from pulsar_on_kafka.broker.metadata.policies import with_policies
from pulsar_on_kafka.broker.metadata.record_limits import EACH_ALONE
from pulsar_on_kafka.broker.metadata.topics import Topic, check_backlog
from pulsar_on_kafka.broker.node.node import acquire
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.client.connection.cluster_settings import ConnectionSecurity, chosen_instance, cluster_settings
from pulsar_on_kafka.client.values.authentication import Authentication
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import AuthPolicies

_log = logging.getLogger(__name__)


@raising_pulsar_errors
class AdminClient(
    TopicAdmin,
    RescheduleAdmin,
    DeadLetterAdmin,
    SchemaAdmin,
    TransactionAdmin,
    LedgerAdmin,
    DeletionAdmin,
    ClusterAdmin,
    TenantAdmin,
    TenantInfoAdmin,
    PermissionAdmin,
):
    """Administers one cluster. Thread-safe; also a context manager.

    Calls raise the official exceptions (`TopicNotFound`, `SubscriptionNotFound`, `ConsumerBusy`, ...).
    """

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: float = 30.0,
        connection_timeout_ms: int = 10_000,
        kafka_config: Mapping[str, str] | None = None,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
        tls_allow_insecure_connection: bool = False,
        tls_validate_hostname: bool = False,
        instance: str | None = None,
    ) -> None:
        """Arguments as those of `Client`."""
        security = ConnectionSecurity(
            authentication,
            trust_certs_file_path=tls_trust_certs_file_path,
            allow_insecure_connection=tls_allow_insecure_connection,
            validate_hostname=tls_validate_hostname,
        )
        with pulsar_errors():
            settings = cluster_settings(
                service_url,
                kafka_config or {},
                security,
                chosen_instance(instance),
                connect_timeout_ms=connection_timeout_ms,
            )
            connecting = Deadline.after(min(operation_timeout_seconds, connection_timeout_ms / 1000))
            super().__init__(acquire(settings, connecting), operation_timeout_seconds)

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def bind_topic(self, topic: str, kafka_topic: str) -> str:
        """Give an existing Kafka topic a Pulsar name. Its configuration stays as it is. Ours, not Pulsar's.

        Returns what its `cleanup.policy` forbids producers, in words, which is logged as well; '' where it forbids
        nothing.
        """
        bound = self.node.topics.bind(TopicName.parse(topic), kafka_topic, self._deadline())
        limits = self.node.limits.of(bound, self._deadline())
        if not limits.compacted:
            return ""
        forbids = limits.why(EACH_ALONE)
        _log.warning("topic=%s %s", bound.name, forbids)
        return forbids

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions of a partitioned topic. Subscriptions begin at the start of the new ones."""
        name, deadline = TopicName.parse(topic), self._deadline()
        before = self._topic_around(topic, deadline).partitions
        grown = self.node.topics.grow(name, partitions, deadline)
        self.node.subscriptions.grow(grown, range(before, grown.partitions), deadline)

    def compact(self, topic: str) -> None:
        """Lets compacted reads return, of the messages in the topic now, only the newest one of each key.

        Done when this returns: compacted reads fold, nothing is rewritten or removed.
        """
        self.node.topics.compact(TopicName.parse(topic), self._deadline())

    def compaction_status(self, topic: str) -> dict[int, int]:
        """The offset, exclusive, up to which compacted reads fold each partition; empty for a topic that was never
        compacted. Differs from Pulsar: there a compaction takes time, and has states."""
        return dict(self._topic(topic, self._deadline()).compacted_to)

    def delete_topic(self, topic: str, *, force: bool = False, with_subscriptions: bool = False) -> None:
        """Delete a topic with its data, its schemas and subscriptions. A bound Kafka topic stays, with its schemas.

        Raises:
            TopicNotFound: there is none.
            NotAllowedError: it has subscriptions or live producers, and `force` is not given. With it live consumers
                get `TopicNotFound` from `receive`.
                `with_subscriptions` refuses, as Pulsar does, only those that have consumers.

        Differs from Pulsar: docs/differences.md, Topics.
        """
        deadline = self._deadline()
        opened = self._topic(topic, deadline)
        subscriptions = self._subscriptions(opened, deadline)
        check = partial(self._check_unused, opened, deadline, with_subscriptions=with_subscriptions)
        self.node.memberships.delete_topic(opened, subscriptions, deadline, None if force else check)

    def _check_unused(self, topic: Topic, deadline: Deadline, *, with_subscriptions: bool) -> None:
        """Raises Refused: the topic is in use, or its subscriptions are to stay."""
        found = [each for each in self._subscriptions(topic, deadline) if cluster_of(each.name) is None]
        if with_subscriptions:
            found = [each for each in found if self.node.subscriptions.has_consumers(each, deadline)]
        if found:
            names = ", ".join(each.name for each in found)
            what, do = ("active consumers of", "close") if with_subscriptions else ("subscriptions:", "unsubscribe")
            raise errors.Refused(f"topic {topic.name} has {what} {names}; {do} them or force")
        producers = self.node.producers.connected(topic, deadline)
        if producers:
            raise errors.Refused(
                f"topic {topic.name} has active producers: {', '.join(producers)}; close them or force"
            )

    def list_topics(self, namespace: str = "public/default") -> list[str]:
        """Full names of the namespace's topics (partitioned ones once)."""
        return [record.name for record in self.node.topics.list(namespace, self._deadline())]

    def list_all_topics(self) -> list[str]:
        """Full names of all topics of the cluster (partitioned ones once), one sequential read of the stored topics."""
        return sorted(record.name for record in self.node.topics.records.active(self._deadline()))

    def list_partitions(self, topic: str) -> list[str]:
        """Full names of a topic's partitions; the topic itself when it is not partitioned."""
        return list(self._topic(topic, self._deadline()).partition_names)

    def topic_stats(self, topic: str) -> TopicStats:
        """The statistics of a topic. Raises TopicNotFound."""
        deadline = self._deadline()
        opened = self._topic(topic, deadline)
        starts, ends = self._log_ends(opened, deadline)
        subscriptions = {found.name: found for found in self._subscriptions(opened, deadline) if not found.non_durable}
        backlogs = {
            name: sum(p.backlog for p in self._cursors(found, starts, ends, {}, deadline))
            for name, found in subscriptions.items()
        }
        return TopicStats(
            str(opened.name),
            opened.kafka_topic,
            opened.partitions,
            opened.partitioned,
            opened.bound,
            sum(ends[p] - starts[p] for p in ends),
            starts,
            ends,
            opened.layout.entries_per_ledger,
            {name: backlog for name, backlog in backlogs.items() if cluster_of(name) is None},
            *self._publishers(opened, deadline),
            *self._transactions_in(opened, deadline),
            backlog_exceeded=self._backlog_exceeded(opened),
            replication={
                cluster: ReplicationStats(backlogs[name], ", ".join(self._members(found, deadline)[0]))
                for name, found in subscriptions.items()
                if (cluster := cluster_of(name)) is not None
            },
            created_ms=opened.created_ms,
            last_publish_ms=self.node.admin.newest_times(opened.kafka_topic, list(ends), deadline),
            hashing_schemes=self.node.producers.routed_by(opened, deadline),
        )

    def count_producers(self, topic: str) -> int:
        """The number of a topic's open producers, at most 3 s old. Ours, not Pulsar's. Raises TopicNotFound."""
        deadline = self._deadline()
        listed, unlisted = self._publishers(self._topic(topic, deadline), deadline)
        return len(listed) + unlisted

    def create_namespace(
        self,
        namespace: str,
        policies: Mapping[str, object] | None = None,
        properties: Mapping[str, str] | None = None,
        permissions: AuthPolicies = NO_PERMISSIONS,
    ) -> None:
        """Makes `tenant/namespace`, with these policies by name. Raises NotAllowedError when it exists, and
        InvalidConfiguration as `set_policy`.

        Differs from Pulsar: the tenant need not exist, since programs of earlier versions make namespaces alone. The
        gateway's REST requires it.
        """
        self._check_policies(namespace, policies or {})
        kept = checked_properties("a namespace", properties or {}, MAX_RECORD_PROPERTIES_BYTES)
        self.node.namespaces.create(
            namespace, self._deadline(), with_policies({}, policies or {}), kept, auth=permissions
        )

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """The properties of a namespace. Raises TopicNotFound: there is no such namespace."""
        return dict(self.node.namespaces.properties(namespace, self._deadline()))

    def update_namespace_properties(
        self, namespace: str, properties: Mapping[str, str], *, remove: Collection[str] = ()
    ) -> None:
        """Removes some properties of a namespace, then sets others.

        Raises:
            TopicNotFound: there is no such namespace.
            InvalidConfiguration: all properties together exceed 64 KiB.
        """

        def changed(now: Mapping[str, str]) -> Mapping[str, str]:
            found = {**{key: value for key, value in now.items() if key not in remove}, **properties}
            return checked_properties("a namespace", found, MAX_RECORD_PROPERTIES_BYTES)

        self.node.namespaces.change_properties(namespace, changed, self._deadline())

    def clear_namespace_backlog(self, namespace: str, subscription: str | None = None) -> None:
        """`clear_backlog` of every subscription of the namespace's persistent topics, or of those with this name.

        Raises TopicNotFound: there is no such namespace. The time limit of a call counts for each subscription.
        """
        for topic in self.list_topics(namespace):
            if TopicName.parse(topic).is_persistent:
                for name in self.list_subscriptions(topic):
                    if subscription in (None, name):
                        self.clear_backlog(topic, name)

    def delete_namespace(self, namespace: str) -> None:
        """Raises NotAllowedError while it has topics."""
        deadline = self._deadline()
        topics = self.node.topics.list(namespace, deadline)
        if topics:
            raise errors.NotEmpty(f"namespace {namespace} has {len(topics)} topics, {topics[0].name} first")
        self.node.namespaces.delete(namespace, deadline)

    def list_namespaces(self, tenant: str) -> list[str]:
        """The names of a tenant's namespaces, as tenant/namespace."""
        return self.node.namespaces.list(tenant, self._deadline())

    def list_all_namespaces(self) -> list[str]:
        """The names of all namespaces of the cluster, as tenant/namespace."""
        return [*self.node.namespaces.all(self._deadline())]

    def _backlog_exceeded(self, topic: Topic) -> str:
        try:
            check_backlog(topic, self.node.clock.now_ms())
        except errors.Refused as reported:
            return str(reported)
        return ""

    def _publishers(self, topic: Topic, deadline: Deadline) -> tuple[tuple[PublisherStats, ...], int]:
        signs = self.node.producers.heartbeats.publishers(str(topic.name), deadline)
        listed = [
            PublisherStats(p.producer_name, p.access_mode, p.epoch, p.connected_since_ms, p.sent, p.failed,
                           sign.process, p.properties, p.traffic, p.limited_times)
            for sign in signs
            for p in sign.publishers
        ]  # fmt: skip
        return tuple(listed), sum(sign.unlisted for sign in signs)
