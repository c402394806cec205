"""Messages and ids stand for places in a subscription: a partition, an offset, an index in a batch."""

from __future__ import annotations

from collections.abc import Mapping

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.arguments import check_type
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.client.values.message import BatchedMessage, Message, ParsedMessage
from pulsar_on_kafka.client.values.message_id import native
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import Seek


class Places:
    """The places of one consumer's messages are computed from their ids, or requested from Kafka. Thread-safe. A
    request to Kafka takes `timeout_s` at most; the official exceptions are raised."""

    def __init__(self, node: Node, subscription: Subscription, member: SubscriptionMember, timeout_s: float) -> None:
        self._node = node
        self._member = member
        self._timeout_s = timeout_s
        self._topic = subscription.topic
        self._positions = TopicPositions(node, subscription.topic)
        self._only = subscription.partition
        """The one partition that the consumer has; None for all."""
        self._partitions = subscription.topic.partitions

    def locate(self, message: object) -> tuple[PartitionAcks, int]:
        """Partition and offset of a message or an id.

        Raises:
            TypeError: neither a message nor an id.
            InvalidMessage: an id of another topic, or of another partition than the consumer has.
        """
        message_id = message.message_id() if isinstance(message, Message) else native(message)
        if message_id is None:
            raise TypeError(f"expected a message or a message id, got {type(message).__name__}: {message!r:.60}")
        topic = self._topic
        partition = message_id.partition() if topic.partitioned else 0
        only = self._only
        with pulsar_errors():
            if only is not None:
                if partition not in (only, -1):
                    raise errors.InvalidCursorPosition(
                        f"id {message_id} names partition {partition} of {topic.name}, this consumer has {only}"
                    )
                partition = only
            elif not 0 <= partition < self._partitions and not 0 <= partition < self._partitions_now(
                Deadline.after(self._timeout_s)
            ):
                raise errors.InvalidCursorPosition(
                    f"id {message_id} names partition {partition} of {topic.name}, expected 0 to {self._partitions - 1}"
                )
            offset = topic.layout.kafka_offset(partition, message_id.ledger_id(), message_id.entry_id())
        return self._member.slot(partition), offset

    def in_batch(self, message: object, slot: PartitionAcks, offset: int) -> tuple[int, int] | None:
        """(batch index, number of messages) of a message or an id; None when it stands for a whole entry.

        Raises:
            InvalidMessage: the batch has no such index.
        """
        if isinstance(message, BatchedMessage):
            return message.batch_index, message.entry.size
        message_id = message.message_id() if isinstance(message, ParsedMessage) else native(message)
        if message_id is None or message_id.batch_index() < 0:
            return None
        index, size = message_id.batch_index(), message_id.batch_size()
        if not size:  # an id made by hand
            size = self.messages_of(slot, offset)
        if size and index >= size:
            raise InvalidMessage(f"id {message_id} names batch index {index}, expected 0 to {size - 1}")
        return (index, size) if size else None

    def first_chunk(self, message: object, slot: PartitionAcks) -> int | None:
        """The beginning of an id's message, if it was sent in chunks. The owner of its partition knows it for a
        received message."""
        message_id = native(message)
        first = None if message_id is None else message_id.first_chunk()
        if first is None:
            return None
        with pulsar_errors():
            return self._topic.layout.kafka_offset(slot.number, *first)

    def messages_of(self, slot: PartitionAcks, offset: int) -> int:
        """Number of messages of the batch entry at an offset; 0 for a plain message, and where there is nothing."""
        with pulsar_errors():
            return self._positions.messages_of_entry(slot.number, offset, Deadline.after(self._timeout_s))

    def seek_targets(self, target: object, deadline: Deadline, *, inclusive: bool) -> Mapping[int, Seek]:
        """The new position of each partition for a seek to an id or a time; `inclusive`: with the id's own message."""
        topic, only = self._topic, self._only
        partitions = range(self._partitions_now(deadline)) if only is None else (only,)
        admin = self._node.admin
        message_id = native(target)
        if message_id is None:
            check_type(int, "messageid", target)
            assert isinstance(target, int)  # noqa: S101 - checked
            times = self._positions.at_time(partitions, target, deadline)
            return {partition: Seek(offset) for partition, offset in times.items()}
        if message_id in (NativeMessageId.earliest, NativeMessageId.latest):
            request = admin.start_offsets if message_id == NativeMessageId.earliest else admin.end_offsets
            return {p: Seek(offset) for p, offset in request(topic.kafka_topic, partitions, deadline).items()}
        slot, offset = self.locate(message_id)
        if inclusive and (begins := self.first_chunk(message_id, slot)) is not None:
            offset = begins
        end = admin.end_offsets(topic.kafka_topic, [slot.number], deadline)[slot.number]
        if offset >= end:
            return {slot.number: Seek(end)}
        return {slot.number: self._positions.seek_to(slot.number, offset, message_id, deadline, inclusive=inclusive)}

    def _partitions_now(self, deadline: Deadline) -> int:
        topic = self._topic
        if topic.partitioned:
            self._partitions = self._node.topics.partitions_now(topic, deadline)
        return self._partitions
