"""Transactions written by hand, record by record, as a coordinator, a producer and a cursor's owner would."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from confluent_kafka import Producer
from pyroaring import BitMap64

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.transactions.coordinator.state import txn_id
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import Headers, MessageMetadata, encode_headers
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY, marker_headers
from pulsar_on_kafka_mapping.state.state_keys import (
    CoordinatorTakeoverKey,
    CursorTakeoverKey,
    LowWaterKey,
    PendingAckEndKey,
    PendingAckKey,
    TransactionBufferKey,
    TransactionLogKey,
    encode_key,
)
from pulsar_on_kafka_mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_LOG,
    TRANSACTION_PENDING_ACK,
)
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CursorIncarnation,
    PendingAck,
    TxnAck,
    TxnOutcome,
    encode_cursor_takeover,
    encode_end,
    encode_pending_ack,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    OpenEntry,
    buffer_records,
    encode_low_water,
    kind_of,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    LogValue,
    NewTransaction,
    PartitionsAdded,
    StatusUpdated,
    SubscriptionsAdded,
    TakenOver,
    TopicPartition,
    TopicSubscription,
    TxnStatus,
    encode_log_value,
)
from tests.kafka_records import place_of

PATIENCE_S = 60.0


class WrittenByHand:
    """On one topic. Takes a coordinator over at first; nobody else must serve it meanwhile."""

    def __init__(self, admin: AdminClient, topic: str, coordinator: int = 15) -> None:
        self.node = admin.node
        self.topic = self._opened(topic)
        self.coordinator = coordinator
        self.session = secrets.token_hex(16)
        self._ops = 0
        self._acks = 0
        highest, self._by = self.node.transaction_views.coordinators.query_partition(
            coordinator, lambda state: (state.highest_id, state.next_version), self._deadline()
        )
        self._next = max(0, highest) + 1
        self._begun: list[TxnId] = []
        self._log(CoordinatorTakeoverKey(coordinator, self.session, self._by), TakenOver(max(0, highest)))
        self._producer = Producer({"bootstrap.servers": self.node.settings.bootstrap})

    @staticmethod
    def _deadline() -> Deadline:
        return Deadline.after(PATIENCE_S)

    def _opened(self, topic: str) -> Topic:
        found = self.node.topics.find(TopicName.parse(topic), self._deadline())
        assert found is not None
        return found

    @property
    def name(self) -> str:
        return str(self.topic.name)

    # The coordinator ----------------------------------------------------------------------------------------------

    def begin(self, timeout_ms: int = 3_600_000, ago_ms: int = 0) -> TxnId:
        """`ago_ms`: how long it is open already."""
        number, self._next = self._next, self._next + 1
        start_ms = self.node.clock.now_ms() - ago_ms
        self._of(txn_id(self.coordinator, number), NewTransaction(self._by, start_ms, timeout_ms, number))
        self._begun.append(txn_id(self.coordinator, number))
        return self._begun[-1]

    def finish(self) -> None:
        """End whatever is open, without any effect."""
        for txn in self._begun:
            self.status(txn, TxnStatus.ABORTING, TxnStatus.ABORTED)

    def add_partition(self, txn: TxnId, partition: int = 0) -> None:
        self._of(txn, PartitionsAdded(self._by, (TopicPartition(self.name, partition),)))

    def add_subscription(self, txn: TxnId, subscription: str, partition: int = 0) -> None:
        self._of(txn, SubscriptionsAdded(self._by, (TopicSubscription(self.name, partition, subscription),)))

    def status(self, txn: TxnId, *statuses: TxnStatus) -> None:
        for status in statuses:
            self._of(txn, StatusUpdated(self._by, status))

    def _of(self, txn: TxnId, value: LogValue) -> None:
        self._ops += 1
        self._log(TransactionLogKey(self.coordinator, *txn, self.session, self._ops), value)

    def _log(self, key: TransactionLogKey | CoordinatorTakeoverKey, value: LogValue) -> None:
        self.node.log.append(
            TRANSACTION_LOG, self.coordinator, encode_key(key), encode_log_value(value), self._deadline()
        )

    # Buffers ------------------------------------------------------------------------------------------------------

    def opened(self, txn: TxnId, bound: int, partition: int = 0, life: int | None = None) -> None:
        self.entry(txn, OpenEntry(self.topic.layout.incarnation if life is None else life, bound), partition)

    def aborted(
        self, txn: TxnId, offsets: Iterable[int], end: int, *, sealed: bool = False, partition: int = 0
    ) -> None:
        found = BitMap64(offsets)
        self.entry(txn, AbortedEntry(self.topic.layout.incarnation, min(found), end, sealed, found), partition)

    def entry(self, txn: TxnId, entry: BufferEntry, partition: int = 0) -> None:
        key = TransactionBufferKey(self.name, partition, *txn, kind_of(entry).value, self.session, 0)
        for part, value in buffer_records(key, entry):
            self._buffer(part, value)

    def open_gone(self, txn: TxnId, partition: int = 0) -> None:
        self._buffer(TransactionBufferKey(self.name, partition, *txn, "OPEN", self.session, 0), None)

    def low_water(self, txn: TxnId) -> None:
        """Everything up to this one is over."""
        where = TRANSACTION_BUFFER_SNAPSHOT.partition_for(self.name)
        key = encode_key(LowWaterKey(self.coordinator, self.session))
        value = encode_low_water(txn.least_bits)
        self.node.log.append(TRANSACTION_BUFFER_SNAPSHOT, where, key, value, self._deadline())

    def _buffer(self, key: TransactionBufferKey, value: bytes | None) -> None:
        where = TRANSACTION_BUFFER_SNAPSHOT.partition_for(self.name)
        self.node.log.append(TRANSACTION_BUFFER_SNAPSHOT, where, encode_key(key), value, self._deadline())

    # Data ---------------------------------------------------------------------------------------------------------

    def send(self, txn: TxnId | None, payload: bytes = b"x", partition: int = 0) -> int:
        """Gives the record's offset."""
        return self._produce(payload, encode_headers(MessageMetadata(txn=txn)), partition)

    def marker(self, txn: TxnId, *, committed: bool, partition: int = 0) -> int:
        return self._produce(None, marker_headers(txn, committed=committed), partition, key=MARKER_KEY)

    def _produce(self, value: bytes | None, headers: Headers, partition: int, key: bytes | None = None) -> int:
        offsets: list[int] = []
        self._producer.produce(
            self.topic.kafka_topic,
            value,
            key,
            partition=partition,
            headers=list(headers),
            on_delivery=lambda error, record: offsets.append(place_of(record)[1]),
        )
        assert self._producer.flush(PATIENCE_S) == 0
        return offsets[0]

    # Pending acks -------------------------------------------------------------------------------------------------

    def life(self, subscription: str, partition: int = 0) -> CursorIncarnation:
        found = self.node.subscriptions.find(self.topic, subscription, self._deadline())
        assert found is not None
        return CursorIncarnation(self.topic.layout.incarnation, found.life(partition))

    def take_cursor(self, subscription: str, version: int = 1, partition: int = 0) -> None:
        key = CursorTakeoverKey(self.name, partition, subscription, self.session, version)
        self._ack(encode_key(key), encode_cursor_takeover(self.life(subscription, partition)))

    def hold(self, txn: TxnId, subscription: str, *offsets: int, version: int = 1, partition: int = 0) -> None:
        self._acks += 1
        key = PendingAckKey(self.name, partition, subscription, *txn, self.session, self._acks)
        pending = PendingAck(self.life(subscription, partition), version, TxnAck(BitMap64(offsets)))
        self._ack(encode_key(key), encode_pending_ack(pending))

    def end(self, txn: TxnId, subscription: str, *, committed: bool, partition: int = 0) -> None:
        key = PendingAckEndKey(self.name, partition, subscription, *txn)
        self._ack(encode_key(key), encode_end(TxnOutcome(committed)))

    def _ack(self, key: bytes, value: bytes | None) -> None:
        where = TRANSACTION_PENDING_ACK.partition_for(self.name)
        self.node.log.append(TRANSACTION_PENDING_ACK, where, key, value, self._deadline())
