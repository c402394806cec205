"""A consumer group stands for each subscription.

    orders-reader of public.default.orders   ->   public.default.orders/orders-reader
    Größe 1       of public.default.orders   ->   public.default.orders/Gr-xf6--xdf-e-x20-1
    its partition 7, served by itself        ->   public.default.orders/orders-reader/7

A Kafka topic's name never has a '/', and no subscription's form has one. Decision: mapping/decisions/0001.
"""

from __future__ import annotations

import re
from typing import Final

from pulsar_on_kafka_mapping.encoding.escaping import Escaper, unprintable
from pulsar_on_kafka_mapping.errors import InvalidSubscriptionName, InvalidTopicName
from pulsar_on_kafka_mapping.names.topic_name import MAX_PARTITION

PREFIX: Final = "pulsar.repl."
"""Source: Pulsar's `replicatorPrefix`."""


def replicator_subscription(cluster: str) -> str:
    return PREFIX + cluster


def cluster_of(subscription: str) -> str | None:
    """The cluster that a replicator's subscription copies to; None for any other subscription."""
    return subscription[len(PREFIX) :] if subscription.startswith(PREFIX) else None


def copied_name(origin: str, incarnation: int) -> str:
    """The name under which the target stores its copies of one incarnation of a topic of `origin`."""
    return f"{PREFIX}{origin}/{incarnation}"


MAX_SUBSCRIPTION_CHARS: Final = 3_000
"""A group id is then at most 249 + 1 + 9 * 3,000 = 27,250 bytes; Kafka's protocol ends at 32,767."""

_ESCAPER: Final = Escaper("._")
_KAFKA_TOPIC: Final = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}")


def group_id(kafka_topic: str, subscription: str) -> str:
    """The consumer group of a subscription; ASCII, different for different (topic, subscription).

    Raises:
        InvalidSubscriptionName: it is empty, has more than 3,000 characters, a control character or a lone surrogate.
        InvalidTopicName: `kafka_topic` is no legal name of a Kafka topic.
    """
    if _KAFKA_TOPIC.fullmatch(kafka_topic) is None:
        raise InvalidTopicName(f"Kafka topic is {kafka_topic!r}, expected 1 to 249 of A-Z a-z 0-9 . _ -")
    check_subscription_name(subscription)
    return f"{kafka_topic}/{_ESCAPER.escape(subscription)}"


def partition_group_id(kafka_topic: str, subscription: str, partition: int) -> str:
    """The consumer group of a subscription's consumers on one partition; no subscription has it as its own.

    Raises as `group_id`; ValueError: `partition` is not 0 to 2,147,483,647.
    """
    if not 0 <= partition <= MAX_PARTITION:
        raise ValueError(f"partition is {partition}, expected 0 to {MAX_PARTITION}")
    return f"{group_id(kafka_topic, subscription)}/{partition}"


def check_subscription_name(subscription: str) -> None:
    """Raises InvalidSubscriptionName; see `group_id`."""
    if not subscription:
        raise InvalidSubscriptionName("subscription name is '', expected at least one character")
    if len(subscription) > MAX_SUBSCRIPTION_CHARS:
        raise InvalidSubscriptionName(
            f"subscription name {subscription[:40]!r}... has {len(subscription)} characters, "
            f"expected at most {MAX_SUBSCRIPTION_CHARS}"
        )
    forbidden = unprintable(subscription)
    if forbidden is not None:
        raise InvalidSubscriptionName(
            f"subscription name is {subscription!r}, expected no control character or lone surrogate such as "
            f"U+{ord(forbidden):04X}"
        )
