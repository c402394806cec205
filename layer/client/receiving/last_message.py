"""The last message of a partition that may be read: no marker, of no aborted transaction, before all open ones.

Source: PersistentTopic.getLastDispatchablePosition.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.node.readers import data_partition, transactional_records
from pulsar_on_kafka.subscriptions.records.batches import is_marker
from pulsar_on_kafka.transactions.buffer.model import BufferSnapshot, look_over

_BLOCK: Final = 16
_LARGEST_BLOCK: Final = 4096


def last_message(node: Node, topic: Topic, partition: int, deadline: Deadline) -> int:
    """Its offset; where there is none, the one before the log's start."""
    low, end = node.fetcher.watermarks(topic.kafka_topic, partition, deadline)
    snapshot = _on_record(node, topic, partition, deadline)
    if snapshot is not None and snapshot.bound is not None and snapshot.bound < end:
        start = max(low, snapshot.bound)
        end = snapshot.readable_end(end, transactional_records(node, topic, partition, start, end, deadline))
    size = _BLOCK
    while end > low:
        start = max(low, end - size)
        found = _last_in(node, topic, partition, start, end, snapshot, deadline)
        if found is not None:
            return found
        end, size = start, min(4 * size, _LARGEST_BLOCK)
    return low - 1


def _on_record(node: Node, topic: Topic, partition: int, deadline: Deadline) -> BufferSnapshot | None:
    """None where there never was a transaction; also without the right to know."""
    try:
        if not node.has_state_topic(TRANSACTION_BUFFER_SNAPSHOT, deadline):
            return None
    except NotAuthorized:
        return None
    where = data_partition(topic, partition)
    return node.transaction_views.buffers.ask(where.topic, lambda entries: entries.snapshot(where), deadline)


def _last_in(
    node: Node,
    topic: Topic,
    partition: int,
    start: int,
    end: int,
    snapshot: BufferSnapshot | None,
    deadline: Deadline,
) -> int | None:
    records = list(chain(*node.fetcher.read(topic.kafka_topic, partition, start, end, deadline)))
    offsets = [record.offset() or 0 for record in records]
    txns = {offset: met.txn for met in look_over(offsets, records).met for offset in met.offsets()}
    for offset, record in zip(reversed(offsets), reversed(records), strict=True):
        if not is_marker(record) and (snapshot is None or snapshot.is_readable(offset, txns.get(offset))):
            return offset
    return None
