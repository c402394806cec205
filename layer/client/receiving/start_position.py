"""A message id, or a time, determines the offset at which reading begins. The last message of a partition that may be
read is no marker, of no aborted transaction, and lies before all open ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.ids.ledger_ids import MAX_RANGE, LedgerLayout
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka.metadata.topics import Topic
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.node.readers import data_partition, transactional_records
from pulsar_on_kafka.subscriptions.records.batches import Begun, is_marker, messages_of_entry
from pulsar_on_kafka.transactions.buffer.model import BufferSnapshot, look_over

_BLOCK: Final = 16
_LARGEST_BLOCK: Final = 4096


def last_message(node: Node, topic: Topic, partition: int, deadline: Deadline) -> int:
    """The offset of the last message that may be read; where there is none, the one before the log's start. Source:
    PersistentTopic.getLastDispatchablePosition."""
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


def start_offset(
    layout: LedgerLayout, partition: int, message_id: NativeMessageId, *, inclusive: bool, low: int, end: int
) -> int:
    """The offset of the first record of a partition behind `message_id` (at it, when `inclusive`), in [low, end].

    The id may be any: made by hand, of a deleted or a future entry, of another partition or topic. It is compared with
    the partition's positions as Pulsar's brokers do, by ledger id and then entry id; `latest` inclusive is the last
    record, a chunked message inclusive its first chunk. `low` and `end` are the log start and the offset that the next
    record will get.
    """
    if message_id == NativeMessageId.latest:
        return max(low, end - 1) if inclusive else end
    place = (message_id.ledger_id(), message_id.entry_id())
    if inclusive:
        place = message_id.first_chunk() or place
    named = _offset_at_or_before(layout, partition, *place, end)
    if named is None:
        return low
    offset, exact = named
    return min(max(offset if inclusive and exact else offset + 1, low), end)


def _offset_at_or_before(
    layout: LedgerLayout, partition: int, ledger_id: int, entry_id: int, end: int
) -> tuple[int, bool] | None:
    """The last offset not behind that place, and whether it is that very place; None when all of them are behind."""
    first = layout.ledger_id(partition, 0)
    if ledger_id < first:
        return None
    if ledger_id > first + MAX_RANGE:
        return end - 1, False
    start, next_start = layout.ledger_range(ledger_id - first)
    offset = min(start + max(entry_id, -1), next_start - 1)
    return offset, start <= offset == start + entry_id


def start_offsets(
    admin: KafkaAdmin,
    topic: Topic,
    partitions: Sequence[int],
    message_id: NativeMessageId,
    *,
    inclusive: bool,
    deadline: Deadline,
) -> dict[int, int]:
    """Where reading begins, per partition (see `start_offset`)."""
    low = admin.start_offsets(topic.kafka_topic, partitions, deadline)
    end = admin.end_offsets(topic.kafka_topic, partitions, deadline)
    return {
        p: start_offset(topic.layout, p, message_id, inclusive=inclusive, low=low[p], end=end[p]) for p in partitions
    }


def offsets_at_time(
    node: Node, topic: Topic, partitions: Sequence[int], timestamp_ms: int, deadline: Deadline
) -> dict[int, int]:
    """The first record published at or after `timestamp_ms`, or the end, per partition."""
    ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
    times = {p: node.fetcher.offset_at_time(topic.kafka_topic, p, timestamp_ms, deadline) for p in partitions}
    return {p: ends[p] if offset is None else offset for p, offset in times.items()}


def inside_batches(
    node: Node,
    topic: Topic,
    starts: Mapping[int, int],
    message_id: NativeMessageId,
    *,
    inclusive: bool,
    deadline: Deadline,
) -> tuple[dict[int, int], dict[int, Begun]]:
    """`start_offsets` with regard to the id's batch index: where reading begins, and with which message of a batch
    entry there. An id without a batch index stands before the first message of its entry, as in Pulsar.
    """
    if inclusive and message_id == NativeMessageId.latest:
        last = {p: max(0, last_message(node, topic, p, deadline)) for p in starts}
        return last, _last_messages(node, topic, last, deadline)
    found, begun = dict(starts), {}
    for partition in starts:
        try:
            offset = topic.layout.kafka_offset(partition, message_id.ledger_id(), message_id.entry_id())
        except MappingError:  # of another partition, or no place at all
            continue
        if starts[partition] != (offset if inclusive else offset + 1):
            continue
        first, size = first_in_entry(node, topic, partition, offset, message_id, inclusive=inclusive, deadline=deadline)
        if first < size:
            found[partition] = offset
            begun[partition] = Begun(offset, first)
        elif size:
            found[partition] = offset + 1
    return found, begun


def _last_messages(node: Node, topic: Topic, starts: Mapping[int, int], deadline: Deadline) -> dict[int, Begun]:
    """Of entries at these offsets, the last message, where they hold several."""
    begun = {}
    for partition, offset in starts.items():
        whole = NativeMessageId(-1, *topic.layout.position(partition, offset), -1)
        _, size = first_in_entry(node, topic, partition, offset, whole, inclusive=True, deadline=deadline)
        if size > 1:
            begun[partition] = Begun(offset, size - 1)
    return begun


def first_in_entry(
    node: Node,
    topic: Topic,
    partition: int,
    offset: int,
    message_id: NativeMessageId,
    *,
    inclusive: bool,
    deadline: Deadline,
) -> tuple[int, int]:
    """(Batch index of the first message to come, number of messages) of the entry at an offset; a size of 0: it is no
    batch entry, or nothing lies there."""
    size = messages_of_entry(node.fetcher, topic.kafka_topic, partition, offset, deadline)
    return max(0, message_id.batch_index() + (0 if inclusive else 1)), size
