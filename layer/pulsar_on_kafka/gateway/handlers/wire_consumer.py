"""A consumer or reader of a connection: entries become frames as they are, what its client acknowledges is the
subscription's to know."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, SubscriptionType
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.readers import compacted_ranges
from pulsar_on_kafka.broker.subscriptions.dispatching.key_shared import sticky_key
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import (
    Delivery,
    DeliveryRules,
    Endpoint,
    EntryDelivery,
    PartitionAcks,
)
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import KeySharedRule, check_ranges
from pulsar_on_kafka.broker.subscriptions.records.reader_thread import Tail
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction
from pulsar_on_kafka.client.consumer.message_positions import Places
from pulsar_on_kafka.client.receiving.incoming_schema import admit_schema
from pulsar_on_kafka.client.receiving.start_position import TopicPositions
from pulsar_on_kafka.exceptions import BrokerMetadataError, UnknownError
from pulsar_on_kafka.gateway.handlers.entry_encoder import NotForPulsarsClients, OutgoingEntries
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter
from pulsar_on_kafka.gateway.handlers.schemas import schema_info
from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter
from pulsar_on_kafka.gateway.protocol.properties import properties_of
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.sticky_hash import sticky_key_hash
from pulsar_on_kafka_mapping.state.traffic import Traffic
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck
from pulsar_on_kafka_mapping.wire.ack_sets import bits_of, words_of
from pulsar_on_kafka_mapping.wire.commands import Type, command
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH

_log: Final = logging.getLogger(__name__)

TYPES: Final = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.SHARED,
    SubscriptionType.FAILOVER,
    SubscriptionType.KEY_SHARED,
)
"""By their numbers in Pulsar's SubType."""
_STICKY: Final = 1
_NO_KEY: Final = b"NONE_KEY"
"""What Pulsar's ranges take for the key of a message without one. Source: Commands.NONE_KEY."""
_CUMULATIVE: Final = 1
_EARLIEST: Final = 1
_NOWHERE: Final = 2**64 - 1
_BATCH_FROM: Final = 2
"""A transaction holds an entry of fewer messages as a whole."""
_ACK_PERSIST_INTERVAL_S: Final = 1.0
_LATEST_LEDGER: Final = 2**63 - 1
MAX_IDS_AT_ONCE: Final = 2_000
"""Ids of one command that are looked at before other connections are served."""
MAX_IDS_OF_TRANSACTION: Final = 50_000
"""Ids of one acknowledgement in a transaction: Pulsar's `maxUnackedMessagesPerConsumer`."""
MAX_HASH_RANGES: Final = 1_000
"""Hash ranges of one consumer: each message of a reader is compared with them."""
MAX_SIZES: Final = 100_000
"""Batch entries whose size a consumer knows."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How a consumer's client is reached. `lost` is called, by any thread, when it has to open the consumer anew."""

    topic: str
    frames: FrameWriter
    lost: Callable[[], None]
    bundle: int
    entries: OutgoingEntries
    meter: Meter


class WireEndpoint(Endpoint):
    """The endpoint of a consumer of a connection gets as many messages as its client asked for; an entry goes out
    whole, so it may get more than that.

    `unacked` and permits are counted by messages. What was handed out is with the client: nothing waits here.
    Memory: three numbers for each batch entry that was sent to the client and that it did not acknowledge, of the
    `MAX_SIZES` that were sent last. Of those before them, which others may have acknowledged long ago, no part is
    acknowledged: they come again.
    """

    def __init__(self, name: str, number: int, wire: Wire, rules: DeliveryRules) -> None:
        super().__init__(name, 0, delivery_type=EntryDelivery, rules=rules)
        self.number = number
        self.sizes: dict[int, int] = {}
        """Of batch entries, by offset: how many messages they have."""
        self._in_transactions: dict[int, int] = {}
        """Of those, a bit for each message that transactions were asked to hold."""
        self.epoch: int | None = None
        self.seeking = False
        """What its client acknowledges is of before the seek, and would acknowledge what is to come again."""
        self.ends_by_seek = False
        """Likewise, until its client, who has yet to hear of the consumer's end, opens it anew."""
        self.reports_active = False
        """Its client is told whether it is the active one, as in Pulsar of a Failover subscription."""
        self._active: bool | None = None
        self._told_active: bool | None = None
        self._is_introduced = False
        self._telling = threading.Lock()
        self.undeliverable: Callable[[], None] = lambda: None
        """Counts an entry that no client of Pulsar's could read."""
        self.ranges: tuple[tuple[int, int], ...] | None = None
        """Of a reader: the slots of the keys whose entries it gets, both ends inclusive; None: of all."""
        self.topic = wire.topic
        self.bundle = wire.bundle
        self.meter = wire.meter
        self._frames = wire.frames
        self._lost = wire.lost
        self._entries = wire.entries
        self._granted = 0
        """By the loop alone; `_taken` by the member's thread alone."""
        self._taken = 0

    def grant(self, permits: int) -> None:
        self._granted += permits
        self.wake_member()

    def permits(self) -> int:
        if self.closed or self._frames.congested:
            return 0
        return max(0, self._granted - self._taken)

    @property
    def open_permits(self) -> int:
        """What the client asked for and has not got; below 0 after a batch that was larger."""
        return self._granted - self._taken

    def has_room_again(self) -> bool:
        return self.permits() > 0

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        frames: list[bytes] = []
        before = self.delivered
        for each in deliveries:
            assert isinstance(each, EntryDelivery)  # noqa: S101 - its delivery type
            if self.ranges is not None and not self._in_ranges(each.record):
                continue
            try:
                frames += self._frames_of(each)
            except NotForPulsarsClients as reason:
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
            self._taken += each.messages
            self.delivered += each.messages
        self.meter.messages += self.delivered - before
        self.meter.bytes += sum(map(len, frames))
        self._frames.send(frames)

    def traffic(self) -> Traffic:
        return self.meter.traffic(blocked=self.blocked)

    @property
    def blocked(self) -> bool:
        """It gets nothing more until its client has acknowledged some of what it has."""
        return self.unacked >= self.max_unacked

    def _in_ranges(self, record: Any) -> bool:
        """Source: PersistentDispatcherSingleActiveConsumer, which drops what is of another range."""
        slot = sticky_key_hash(sticky_key(record) or _NO_KEY)
        return any(first <= slot <= last for first, last in self.ranges or ())

    def _frames_of(self, each: EntryDelivery) -> list[bytes]:
        slot, frames = each.feed.slot, []
        acked = each.acked
        ack_set = None
        for offset, entry, size in self._entries.of(each.record, each.offset, slot.topic_name, slot.layout.incarnation):
            if size:
                self.forget(offset)
                self.sizes[offset] = size
                if len(self.sizes) > MAX_SIZES:
                    for oldest in list(self.sizes)[: -(-MAX_SIZES // 10)]:  # the loop forgets some meanwhile
                        self.forget(oldest)
                if acked is not None:
                    ack_set = words_of(~acked[1], size)
            ledger, number = slot.layout.position(slot.number, offset)
            told = command(
                Type.MESSAGE,
                consumer_id=self.number,
                message_id={"ledgerId": ledger, "entryId": number, "partition": slot.partition_field},
                redelivery_count=each.redeliveries or None,
                ack_set=ack_set,
                consumer_epoch=self.epoch,
            )
            frames.append(frame(told, entry))
        return frames

    def acknowledged_in_transaction(self, offset: int, size: int, acked: int) -> None:
        acked |= self._in_transactions.get(offset, 0)
        if acked == (1 << size) - 1:
            self.forget(offset)
        elif offset in self.sizes:
            self._in_transactions[offset] = acked

    def forget(self, offset: int) -> None:
        """The client is done with this entry; if it comes again, it is sent again."""
        self.sizes.pop(offset, None)
        self._in_transactions.pop(offset, None)

    def forget_up_to(self, offset: int) -> None:
        for before in [before for before in list(self.sizes) if before <= offset]:
            self.forget(before)

    def discard(self, slot: PartitionAcks | None) -> list[Delivery]:
        """Nothing: what was handed out is with the client."""
        return []

    def sought(self) -> None:
        """The client has what was before a seek: as in Pulsar it opens the consumer anew."""
        self.ends_by_seek = True
        self._lost()

    def hear_active(self, *, active: bool) -> None:
        self._active = active
        if self._is_introduced:
            self._tell_active()

    def introduce(self) -> None:
        """The client knows that it has the consumer: from here on it is told whether the consumer is the active one.

        Go's client drops what it is told of a consumer that it has not registered, which it does some time after
        SUCCESS. Its first FLOW comes after that.
        """
        if not self._is_introduced:
            self._is_introduced = True
            self._tell_active()

    def _tell_active(self) -> None:
        with self._telling:  # of the member's thread and the loop
            active = self._active
            if self.reports_active and active is not None and active is not self._told_active and not self.closed:
                self._told_active = active
                told = command(Type.ACTIVE_CONSUMER_CHANGE, consumer_id=self.number, is_active=active)
                self._frames.send((frame(told),))

    def fail(self, failure: Exception) -> None:
        super().fail(failure)
        self._lost()


def native_id(said: Any) -> NativeMessageId:
    """An id that a client names; earliest and latest are Pulsar's (-1, -1) and (2^63 - 1, 2^63 - 1)."""
    ledger, entry = said.ledgerId, said.entryId
    if ledger == _NOWHERE and entry == _NOWHERE:
        return NativeMessageId.earliest
    if ledger == _LATEST_LEDGER:
        return NativeMessageId.latest
    entry = -1 if entry == _NOWHERE else entry
    return NativeMessageId(said.partition, ledger, entry, said.batch_index)


def _publish_time(asked: Any) -> int:
    """Of a SEEK. A time before 1970, which Java's clients say as its two's complement, is before all messages, too."""
    said: int = asked.message_publish_time
    return 0 if said > _LATEST_LEDGER else said


class WireConsumer(Protocol):
    """What a connection wants of its consumers and readers. All but `endpoint` may block."""

    endpoint: WireEndpoint
    sought_offset: int | None
    """Of a reader that was sought: the offset at which its successor on this connection begins."""

    @property
    def kind(self) -> SubscriptionType: ...

    def acknowledge(self, ack_type: int, ids: Sequence[Any]) -> None:
        """Does not block. Raises LayerError, MappingError: an id of another topic."""

    def transaction_ack(self, asked: Any) -> TxnAck:
        """What a transaction is to hold. Does not block. Raises as `acknowledge`."""

    def acknowledge_in(self, part: ClientTransaction, ack: TxnAck, deadline: Deadline) -> Future[None]:
        """Settled when the transaction holds it, durably (`SubscriptionMember.acknowledge_in`). Raises as
        `ClientTransaction.register_subscription`."""

    def redeliver(self, ids: Sequence[Any]) -> None:
        """Does not block. Raises as `acknowledge`."""

    def redeliver_all(self, epoch: int | None) -> None:
        """Have all that is not acknowledged come again, as of the client's `epoch`."""

    def seek(self, asked: Any, deadline: Deadline) -> None: ...

    def last_id(self, deadline: Deadline) -> tuple[NativeMessageId, int | None, NativeMessageId | None]:
        """Of the last message, the size of its batch, and the mark-delete position."""

    def backlog(self, deadline: Deadline) -> int:
        """Unacknowledged entries of its subscription; of a reader none is told."""

    def unsubscribe(self, deadline: Deadline, *, force: bool) -> None:
        """Raises BrokerMetadataError: it has other consumers."""

    def close(self, deadline: Deadline) -> None: ...


@dataclass(frozen=True, slots=True)
class EntryPlace:
    node: Node
    topic: Topic
    partition: int | None

    @property
    def number(self) -> int:
        return self.partition or 0

    def id_of(self, offset: int) -> NativeMessageId:
        """Of an entry; that before the first one is earliest."""
        if offset < 0:
            return NativeMessageId.earliest
        ledger, entry = self.topic.layout.position(self.number, offset)
        return NativeMessageId(self.topic.partition_field(self.number), ledger, entry, -1)

    def last_message(self, deadline: Deadline) -> tuple[NativeMessageId, int]:
        """Its id, without an index, and how many messages its entry has (0: it is no batch).

        Raises:
            UnknownError: the topic is not persistent; as in Pulsar.
        """
        if not self.topic.name.is_persistent:
            raise UnknownError(f"topic {self.topic.name} is not persistent: no message of it is its last one")
        positions = TopicPositions(self.node, self.topic)
        last = positions.last_message(self.number, deadline)
        return self.id_of(last), positions.messages_of_entry(self.number, last, deadline) if last >= 0 else 0


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

    def acknowledge(self, ack_type: int, ids: Sequence[Any]) -> None:
        if self.endpoint.seeking or self.endpoint.ends_by_seek:
            return
        cumulative = ack_type == _CUMULATIVE
        if cumulative:
            self._check_cumulative()
        self.endpoint.meter.acknowledged += len(ids)
        for each in ids:
            offset = self._offset(each)
            size = self.endpoint.sizes.get(offset, 0) if each.ack_set else 0
            if cumulative:
                self._acknowledge_up_to(offset, each.ack_set, size)
            elif size:
                self._slot.ack_sets.append((offset, BatchAckSet(size, bits_of(each.ack_set, size) ^ (1 << size) - 1)))
            elif not each.ack_set:
                self.endpoint.forget(offset)
                self._slot.ack(offset)

    def _acknowledge_up_to(self, offset: int, ack_set: Sequence[int], size: int) -> None:
        """Of a batch whose size is not known (it was sent to its client before this consumer was opened) nothing is
        acknowledged: it comes again. As in Pulsar by default, where no part of a batch is acknowledged."""
        if ack_set:
            left = bits_of(ack_set, size)
            passed = (left & -left).bit_length() - 1 if left else size
            if passed:
                self._slot.cumulative_in_batch.append((offset, passed - 1, size))
            elif offset:
                self._slot.cumulative.append(offset - 1)
            return
        self._slot.cumulative.append(offset)
        self.endpoint.forget_up_to(offset)

    def transaction_ack(self, asked: Any) -> TxnAck:
        if len(asked.message_id) > MAX_IDS_OF_TRANSACTION:
            raise errors.InvalidOption(
                f"an acknowledgement in a transaction names {len(asked.message_id)} messages, "
                f"expected up to {MAX_IDS_OF_TRANSACTION}"
            )
        if asked.ack_type == _CUMULATIVE:
            return self._cumulative_in_transaction(asked)
        whole, batches = BitMap64(), dict[int, tuple[int, int]]()
        for each in asked.message_id:
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

    def _cumulative_in_transaction(self, asked: Any) -> TxnAck:
        self._check_cumulative()
        if len(asked.message_id) != 1:
            raise errors.Refused(f"a cumulative acknowledgement names {len(asked.message_id)} messages, expected one")
        said = asked.message_id[0]
        offset = self._offset(said)
        size = self._size(offset, said)
        left = bits_of(said.ack_set, size)
        if left:
            passed = (left & -left).bit_length() - 1
            return TxnAck(cumulative=CumulativeAck(offset, size, (1 << passed) - 1))
        self.endpoint.forget_up_to(offset)
        return TxnAck(cumulative=CumulativeAck(offset))

    def _size(self, offset: int, said: Any) -> int:
        """How many messages a batch entry has: as it was sent to this client, or else as that says."""
        known = self.endpoint.sizes.get(offset)
        if known is not None or not said.ack_set:
            return known or 0
        if not 0 < said.batch_size <= MAX_IN_BATCH:
            raise errors.InvalidOption(f"batch_size is {said.batch_size}, expected 1 to {MAX_IN_BATCH}")
        size: int = said.batch_size
        return size

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

    def _offset(self, said: Any) -> int:
        return self._layout.kafka_offset(self._place.number, said.ledgerId, said.entryId)

    def redeliver_all(self, epoch: int | None) -> None:
        self.endpoint.meter.redelivered += self.endpoint.unacked
        self._member.redeliver_unacknowledged(self.endpoint, lambda: self._begin(epoch))

    def redeliver(self, ids: Sequence[Any]) -> None:
        self.endpoint.meter.redelivered += len(ids)
        for each in ids:
            self._member.negative_acknowledge(self._slot, self._offset(each), self.endpoint, 0.0)
        self._member.wake()

    def _begin(self, epoch: int | None) -> None:
        self.endpoint.epoch = epoch

    def seek(self, asked: Any, deadline: Deadline) -> None:
        timeout_s = deadline.remaining_s()
        places = Places(self._node, self._subscription, self._member, timeout_s)
        target: object = _publish_time(asked)
        inclusive = False
        if asked.HasField("message_id"):
            target = native_id(asked.message_id)
            inclusive = True  # Pulsar sets the cursor to the id; what comes first is its client's to say
        wishes = places.seek_targets(target, deadline, inclusive=inclusive)
        self._member.wait_until_assigned(deadline)
        self._member.have_saved_elsewhere(deadline)
        self._node.memberships.live_cursors.change(self._subscription, wishes, deadline)

    @property
    def kind(self) -> SubscriptionType:
        return self._member.type

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
    """A reader: it begins where its client says, and nothing of it is kept.

    As in Pulsar it begins with the entry that the client names, of which the client leaves out what it does not want;
    and it has a mark-delete position, by which a client tells that there is more.
    """

    def __init__(self, place: EntryPlace, tail: Tail, endpoint: WireEndpoint, start: int) -> None:
        self.endpoint = endpoint
        self._place = place
        self._tail = tail
        self._marked = start - 1
        self.sought_offset: int | None = None

    def acknowledge(self, ack_type: int, ids: Sequence[Any]) -> None:
        """Moves the mark-delete position alone, which ends with the reader."""
        layout, number = self._place.topic.layout, self._place.number
        for each in ids:
            offset = layout.kafka_offset(number, each.ledgerId, each.entryId)
            if not each.ack_set:
                self._marked = max(self._marked, offset)
                self.endpoint.forget(offset)

    def transaction_ack(self, asked: Any) -> TxnAck:
        raise errors.Refused("what a reader has read is not kept: no transaction holds it")

    def acknowledge_in(self, part: ClientTransaction, ack: TxnAck, deadline: Deadline) -> Future[None]:
        raise NotImplementedError

    def redeliver(self, ids: Sequence[Any]) -> None:
        """Nothing that a reader's client asks for."""

    def redeliver_all(self, epoch: int | None) -> None:
        """Likewise."""

    def seek(self, asked: Any, deadline: Deadline) -> None:
        """As in Pulsar the client opens it anew, and it goes on there, wherever the client then says to begin."""
        if asked.HasField("message_id"):
            self.sought_offset = _begin(self._place, asked.message_id, deadline)
        else:
            self.sought_offset = _begin_at_time(self._place, _publish_time(asked), deadline)
        self.endpoint.sought()

    @property
    def kind(self) -> SubscriptionType:
        return SubscriptionType.EXCLUSIVE

    def backlog(self, deadline: Deadline) -> int:
        return 0

    def last_id(self, deadline: Deadline) -> tuple[NativeMessageId, int | None, NativeMessageId | None]:
        return (*self._place.last_message(deadline), self._place.id_of(self._marked))

    def unsubscribe(self, deadline: Deadline, *, force: bool) -> None:
        """Nothing but its end: there is no subscription."""
        self.close(deadline)

    def close(self, deadline: Deadline) -> None:
        self.endpoint.close()
        self._place.node.readers.close_tail(self._tail, deadline)


def open_consumer(
    node: Node, asked: Any, wire: Wire, deadline: Deadline, sought_offset: int | None = None
) -> WireConsumer:
    """A consumer of a topic or a partition, which may make the topic and the subscription. `sought_offset` is what the
    reader said that this one follows (`WireConsumer`).

    Raises:
        LayerError, MappingError: see `Memberships.subscribe`, `TopicRegistry.open`, `SchemaRegistry.for_consumer`.
    """
    name = TopicName.parse(asked.topic)
    if not 0 <= asked.subType < len(TYPES):
        raise errors.InvalidOption(f"subType is {asked.subType}, expected 0 to {len(TYPES) - 1}")
    check_subscription_name(asked.subscription)
    if asked.read_compacted and not name.is_persistent:
        raise errors.Refused(f"read_compacted: topic {name} is not persistent, so there is nothing to compact")
    rules, properties = _rules(asked), properties_of(asked)
    topic = _topic(node, name, deadline, make=asked.force_topic_creation)
    if asked.HasField("schema"):
        admit_schema(node, topic, schema_info(asked.schema), deadline)
    if topic.partitioned and name.partition < 0:
        raise errors.Refused(f"topic {name} has {topic.partitions} partitions: clients subscribe to each by its name")
    place = EntryPlace(node, topic, name.partition if name.partition >= 0 else None)
    endpoint = WireEndpoint(asked.consumer_name or secrets.token_hex(5), asked.consumer_id, wire, rules)
    endpoint.metadata = properties
    endpoint.reports_active = TYPES[asked.subType] is SubscriptionType.FAILOVER
    if asked.HasField("consumer_epoch"):
        endpoint.epoch = asked.consumer_epoch
    if sought_offset is not None or (not asked.durable and asked.HasField("start_message_id")):
        return _reader(place, asked, endpoint, sought_offset, deadline)
    subscription, member = node.memberships.subscribe(
        topic,
        asked.subscription,
        TYPES[asked.subType],
        endpoint,
        from_earliest=asked.initialPosition == _EARLIEST,
        ack_persist_interval_s=_ACK_PERSIST_INTERVAL_S,
        read_compacted=asked.read_compacted,
        deadline=deadline,
        partition=place.partition,
        properties={each.key: each.value for each in asked.subscription_properties},
        replicated=asked.replicate_subscription_state,
        non_durable=not asked.durable and name.is_persistent,
    )
    endpoint.undeliverable = node.meters.subscription(str(name), asked.subscription).count_undeliverable
    return SubscriptionConsumer(place, subscription, member, endpoint)


def _topic(node: Node, name: TopicName, deadline: Deadline, *, make: bool) -> Topic:
    if make:
        return node.topics.open(name, deadline)
    found = node.topics.find(name.base, deadline)
    if found is None:
        raise errors.NoSuchTopic(f"topic {name} does not exist")
    return found


def parts_of(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The ids of a command in parts that take some milliseconds each."""
    return (ids[start : start + MAX_IDS_AT_ONCE] for start in range(0, len(ids), MAX_IDS_AT_ONCE))


def _ranges(said: Any) -> tuple[tuple[int, int], ...] | None:
    """Of a KeySharedMeta; None where keys are split by themselves. Raises InvalidOption: there are too many."""
    if said.keySharedMode != _STICKY:
        return None
    if len(said.hashRanges) > MAX_HASH_RANGES:
        raise errors.InvalidOption(
            f"a consumer has {len(said.hashRanges)} hash ranges, expected up to {MAX_HASH_RANGES}"
        )
    return tuple((each.start, each.end) for each in said.hashRanges)


def _rules(asked: Any) -> DeliveryRules:
    key_shared = None
    if TYPES[asked.subType] is SubscriptionType.KEY_SHARED:
        said = asked.keySharedMeta
        ranges = _ranges(said)
        check_ranges(asked.consumer_name, ranges or ())
        key_shared = KeySharedRule(ranges, said.allowOutOfOrderDelivery)
    return DeliveryRules(priority=asked.priority_level, key_shared=key_shared)


def _reader(
    place: EntryPlace, asked: Any, endpoint: WireEndpoint, sought_offset: int | None, deadline: Deadline
) -> ReadingConsumer:
    if sought_offset is not None:
        start = sought_offset
    elif asked.start_message_rollback_duration_sec:
        since_ms = max(0, place.node.clock.now_ms() - asked.start_message_rollback_duration_sec * 1000)
        start = _begin_at_time(place, since_ms, deadline)
    else:
        start = _begin(place, asked.start_message_id, deadline)
    endpoint.ranges = _ranges(asked.keySharedMeta)
    partitions = [place.number]
    compacted = compacted_ranges(place.node, place.topic, partitions, deadline) if asked.read_compacted else {}
    tail = place.node.readers.open_tail(place.topic, {place.number: start}, endpoint, compacted)
    return ReadingConsumer(place, tail, endpoint, start)


def _begin(place: EntryPlace, asked: Any, deadline: Deadline) -> int:
    """The offset of an entry that a client names; behind the last one for latest, and where nothing is kept."""
    said, partitions = native_id(asked), [place.number]
    if said == NativeMessageId.latest or not place.topic.name.is_persistent:
        return _end(place, deadline)
    whole = NativeMessageId(said.partition(), said.ledger_id(), said.entry_id(), -1)
    starts, _ = TopicPositions(place.node, place.topic).begin(partitions, whole, deadline, inclusive=True)
    return starts[place.number]


def _begin_at_time(place: EntryPlace, since_ms: int, deadline: Deadline) -> int:
    if not place.topic.name.is_persistent:
        return _end(place, deadline)
    return TopicPositions(place.node, place.topic).at_time([place.number], since_ms, deadline)[place.number]


def _end(place: EntryPlace, deadline: Deadline) -> int:
    return place.node.admin.end_offsets(place.topic.kafka_topic, [place.number], deadline)[place.number]
