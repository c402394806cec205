"""Administration of topics, namespaces, subscriptions and schemas: `AdminClient`."""

from __future__ import annotations

from layer.admin.client import AdminClient
from layer.admin.cursor_view import LedgerCost, PartitionCursor
from layer.admin.stats import PartitionCursorStats, PublisherStats, SubscriptionStats, TopicStats
from layer.registry.model import SchemaEntry, StoredSchema

__all__ = [
    "AdminClient",
    "LedgerCost",
    "PartitionCursor",
    "PartitionCursorStats",
    "PublisherStats",
    "SchemaEntry",
    "StoredSchema",
    "SubscriptionStats",
    "TopicStats",
]
