"""Administration of topics, namespaces, subscriptions, schemas and transactions: `AdminClient`."""

from __future__ import annotations

from pulsar_on_kafka.admin.client import AdminClient
from pulsar_on_kafka.admin.cursor_view import LedgerCost, PartitionCursor
from pulsar_on_kafka.admin.entries import BacklogAnalysis
from pulsar_on_kafka.admin.letters import DeadLetter, DeadLetterTopic, LetterFilter, Redriven
from pulsar_on_kafka.admin.schemas import RegisteredSchema, RegistrationState
from pulsar_on_kafka.admin.stats import (
    ConsumerStats,
    EntryHolder,
    PartitionCursorStats,
    PublisherStats,
    SubscriptionStats,
    TopicStats,
    WaitingKeysStats,
)
from pulsar_on_kafka.admin.stored.log_tails import bytes_from
from pulsar_on_kafka.admin.stored.partition_entries import EntryTransaction, StoredEntry
from pulsar_on_kafka.admin.stored.pending_scan import FoundMessage
from pulsar_on_kafka.admin.stored.shown_messages import ShownMessage
from pulsar_on_kafka.admin.transactions import TransactionDetails, VerifiedBuffer
from pulsar_on_kafka.broker.managed_ledger.inspection import LedgerInfo
from pulsar_on_kafka.broker.metadata.policies import CLUSTER
from pulsar_on_kafka.broker.schema_registry.model import SchemaEntry, StoredSchema
from pulsar_on_kafka.broker.transactions.records.inspection import (
    CoordinatorStats,
    PartitionBufferStats,
    PendingAckStats,
    TransactionInBuffer,
    TransactionInfo,
    TransactionInPendingAck,
)

__all__ = [
    "CLUSTER",
    "AdminClient",
    "BacklogAnalysis",
    "ConsumerStats",
    "CoordinatorStats",
    "DeadLetter",
    "DeadLetterTopic",
    "EntryHolder",
    "EntryTransaction",
    "FoundMessage",
    "LedgerCost",
    "LedgerInfo",
    "LetterFilter",
    "PartitionBufferStats",
    "PartitionCursor",
    "PartitionCursorStats",
    "PendingAckStats",
    "PublisherStats",
    "Redriven",
    "RegisteredSchema",
    "RegistrationState",
    "SchemaEntry",
    "ShownMessage",
    "StoredEntry",
    "StoredSchema",
    "SubscriptionStats",
    "TopicStats",
    "TransactionDetails",
    "TransactionInBuffer",
    "TransactionInPendingAck",
    "TransactionInfo",
    "VerifiedBuffer",
    "WaitingKeysStats",
    "bytes_from",
]
