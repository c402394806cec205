"""Limits of unacknowledged messages on Shared and Key_Shared subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.metadata.policies import MAX_NUMBER
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_context import SubscriptionHandle
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint


class UnackedLimits:
    """The limits of each consumer, and of all consumers on the partitions that this process owns together.

    At the limit of the subscription consumers get redeliveries only, until less than half of it is unacknowledged. A
    consumer gets messages up to its own limit (`Endpoint.shared_permits`), and counts as blocked until it has at most
    half of it. Source: PersistentDispatcherMultipleConsumers.addUnAckedMessages, Consumer.addAndGetUnAckedMsgs.
    Differs from Pulsar: there a blocked consumer gets nothing until it has at most half.
    """

    def __init__(self, handle: SubscriptionHandle, clock: Clock, endpoints: Sequence[Endpoint]) -> None:
        self._handle = handle
        self._clock = clock
        self._endpoints = endpoints
        self._blocked_since_s: float | None = None

    @property
    def is_blocked(self) -> bool:
        """The subscription's limit was reached at the last look."""
        return self._blocked_since_s is not None

    def room(self) -> int:
        """Apply the policies, and compare the present counts with them. Returns how many new messages may be delivered;
        0: only redeliveries."""
        policies = self._handle.policies
        for endpoint in self._endpoints:
            endpoint.limit_unacked(policies.max_unacked_on_consumer)
        left = self.note()
        return 0 if self.is_blocked else left

    def note(self) -> int:
        """Compare the present counts with the limits; returns what is left to that of the subscription."""
        unacked = 0
        for endpoint in self._endpoints:
            count, limit = endpoint.unacked, endpoint.max_unacked
            unacked += count
            if endpoint.blocked_since_s is not None:
                if not limit or count <= limit // 2:
                    endpoint.blocked_since_s = None
            elif limit and count >= limit:
                endpoint.blocked_since_s = self._clock.monotonic()
        limit = self._handle.policies.max_unacked_on_subscription
        if not limit or unacked < (limit // 2 if self.is_blocked else limit):
            self._blocked_since_s = None
        elif self._blocked_since_s is None:
            self._blocked_since_s = self._clock.monotonic()
        return limit - unacked if limit else MAX_NUMBER

    def blocked_s(self) -> float:
        """The time since the subscription's limit was reached; -1 below it."""
        return self.age_s(self._blocked_since_s)

    def age_s(self, since_s: float | None) -> float:
        return -1.0 if since_s is None else round(self._clock.monotonic() - since_s, 1)
