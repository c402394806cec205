"""Configurations of brokers, subscribers and publishers, and the SDK's options that they pass on."""

from __future__ import annotations

from dataclasses import dataclass, field

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy
from typing_extensions import TypedDict

from pulsar_on_kafka.asyncio.client import Client
from pulsar_on_kafka.client.values.dead_letter_policy import ConsumerDeadLetterPolicy, RedeliveryBackoff
from pulsar_on_kafka.client.values.enums import ConsumerType, InitialPosition, RegexSubscriptionMode, SubscriptionMode
from pulsar_on_kafka.client.values.key_shared import ConsumerKeySharedPolicy
from pulsar_on_kafka.crypto.keys import CryptoKeyReader


class ConsumerSettings(TypedDict, total=False):
    """Options of a subscriber that go to the SDK's `subscribe`; their defaults, units and errors are there."""

    consumer_type: ConsumerType
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    consumer_name: str | None
    unacked_messages_timeout_ms: int | None
    negative_ack_redelivery_delay_ms: int
    negative_ack_redelivery_backoff: RedeliveryBackoff | None
    is_read_compacted: bool
    is_pattern_topic: bool
    regex_subscription_mode: RegexSubscriptionMode
    properties: dict[str, str] | None
    initial_position: InitialPosition
    crypto_key_reader: CryptoKeyReader | None
    replicate_subscription_state_enabled: bool
    key_shared_policy: ConsumerKeySharedPolicy | None
    batch_index_ack_enabled: bool
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    priority_level: int
    subscription_mode: SubscriptionMode
    max_unacked_messages_on_consumer: int | None
    ordered_redelivery: bool | None


@dataclass(kw_only=True)
class PulsarBrokerConfig(BrokerConfig):
    """The configuration of a broker or a router; a broker's has the SDK's client once it is connected."""

    connected: Client | None = field(default=None, repr=False)

    @property
    def client(self) -> Client:
        """The SDK's client. Raises IncorrectState when the broker is not connected."""
        if self.connected is None:
            raise IncorrectState("PulsarBroker is not connected: call `broker.connect()` or `broker.start()` first")
        return self.connected


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """The configuration of one subscriber."""

    topic: str
    subscription: str
    settings: ConsumerSettings

    @property
    def ack_policy(self) -> AckPolicy:
        """The subscriber's policy, else the broker's or router's, else NACK_ON_ERROR."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class SubscriberDocument(SubscriberSpecificationConfig):
    """A subscriber's part of the AsyncAPI document."""

    topic: str


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """The configuration of one publisher."""

    topic: str
    key: str | None
    headers: dict[str, str]
    reply_to: str


@dataclass(kw_only=True)
class PublisherDocument(PublisherSpecificationConfig):
    """A publisher's part of the AsyncAPI document."""

    topic: str
