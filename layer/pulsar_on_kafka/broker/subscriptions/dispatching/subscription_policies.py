"""Policies that the members of a subscription follow while they serve it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pulsar_on_kafka.broker.metadata.policies import (
    DISPATCH_RATE,
    MAX_UNACKED_MESSAGES_ON_CONSUMER,
    MAX_UNACKED_MESSAGES_ON_SUBSCRIPTION,
    SUBSCRIPTION_DISPATCH_RATE,
    applied,
)
from pulsar_on_kafka.broker.metadata.rates.policy_rates import DispatchRate, dispatch_rate


class SubscriptionPolicies(NamedTuple):
    """The effective values of a topic's policies."""

    max_unacked_on_consumer: int = MAX_UNACKED_MESSAGES_ON_CONSUMER.default
    """0: no limit. So for the subscription."""
    max_unacked_on_subscription: int = MAX_UNACKED_MESSAGES_ON_SUBSCRIPTION.default
    dispatch_rate: DispatchRate | None = None
    """The rate of all subscriptions of the topic together; None: no limit. So for each subscription."""
    subscription_dispatch_rate: DispatchRate | None = None

    @classmethod
    def of(cls, *levels: Mapping[str, Any]) -> SubscriptionPolicies:
        """The policies of a topic with these levels: its own policies, then the inherited ones."""
        return cls(
            applied(MAX_UNACKED_MESSAGES_ON_CONSUMER, *levels),
            applied(MAX_UNACKED_MESSAGES_ON_SUBSCRIPTION, *levels),
            dispatch_rate(DISPATCH_RATE, *levels),
            dispatch_rate(SUBSCRIPTION_DISPATCH_RATE, *levels),
        )
