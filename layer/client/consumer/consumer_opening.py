"""Making a Consumer of one topic: its options, and what they become."""

from __future__ import annotations

import re
import secrets
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, MessageListener
from pulsar_on_kafka.client.consumer.dead_letters import DeadLetterWriter, letter_producers
from pulsar_on_kafka.client.consumer.letter_versions import LetterVersions
from pulsar_on_kafka.client.receiving.batch_receive import ConsumerBatchReceivePolicy
from pulsar_on_kafka.client.receiving.incoming_schema import IncomingValues, incoming_values
from pulsar_on_kafka.client.receiving.reading_admission import admit_reading
from pulsar_on_kafka.client.values.dead_letter_policy import ConsumerDeadLetterPolicy
from pulsar_on_kafka.client.values.encryption import consumer_encryption
from pulsar_on_kafka.client.values.enums import (
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    RegexSubscriptionMode,
    SubscriptionMode,
)
from pulsar_on_kafka.client.values.errors import pulsar_errors
from pulsar_on_kafka.client.values.key_shared import ConsumerKeySharedPolicy, key_shared_rule
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.option_tables import BYTES, ELSEWHERE, Within, check_table
from pulsar_on_kafka.client.values.options import check_range, check_texts
from pulsar_on_kafka.client.values.redelivery_backoff import RedeliveryBackoff
from pulsar_on_kafka.crypto.keys import CryptoKeyReader
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.subscriptions.subscription_type import SubscriptionType
from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.subscriptions.records.chunk_rules import ChunkRules
from pulsar_on_kafka.subscriptions.records.endpoint import Endpoint

MIN_ACK_TIMEOUT_MS: Final = 10_000
"""As the official client has it."""

_TYPES: Final = {
    ConsumerType.Exclusive: SubscriptionType.EXCLUSIVE,
    ConsumerType.Shared: SubscriptionType.SHARED,
    ConsumerType.Failover: SubscriptionType.FAILOVER,
    ConsumerType.KeyShared: SubscriptionType.KEY_SHARED,
}


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The official options of `subscribe`, and ours, which are given by keyword only."""

    topic: str | list[str] | re.Pattern[str]
    subscription_name: str
    consumer_type: ConsumerType = ConsumerType.Exclusive
    schema: Schema = BYTES
    message_listener: MessageListener | None = None
    receiver_queue_size: int = 1000
    max_total_receiver_queue_size_across_partitions: int = 50000
    consumer_name: str | None = None
    unacked_messages_timeout_ms: int | None = None
    broker_consumer_stats_cache_time_ms: int = 30000
    negative_ack_redelivery_delay_ms: Annotated[int, Within(0)] = 60000
    is_read_compacted: bool = False
    properties: dict[str, str] | None = None
    pattern_auto_discovery_period: int = 60
    initial_position: InitialPosition = InitialPosition.Latest
    crypto_key_reader: Annotated[CryptoKeyReader | None, ELSEWHERE] = field(default=None, repr=False)
    replicate_subscription_state_enabled: Annotated[bool, ELSEWHERE] = False
    max_pending_chunked_message: int = 10
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    start_message_id_inclusive: bool = False
    batch_receive_policy: ConsumerBatchReceivePolicy | None = None
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    batch_index_ack_enabled: bool = False
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL
    _: KW_ONLY
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    priority_level: Annotated[int, Within(0)] = 0
    retry_enable: bool = False
    expire_time_of_incomplete_chunked_message_ms: Annotated[int, Within(1)] = 60_000
    subscription_mode: SubscriptionMode = SubscriptionMode.Durable

    def check(self) -> None:
        """Raises ValueError, TypeError or InvalidConfiguration, naming the value and what was expected."""
        check_table(self)
        replicate = self.replicate_subscription_state_enabled
        if not isinstance(replicate, bool):  # TypeError, as officially
            raise TypeError(f"replicate_subscription_state_enabled must be a bool, got {replicate!r:.60}")
        consumer_encryption(self.crypto_key_reader, self.crypto_failure_action)
        if self.max_pending_chunked_message < 0:  # TypeError, as officially
            raise TypeError(f"max_pending_chunked_message must be 0 or more, got {self.max_pending_chunked_message}")
        timeout_ms = self.unacked_messages_timeout_ms
        if timeout_ms and timeout_ms < MIN_ACK_TIMEOUT_MS:
            raise ValueError(f"unacked_messages_timeout_ms must be at least {MIN_ACK_TIMEOUT_MS}, got {timeout_ms}")
        kind = self.consumer_type
        if self.is_read_compacted and kind not in (ConsumerType.Exclusive, ConsumerType.Failover):
            raise InvalidConfiguration(f"is_read_compacted is for Exclusive and Failover, not {kind.name}")
        if self.subscription_mode is SubscriptionMode.NonDurable and self.replicate_subscription_state_enabled:
            raise InvalidConfiguration("replicate_subscription_state_enabled: a NonDurable subscription has no state")
        check_texts("properties", self.properties)


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
            policy = options.dead_letter_policy.policy()
            letters = DeadLetterWriter(
                policy,
                options.subscription_name,
                letter_producers(session),
                LetterVersions(node.schemas, session.operation_timeout_s),
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
        consumer = Consumer(
            node,
            subscription,
            member,
            inbox,
            kind=options.consumer_type,
            nack_delay_ms=options.negative_ack_redelivery_delay_ms,
            nack_backoff=options.negative_ack_redelivery_backoff,
            dead_letters=letters,
            operation_timeout_s=session.operation_timeout_s,
            seek_inclusive=options.start_message_id_inclusive,
            batch_policy=options.batch_receive_policy,
            listener=options.message_listener,
            threads=session.threads,
            on_close=session.consumer_closed,
        )
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
        ack_timeouts=AckTimeouts(timeout_ms / 1000) if timeout_ms else None,
        dead_letters=letters,
        priority=options.priority_level,
        key_shared=key_shared_rule(options.key_shared_policy),
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
