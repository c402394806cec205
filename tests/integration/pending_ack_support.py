"""Transactions in the SDK's functional tests, and what the state topics hold of them."""

from __future__ import annotations

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import CursorTakeoverKey, PendingAckEndKey, PendingAckKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK
from tests.integration.transaction_support import PATIENCE_S, read_all

PendingAckRecord = CursorTakeoverKey | PendingAckKey | PendingAckEndKey


def begin(client: pulsar.Client, timeout_ms: int = 300_000) -> Transaction:
    """A transaction, also with a client that was made without `enable_transaction`."""
    deadline = Deadline.after(PATIENCE_S)
    node = client._session.node()
    return Transaction(node.transactions.client(deadline).begin(timeout_ms, deadline), PATIENCE_S, node.cluster_id)


def pending_acks_on_record(bootstrap: str, topic: str) -> list[PendingAckRecord]:
    """Keys of what is there of a topic's subscriptions and not tombstoned, read with a plain consumer."""
    name = f"persistent://public/default/{topic}"
    where = TRANSACTION_PENDING_ACK
    there: dict[bytes, bool] = {}
    for record in read_all(bootstrap, Instance().state_topic(where), where.partition_for(name)):
        there[record.key() or b""] = record.value() is not None
    keys = [decode_key(key) for key, is_there in there.items() if is_there]
    kinds = (CursorTakeoverKey, PendingAckKey, PendingAckEndKey)
    return [key for key in keys if isinstance(key, kinds) and key.topic == name]
