"""The services of a process for one cluster share librdkafka's handles, and most of them the state log."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import ClusterClock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import Meters
from pulsar_on_kafka.base.open_files import raise_open_file_limit
from pulsar_on_kafka.base.processes import member_client_id
from pulsar_on_kafka.broker.cursor.checkpoints import Checkpoints
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.deduplication.journal import SequenceJournal
from pulsar_on_kafka.broker.managed_ledger.first_left import FirstLedgersLeft
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.metadata.clusters import REGISTRY_KEYS, Clusters
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.incarnation_checks import IncarnationChecks
from pulsar_on_kafka.broker.metadata.migration_progress import IMPORT_KEYS, MIGRATION_KEYS, Imports, Migrations
from pulsar_on_kafka.broker.metadata.namespaces import NAMESPACE_KEYS, Namespaces
from pulsar_on_kafka.broker.metadata.policies import (
    ALLOW_AUTO_SUBSCRIPTION_CREATION,
    DEDUPLICATION,
    ENTRY_FORMAT,
    MAX_SUBSCRIPTIONS_PER_TOPIC,
    REPLICATOR_DISPATCH_RATE,
    Policy,
    applied,
)
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.rates.dispatch_rates import TopicDispatchRates
from pulsar_on_kafka.broker.metadata.rates.policy_rates import (
    DispatchRate,
    PublishRate,
    dispatch_rate,
    publish_rate,
)
from pulsar_on_kafka.broker.metadata.rates.publish_rates import PublishRates
from pulsar_on_kafka.broker.metadata.record_limits import TopicLimits
from pulsar_on_kafka.broker.metadata.subscriptions.consumer_registrations import (
    REGISTRATION_KEYS,
    ConsumerRegistrations,
)
from pulsar_on_kafka.broker.metadata.subscriptions.registry import SUBSCRIPTION_KEYS, Subscriptions
from pulsar_on_kafka.broker.metadata.tenant_infos import TENANT_INFO_KEYS, TenantInfos
from pulsar_on_kafka.broker.metadata.tenants import TENANT_KEYS, Tenants
from pulsar_on_kafka.broker.metadata.topics import TOPIC_KEYS, Topic, Topics
from pulsar_on_kafka.broker.node.producer_pool import STATE, ProducerPool
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog
from pulsar_on_kafka.broker.schema_registry.configured import configured_checkers, configured_storage
from pulsar_on_kafka.broker.schema_registry.judging import schema_policies
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies, TopicLife
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.member.pooled import MemberClients
from pulsar_on_kafka.broker.transactions.records.pending_ack_journal import PendingAckJournal
from pulsar_on_kafka.broker.transactions.records.views import LookingOnly, TransactionViews
from pulsar_on_kafka.broker.transactions.serving.coordinators import CoordinatorCount
from pulsar_on_kafka.kafka.appends import append_apart
from pulsar_on_kafka.kafka.connecting import open_admin
from pulsar_on_kafka.kafka.groups.dead_members import Departures
from pulsar_on_kafka.kafka.groups.empty_group_offsets import IdleOffsets
from pulsar_on_kafka.kafka.groups.group_members import GroupMembers
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.offset_writer import OffsetWriter
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.fetcher import Fetcher
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.statelog.followed_log import FollowedLog
from pulsar_on_kafka.statelog.kafka_log import FETCH_QUEUE_KBYTES as STATE_FETCH_QUEUE_KBYTES
from pulsar_on_kafka.statelog.kafka_log import KafkaStateLog
from pulsar_on_kafka.statelog.versioned import Keeping
from pulsar_on_kafka.statelog.views import LogViews, Looking
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import BacklogExceeded, LifeState, TopicRecord
from pulsar_on_kafka_mapping.state.state_topics import (
    LEDGERS,
    NAMESPACES,
    PRODUCERS,
    SUBSCRIPTIONS,
    TENANTS,
    TOPICS,
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
    StateTopic,
)

_log = logging.getLogger(__name__)

_TAIL_WAIT_MS: Final = 500
_FIND_TOPIC_S: Final = 30.0
_ASK_TIME_S: Final = 5.0
_MEMBER_QUEUE_KBYTES: Final = 64  # nothing is ever fetched
FETCH_QUEUE_KBYTES: Final = 16 * 1024


class ProducerPolicies(NamedTuple):
    incarnation: int | None
    """The incarnation of the topic with the name; None without one."""
    deduplication: bool
    backlog_exceeded: BacklogExceeded | None
    entry_format: str
    terminated: bool = False
    publish_rate: PublishRate | None = None


class Services:
    """Thread-safe. Memory: what its services keep of the state log, and the producers of `ProducerPool`."""

    def __init__(self, settings: KafkaSettings, deadline: Deadline) -> None:
        raise_open_file_limit()
        settings.security.check()
        self.settings = settings
        self.clock = ClusterClock(SystemClock(), self._request_time)
        self.meters = Meters()
        self._pool = ProducerPool(settings)
        self.state_apart = False
        """Whether state log records have a producer of their own. Where coordinators are served, a callback of a
        program's send may wait for appends and must not delay their reports."""
        self._lock = threading.RLock()
        self._names = 0
        self._connect(deadline)
        # A cluster id is base64url; of three parts, as Pulsar's `standalone-0-1`, none holds a dash.
        self._label = f"{self.cluster_id[:8].replace('-', '_')}-{secrets.token_hex(4)}"
        self._open_metadata()
        self._open_transactions()
        self.sequences = SequenceJournal(
            self.log, self.admin, self.fetcher, self.clock, self.looking, self.hold_up, self.producers,
            partial(append_apart, self.state_producer),
        )  # fmt: skip
        self.store = CursorStore(self.log)
        self.progress = ProgressLog(self.log, self.clock)
        self.checkpoints = Checkpoints(self.log, self.clock)

    def _connect(self, deadline: Deadline) -> None:
        settings = self.settings
        self.fetcher = Fetcher(settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES))
        log_fetcher = Fetcher(settings.of_state(settings.reader(fetch_queue_kbytes=STATE_FETCH_QUEUE_KBYTES)))
        try:
            self.admin = open_admin(settings, log_fetcher.open, self.fetcher.open)
            try:
                self.cluster_id = self.admin.cluster_id(deadline)
            except errors.LayerError:
                self.admin.close()
                raise
        except errors.LayerError:
            self.fetcher.close()
            log_fetcher.close()
            raise
        self.idle_offsets = IdleOffsets(self.admin, lambda author: OffsetWriter(settings.offset_writer(), author))
        self.wire = WireClient(settings.common())
        self.departures = Departures(GroupMembers(self.wire), self.clock)
        self._members: MemberClients | None = None
        self._uses_wire_members = True
        self.log = KafkaStateLog(log_fetcher, self.state_producer, self.admin, self.clock, instance=settings.instance)

    def _request_time(self) -> None:
        """Append to a state topic that this program may write to, for the time in the answer. Makes no topic: without
        one no process has written anything."""
        deadline = Deadline.after(_ASK_TIME_S)
        for topic, touch in ((PRODUCERS, self.producers.touch), (SUBSCRIPTIONS, self.subscriptions.touch)):
            try:
                if self.has_state_topic(topic, deadline):
                    touch(deadline)
            except errors.NotAuthorized as missing:
                _log.info("no brokers' time from %s: %s", topic.name, missing)
            if self.clock.is_known:
                return

    def _open_metadata(self) -> None:
        log, clock = self.log, self.clock
        self.namespaces = Namespaces(Entities(log, NAMESPACES, NAMESPACE_KEYS, clock), clock)
        self.clusters = Clusters(Entities(log, NAMESPACES, REGISTRY_KEYS, clock))
        self.tenants = Tenants(Entities(log, TENANTS, TENANT_KEYS, clock))
        self.tenant_infos = TenantInfos(Entities(log, TENANTS, TENANT_INFO_KEYS, clock), self.namespaces, self.clusters)
        self.migrations = Migrations(Entities(log, TENANTS, MIGRATION_KEYS, clock), clock)
        self.imports = Imports(Entities(log, TENANTS, IMPORT_KEYS, clock), clock)
        self.producers = ProducerRegistry(log, clock, self.fetcher, self.admin)
        self.publish_rates = PublishRates(clock)
        self.dispatch_rates = TopicDispatchRates()
        self.topics = Topics(
            Entities(log, TOPICS, TOPIC_KEYS, clock),
            self.namespaces,
            self.admin,
            clock,
            self.settings.instance,
            self._end_producers,
        )
        self.limits = TopicLimits(self.admin, clock.monotonic)
        self.incarnations = IncarnationChecks(self.admin.describe_topic, clock.monotonic)
        self.ledger_views = Looking(LogViews(log, LEDGERS, LedgerLists, clock), self.has_state_topic)
        """The lists of ledgers as this process last read them, shared by all read-only users."""
        self.subscriptions = Subscriptions(
            Entities(log, SUBSCRIPTIONS, SUBSCRIPTION_KEYS, clock, Keeping(place_of=SUBSCRIPTION_KEYS.place_of)),
            self.admin,
            clock,
            first_left=FirstLedgersLeft(self.ledger_views, self.admin).starts,
        )
        self.registrations = ConsumerRegistrations(Entities(log, SUBSCRIPTIONS, REGISTRATION_KEYS, clock))
        self.schemas = SchemaRegistry(
            configured_storage(log, clock),
            self._schema_policies,
            self._topic_life,
            clock,
            checkers=configured_checkers(),
        )

    def _open_transactions(self) -> None:
        settings = self.settings
        self.followed_log = FollowedLog(
            self.log,
            (TRANSACTION_LOG, TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK),
            AssignedReader(
                settings.of_state(
                    settings.tail(
                        client_id="state-tail", fetch_queue_kbytes=STATE_FETCH_QUEUE_KBYTES, wait_ms=_TAIL_WAIT_MS
                    )
                ),
                "reader of state topics",
            ),
            self.clock,
        )
        """The reader of frequently read state topics."""
        self.transaction_views = TransactionViews(self.followed_log, self.clock)
        self.looking = LookingOnly(self.transaction_views, self.has_state_topic)
        self.coordinator_count = CoordinatorCount(self.admin, self.log, self.clock)
        self.pending_acks = PendingAckJournal(
            self.transaction_views,
            self.clock,
            lambda deadline: self.has_state_topic(TRANSACTION_PENDING_ACK, deadline),
            self.hold_up,
        )

    def state_producer(self) -> KafkaProducer:
        return self.producer("none", 30_000, STATE if self.state_apart else "")

    def producer(
        self,
        compression: str,
        message_timeout_ms: int,
        use: str = "",
        batch_bytes: int | None = None,
        topic: str | None = None,
    ) -> KafkaProducer:
        """The shared producer with these settings; one that librdkafka gave up is replaced.

        `compression` is Kafka's name; a time-out of 0 never passes. Each `use` has its own. `batch_bytes`: Kafka's
        record batches are no larger, unless one record is. `topic`: the Kafka topic that it is to send to, where a
        process may have many (`ProducerPool`).
        """
        return self._pool.of(topic, compression, message_timeout_ms, use, batch_bytes)

    def give_up_producers(self, use: str, why: errors.LayerError) -> None:
        """Fails all records that such producers have under way (`KafkaProducer.give_up`). Returns at once, where
        `producer` may wait for a broker."""
        self._pool.give_up(use, why)

    def producer_policies(self, topics: Iterable[TopicName], deadline: Deadline) -> dict[TopicName, ProducerPolicies]:
        """Policies that the producers of these topics (without a partition's suffix) follow."""
        records = self.topics.records.of(topics, deadline)
        theirs = self.namespaces.policies_of({topic.namespace_name for topic in records}, deadline)
        now_ms = self.clock.now_ms()
        by_namespace = {
            name: (applied(DEDUPLICATION, level), applied(ENTRY_FORMAT, level), publish_rate(level))
            for name, level in theirs.items()
        }
        reported: dict[TopicName, ProducerPolicies] = {}
        for topic, record in records.items():
            own: Mapping[str, Any] = {} if record is None else record.policies
            exceeded = None if record is None else record.backlog_exceeded
            deduplication, entry_format, rate = by_namespace[topic.namespace_name]
            if own:
                inherited = theirs[topic.namespace_name]
                deduplication = applied(DEDUPLICATION, own, inherited)
                entry_format = applied(ENTRY_FORMAT, own, inherited)
                rate = publish_rate(own, inherited)
            reported[topic] = ProducerPolicies(
                record.incarnation if record is not None and record.state is LifeState.ACTIVE else None,
                deduplication,
                exceeded if exceeded is not None and exceeded.until_ms > now_ms else None,
                entry_format,
                record is not None and bool(record.terminated),
                rate,
            )
        return reported

    def applied_to(self, topics: Iterable[TopicName], policy: Policy, deadline: Deadline) -> dict[TopicName, Any]:
        """The effective value of a policy for these topics (without a partition's suffix). Without the right to read
        `namespaces`, only the topic's own value counts."""
        return {
            topic: applied(policy, own, theirs) for topic, (own, theirs) in self._policies_of(topics, deadline).items()
        }

    def subscription_policies(
        self, topics: Iterable[TopicName], deadline: Deadline
    ) -> dict[TopicName, SubscriptionPolicies]:
        """Policies that the subscriptions of these topics (without a partition's suffix) follow."""
        return {
            topic: SubscriptionPolicies.of(*levels) for topic, levels in self._policies_of(topics, deadline).items()
        }

    def replicator_rate(self, topic: TopicName, deadline: Deadline) -> DispatchRate | None:
        """The dispatch rate of the topic's replicators, by the policies; None: no limit."""
        return dispatch_rate(REPLICATOR_DISPATCH_RATE, *self._policies_of([topic], deadline)[topic])

    def policies_when_opened(self, topic: Topic, deadline: Deadline) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The topic's own policies and the inherited ones when it was opened. They are read now if the topic was opened
        without its namespace."""
        if topic.namespace_policies is not None:
            return topic.policies, topic.namespace_policies
        return self._policies_of([topic.name], deadline)[topic.name]

    def check_new_subscription(self, topic: Topic, name: str, deadline: Deadline, *, automatic: bool = False) -> None:
        """Checks the policies about new subscriptions of an opened topic, unless this one exists. `automatic`: a
        consumer creates it.

        Raises:
            NoSuchSubscription: consumers may not create it.
            Refused: the topic has as many subscriptions as it may. Programs that create them at the same moment do not
                count each other's.
        """
        own, inherited = self.policies_when_opened(topic, deadline)
        allowed = not automatic or applied(ALLOW_AUTO_SUBSCRIPTION_CREATION, own, inherited)
        limit = applied(MAX_SUBSCRIPTIONS_PER_TOPIC, own, inherited)
        if (allowed and not limit) or self.subscriptions.find(topic, name, deadline) is not None:
            return
        if not allowed:
            raise errors.NoSuchSubscription(
                f"topic {topic.name} has no subscription {name}, and consumers may not create it"
            )
        there = [each for each in self.subscriptions.durable(topic, deadline) if cluster_of(each.name) is None]
        if len(there) >= limit:
            raise errors.Refused(f"Exceed the maximum number of subscriptions of the topic: {topic.name}, {limit}")

    def _schema_policies(self, topic: TopicName, deadline: Deadline) -> SchemaPolicies:
        return schema_policies(*self._policies_of([topic], deadline)[topic])

    def _topic_life(self, topic: TopicName, deadline: Deadline) -> TopicLife:
        return TopicLife(str(topic.base), self.topics.kafka_topic_id(topic.base, deadline))

    def _policies_of(
        self, topics: Iterable[TopicName], deadline: Deadline
    ) -> dict[TopicName, tuple[Mapping[str, Any], Mapping[str, Any]]]:
        own = self.topics.records.policies_of(topics, deadline)
        theirs = self.namespaces.policies_of({topic.namespace_name for topic in own}, deadline)
        return {topic: (policies, theirs.get(topic.namespace_name, {})) for topic, policies in own.items()}

    def _end_producers(self, deleting: TopicRecord, deadline: Deadline) -> Collection[str]:
        try:
            return self.producers.end_incarnation(deleting.name, deleting.incarnation, deadline)
        except errors.NotAuthorized as refused:
            _log.warning("topic=%s its producers get no notice of its deletion: %s", deleting.name, refused)
            return ()

    def hold_up(self, txns: Collection[TxnId]) -> None:
        """Reports that these open transactions block the caller now; `Node` implements it."""
        raise NotImplementedError

    def member_sharing(
        self, topic: StateTopic, group_id: str, callbacks: GroupCallbacks, member: str = ""
    ) -> GroupConsumer:
        """A new membership in a group that shares out the partitions of a state topic, as `SharedWork` opens one. Makes
        the topic, if it is not there. `member` begins its client id, as that of the settings does otherwise."""
        self.log.end_offset(topic, 0, Deadline.after(_FIND_TOPIC_S))
        config = self.settings.group_member(
            group_id=group_id,
            client_id=member_client_id(member or self.settings.client_id, secrets.token_hex(16)),
            fetch_queue_kbytes=_MEMBER_QUEUE_KBYTES,
            partitioned=False,
        )
        local_peers = self.departures.local_peers(group_id, config["client.id"])
        return GroupConsumer(config, self.log.kafka_name(topic), callbacks, local_peers=local_peers, reserved=True)

    def member_clients(self) -> MemberClients | None:
        """Clients and threads that memberships share, made by the first call; None where they need librdkafka."""
        with self._lock:
            if self._members is None and self._uses_wire_members:
                try:
                    self._members = MemberClients.open(self.settings, self.wire)
                except errors.NotSupportedYet as failure:
                    self._uses_wire_members = False
                    _log.warning("each subscription takes a consumer of librdkafka, with five threads: %s", failure)
            return self._members

    @property
    def shared_members(self) -> MemberClients | None:
        """The same, if they were made."""
        return self._members

    def has_state_topic(self, topic: StateTopic, deadline: Deadline) -> bool:
        """Whether the state topic exists. Reading it would create it."""
        return self.admin.describe_topic(self.log.kafka_name(topic), deadline) is not None

    def unique_name(self) -> str:
        """A name no other producer of the cluster has."""
        with self._lock:
            self._names += 1
            return f"{self._label}-{self._names - 1}"

    def close_services(self, deadline: Deadline) -> None:
        """Answer what is under way, and end every handle."""
        try:
            self.producers.close(deadline)
        except errors.LayerError as failure:
            _log.warning("cluster=%s closing: %s", self.cluster_id, failure)
        self.publish_rates.close()
        self.departures.close()
        with self._lock:
            members, self._uses_wire_members = self._members, False
        if members is not None:
            members.close(deadline)
        self.wire.close(deadline)
        self.pending_acks.close(deadline)
        self.followed_log.close()
        self.log.close()
        self.fetcher.close()
        unanswered = self._pool.close(deadline)
        if unanswered:
            _log.warning("cluster=%s closed with %d unanswered records", self.cluster_id, unanswered)
        self.idle_offsets.close()
        self.admin.close()
