"""The types of a subscription: who of its consumers gets which messages."""

from __future__ import annotations

from enum import Enum


class SubscriptionType(str, Enum):
    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"

    @property
    def is_shared(self) -> bool:
        return self in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

    @property
    def is_leased(self) -> bool:
        """Consumers of processes that do not own a partition may get messages of it."""
        return self is not SubscriptionType.EXCLUSIVE
