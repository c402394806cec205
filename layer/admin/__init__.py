"""Administration of topics, namespaces and subscriptions: `AdminClient`."""

from __future__ import annotations

from layer.admin.client import AdminClient
from layer.admin.stats import PartitionCursorStats, SubscriptionStats, TopicStats

__all__ = ["AdminClient", "PartitionCursorStats", "SubscriptionStats", "TopicStats"]
