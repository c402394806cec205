"""Making a Consumer of one topic: what its options become."""

from __future__ import annotations

import secrets
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.dead_letters import DeadLetterWriter
from pulsar_on_kafka.client.consumer.letters import LetterProducers
from pulsar_on_kafka.client.receiving.incoming_schema import IncomingValues, admit_reading, incoming_values
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.enums import (
    ConsumerType,
    InitialPosition,
    SubscriptionMode,
)
from pulsar_on_kafka.client.values.key_shared import key_shared_rule
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.sending.arguments import check_range
from pulsar_on_kafka.sending.official_errors import pulsar_errors
from pulsar_on_kafka.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.subscriptions.records.chunk_rules import ChunkRules
from pulsar_on_kafka.subscriptions.records.endpoint import DeliveryRules, Endpoint

_TYPES: Final = {
    ConsumerType.Exclusive: SubscriptionType.EXCLUSIVE,
    ConsumerType.Shared: SubscriptionType.SHARED,
    ConsumerType.Failover: SubscriptionType.FAILOVER,
    ConsumerType.KeyShared: SubscriptionType.KEY_SHARED,
}


def open_consumer(topic: str, options: ConsumerOptions, session: Session) -> Consumer:
    """A consumer of one topic. `options` are checked; those about several topics have no effect.

    Raises:
        PulsarException: see `Client.subscribe`.
    """
    with pulsar_errors():
        name = TopicName.parse(topic)
        node = session.node()
        deadline = session.deadline()
        opened = node.topics.open(name, deadline)
        if options.is_read_compacted and not name.is_persistent:
            raise errors.InvalidOption(f"is_read_compacted: {name} is not persistent, so there is nothing to compact")
        letters = None
        if options.dead_letter_policy is not None and name.is_persistent:  # elsewhere nothing comes again
            letters = DeadLetterWriter(
                options.dead_letter_policy.policy(),
                options.subscription_name,
                LetterProducers(session, options.subscription_name),
                as_java=options.retry_enable,
            )
        partition = name.partition if name.partition >= 0 else None
        admit_reading(node, opened, options.schema, deadline)
        values = incoming_values(options.schema, name.base, node.schemas, session.operation_timeout_s)
        non_durable = options.subscription_mode is SubscriptionMode.NonDurable and name.is_persistent
        while True:
            inbox = _inbox(options, opened.partitions if partition is None else 1, letters, values, name.is_persistent)
            try:
                subscription, member = node.memberships.subscribe(
                    opened,
                    options.subscription_name,
                    _TYPES[options.consumer_type],
                    inbox,
                    from_earliest=options.initial_position is InitialPosition.Earliest,
                    ack_persist_interval_s=session.ack_persist_interval_s,
                    read_compacted=options.is_read_compacted,
                    deadline=deadline,
                    partition=partition,
                    replicated=options.replicate_subscription_state_enabled,
                    non_durable=non_durable,
                )
            except errors.NoSuchSubscription:
                if not non_durable:
                    raise
                deadline.check(f"subscription {options.subscription_name} to be removed by its former consumers")
                continue
            break
        if options.properties or options.replicate_subscription_state_enabled:
            node.subscriptions.remember(
                subscription, options.properties or {}, options.replicate_subscription_state_enabled, deadline
            )
        consumer = Consumer(node, session, subscription, member, inbox, options, letters)
    session.consumer_opened(consumer)
    return consumer


def _inbox(
    options: ConsumerOptions,
    partitions: int,
    letters: DeadLetterWriter | None,
    values: IncomingValues | None,
    persistent: bool,
) -> Endpoint:
    timeout_ms = options.unacked_messages_timeout_ms if persistent else None
    max_total = options.max_total_receiver_queue_size_across_partitions
    return Endpoint(
        options.consumer_name or secrets.token_hex(5),
        inbox_capacity(options.receiver_queue_size, max_total, partitions),
        delivery_type=Message,
        schema=options.schema,
        values=values,
        rules=DeliveryRules(
            options.priority_level,
            ack_timeouts=AckTimeouts(timeout_ms / 1000) if timeout_ms else None,
            dead_letters=letters,
            key_shared=key_shared_rule(options.key_shared_policy),
        ),
        chunk_rules=ChunkRules(
            options.max_pending_chunked_message,
            options.auto_ack_oldest_chunked_message_on_queue_full,
            options.expire_time_of_incomplete_chunked_message_ms / 1000,
        ),
        unsealing=consumer_encryption(options.crypto_key_reader, options.crypto_failure_action),
    )


def inbox_capacity(receiver_queue_size: int, max_total: int, partitions: int) -> int:
    """Messages the inbox of a consumer takes: the official sizes are per partition, bounded over all of them."""
    check_range("receiver_queue_size", receiver_queue_size, 0)
    check_range("max_total_receiver_queue_size_across_partitions", max_total, 0)
    if receiver_queue_size == 0:
        return 0
    return max(1, min(receiver_queue_size * partitions, max(max_total, receiver_queue_size)))
