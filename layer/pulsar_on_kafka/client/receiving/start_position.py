"""A message id, or a time, determines the offset at which reading begins. The last message of a partition that may be
read is no marker, of no aborted transaction, and lies before all open ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthorized
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.readers import data_partition, transactional_records
from pulsar_on_kafka.broker.subscriptions.records.batches import Begun, is_marker, messages_of_entry
from pulsar_on_kafka.broker.transactions.buffer.model import BufferSnapshot, look_over
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.ledger_ids import MAX_RANGE, LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import Seek
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT

_BLOCK: Final = 16
_LARGEST_BLOCK: Final = 4096


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
    ledger_id = layout.without_generation(ledger_id)
    first = layout.ledger_id(partition, 0)
    if ledger_id < first:
        return None
    if ledger_id > first + MAX_RANGE:
        return end - 1, False
    start, next_start = layout.ledger_range(ledger_id - first)
    offset = min(start + max(entry_id, -1), next_start - 1)
    return offset, start <= offset == start + entry_id


class TopicPositions:
    """The positions of one topic's messages, requested from Kafka. Its methods raise LayerError: Kafka does not
    reply."""

    def __init__(self, node: Node, topic: Topic) -> None:
        self._node = node
        self._topic = topic

    def begin(
        self, partitions: Sequence[int], message_id: NativeMessageId, deadline: Deadline, *, inclusive: bool
    ) -> tuple[dict[int, int], dict[int, Begun]]:
        """The start of reading, per partition (see `start_offset`), and the first message of a batch entry there. An id
        without a batch index stands before the first message of its entry, as in Pulsar."""
        topic, admin = self._topic, self._node.admin
        low = admin.start_offsets(topic.kafka_topic, partitions, deadline)
        end = admin.end_offsets(topic.kafka_topic, partitions, deadline)
        if inclusive and message_id == NativeMessageId.latest:
            return self._last_messages(partitions, deadline)
        starts, begun = {}, {}
        for p in partitions:
            starts[p] = start_offset(topic.layout, p, message_id, inclusive=inclusive, low=low[p], end=end[p])
            try:
                offset = topic.layout.kafka_offset(p, message_id.ledger_id(), message_id.entry_id())
            except MappingError:  # of another partition, or no place at all
                continue
            if starts[p] != (offset if inclusive else offset + 1):
                continue
            first, size = self.first_in_entry(p, offset, message_id, deadline, inclusive=inclusive)
            if first < size:
                starts[p], begun[p] = offset, Begun(offset, first)
            elif size:
                starts[p] = offset + 1
        return starts, begun

    def _last_messages(self, partitions: Sequence[int], deadline: Deadline) -> tuple[dict[int, int], dict[int, Begun]]:
        starts, begun = {}, {}
        for p in partitions:
            starts[p] = max(0, self.last_message(p, deadline))
            size = self.messages_of_entry(p, starts[p], deadline)
            if size > 1:
                begun[p] = Begun(starts[p], size - 1)
        return starts, begun

    def at_time(self, partitions: Sequence[int], timestamp_ms: int, deadline: Deadline) -> dict[int, int]:
        """The first record published at or after `timestamp_ms`, or the end, per partition."""
        kafka_topic = self._topic.kafka_topic
        ends = self._node.admin.end_offsets(kafka_topic, partitions, deadline)
        times = {p: self._node.fetcher.offset_at_time(kafka_topic, p, timestamp_ms, deadline) for p in partitions}
        return {p: ends[p] if offset is None else offset for p, offset in times.items()}

    def first_in_entry(
        self, partition: int, offset: int, message_id: NativeMessageId, deadline: Deadline, *, inclusive: bool
    ) -> tuple[int, int]:
        """(Batch index of the first message to come, number of messages) of the entry at an offset."""
        size = self.messages_of_entry(partition, offset, deadline)
        return max(0, message_id.batch_index() + (0 if inclusive else 1)), size

    def seek_to(
        self, partition: int, offset: int, message_id: NativeMessageId, deadline: Deadline, *, inclusive: bool = True
    ) -> Seek:
        """The seek of a cursor to the message of an id (behind it, unless `inclusive`), whose entry lies at `offset`,
        below the log's end."""
        first, size = self.first_in_entry(partition, offset, message_id, deadline, inclusive=inclusive)
        if size == 0:
            return Seek(offset if inclusive else offset + 1)
        return Seek(offset + 1) if first >= size else Seek(offset, size, first)

    def messages_of_entry(self, partition: int, offset: int, deadline: Deadline) -> int:
        """0: it is no batch entry, or nothing lies there."""
        return messages_of_entry(self._node.fetcher, self._topic.kafka_topic, partition, offset, deadline)

    def last_message(self, partition: int, deadline: Deadline) -> int:
        """The offset of the last message that may be read; where there is none, the one before the log's start.
        Source: PersistentTopic.getLastDispatchablePosition."""
        low, end = self._node.fetcher.watermarks(self._topic.kafka_topic, partition, deadline)
        end = min(end, self._topic.terminated.get(partition, end))
        snapshot = self.transactions(partition, deadline)
        if snapshot is not None and snapshot.bound is not None and snapshot.bound < end:
            start = max(low, snapshot.bound)
            records = transactional_records(self._node, self._topic, partition, start, end, deadline)
            end = snapshot.readable_end(end, records)
        size = _BLOCK
        while end > low:
            start = max(low, end - size)
            found = self._last_in(partition, start, end, snapshot, deadline)
            if found is not None:
                return found
            end, size = start, min(4 * size, _LARGEST_BLOCK)
        return low - 1

    def transactions(self, partition: int, deadline: Deadline) -> BufferSnapshot | None:
        """The open and the aborted transactions of a partition; None where there never was one, or without the right
        to read them."""
        try:
            if not self._node.has_state_topic(TRANSACTION_BUFFER_SNAPSHOT, deadline):
                return None
        except NotAuthorized:
            return None
        where = data_partition(self._topic, partition)
        buffers = self._node.transaction_views.buffers
        return buffers.query(where.topic, lambda entries: entries.snapshot(where), deadline)

    def _last_in(
        self, partition: int, start: int, end: int, snapshot: BufferSnapshot | None, deadline: Deadline
    ) -> int | None:
        records = list(chain(*self._node.fetcher.read(self._topic.kafka_topic, partition, start, end, deadline)))
        offsets = [record.offset() or 0 for record in records]
        txns = {offset: met.txn for met in look_over(offsets, records).met for offset in met.offsets()}
        for offset, record in zip(reversed(offsets), reversed(records), strict=True):
            if not is_marker(record) and (snapshot is None or snapshot.is_readable(offset, txns.get(offset))):
                return offset
        return None
