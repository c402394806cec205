"""Admission of a producer to a topic: its name, access mode, schema, deduplication and quota."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.policies import MAX_PRODUCERS_PER_TOPIC, applied
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.record_limits import CHUNKS, RecordLimits
from pulsar_on_kafka.broker.metadata.topics import check_backlog, check_not_terminated
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.chunking import record_limit
from pulsar_on_kafka.broker.publishing.deduplication import Deduplication
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.outgoing_schema import outgoing_schema
from pulsar_on_kafka.broker.publishing.outlet import Admitted
from pulsar_on_kafka.broker.publishing.sender import Sender, SenderOptions
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.producer_records import Publisher
from pulsar_on_kafka_mapping.state.traffic import Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The application of a producer. `send_timeout_ms`, in `options`, and `compression` choose its Kafka producer."""

    name: str | None
    """None: one is made up, if there is no `former_name`."""
    former_name: str | None = None
    """The generated name under which the same producer was opened before."""
    may_reopen: bool = False
    """The producer may be opened again by the name that was made up, also by another process: where the topic
    deduplicates, that is claimed like one that was given, and what it stored is kept on record."""
    schema: Schema
    options: SenderOptions
    mode: AccessMode = AccessMode.SHARED
    compression: str = "none"
    chunked: bool = False
    """A message too big for one record goes in chunks."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties that operators see."""
    use: str = ""
    """Producers of another use have Kafka producers of their own (`Node.give_up_producers`)."""
    topic_epoch: int | None = None
    """The topic epoch that an exclusive producer got when it was opened before (`Membership.topic_epoch`)."""
    traffic: Callable[[], Traffic | None] = lambda: None
    """The traffic that a gateway counts for its client's producer; None for other producers."""

    def kafka(self, node: Node, kafka_topic: str, batch_bytes: int | None = None) -> KafkaProducer:
        """The Kafka producer for its records; shared with producers of the same options."""
        return node.producer(self.compression, self.options.limits.send_timeout_ms, self.use, batch_bytes, kafka_topic)

    def within(self, limits: RecordLimits) -> Application:
        """The application as the topic's limits allow it: on a compacted one each message is a record of its own.

        Raises:
            Refused: it is to send messages in chunks.
        """
        if not limits.compacted:
            return self
        if self.chunked:
            limits.refuse(f"{CHUNKS}: open the producer without chunking_enabled")
        return replace(self, options=replace(self.options, batching=None))

    def is_lasting(self, *, deduplicated: bool, is_fenced: Callable[[str], bool]) -> bool:
        """The producer's name is claimed, and may be opened again. A name that was made up is claimed without
        deduplication, too, where it was fenced: records under the epoch that unnamed producers share would be void."""
        if self.name or (self.may_reopen and deduplicated):
            return True
        return self.may_reopen and self.former_name is not None and is_fenced(self.former_name)

    def needs_headers(self) -> bool:
        """Whether a reader that ignores headers cannot read its messages."""
        return self.options.batching is not None or self.chunked or self.options.sealer is not None


class TopicAdmission:
    """Admission to one topic, which is opened for that."""

    def __init__(self, node: Node, name: TopicName, deadline: Callable[[], Deadline]) -> None:
        """`deadline`: a new one for each call to the cluster. Raises what `TopicRegistry.open` does, and
        TopicIsTerminated, BacklogQuotaRefuses, BacklogQuotaHolds."""
        self._node = node
        self._deadline = deadline
        self._fixed = name.partition if name.partition >= 0 else None
        self.topic = node.topics.open(name, deadline())
        check_not_terminated(self.topic)
        check_backlog(self.topic, node.clock.now_ms())
        self.policies = node.producer_policies([self.topic.name], deadline())[self.topic.name]

    def admit(self, requires: Application) -> Sender:
        """The sender of a producer that was admitted.

        Raises:
            As `ProducerRegistry.join`, with the topic's policy as its limit, and `SchemaRegistry.for_producer`.
            ConnectFailed: no broker answered.
        """
        node, topic = self._node, self.topic
        limits = node.limits.of(topic, self._deadline())
        requires = requires.within(limits)
        if topic.partitioned:
            requires.kafka(node, topic.kafka_topic, limits.batch_bytes).learn_partitions(
                topic.kafka_topic, topic.partitions, self._deadline()
            )
        made_up = requires.former_name or node.unique_name()
        deduplicated = self.policies.deduplication
        lasting = requires.is_lasting(
            deduplicated=deduplicated,
            is_fenced=lambda former: node.producers.is_fenced(topic, former, self._deadline()),
        )
        name = requires.name or made_up
        claimed = name if lasting or requires.mode is not AccessMode.SHARED else None
        encrypts = requires.options.sealer is not None
        schema = outgoing_schema(requires.schema, topic, node.schemas, self._deadline(), encrypts=encrypts)
        if requires.needs_headers():
            self._more_than_plain()
        membership = node.producers.join(
            topic,
            claimed,
            requires.mode,
            self._deadline(),
            partition=self._fixed,
            own_epoch=deduplicated,
            topic_epoch=requires.topic_epoch,
            limit=self._max_producers(),
        )
        admitted = Admitted(
            topic=topic,
            fixed_partition=self._fixed,
            membership=membership,
            name=name,
            deduplication=Deduplication(topic, name, membership, node.sequences, lasting=lasting),
            kafka=partial(requires.kafka, node, topic.kafka_topic, limits.batch_bytes),
            limits=limits,
            more_than_plain=self._more_than_plain,
            routes_keys=partial(node.producers.hashing_schemes.begins, topic),
            cluster_id=node.cluster_id,
            now_ms=node.clock.now_ms,
            publish_rates=node.publish_rates,
        )
        try:
            node.topics.deletions.await_decision(topic, self._deadline())
            self._begin_deduplication(admitted, requested=deduplicated)
            options = requires.options
            if requires.chunked:
                limit = record_limit(node.admin, topic.kafka_topic, self._deadline())
                options = replace(options, record_bytes=limit)
            sender = Sender(admitted, schema, options, node.timer)
            sender.outlet.follow_rate(self.policies.publish_rate)
        except BaseException:
            membership.leave(self._deadline())
            raise
        self._introduce(sender, membership, requires)
        return sender

    def _max_producers(self) -> int:
        topic = self.topic
        return int(applied(MAX_PRODUCERS_PER_TOPIC, topic.policies, topic.namespace_policies or {}))

    def _more_than_plain(self, *, chunks: bool = False, markers: bool = False, raw: bool = False) -> None:
        producers = self._node.producers
        with pulsar_errors():
            if markers:
                producers.marked(self.topic, self._deadline())
            else:
                producers.more_than_plain(self.topic, self._deadline(), chunks=chunks, raw=raw)

    def _begin_deduplication(self, admitted: Admitted, *, requested: bool) -> None:
        deduplication = admitted.deduplication
        if requested:
            deduplication.open(admitted.partitions(self.topic.partitions), self._deadline())
            deduplication.active = True
        else:
            deduplication.end(self._deadline())

    def _introduce(self, sender: Sender, membership: Membership, requires: Application) -> None:
        since_ms = self._node.clock.now_ms()

        def describe() -> Publisher:
            counts = sender.send_counts()
            return Publisher(
                sender.name, requires.mode.value, membership.epoch, since_ms, counts.sent, counts.failed,
                dict(requires.properties), requires.traffic(), counts.limited_times,
            )  # fmt: skip

        membership.introduce(describe)
