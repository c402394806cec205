"""A producer of a connection: what it sends becomes records, and what Kafka reports becomes receipts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    InvalidOption,
    InvalidTxnStatus,
    LayerError,
    ProducerExcluded,
    ProducerOvertaken,
    Refused,
)
from pulsar_on_kafka.broker.metadata.policies import ENTRY_FORMAT, NATIVE
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.record_limits import RecordLimits
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.services import ToldToProducers
from pulsar_on_kafka.broker.publishing.admission import Application, TopicAdmission
from pulsar_on_kafka.broker.publishing.chunking import KEY_AND_HEADERS_BYTES, record_limit
from pulsar_on_kafka.broker.publishing.in_flight import NO_ID, OwnCallback
from pulsar_on_kafka.broker.publishing.outgoing_message import MAX_SEQUENCE_ID, ReadyMessage
from pulsar_on_kafka.broker.publishing.outgoing_schema import LetterSchema
from pulsar_on_kafka.broker.publishing.outlet import Limits
from pulsar_on_kafka.broker.publishing.sender import Sender, SenderOptions
from pulsar_on_kafka.broker.publishing.single_records import SingleRecords
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidMessage, ProducerFenced, PulsarException, Result
from pulsar_on_kafka.gateway.handlers.key_schemes import KeyScheme
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter
from pulsar_on_kafka.gateway.handlers.schemas import producers_version, schema_info
from pulsar_on_kafka.gateway.handlers.transactions import RoleTransactions, txn_of, txn_of_metadata
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter as Frames
from pulsar_on_kafka.gateway.protocol.properties import properties_of
from pulsar_on_kafka.kafka.settings import MAX_MESSAGE_BYTES
from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command, send_receipt
from pulsar_on_kafka_mapping.wire.entries import read_entry
from pulsar_on_kafka_mapping.wire.frames import frame
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, decode_metadata
from pulsar_on_kafka_mapping.wire.native_messages import NativeMessage, taken_apart
from pulsar_on_kafka_mapping.wire.repeated_sends import RepeatedEntries
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, record_of

MODES: Final = (
    AccessMode.SHARED,
    AccessMode.EXCLUSIVE,
    AccessMode.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE_WITH_FENCING,
)
"""By their numbers in Pulsar's ProducerAccessMode."""
_LIMITS: Final = Limits(
    max_pending=0, max_pending_across=0, block_if_full=False, send_timeout_ms=0, waits_for_librdkafka=False
)
"""The client has its own, and waits as long as it wants to; the loop waits for nothing."""
USE: Final = "gateway"
"""Clients' records have a Kafka producer of their own, which is given up where the gateway is cut off from Kafka."""
_log = logging.getLogger(__name__)

_LOOKED_AT: Final = frozenset({BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY})
"""Headers that readers have to look at."""
_PLAIN: Final = 0
_MORE: Final = 1
_CHUNKS: Final = 2
_RAW: Final = 4
_OF_TRANSACTIONS: Final = frozenset({ServerError.INVALID_TXN_STATUS, ServerError.TRANSACTION_NOT_FOUND})
"""A message that a transaction refuses is not allowed, as in Pulsar: with any other code its client would open the
producer anew, and send it again and again."""
_OF_ONE_MESSAGE: Final = frozenset({ServerError.NOT_ALLOWED, ServerError.CHECKSUM})
"""With these a client fails the message, and goes on. With any other it closes its connection, and sends everything
again that has no receipt. Source: `ClientCnx.handleSendError` of the Java client, `ClientConnection` of C++."""
MAX_MESSAGES_IN_BATCH: Final = 100_000
"""Messages of one batch: its acknowledgements are a bit for each, and a consumer gets all of them at once."""
_OPERATION_S: Final = 30.0
_ENDED: Final = error_code_of(AlreadyClosed("the producer has ended"))
_NOWHERE: Final = 2**64 - 1
"""Ledger and entry id of a message that was stored before (Pulsar's -1)."""


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """An admitted producer, and what its client is told."""

    sender: Sender
    partition: int
    schema_version: bytes | None
    native: NativeEntries
    meter: Meter


def access_mode(asked: Any) -> AccessMode:
    """Raises InvalidOption: it is not one of Pulsar's."""
    if not 0 <= asked.producer_access_mode < len(MODES):
        raise InvalidOption(f"producer_access_mode is {asked.producer_access_mode}, expected 0 to {len(MODES) - 1}")
    return MODES[asked.producer_access_mode]


def open_producer(node: Node, asked: Any, meter: Meter, deadline: Callable[[], Deadline]) -> OpenedProducer | None:
    """Admit a producer to a topic, which may make it, and a subscription that its messages are to wait for. None: it
    waits for being the only one, and there are others. `meter`: what statistics tell of it, from its first moment.

    Raises:
        LayerError, MappingError: as `access_mode`, `TopicAdmission`, `SchemaRegistry.for_producer`,
        `check_subscription_name`.
    """
    mode = access_mode(asked)
    waits = mode is AccessMode.WAIT_FOR_EXCLUSIVE
    name, properties = TopicName.parse(asked.topic), properties_of(asked)
    admission = TopicAdmission(node, name, deadline)
    schema = schema_info(asked.schema) if asked.HasField("schema") else None
    version = producers_version(node, admission.topic, schema, deadline())
    if asked.initial_subscription_name and name.is_persistent:
        check_subscription_name(asked.initial_subscription_name)
        node.memberships.create_subscription(name, asked.initial_subscription_name, deadline())
    native = NativeEntries(node, admission.topic, node.limits.of(admission.topic, deadline()))
    native.follow(node.applied_to([name.base], ENTRY_FORMAT, deadline())[name.base], deadline())
    application = Application(
        name=(asked.producer_name or None) if asked.user_provided_producer_name else None,
        former_name=asked.producer_name or None,
        comes_again=True,
        schema=LetterSchema(),
        options=SenderOptions(limits=_LIMITS),
        mode=AccessMode.EXCLUSIVE if waits else mode,
        properties=properties,
        use=USE,
        topic_epoch=asked.topic_epoch if asked.HasField("topic_epoch") else None,
        traffic=meter.traffic,
    )
    try:
        sender = admission.admit(application)
    except ProducerExcluded as refused:
        if waits and not isinstance(refused, ProducerOvertaken):
            return None
        raise
    return OpenedProducer(sender, max(0, name.partition), version, native, meter)


@dataclass(frozen=True, slots=True)
class ProducerCallbacks:
    """Reports of a producer to its connection. All but `sent` may be called by any thread."""

    sent: Callable[[int], None]
    """An entry has become so many records beside its first one."""
    answered: Callable[[int], None]
    """So many records have their answer."""
    lost: Callable[[], None]
    """The client has to open the producer anew."""
    left: Callable[[], None]
    """The producer has left its topic."""


class NativeEntries:
    """The entries of clients are taken apart where a topic's policy `entry_format` says so, or Kafka compacts it."""

    def __init__(self, node: Node, topic: Topic, limits: RecordLimits) -> None:
        self._node = node
        self._limits = limits
        self._kafka_topic = topic.kafka_topic
        self._most_bytes = 0
        self._wanted = False

    def follow(self, entry_format: str, deadline: Deadline) -> None:
        """Raises LayerError."""
        wanted = entry_format == NATIVE or self._limits.compacted
        if wanted and not self._most_bytes:
            self._most_bytes = record_limit(self._node.admin, self._kafka_topic, deadline) - KEY_AND_HEADERS_BYTES
        self._wanted = wanted

    def messages(self, metadata: PulsarMetadata, payload: bytes, *, deduplicated: bool) -> Sequence[NativeMessage]:
        """What is to be stored: the entry as it came, or its messages.

        Raises:
            Refused: Kafka compacts the topic, and one of these would take others along (`RecordLimits.check`).
        """
        found = None
        if self._wanted:
            found = taken_apart(metadata, payload, self._most_bytes, deduplicated=deduplicated)
        messages: Sequence[NativeMessage] = found or (NativeMessage(metadata, payload),)
        if self._limits.compacted:
            for each, _ in messages:
                self._limits.check(
                    has_key=each.partition_key is not None,
                    messages=each.messages or 1,
                    chunks=each.chunks or 1,
                    in_transaction=each.txn_most is not None,
                )
        return messages


class WireProducer:
    """For the loop of its connection. Memory: what is under way, which its connection bounds (`Connection`)."""

    def __init__(
        self,
        node: Node,
        number: int,
        opened: OpenedProducer,
        transactions: RoleTransactions,
        frames: Frames,
        callbacks: ProducerCallbacks,
        bundle: int,
    ) -> None:
        self.number = number
        self.bundle = bundle
        self.meter = opened.meter
        self.sender = sender = opened.sender
        self._node = node
        assert isinstance(sender.way, SingleRecords)  # noqa: S101 - it was opened without batching
        self._way = sender.way
        self._outlet = sender.outlet
        self._topic = sender.outlet.admitted.topic
        self._registered_name = str(self._topic.name)
        self._recorded = _PLAIN
        """What readers of the topic are known to be told of: `_MORE`, `_CHUNKS` and `_RAW`."""
        self._native = opened.native
        self._partition = opened.partition
        partitions = self._topic.partitions
        self._key_scheme = KeyScheme(opened.partition, partitions) if partitions > 1 else None
        """Looked at until it is known, or cannot be."""
        self.topic = sender.outlet.topic()
        self.topic_epoch = sender.outlet.admitted.membership.topic_epoch or None
        """What its client is to say when it opens it again; None of a Shared one."""
        self._epoch = sender.epoch
        self._marks = sender.marks
        self._repeated = RepeatedEntries[_Meaning]()
        self.encoded_number = varint(number)
        self._transactions = transactions
        self._markers_recorded = False
        self._over = False
        """Nothing that comes is stored any more: its client sends it again, in order, to the producer's successor."""
        self._frames = frames
        self._add_sends = callbacks.sent
        self.answered = callbacks.answered
        self._lost = callbacks.lost
        self._left = callbacks.left

    def send_repeated(self, sequence_id: int, number: bytes, entry: bytes) -> bool:
        """`send` of an entry that differs from one before it in number, time and payload alone. False of any other, and
        nothing has happened."""
        if self._over:
            self.answered(1)
            return True
        outlet = self._outlet
        if outlet.closed or outlet.thrown_out is not None or outlet.deduplicates or len(entry) > MAX_MESSAGE_BYTES:
            return False
        if outlet.kafka.full or sequence_id > MAX_SEQUENCE_ID:
            return False
        found = self._repeated.find(number, entry, self._node.clock.known_now_ms)
        if found is None:
            return False
        (key, is_null, headers), payload, publish_time_ms = found
        if key is not None and self._key_scheme is not None:
            return False
        sent = _Sent(self, sequence_id, number, None)
        try:
            self._way.put_encoded(
                None if is_null else payload, key, self._partition, sent, sequence_id, headers, publish_time_ms
            )
        except BufferError:
            return False
        except (LayerError, PulsarException) as failure:
            sent.refused(*error_code_of(failure))
        meter = self.meter
        meter.messages += 1
        meter.bytes += len(entry)
        return True

    def send(self, asked: Any, entry: bytes) -> Callable[[], None] | Left | None:
        """Have one entry stored; its client hears of that. Or give what has to be done first, which may block: then
        nothing has happened, and the entry is to be sent again after it. It raises LayerError, PulsarException. Or give
        what is left to do, because librdkafka has no room, or the entry is refused and others are not answered yet."""
        if self._over:
            self.answered(1)
            return None
        number = varint(asked.sequence_id)
        highest = asked.highest_sequence_id if asked.HasField("highest_sequence_id") else None
        sent = _Sent(self, asked.sequence_id, number, highest)
        try:
            _check_ids(asked.sequence_id, highest)
            records, txn, plain = self._records(asked, entry)
        except CorruptRecord as failure:
            return Refusal(self, sent.refused, ServerError.CHECKSUM, str(failure)).given()
        except (MappingError, PulsarException, Refused) as failure:
            return Refusal(self, sent.refused, *error_code_of(failure)).given()
        part = None if txn is None else self._transactions.known(txn)
        first = self._first(records, txn, part) or self.look_first(records, txn)
        if first is not None or self._outlet.refuses(sent):
            return first
        self.meter.messages += asked.num_messages
        self.meter.bytes += len(entry)
        if plain is not None:
            record = records[0][1]
            headers = (*record.headers[1:], *self._marks)
            self._repeated.learn(plain[0], number, plain[1], _Meaning(record.key, record.value is None, headers))
        try:
            if part is not None:
                part.begin_operation()
                sent.part = part
        except (LayerError, PulsarException) as failure:
            return Refusal(self, sent.refused, *error_code_of(failure)).given()
        self._add_sends(len(records) - 1)
        sent.records = len(records)
        left = EntryLeft(self, records, txn, part, sent)
        return None if left.hand_over() else left

    def full(self) -> bool:
        """Kafka takes what librdkafka has first."""
        return self._outlet.kafka.full

    def is_over(self) -> bool:
        """It takes no message any more."""
        outlet = self._outlet
        return self._over or outlet.closed or outlet.thrown_out is not None

    def hand_over(
        self, sequence_id: int, record: EntryRecord, part: ClientTransaction | None, callback: OwnCallback
    ) -> None:
        """Raises LayerError, PulsarException: it is refused. BufferError: librdkafka has no room."""
        self._way.put(
            ReadyMessage(
                record.value,
                record.key,
                None,
                self._partition,
                callback,
                sequence_id,
                self._marks,
                lambda: self._stamp(record, part),
                record.headers[1:],
            )
        )

    def refuse(self, asked: Any, code: ServerError, reason: str) -> Refusal | None:
        """Of one entry. Gives what is left to do, as `send`."""
        sent = _Sent(self, asked.sequence_id, varint(asked.sequence_id), None)
        return Refusal(self, sent.refused, code, reason).given()

    def has_unanswered(self) -> bool:
        """Records of it are under way."""
        return self._outlet.send_counts().pending > 0

    def _stamp(self, record: EntryRecord, part: ClientTransaction | None) -> int:
        """The record's time. In a transaction it is not later than now, and taken before the transaction's time is
        checked: see `TransactionalSend.stamp`."""
        if part is None:
            return record.timestamp_ms
        stamp = min(record.timestamp_ms, self._node.clock.known_now_ms())
        if not part.has_time():
            raise InvalidTxnStatus(f"transaction {part.id} has timed out")
        return stamp

    def _first(
        self, records: Sequence[tuple[int, EntryRecord]], txn: TxnId | None, part: ClientTransaction | None
    ) -> Callable[[], None] | None:
        """Putting on record, once, that readers of the topic have to look at headers, and to put chunks together; and
        registering the partition with a transaction whose client has not."""
        if txn is not None and not (
            self._markers_recorded and part is not None and part.has_registered(self._registered_name, self._partition)
        ):
            return partial(self._take_part, txn)
        needed = _PLAIN
        for _, record in records:
            needed |= _needed_of(record)
        if not needed & ~self._recorded:
            return None

        def put_on_record() -> None:
            self._outlet.admitted.more_than_plain(chunks=bool(needed & _CHUNKS), raw=bool(needed & _RAW))
            self._recorded |= needed

        return put_on_record

    def look_first(self, records: Sequence[tuple[int, EntryRecord]], txn: TxnId | None) -> Callable[[], None] | None:
        """Looking whether a message is stored already, where deduplication has to ask Kafka for that."""
        deduplication = self._outlet.admitted.deduplication
        for sequence_id, _ in records:
            if deduplication.has_to_look(self._partition, sequence_id, txn):
                return partial(deduplication.look, self._partition, sequence_id, txn)
        return None

    def _take_part(self, txn: TxnId) -> None:
        if not self._topic.name.is_persistent:
            raise Refused(f"topic {self._topic.name} is not persistent: it takes part in no transaction")
        if not self._markers_recorded:
            self._outlet.admitted.more_than_plain(markers=True)
            self._markers_recorded = True
        deadline = Deadline.after(_OPERATION_S)
        self._transactions.part(txn, deadline).register_partition(self._registered_name, self._partition, deadline)

    def _records(
        self, asked: Any, entry: bytes
    ) -> tuple[list[tuple[int, EntryRecord]], TxnId | None, tuple[bytes, int | None] | None]:
        """The records with their sequence ids, and the transaction that they are of: that of the command, or else of
        the metadata. And the bytes of the metadata with the payload's size, if they say one, where any other entry of
        these bytes, but for number and time, is such a record, too."""
        said, payload, _ = read_entry(entry)
        metadata = decode_metadata(said)
        if (metadata.messages or 0) > MAX_MESSAGES_IN_BATCH:
            raise InvalidMessage(f"a batch has {metadata.messages} messages, expected up to {MAX_MESSAGES_IN_BATCH}")
        metadata.producer_name = self.sender.name
        if self._key_scheme is not None and metadata.partition_key is not None:
            self._look_at_key(self._key_scheme, metadata.partition_key)
        named = asked.HasField("txnid_most_bits") and asked.HasField("txnid_least_bits")
        txn = txn_of(asked) if named else txn_of_metadata(metadata)
        if txn is not None:
            metadata.txn_most, metadata.txn_least = txn
        now_ms = self._node.clock.known_now_ms()
        messages = self._native.messages(metadata, payload, deduplicated=self._outlet.deduplicates)
        _check_ids(metadata.highest_sequence_id, *(each.sequence_id for each, _ in messages))
        if len(messages) == 1:  # under the command's id: that is what its client knows of
            record = record_of(*messages[0], epoch=self._epoch, now_ms=now_ms)
            repeats = txn is None and _means_the_same(metadata) and record.timestamp_ms == metadata.publish_time_ms
            size = None if metadata.uncompressed_bytes is None else len(payload)
            return [(asked.sequence_id, record)], txn, (said, size) if repeats else None
        records = [
            (each.sequence_id or 0, record_of(each, body, epoch=self._epoch, now_ms=now_ms)) for each, body in messages
        ]
        return records, txn, None

    def _look_at_key(self, scheme: KeyScheme, key: bytes) -> None:
        """What the client chooses partitions by is put on record with the topic, which may have another one."""
        found = scheme.saw(key)
        if found is not None:
            self._outlet.admitted.routes_keys(found)
        if scheme.is_over:
            self._key_scheme = None

    def close(self) -> None:
        """Return when everything sent before was answered; a second call does nothing."""
        try:
            self.sender.close(lambda: None)
        except AlreadyClosed:
            return
        self._left()

    def follow_policies(self, policies: ToldToProducers, deadline: Deadline) -> None:
        """As in Pulsar its client is sent away when its topic was deleted by force, and when the backlog quota is
        exceeded: it comes again, to a topic made anew, or when there is room. Raises LayerError."""
        over = policies.incarnation != self._topic.layout.incarnation
        if (over or policies.backlog_exceeded is not None) and not self.sender.outlet.closed:
            self._lost()
        self.sender.follow_deduplication(policies.deduplication, deadline)
        self._native.follow(policies.entry_format, deadline)

    def thrown_out(self, records: int) -> None:
        """A message is answered by the producer's end, as in Pulsar: its client learns why when it opens it anew. What
        came behind the message is not stored, or it would stand before it."""
        self._over = True
        self.answered(records)
        self._lost()

    def tell(self, answer: bytes, records: int) -> None:
        self._frames.send_one(answer)
        self.answered(records)


def _check_ids(*said: int | None) -> None:
    """Raises InvalidMessage: one of these sequence ids could be told to nobody."""
    for sequence_id in said:
        if sequence_id is not None and sequence_id > MAX_SEQUENCE_ID:
            raise InvalidMessage(f"sequence id is {sequence_id}, expected up to {MAX_SEQUENCE_ID}")


def _means_the_same(metadata: PulsarMetadata) -> bool:
    """With any payload and number: what is compressed may have to be opened, and a batch taken apart."""
    return not metadata.compression and metadata.messages is None and metadata.highest_sequence_id is None


def _needed_of(record: EntryRecord) -> int:
    """What readers of the topic have to be told of before this record."""
    names = {name for name, _ in record.headers}
    if record.value is not None and not names & _LOOKED_AT:
        return _PLAIN
    return _MORE | (_CHUNKS if CHUNK in names else 0) | (_RAW if BATCH in names else 0)


class _Meaning(NamedTuple):
    """What a record has besides its number, time and payload."""

    key: bytes | None
    is_null: bool
    headers: Sequence[tuple[str, bytes | None]]


class _Sent(OwnCallback):
    """The callback of one entry that was sent."""

    __slots__ = ("_number", "_producer", "_sequence_id", "highest_sequence_id", "part", "records")

    prompt = True
    part: ClientTransaction | None
    """The transaction that it is an operation of, until it is answered."""
    records: int
    """How many it became."""

    def __init__(self, producer: WireProducer, sequence_id: int, number: bytes, highest: int | None) -> None:
        """`number`: the sequence id as its varint."""
        self._producer = producer
        self._sequence_id = sequence_id
        self._number = number
        self.highest_sequence_id = highest
        self.part = None
        self.records = 1

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is Result.ProducerFenced:
            self._thrown_out()
            return
        if result is not Result.Ok:
            self.refused(ServerError.UNKNOWN, result.name)
            return
        producer = self._producer
        ledger, entry = message_id.ledger_id() & _NOWHERE, message_id.entry_id() & _NOWHERE
        self._tell(send_receipt(producer.encoded_number, self._number, ledger, entry, self.highest_sequence_id))

    def fail(self, failure: PulsarException) -> None:
        if isinstance(failure, ProducerFenced):
            self._thrown_out()
        else:
            self.refused(*error_code_of(failure))

    def refused(self, code: ServerError, reason: str) -> None:
        """What may go well another time ends the producer alone, where SEND_ERROR would end its connection."""
        producer = self._producer
        code = ServerError.NOT_ALLOWED if code in _OF_TRANSACTIONS else code
        if code not in _OF_ONE_MESSAGE:
            if not producer.is_over():  # once
                _log.info("%s has to be opened anew by its client: %s", producer.sender.outlet, reason)
            self._thrown_out()
            return
        refusal = {"sequence_id": self._sequence_id, "error": code, "message": reason}
        self._tell(frame(command(Type.SEND_ERROR, producer_id=producer.number, **refusal)))

    def _tell(self, answer: bytes) -> None:
        if self.part is not None:
            self._end_operation()  # first: who has heard of it may end the transaction
        self._producer.tell(answer, self.records)

    def _thrown_out(self) -> None:
        self._end_operation()
        self._producer.thrown_out(self.records)

    def _end_operation(self) -> None:
        part, self.part = self.part, None
        if part is not None:
            part.end_operation()


class Refusal:
    """An entry's refusal, which its client may not hear before it has heard of all entries before it: Java's client
    passes over one that is not of the oldest entry it waits for, and that entry is never answered; C++'s closes its
    connection. For the loop. Source: `ProducerImpl.recoverNotAllowedError` of the Java client,
    `ProducerImpl::removeCorruptMessage` of C++."""

    def __init__(
        self, producer: WireProducer, refused: Callable[[ServerError, str], None], code: ServerError, reason: str
    ) -> None:
        self._producer = producer
        self._refused = refused
        self._code = code
        self._reason = reason

    def given(self) -> Refusal | None:
        """None: at once; else it is left to do."""
        return None if self.go_on(closing=False) else self

    def go_on(self, *, closing: bool) -> bool:
        """Whether the client was told, or is not to be (`closing`); else it is to be called again."""
        producer = self._producer
        if closing or producer.is_over():
            self._refused(*_ENDED)
        elif producer.has_unanswered():
            return False
        else:
            self._refused(self._code, self._reason)
        return True


class EntryLeft:
    """What of an entry librdkafka is to take yet, in its order: behind a record that is refused nothing more of it is
    sent. For the loop."""

    def __init__(
        self,
        producer: WireProducer,
        records: Sequence[tuple[int, EntryRecord]],
        txn: TxnId | None,
        part: ClientTransaction | None,
        sent: _Sent,
    ) -> None:
        """`part`: what this process knows of the transaction `txn`."""
        self._producer = producer
        self._records = records
        self._txn = txn
        self._part = part
        self._sent = sent
        self._together = _Together(sent, len(records)) if len(records) > 1 else None
        self._at = 0
        self._refusal: Refusal | None = None

    def hand_over(self) -> bool:
        """Whether nothing is left; else there is no room, or others are to be answered first, and it is to be called
        again."""
        together, part = self._together, self._part
        for at in range(self._at, len(self._records)):
            self._at = at
            if together is not None and together.failed:
                together.answered(len(self._records) - at)
                return True
            if self._producer.full():
                return False
            try:
                callback = self._sent if together is None else _OneOf(together, at)
                self._producer.hand_over(*self._records[at], part, callback)
            except BufferError:
                return False
            except (LayerError, PulsarException) as failure:
                self._refusal = Refusal(self._producer, self._refuse, *error_code_of(failure))
                return self._refusal.go_on(closing=False)
        return True

    def go_on(self, *, closing: bool) -> bool:
        """`hand_over` again, unless the producer, or (`closing`) its connection, has ended meanwhile. The producer does
        where Kafka would have to be asked by now whether a message is stored already."""
        producer = self._producer
        if self._refusal is not None:
            return self._refusal.go_on(closing=closing)
        if closing or producer.is_over() or producer.look_first(self._records[self._at :], self._txn) is not None:
            self._refuse(*_ENDED)
            return True
        return self.hand_over()

    def _refuse(self, code: ServerError, reason: str) -> None:
        if self._together is None:
            self._sent.refused(code, reason)
        else:
            self._together.refused((code, reason), len(self._records) - self._at)


Left = EntryLeft | Refusal
"""Of an entry, to go on with while nothing else of its connection is read."""


class _Together:
    """The records of an entry that was taken apart: its client hears once, when all were answered. Thread-safe.

    The receipt has the id of the first one that is known. So what a client names by it (each message of its batch has
    this id, and an index) begins before any of them, and nothing is passed over.
    """

    def __init__(self, sent: _Sent, count: int) -> None:
        self.sent = sent
        self._left = count
        self._first: tuple[int, NativeMessageId] | None = None
        self._failure: Callable[[], None] | None = None
        self._lock = threading.Lock()

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def stored(self, at: int, message_id: NativeMessageId) -> None:
        """The id of a message that was stored before is not known."""
        with self._lock:
            if message_id.entry_id() >= 0 and (self._first is None or at < self._first[0]):
                self._first = at, message_id
        self.answered(1)

    def refused(self, reason: tuple[ServerError, str], records: int) -> None:
        self.fail(partial(self.sent.refused, *reason), records)

    def fail(self, answer: Callable[[], None], records: int = 1) -> None:
        """So many are not stored, and the first one's failure is the answer."""
        with self._lock:
            self._failure = self._failure or answer
        self.answered(records)

    def answered(self, records: int) -> None:
        """So many more were answered."""
        with self._lock:
            self._left -= records
            if self._left:
                return
        if self._failure is not None:
            self._failure()
        else:
            self.sent(Result.Ok, NO_ID if self._first is None else self._first[1])


class _OneOf(OwnCallback):
    """The callback of one record of several."""

    __slots__ = ("_at", "_together")

    prompt = True

    def __init__(self, together: _Together, at: int) -> None:
        self._together = together
        self._at = at

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is Result.Ok:
            self._together.stored(self._at, message_id)
        else:
            self._together.fail(partial(self._together.sent, result, message_id))

    def fail(self, failure: PulsarException) -> None:
        self._together.fail(partial(self._together.sent.fail, failure))
