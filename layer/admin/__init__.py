"""Administration of topics, namespaces, subscriptions, schemas and transactions: `AdminClient`."""

from __future__ import annotations

from layer.admin.client import AdminClient
from layer.admin.cursor_view import LedgerCost, PartitionCursor
from layer.admin.stats import ConsumerStats, PartitionCursorStats, PublisherStats, SubscriptionStats, TopicStats
from layer.admin.transaction_stats import TransactionDetails, VerifiedBuffer
from layer.ledgers.reading import LedgerInfo
from layer.metadata.namespaces import CLUSTER
from layer.registry.model import SchemaEntry, StoredSchema
from layer.transactions.inspection import CoordinatorStats, TransactionInfo
from layer.transactions.place_inspection import (
    PartitionBufferStats,
    PendingAckStats,
    TransactionInBuffer,
    TransactionInPendingAck,
)

__all__ = [
    "CLUSTER",
    "AdminClient",
    "ConsumerStats",
    "CoordinatorStats",
    "LedgerCost",
    "LedgerInfo",
    "PartitionBufferStats",
    "PartitionCursor",
    "PartitionCursorStats",
    "PendingAckStats",
    "PublisherStats",
    "SchemaEntry",
    "StoredSchema",
    "SubscriptionStats",
    "TopicStats",
    "TransactionDetails",
    "TransactionInBuffer",
    "TransactionInPendingAck",
    "TransactionInfo",
    "VerifiedBuffer",
]
