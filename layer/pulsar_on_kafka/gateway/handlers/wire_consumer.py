"""Sends entries as MESSAGE frames, and passes acknowledgements to the subscription."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.subscriptions.dispatching.key_shared import sticky_key
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.records.chunks import WholeMessage
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    DeliveryRules,
    Endpoint,
    EntryDelivery,
    PartitionAcks,
)
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction
from pulsar_on_kafka.client.consumer.message_positions import Places
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.exceptions import BrokerMetadataError, InvalidMessage, UnknownError
from pulsar_on_kafka.gateway.handlers.entry_encoder import NotForPulsarsClients, OutgoingEntries
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter
from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter
from pulsar_on_kafka.gateway.tenants.former_ids import FormerIds
from pulsar_on_kafka.kafka.records import packed_headers_of
from pulsar_on_kafka_mapping.errors import ForeignLedger, MappingError
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.sticky_hash import sticky_key_hash
from pulsar_on_kafka_mapping.state.traffic import Traffic
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck
from pulsar_on_kafka_mapping.wire.ack_sets import bits_of, words_of
from pulsar_on_kafka_mapping.wire.command_types import (
    AckCommand,
    MessageIdField,
    SeekCommand,
)
from pulsar_on_kafka_mapping.wire.commands import Type
from pulsar_on_kafka_mapping.wire.commands import command as encode_command
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_frames import MessageFrames, command_fields
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH

_log: Final = logging.getLogger(__name__)

TYPES: Final = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.SHARED,
    SubscriptionType.FAILOVER,
    SubscriptionType.KEY_SHARED,
)
"""In the order of Pulsar's SubType."""
_NO_KEY: Final = b"NONE_KEY"
"""The key that Pulsar hashes for a message without a key. Source: Commands.NONE_KEY."""
CUMULATIVE: Final = 1
_NOWHERE: Final = 2**64 - 1
_BATCH_FROM: Final = 2
"""A transaction holds an entry of fewer messages as a whole."""
_LATEST_LEDGER: Final = 2**63 - 1
MAX_IDS_AT_ONCE: Final = 2_000
"""Ids of one command that are handled before other connections are served."""
MAX_IDS_OF_TRANSACTION: Final = 50_000
"""Ids of one acknowledgement in a transaction: Pulsar's `maxUnackedMessagesPerConsumer`."""
MAX_SIZES: Final = 100_000
"""Batch entries whose sizes a consumer remembers."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The connection of a consumer. `lost` is called by any thread when the client has to open the consumer anew."""

    topic: str
    frames: FrameWriter
    lost: Callable[[], None]
    bundle: int
    entries: OutgoingEntries
    meter: Meter
    subscription: str = ""
    former: FormerIds | None = None
    """Ids of other clusters, for readers and seeks; None: there are none."""
    generation: int = 0
    """That of the message ids: see `LedgerLayout.in_generation`."""
    max_entry_bytes: int = MAX_ENTRY_BYTES
    """Larger entries are not delivered."""


class OtherIncarnation(ForeignLedger):
    """Ids of a command are of another incarnation of the topic, or of another cluster. All others were handled."""

    def __init__(self, first: ForeignLedger, ids: Sequence[MessageIdField]) -> None:
        super().__init__(str(first))
        self.ids = ids


class WireEndpoint(Endpoint):
    """The endpoint of a client's consumer. It delivers up to the client's permits, and more where the last entry is a
    batch, because an entry is sent as a whole.

    `unacked` and permits count messages. Delivered messages are with the client: nothing waits here.
    Memory: three numbers for each unacknowledged batch entry of the last `MAX_SIZES` that were sent. Parts of older
    entries cannot be acknowledged: such entries are redelivered.
    """

    def __init__(self, name: str, number: int, wire: Wire, rules: DeliveryRules) -> None:
        super().__init__(name, 0, delivery_type=EntryDelivery, rules=rules)
        self.number = number
        self.sizes: dict[int, int] = {}
        """The number of messages of each batch entry, by offset."""
        self._in_transactions: dict[int, int] = {}
        """For these entries, a bit for each message whose acknowledgement a transaction holds."""
        self.epoch: int | None = None
        self.seeking = False
        """A seek is running: the client's acknowledgements precede it and must not apply to redelivered messages."""
        self.ends_by_seek = False
        """Likewise, until the client has received CLOSE_CONSUMER and opens the consumer anew."""
        self.paused = False
        """No message is delivered any more: the tenant leaves the cluster."""
        self.reports_active = False
        """The client gets ACTIVE_CONSUMER_CHANGE, as in Pulsar on a Failover subscription."""
        self._active: bool | None = None
        self._sent_active: bool | None = None
        self._is_introduced = False
        self._has_reached_end = False
        self._sending = threading.Lock()
        self.undeliverable: Callable[[], None] = lambda: None
        """Counts an entry that Pulsar's clients cannot read."""
        self.ranges: tuple[tuple[int, int], ...] | None = None
        """Hash ranges of a reader's keys, both ends inclusive; None: all keys."""
        self.topic = wire.topic
        self.subscription = wire.subscription
        self.former = wire.former
        self._generation = wire.generation
        self.bundle = wire.bundle
        self.meter = wire.meter
        self._frames = wire.frames
        self._lost = wire.lost
        self._entries = wire.entries
        self._max_entry_bytes = wire.max_entry_bytes
        self._granted = 0
        """Changed by the event loop alone, and `_taken` by the member's thread alone."""
        self._taken = 0
        self._encoder: MessageFrames | None = None
        self._encoded: PartitionAcks | None = None
        """The partition of `_encoder`."""

    def grant(self, permits: int) -> None:
        self._granted += permits
        self.meter.grant()
        self.wake_member()

    def permits(self) -> int:
        if self.closed or self.paused or self._frames.congested:
            return 0
        return max(0, self._granted - self._taken)

    @property
    def open_permits(self) -> int:
        """The client's permits without a delivery; below 0 after a larger batch."""
        return self._granted - self._taken

    def has_room_again(self) -> bool:
        return self.permits() > 0

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        frames: list[bytes] = []
        messages = 0
        for each in cast("Sequence[EntryDelivery]", deliveries):  # its delivery type
            if self.ranges is not None and not self._in_ranges(each.record):
                continue
            first = len(frames)
            try:
                self._encode(each, frames)
                if self._max_entry_bytes < MAX_ENTRY_BYTES:
                    self._check_size(each.record, frames[first:])
            except NotForPulsarsClients as reason:
                del frames[first:]
                self.undeliverable()
                _log.error(
                    "consumer=%s topic=%s offset=%d is not delivered, and stays unacknowledged: %s",
                    self.name, each.feed.slot.topic_name, each.offset, reason,
                )  # fmt: skip
                continue
            except MappingError as reason:
                _log.error(
                    "consumer=%s topic=%s offset=%d is skipped and acknowledged, no client could read it: %s",
                    self.name, each.feed.slot.topic_name, each.offset, reason,
                )  # fmt: skip
                each.feed.slot.ack(each.offset)
                continue
            messages += each.messages
        self._taken += messages
        self.delivered += messages
        if messages:
            self.meter.deliver(messages, sum(map(len, frames)))
        self._frames.send(frames)

    def _check_size(self, record: Any, parts: Sequence[bytes]) -> None:
        """Clients end their connection at a frame above the limit. Raises NotForPulsarsClients."""
        if type(record) is WholeMessage:
            size = max(len(chunk.value() or b"") for chunk in record.chunks())
        else:
            size = sum(map(len, parts))
        if size > self._max_entry_bytes:
            raise NotForPulsarsClients(f"it has {size} bytes, of which a frame takes {self._max_entry_bytes}")

    def traffic(self) -> Traffic:
        return self.meter.traffic(TopicName.parse(self.topic).partition, blocked=self.blocked_since_s is not None)

    def _in_ranges(self, record: Any) -> bool:
        """Source: PersistentDispatcherSingleActiveConsumer, which drops entries of other ranges."""
        slot = sticky_key_hash(sticky_key(record) or _NO_KEY)
        return any(first <= slot <= last for first, last in self.ranges or ())

    def _encode(self, each: EntryDelivery, frames: list[bytes]) -> None:
        """Append the frames of a delivery."""
        record, offset, slot = each.record, each.offset, each.feed.slot
        encoder = self._encoder
        if encoder is None or self._encoded is not slot:
            self._encoded = slot
            layout = slot.layout.in_generation(self._generation)
            self._encoder = encoder = MessageFrames(self.number, layout, slot.number, slot.partition_field)
        fields = b""
        if each.acked is not None:
            size, acked = each.acked
            fields = command_fields(each.redeliveries, words_of(~acked, size), self.epoch)
        elif each.redeliveries or self.epoch is not None:
            fields = command_fields(each.redeliveries, (), self.epoch)
        if type(record) is not WholeMessage:
            batch_size = encoder.append_record(
                frames, offset, record.key(), record.value(), packed_headers_of(record), record.timestamp()[1], fields
            )
            if batch_size:
                self._note_size(offset, batch_size)
            if batch_size is not None:
                return
        for place, entry, size in self._entries.of(record, offset, slot.topic_name, slot.layout.incarnation):
            if size:
                self._note_size(place, size)
            encoder.append_entry(frames, place, entry, fields)

    def _note_size(self, offset: int, size: int) -> None:
        self.sizes.pop(offset, None)  # a redelivery is among the newest ones
        self.sizes[offset] = size
        if self._in_transactions:
            self._in_transactions.pop(offset, None)
        if len(self.sizes) > MAX_SIZES:
            for oldest in list(self.sizes)[: -(-MAX_SIZES // 10)]:  # the loop forgets some meanwhile
                self.forget(oldest)

    def acknowledged_in_transaction(self, offset: int, size: int, acked: int) -> None:
        acked |= self._in_transactions.get(offset, 0)
        if acked == (1 << size) - 1:
            self.forget(offset)
        elif offset in self.sizes:
            self._in_transactions[offset] = acked

    def forget(self, offset: int) -> None:
        """The client has acknowledged this entry. A redelivery stores its size again."""
        self.sizes.pop(offset, None)
        self._in_transactions.pop(offset, None)

    def forget_up_to(self, offset: int) -> None:
        for before in [before for before in list(self.sizes) if before <= offset]:
            self.forget(before)

    def discard(self, slot: PartitionAcks | None) -> list[Delivery]:
        """Returns nothing: delivered messages are with the client."""
        return []

    def sought(self) -> None:
        """The client has messages of before the seek. As in Pulsar it opens the consumer anew."""
        self.ends_by_seek = True
        self._lost()

    def notify_active(self, *, active: bool) -> None:
        self._active = active
        if self._is_introduced:
            self._send_active()

    def introduce(self) -> None:
        """Begin to send ACTIVE_CONSUMER_CHANGE: the client has registered the consumer.

        Go's client drops commands about an unregistered consumer. It registers a consumer some time after SUCCESS, and
        sends the first FLOW after that.
        """
        if not self._is_introduced:
            self._is_introduced = True
            self._send_active()

    @property
    def awaits_end(self) -> bool:
        """The client has registered the consumer, and has not received REACHED_END_OF_TOPIC."""
        return self._is_introduced and not self._has_reached_end and not self.closed

    def reach_end(self) -> None:
        """Report to the client that the terminated topic has no further message for its subscription."""
        self._has_reached_end = True
        self._frames.send((frame(encode_command(Type.REACHED_END_OF_TOPIC, consumer_id=self.number)),))

    def _send_active(self) -> None:
        with self._sending:  # by the member's thread and the event loop
            active = self._active
            if self.reports_active and active is not None and active is not self._sent_active and not self.closed:
                self._sent_active = active
                encoded = encode_command(Type.ACTIVE_CONSUMER_CHANGE, consumer_id=self.number, is_active=active)
                self._frames.send((frame(encoded),))

    def fail(self, failure: Exception) -> None:
        super().fail(failure)
        self._lost()


def native_id(field: MessageIdField) -> NativeMessageId:
    """The message id in a command. Earliest and latest are Pulsar's (-1, -1) and (2^63 - 1, 2^63 - 1)."""
    ledger, entry = field.ledgerId, field.entryId
    if ledger == _NOWHERE and entry == _NOWHERE:
        return NativeMessageId.earliest
    if ledger == _LATEST_LEDGER:
        return NativeMessageId.latest
    entry = -1 if entry == _NOWHERE else entry
    return NativeMessageId(field.partition, ledger, entry, field.batch_index)


def _publish_time(command: SeekCommand) -> int:
    """The time of a seek, 0 for a time before 1970, which Java's client sends as its two's complement."""
    time_ms = command.message_publish_time
    return 0 if time_ms > _LATEST_LEDGER else time_ms


class WireConsumer(Protocol):
    """A consumer or reader of a connection. All but `endpoint` may block."""

    endpoint: WireEndpoint
    sought_offset: int | None
    """The offset at which the reader's successor begins after a seek."""

    @property
    def kind(self) -> SubscriptionType: ...

    @property
    def opened_topic(self) -> Topic: ...

    def has_consumed(self, ends: Mapping[int, int], deadline: Deadline) -> bool:
        """Whether every message before the end of the terminated topic is acknowledged, or read by the reader. `ends`
        by partition. Raises LayerError."""

    def acknowledge(self, ack_type: int, ids: Sequence[MessageIdField]) -> None:
        """Does not block. Raises LayerError, MappingError. OtherIncarnation: some ids."""

    def transaction_ack(self, command: AckCommand) -> TxnAck:
        """The acknowledgement for a transaction. Does not block. Raises as `acknowledge`."""

    def acknowledge_in(self, part: ClientTransaction, ack: TxnAck, deadline: Deadline) -> Future[None]:
        """Settled when the transaction holds the acknowledgement durably (`SubscriptionMember.acknowledge_in`). Raises
        as `ClientTransaction.register_subscription`."""

    def redeliver(self, ids: Sequence[MessageIdField]) -> None:
        """Does not block. Raises as `acknowledge`."""

    def redeliver_all(self, epoch: int | None) -> None:
        """Redeliver all unacknowledged messages with the client's `epoch`."""

    def seek(self, command: SeekCommand, deadline: Deadline) -> None: ...

    def last_id(self, deadline: Deadline) -> tuple[NativeMessageId, int | None, NativeMessageId | None]:
        """The id of the last message, the size of its batch, and the mark-delete position."""

    def backlog(self, deadline: Deadline) -> int:
        """Unacknowledged entries of the subscription; 0 for a reader."""

    def unsubscribe(self, deadline: Deadline, *, force: bool) -> None:
        """Raises BrokerMetadataError: it has other consumers."""

    def close(self, deadline: Deadline) -> None: ...


@dataclass(frozen=True, slots=True)
class EntryPlace:
    node: Node
    topic: Topic
    partition: int | None
    generation: int = 0

    @property
    def number(self) -> int:
        return self.partition or 0

    def id_of(self, offset: int) -> NativeMessageId:
        """The id of an entry. The position before the first entry is earliest."""
        if offset < 0:
            return NativeMessageId.earliest
        ledger, entry = self.topic.layout.in_generation(self.generation).position(self.number, offset)
        return NativeMessageId(self.topic.partition_field(self.number), ledger, entry, -1)

    def last_message(self, deadline: Deadline) -> tuple[NativeMessageId, int]:
        """Its id, without an index, and the number of messages of its batch (0: a single message).

        Raises:
            UnknownError: the topic is not persistent; as in Pulsar.
        """
        if not self.topic.name.is_persistent:
            raise UnknownError(f"topic {self.topic.name} is not persistent: no message of it is its last one")
        positions = TopicPositions(self.node, self.topic)
        last = positions.last_message(self.number, deadline)
        return self.id_of(last), positions.messages_of_entry(self.number, last, deadline) if last >= 0 else 0

    def begin(self, field: MessageIdField, deadline: Deadline) -> int:
        """The offset of an entry, or the end for latest and for a non-persistent topic."""
        start, partitions = native_id(field), [self.number]
        if start == NativeMessageId.latest or not self.topic.name.is_persistent:
            return self.end(deadline)
        whole = NativeMessageId(start.partition(), start.ledger_id(), start.entry_id(), -1)
        starts, _ = TopicPositions(self.node, self.topic).begin(partitions, whole, deadline, inclusive=True)
        return starts[self.number]

    def begin_at_time(self, since_ms: int, deadline: Deadline) -> int:
        if not self.topic.name.is_persistent:
            return self.end(deadline)
        return TopicPositions(self.node, self.topic).at_time([self.number], since_ms, deadline)[self.number]

    def end(self, deadline: Deadline) -> int:
        return self.node.admin.end_offsets(self.topic.kafka_topic, [self.number], deadline)[self.number]

    def check_own(self, endpoint: WireEndpoint, field: MessageIdField, deadline: Deadline) -> None:
        """Raises InvalidMessage: the id is of a cluster that the tenant has left."""
        former = endpoint.former
        if former is not None and former.start_behind(self.node, self.topic, self.number, field, deadline) is not None:
            tenant = self.topic.name.tenant
            raise InvalidMessage(
                f"message {field.ledgerId}:{field.entryId} is of a cluster that tenant {tenant} has left"
            )


class SubscriptionConsumer:
    """A consumer of a subscription. Thread-safe as far as a connection needs it: calls of one consumer do not overlap,
    but for acknowledgements."""

    def __init__(
        self, place: EntryPlace, subscription: Subscription, member: SubscriptionMember, endpoint: WireEndpoint
    ) -> None:
        self.endpoint = endpoint
        self.sought_offset: int | None = None
        self._place = place
        self._node = place.node
        self._subscription = subscription
        self._member = member
        self._layout = place.topic.layout
        self._slot = member.slot(place.number)

    def acknowledge(self, ack_type: int, ids: Sequence[MessageIdField]) -> None:
        if self.endpoint.seeking or self.endpoint.ends_by_seek:
            return
        cumulative = ack_type == CUMULATIVE
        if cumulative:
            self._check_cumulative()
        self.endpoint.meter.acknowledge(len(ids))
        sizes, number, offset_of = self.endpoint.sizes, self._place.number, self._layout.kafka_offset
        others: list[MessageIdField] = []
        failure: ForeignLedger | None = None
        for each in ids:
            try:
                offset, ack_set = offset_of(number, each.ledgerId, each.entryId), each.ack_set
            except ForeignLedger as foreign:
                failure = failure or foreign
                others.append(each)
                continue
            if cumulative:
                self._acknowledge_up_to(offset, ack_set, sizes.get(offset, 0) if ack_set else 0)
            elif not ack_set:
                if sizes:
                    self.endpoint.forget(offset)
                self._slot.ack(offset)
            elif size := sizes.get(offset, 0):
                self._slot.ack_set((offset, BatchAckSet(size, bits_of(ack_set, size) ^ (1 << size) - 1)))
        if failure is not None:
            raise OtherIncarnation(failure, others)

    def _acknowledge_up_to(self, offset: int, ack_set: Sequence[int], size: int) -> None:
        """Acknowledge up to an entry. A part of a batch of unknown size, sent before this consumer was opened, is
        ignored, and the batch is redelivered. Source: Pulsar before 5.0, which by default acknowledges no part of a
        batch."""
        if ack_set:
            left = bits_of(ack_set, size)
            passed = (left & -left).bit_length() - 1 if left else size
            if passed:
                self._slot.ack_upto_in_batch((offset, passed - 1, size))
            elif offset:
                self._slot.ack_upto(offset - 1)
            return
        self._slot.ack_upto(offset)
        self.endpoint.forget_up_to(offset)

    def transaction_ack(self, command: AckCommand) -> TxnAck:
        if len(command.message_id) > MAX_IDS_OF_TRANSACTION:
            raise errors.InvalidOption(
                f"an acknowledgement in a transaction names {len(command.message_id)} messages, "
                f"expected up to {MAX_IDS_OF_TRANSACTION}"
            )
        if command.ack_type == CUMULATIVE:
            return self._cumulative_in_transaction(command)
        whole, batches = BitMap64(), dict[int, tuple[int, int]]()
        for each in command.message_id:
            offset = self._offset(each)
            size = self._size(offset, each)
            if size < _BATCH_FROM or not each.ack_set:
                whole.add(offset)
                self.endpoint.forget(offset)
            else:
                acked = bits_of(each.ack_set, size) ^ (1 << size) - 1
                batches[offset] = size, acked | batches.get(offset, (0, 0))[1]
                self.endpoint.acknowledged_in_transaction(offset, size, acked)
        return TxnAck(whole, batches)

    def _cumulative_in_transaction(self, command: AckCommand) -> TxnAck:
        self._check_cumulative()
        if len(command.message_id) != 1:
            raise errors.Refused(f"a cumulative acknowledgement names {len(command.message_id)} messages, expected one")
        field = command.message_id[0]
        offset = self._offset(field)
        size = self._size(offset, field)
        left = bits_of(field.ack_set, size)
        if left:
            passed = (left & -left).bit_length() - 1
            return TxnAck(cumulative=CumulativeAck(offset, size, (1 << passed) - 1))
        self.endpoint.forget_up_to(offset)
        return TxnAck(cumulative=CumulativeAck(offset))

    def _size(self, offset: int, field: MessageIdField) -> int:
        """The number of messages of a batch entry, as it was sent to this client, or else as the client states."""
        known = self.endpoint.sizes.get(offset)
        if known is not None or not field.ack_set:
            return known or 0
        if not 0 < field.batch_size <= MAX_IN_BATCH:
            raise errors.InvalidOption(f"batch_size is {field.batch_size}, expected 1 to {MAX_IN_BATCH}")
        return field.batch_size

    def acknowledge_in(self, part: ClientTransaction, ack: TxnAck, deadline: Deadline) -> Future[None]:
        topic, number = self._place.topic, self._place.number
        if not topic.name.is_persistent:
            raise errors.Refused(f"topic {topic.name} is not persistent: it takes part in no transaction")
        part.register_subscription(str(topic.name), number, self._subscription.name, deadline)
        part.begin_operation()
        try:
            answer = self._member.acknowledge_in(part.id, number, ack, deadline)
        except BaseException:
            part.end_operation()
            raise
        answer.add_done_callback(lambda _: part.end_operation())
        return answer

    def _check_cumulative(self) -> None:
        if self._member.type.is_shared:
            raise errors.Refused(
                f"subscription {self._subscription.name} is {self._member.type.value}: acknowledge messages one by one"
            )

    def _offset(self, field: MessageIdField) -> int:
        return self._layout.kafka_offset(self._place.number, field.ledgerId, field.entryId)

    def redeliver_all(self, epoch: int | None) -> None:
        self.endpoint.meter.redelivered += self.endpoint.unacked
        self._member.redeliver_unacknowledged(self.endpoint, lambda: self._begin(epoch))

    def redeliver(self, ids: Sequence[MessageIdField]) -> None:
        self.endpoint.meter.redelivered += len(ids)
        for each in ids:
            with suppress(ForeignLedger):  # this incarnation's message is delivered anyway
                self._member.negative_acknowledge(self._slot, self._offset(each), self.endpoint, 0.0)
        self._member.wake()

    def _begin(self, epoch: int | None) -> None:
        self.endpoint.epoch = epoch

    def seek(self, command: SeekCommand, deadline: Deadline) -> None:
        timeout_s = deadline.remaining_s()
        places = Places(self._node, self._subscription, self._member, timeout_s)
        target: object = _publish_time(command)
        inclusive = False
        if command.HasField("message_id"):
            self._place.check_own(self.endpoint, command.message_id, deadline)
            target = native_id(command.message_id)
            inclusive = True  # Pulsar sets the cursor to the id, and the client skips messages
        targets = places.seek_targets(target, deadline, inclusive=inclusive)
        self._member.wait_until_assigned(deadline)
        self._member.have_saved_elsewhere(deadline)
        self._node.memberships.live_cursors.change(self._subscription, targets, deadline)

    @property
    def kind(self) -> SubscriptionType:
        return self._member.type

    @property
    def opened_topic(self) -> Topic:
        return self._place.topic

    def has_consumed(self, ends: Mapping[int, int], deadline: Deadline) -> bool:
        number = self._place.number
        owned = [each.mark_delete for each in self._member.stats(deadline) if each.partition == number]
        if owned:
            return owned[0] >= ends[number] - 1
        saved = self._node.memberships.cursors.read(self._subscription, deadline)
        return number in saved and saved[number].state.next_unacked >= ends[number]

    def backlog(self, deadline: Deadline) -> int:
        return sum(each.backlog for each in self._member.stats(deadline) if each.partition == self._place.number)

    def last_id(self, deadline: Deadline) -> tuple[NativeMessageId, int | None, NativeMessageId | None]:
        last, size = self._place.last_message(deadline)
        number = self._place.number
        marks = [each.mark_delete for each in self._member.stats(deadline) if each.partition == number]
        return last, size, self._place.id_of(marks[0]) if marks else None

    def unsubscribe(self, deadline: Deadline, *, force: bool) -> None:
        if force:
            self._node.memberships.detach(self._subscription, self.endpoint, deadline)
            self._node.memberships.delete_subscription(self._subscription, deadline, force=True)
            return
        try:
            self._node.memberships.unsubscribe(self._subscription, self.endpoint, deadline)
        except errors.SubscriptionBusy as busy:
            raise BrokerMetadataError(str(busy)) from busy

    def close(self, deadline: Deadline) -> None:
        self._node.memberships.detach(self._subscription, self.endpoint, deadline)


class ReadingConsumer:
    """A reader without durable state.

    As in Pulsar it begins with the entry of the client's start id, and the client skips messages of that entry. By its
    mark-delete position a client finds out whether there are more messages.
    """

    def __init__(self, place: EntryPlace, tail: Tail, endpoint: WireEndpoint, start: int) -> None:
        self.endpoint = endpoint
        self._place = place
        self._tail = tail
        self._marked = start - 1
        self.sought_offset: int | None = None

    def acknowledge(self, ack_type: int, ids: Sequence[MessageIdField]) -> None:
        """Move the mark-delete position, which ends with the reader."""
        layout, number = self._place.topic.layout, self._place.number
        for each in ids:
            with suppress(ForeignLedger):
                offset = layout.kafka_offset(number, each.ledgerId, each.entryId)
                if each.ack_set:
                    continue
                self._marked = max(self._marked, offset)
                self.endpoint.forget(offset)

    def transaction_ack(self, command: AckCommand) -> TxnAck:
        raise errors.Refused("a reader has no durable acknowledgements: no transaction holds them")

    def acknowledge_in(self, part: ClientTransaction, ack: TxnAck, deadline: Deadline) -> Future[None]:
        raise NotImplementedError

    def redeliver(self, ids: Sequence[MessageIdField]) -> None:
        """Readers redeliver nothing."""

    def redeliver_all(self, epoch: int | None) -> None:
        """Readers redeliver nothing."""

    def seek(self, command: SeekCommand, deadline: Deadline) -> None:
        """Close the reader. As in Pulsar the client opens it anew, and it continues there, whatever its new start id
        is."""
        if command.HasField("message_id"):
            self._place.check_own(self.endpoint, command.message_id, deadline)
            self.sought_offset = self._place.begin(command.message_id, deadline)
        else:
            self.sought_offset = self._place.begin_at_time(_publish_time(command), deadline)
        self.endpoint.sought()

    @property
    def kind(self) -> SubscriptionType:
        return SubscriptionType.EXCLUSIVE

    @property
    def opened_topic(self) -> Topic:
        return self._place.topic

    def has_consumed(self, ends: Mapping[int, int], deadline: Deadline) -> bool:
        place = self._place
        positions = TopicPositions(place.node, replace(place.topic, terminated=ends))
        return self._marked >= positions.last_message(place.number, deadline)

    def backlog(self, deadline: Deadline) -> int:
        return 0

    def last_id(self, deadline: Deadline) -> tuple[NativeMessageId, int | None, NativeMessageId | None]:
        return (*self._place.last_message(deadline), self._place.id_of(self._marked))

    def unsubscribe(self, deadline: Deadline, *, force: bool) -> None:
        """Close the reader, which has no subscription."""
        self.close(deadline)

    def close(self, deadline: Deadline) -> None:
        self.endpoint.close()
        self._place.node.readers.close_tail(self._tail, deadline)


def parts_of(ids: Sequence[MessageIdField]) -> Iterator[Sequence[MessageIdField]]:
    """The ids of a command in parts of some milliseconds each."""
    return (ids[start : start + MAX_IDS_AT_ONCE] for start in range(0, len(ids), MAX_IDS_AT_ONCE))
