"""Opens consumers and readers of clients."""

from __future__ import annotations

import secrets
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.migration_progress import CLOSED_TO_CONSUMERS
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.readers import compacted_ranges
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    DeliveryRules,
)
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import KeySharedRule, check_ranges
from pulsar_on_kafka.client.receiving.incoming_schema import admit_schema
from pulsar_on_kafka.gateway.handlers.schemas import schema_info
from pulsar_on_kafka.gateway.handlers.wire_consumer import (
    TYPES,
    EntryPlace,
    ReadingConsumer,
    SubscriptionConsumer,
    Wire,
    WireConsumer,
    WireEndpoint,
)
from pulsar_on_kafka.gateway.protocol.properties import properties_of
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.command_types import (
    KeySharedMetaField,
    SubscribeCommand,
)

_STICKY: Final = 1
_EARLIEST: Final = 1
_ACK_PERSIST_INTERVAL_S: Final = 1.0
MAX_HASH_RANGES: Final = 1_000
"""Hash ranges of one consumer. Each message of a reader is compared with them."""


def open_consumer(
    node: Node, command: SubscribeCommand, wire: Wire, deadline: Deadline, sought_offset: int | None = None
) -> WireConsumer:
    """Open a consumer of a topic or a partition, which may create the topic and the subscription. `sought_offset` is
    that of the reader's predecessor (`WireConsumer`).

    Raises:
        LayerError, MappingError: see `Imports.require_open`, `Memberships.subscribe`, `TopicRegistry.open`,
            `SchemaRegistry.for_consumer`.
    """
    name = TopicName.parse(command.topic)
    node.imports.require_open(name.tenant, CLOSED_TO_CONSUMERS, deadline)
    if not 0 <= command.subType < len(TYPES):
        raise errors.InvalidOption(f"subType is {command.subType}, expected 0 to {len(TYPES) - 1}")
    check_subscription_name(command.subscription)
    if command.read_compacted and not name.is_persistent:
        raise errors.Refused(f"read_compacted: topic {name} is not persistent, so there is nothing to compact")
    rules, properties = _rules(command), properties_of(command)
    topic = _topic(node, name, deadline, make=command.force_topic_creation)
    if command.HasField("schema"):
        admit_schema(node, topic, schema_info(command.schema), deadline)
    if topic.partitioned and name.partition < 0:
        raise errors.Refused(f"topic {name} has {topic.partitions} partitions: clients subscribe to each by its name")
    place = EntryPlace(node, topic, name.partition if name.partition >= 0 else None, wire.generation)
    endpoint = WireEndpoint(command.consumer_name or secrets.token_hex(5), command.consumer_id, wire, rules)
    endpoint.metadata = properties
    endpoint.reports_active = TYPES[command.subType] is SubscriptionType.FAILOVER
    if command.HasField("consumer_epoch"):
        endpoint.epoch = command.consumer_epoch
    if sought_offset is not None or (not command.durable and command.HasField("start_message_id")):
        return _reader(place, command, endpoint, sought_offset, deadline)
    subscription, member = node.memberships.subscribe(
        topic,
        command.subscription,
        TYPES[command.subType],
        endpoint,
        from_earliest=command.initialPosition == _EARLIEST,
        ack_persist_interval_s=_ACK_PERSIST_INTERVAL_S,
        read_compacted=command.read_compacted,
        deadline=deadline,
        partition=place.partition,
        properties={each.key: each.value for each in command.subscription_properties},
        replicated=command.replicate_subscription_state,
        non_durable=not command.durable and name.is_persistent,
    )
    endpoint.undeliverable = node.meters.subscription(str(name), command.subscription).count_undeliverable
    return SubscriptionConsumer(place, subscription, member, endpoint)


def _topic(node: Node, name: TopicName, deadline: Deadline, *, make: bool) -> Topic:
    if make:
        return node.topics.open(name, deadline)
    found = node.topics.find(name.base, deadline)
    if found is None:
        raise errors.NoSuchTopic(f"topic {name} does not exist")
    return found


def _ranges(field: KeySharedMetaField) -> tuple[tuple[int, int], ...] | None:
    """The hash ranges of a consumer; None: keys are split automatically. Raises InvalidOption: too many ranges."""
    if field.keySharedMode != _STICKY:
        return None
    if len(field.hashRanges) > MAX_HASH_RANGES:
        raise errors.InvalidOption(
            f"a consumer has {len(field.hashRanges)} hash ranges, expected up to {MAX_HASH_RANGES}"
        )
    return tuple((each.start, each.end) for each in field.hashRanges)


def _rules(command: SubscribeCommand) -> DeliveryRules:
    key_shared = None
    if TYPES[command.subType] is SubscriptionType.KEY_SHARED:
        field = command.keySharedMeta
        ranges = _ranges(field)
        check_ranges(command.consumer_name, ranges or ())
        key_shared = KeySharedRule(ranges, field.allowOutOfOrderDelivery)
    return DeliveryRules(priority=command.priority_level, key_shared=key_shared)


def _reader(
    place: EntryPlace, command: SubscribeCommand, endpoint: WireEndpoint, sought_offset: int | None, deadline: Deadline
) -> ReadingConsumer:
    if sought_offset is not None:
        start = sought_offset
    elif command.start_message_rollback_duration_sec:
        since_ms = max(0, place.node.clock.now_ms() - command.start_message_rollback_duration_sec * 1000)
        start = place.begin_at_time(since_ms, deadline)
    else:
        former, field, behind = endpoint.former, command.start_message_id, None
        if former is not None and place.topic.name.is_persistent:
            behind = former.start_behind(place.node, place.topic, place.number, field, deadline)
        start = place.begin(command.start_message_id, deadline) if behind is None else behind
    endpoint.ranges = _ranges(command.keySharedMeta)
    partitions = [place.number]
    compacted = compacted_ranges(place.node, place.topic, partitions, deadline) if command.read_compacted else {}
    tail = place.node.readers.open_tail(place.topic, {place.number: start}, endpoint, compacted)
    return ReadingConsumer(place, tail, endpoint, start)
