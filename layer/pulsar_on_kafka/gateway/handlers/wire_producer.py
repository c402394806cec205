"""Turns SEND frames into Kafka records, and delivery reports into SEND_RECEIPT frames."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    InvalidOption,
    InvalidTxnStatus,
    LayerError,
    ProducerExcluded,
    ProducerOvertaken,
    Refused,
)
from pulsar_on_kafka.broker.metadata.migration_progress import CLOSED_TO_PRODUCERS
from pulsar_on_kafka.broker.metadata.policies import NATIVE
from pulsar_on_kafka.broker.metadata.producers.admission import AccessMode
from pulsar_on_kafka.broker.metadata.record_limits import RecordLimits
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.services import ProducerPolicies
from pulsar_on_kafka.broker.publishing.admission import Application, TopicAdmission
from pulsar_on_kafka.broker.publishing.chunking import KEY_AND_HEADERS_BYTES, record_limit
from pulsar_on_kafka.broker.publishing.in_flight import OwnCallback
from pulsar_on_kafka.broker.publishing.outgoing_message import MAX_SEQUENCE_ID, ReadyMessage
from pulsar_on_kafka.broker.publishing.outgoing_schema import LetterSchema
from pulsar_on_kafka.broker.publishing.outlet import Limits
from pulsar_on_kafka.broker.publishing.sender import Sender, SenderOptions
from pulsar_on_kafka.broker.publishing.single_records import SingleRecords
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction
from pulsar_on_kafka.exceptions import AlreadyClosed, InvalidMessage, ProducerFenced, PulsarException, Result
from pulsar_on_kafka.gateway.handlers.key_schemes import KeyScheme
from pulsar_on_kafka.gateway.handlers.rate_meter import Meter
from pulsar_on_kafka.gateway.handlers.schemas import SchemaIds, producers_version, schema_info
from pulsar_on_kafka.gateway.handlers.split_entry import SplitEntry, SplitRecord
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
from pulsar_on_kafka_mapping.wire.command_types import ProducerCommand, SendCommand
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, send_receipt
from pulsar_on_kafka_mapping.wire.commands import command as encode_command
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
"""In the order of Pulsar's ProducerAccessMode."""
_LIMITS: Final = Limits(
    max_pending=0, max_pending_across=0, block_if_full=False, send_timeout_ms=0, waits_for_librdkafka=False
)
"""The client has limits and time-outs of its own. The event loop does not wait."""
USE: Final = "gateway"
"""Clients' records have their own Kafka producer. A gateway that is disconnected from Kafka gives up that producer."""
_log = logging.getLogger(__name__)

_LOOKED_AT: Final = frozenset({BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY})
"""Headers that readers must check."""
_PLAIN: Final = 0
_MORE: Final = 1
_CHUNKS: Final = 2
_RAW: Final = 4
_OF_TRANSACTIONS: Final = frozenset({ServerError.INVALID_TXN_STATUS, ServerError.TRANSACTION_NOT_FOUND})
"""A message that a transaction rejects gets NOT_ALLOWED, as in Pulsar. With another code its client would reopen the
producer and resend the message without end."""
_OF_ONE_MESSAGE: Final = frozenset({ServerError.NOT_ALLOWED, ServerError.CHECKSUM})
"""On these codes a client fails the message and continues. On any other code it closes its connection and resends all
messages without a receipt. Source: `ClientCnx.handleSendError` of the Java client, `ClientConnection` of C++."""
MAX_MESSAGES_IN_BATCH: Final = 100_000
"""Messages of one batch. Each has a bit in acknowledgements, and a consumer gets all of them at once."""
_OPERATION_S: Final = 30.0
_ENDED: Final = error_code_of(AlreadyClosed("the producer has ended"))
_NOWHERE: Final = 2**64 - 1
"""Ledger and entry id of a duplicate (-1 in Pulsar)."""


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """An admitted producer, and the fields of the reply to its client."""

    sender: Sender
    partition: int
    schema_version: bytes | None
    native: NativeEntries
    ids: SchemaIds
    meter: Meter


def access_mode(command: ProducerCommand) -> AccessMode:
    """Raises InvalidOption: the mode is unknown."""
    if not 0 <= command.producer_access_mode < len(MODES):
        raise InvalidOption(f"producer_access_mode is {command.producer_access_mode}, expected 0 to {len(MODES) - 1}")
    return MODES[command.producer_access_mode]


def open_producer(
    node: Node, command: ProducerCommand, meter: Meter, deadline: Callable[[], Deadline]
) -> OpenedProducer | None:
    """Admit a producer, which may create its topic and an initial subscription. `meter` counts from the start. None:
    the producer waits for exclusive access, and the topic has other producers.

    Raises:
        LayerError, MappingError: as `access_mode`, `Imports.require_open`, `TopicAdmission`,
        `SchemaRegistry.for_producer`, `check_subscription_name`.
    """
    mode = access_mode(command)
    waits = mode is AccessMode.WAIT_FOR_EXCLUSIVE
    name, properties = TopicName.parse(command.topic), properties_of(command)
    node.imports.require_open(name.tenant, CLOSED_TO_PRODUCERS, deadline())
    admission = TopicAdmission(node, name, deadline)
    schema = schema_info(command.schema) if command.HasField("schema") else None
    version = producers_version(node, admission.topic, schema, deadline())
    if command.initial_subscription_name and name.is_persistent:
        check_subscription_name(command.initial_subscription_name)
        node.memberships.create_subscription(name, command.initial_subscription_name, deadline())
    ids = SchemaIds(node, admission.topic, deadline())
    native = NativeEntries(node, admission.topic, node.limits.of(admission.topic, deadline()), always=ids.required)
    native.follow(admission.policies.entry_format, deadline())
    application = Application(
        name=(command.producer_name or None) if command.user_provided_producer_name else None,
        former_name=command.producer_name or None,
        may_reopen=True,
        schema=LetterSchema(),
        options=SenderOptions(limits=_LIMITS),
        mode=AccessMode.EXCLUSIVE if waits else mode,
        properties=properties,
        use=USE,
        topic_epoch=command.topic_epoch if command.HasField("topic_epoch") else None,
        traffic=partial(meter.traffic, name.partition),
    )
    try:
        sender = admission.admit(application)
    except ProducerExcluded as refused:
        if waits and not isinstance(refused, ProducerOvertaken):
            return None
        raise
    return OpenedProducer(sender, max(0, name.partition), version, native, ids, meter)


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
    """Splits entries into messages, if the topic's policy `entry_format` or `always` require that, or Kafka compacts
    the topic."""

    def __init__(self, node: Node, topic: Topic, limits: RecordLimits, *, always: bool) -> None:
        self._node = node
        self._always = always
        self._limits = limits
        self._kafka_topic = topic.kafka_topic
        self._max_bytes = 0
        self._splits = False

    def follow(self, entry_format: str, deadline: Deadline) -> None:
        """Raises LayerError."""
        splits = self._always or entry_format == NATIVE or self._limits.compacted
        if splits and not self._max_bytes:
            self._max_bytes = record_limit(self._node.admin, self._kafka_topic, deadline) - KEY_AND_HEADERS_BYTES
        self._splits = splits

    def messages(self, metadata: PulsarMetadata, payload: bytes, *, deduplicated: bool) -> Sequence[NativeMessage]:
        """The messages to store: the unchanged entry, or its messages.

        Raises:
            Refused: Kafka compacts the topic, and a record would delete other messages (`RecordLimits.check`).
        """
        found = None
        if self._splits:
            found = taken_apart(metadata, payload, self._max_bytes, deduplicated=deduplicated)
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
    """For the event loop. Memory: the messages in flight, which `FlowControl` bounds."""

    def __init__(
        self,
        node: Node,
        number: int,
        opened: OpenedProducer,
        transactions: RoleTransactions,
        frames: Frames,
        callbacks: ProducerCallbacks,
        bundle: int,
        generation: int = 0,
    ) -> None:
        """`generation`: see `LedgerLayout.in_generation`."""
        self.number = number
        self.bundle = bundle
        self.meter = opened.meter
        self.sender = sender = opened.sender
        self._node = node
        assert isinstance(sender.way, SingleRecords)  # noqa: S101 - it was opened without batching
        self._way = sender.way
        self._outlet = sender.outlet
        self._topic = sender.outlet.admitted.topic
        layout = self._topic.layout
        self.generation_bits = layout.in_generation(generation).ledger_id(0, 0) - layout.ledger_id(0, 0)
        """Added to the ledger ids in receipts."""
        self._registered_name = str(self._topic.name)
        self._recorded = _PLAIN
        """The features that the topic's record announces to readers: `_MORE`, `_CHUNKS` and `_RAW`."""
        self._native = opened.native
        self._ids = opened.ids
        self._partition = opened.partition
        partitions = self._topic.partitions
        self._key_scheme = KeyScheme(opened.partition, partitions) if partitions > 1 else None
        """The search for the client's scheme, until it ends."""
        self.topic = sender.outlet.topic()
        self.topic_epoch = sender.outlet.admitted.membership.topic_epoch or None
        """The epoch that its client sends when it reopens the producer; None: a shared producer."""
        self._epoch = sender.epoch
        self._marks = sender.marks
        self._repeated = RepeatedEntries[_Meaning]()
        self.encoded_number = varint(number)
        self._transactions = transactions
        self._markers_recorded = False
        self._has_ended = False
        """No later message is stored: the client resends them in order to the reopened producer."""
        self._frames = frames
        self._add_sends = callbacks.sent
        self.answered = callbacks.answered
        self._lost = callbacks.lost
        self._left = callbacks.left

    @property
    def is_limited(self) -> bool:
        """Whether the topic has a publish rate (`rate_wait_s`)."""
        return self._outlet.rate_gate.active

    def send_repeated(self, sequence_id: int, number: bytes, entry: bytes) -> bool:
        """`send` of an entry that differs from an earlier one in number, time and payload only. False: any other entry,
        which was not sent."""
        if self._has_ended:
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

    def send(self, command: SendCommand, entry: bytes) -> Callable[[], None] | Left | None:
        """Store one entry and send a receipt.

        Returns a function if other work has to precede: the entry was not sent, and is to be sent again after that. The
        function may block, and raises LayerError, PulsarException. Returns `Left` if librdkafka has no room, or if the
        refusal of the entry has to follow earlier replies.
        """
        if self._has_ended:
            self.answered(1)
            return None
        number = varint(command.sequence_id)
        highest = command.highest_sequence_id if command.HasField("highest_sequence_id") else None
        sent = _Sent(self, command.sequence_id, number, highest)
        try:
            _check_ids(command.sequence_id, highest)
            records, txn, plain = self._records(command, entry)
        except CorruptRecord as failure:
            return Refusal(self, sent.refused, ServerError.CHECKSUM, str(failure)).given()
        except (MappingError, PulsarException, Refused) as failure:
            return Refusal(self, sent.refused, *error_code_of(failure)).given()
        part = None if txn is None else self._transactions.known(txn)
        first = self._first(records, txn, part) or self.look_first(records, txn)
        if first is not None or self._outlet.refuses(sent):
            return first
        self.meter.messages += command.num_messages
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

    def rate_wait_s(self) -> float:
        """The time for which the topic's publish rate requires its client to be held back; 0.0: not at all."""
        return self._outlet.rate_gate.wait_s(self._partition)

    def note_limited(self) -> None:
        """Count that the client is held back."""
        self._outlet.rate_gate.limited_times += 1

    def full(self) -> bool:
        """Whether librdkafka's queue is full."""
        return self._outlet.kafka.full

    def is_over(self) -> bool:
        """Whether the producer accepts no message any more."""
        outlet = self._outlet
        return self._has_ended or outlet.closed or outlet.thrown_out is not None

    def hand_over(
        self, sequence_id: int, record: EntryRecord, part: ClientTransaction | None, callback: OwnCallback
    ) -> None:
        """Raises LayerError, PulsarException: the record is refused. BufferError: librdkafka has no room."""
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

    def refuse(self, command: SendCommand, code: ServerError, reason: str) -> Refusal | None:
        """Refuse one entry. Returns as `send`."""
        sent = _Sent(self, command.sequence_id, varint(command.sequence_id), None)
        return Refusal(self, sent.refused, code, reason).given()

    def has_unanswered(self) -> bool:
        """Whether records are in flight."""
        return self._outlet.send_counts().pending > 0

    def _stamp(self, record: EntryRecord, part: ClientTransaction | None) -> int:
        """The record's time. In a transaction it is at most now, and read before the transaction's deadline is checked:
        see `TransactionalSend.stamp`."""
        if part is None:
            return record.timestamp_ms
        stamp = min(record.timestamp_ms, self._node.clock.known_now_ms())
        if not part.has_time():
            raise InvalidTxnStatus(f"transaction {part.id} has timed out")
        return stamp

    def _first(
        self, records: Sequence[tuple[int, EntryRecord]], txn: TxnId | None, part: ClientTransaction | None
    ) -> Callable[[], None] | None:
        """Work that precedes an entry: announce headers and chunks to readers of the topic, once, or register the
        partition with the transaction."""
        if txn is not None and not (
            self._markers_recorded and part is not None and part.has_registered(self._registered_name, self._partition)
        ):
            return partial(self._take_part, txn)
        needed = _PLAIN
        for _, record in records:
            needed |= _needed_of(record)
            unknown = self._ids.unknown(record)
            if unknown is not None:
                return partial(self._ids.learn, unknown)
        if not needed & ~self._recorded:
            return None

        def announce() -> None:
            self._outlet.admitted.more_than_plain(chunks=bool(needed & _CHUNKS), raw=bool(needed & _RAW))
            self._recorded |= needed

        return announce

    def look_first(self, records: Sequence[tuple[int, EntryRecord]], txn: TxnId | None) -> Callable[[], None] | None:
        """Work that precedes an entry: the look-up of duplicates, if deduplication has to read Kafka for that."""
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
        self, command: SendCommand, entry: bytes
    ) -> tuple[list[tuple[int, EntryRecord]], TxnId | None, tuple[bytes, int | None] | None]:
        """The records with their sequence ids, and their transaction: that of the command, or else of the metadata. If
        later entries may repeat the metadata, also these bytes and the payload's size that they state."""
        encoded, payload, _ = read_entry(entry)
        metadata = decode_metadata(encoded)
        if (metadata.messages or 0) > MAX_MESSAGES_IN_BATCH:
            raise InvalidMessage(f"a batch has {metadata.messages} messages, expected up to {MAX_MESSAGES_IN_BATCH}")
        metadata.producer_name = self.sender.name
        if self._key_scheme is not None and metadata.partition_key is not None:
            self._look_at_key(self._key_scheme, metadata.partition_key)
        named = command.HasField("txnid_most_bits") and command.HasField("txnid_least_bits")
        txn = txn_of(command) if named else txn_of_metadata(metadata)
        if txn is not None:
            metadata.txn_most, metadata.txn_least = txn
        now_ms = self._node.clock.known_now_ms()
        messages = self._native.messages(metadata, payload, deduplicated=self._outlet.deduplicates)
        _check_ids(metadata.highest_sequence_id, *(each.sequence_id for each, _ in messages))
        if len(messages) == 1:  # under the command's id, which the client knows
            record = self._ids.named(record_of(*messages[0], epoch=self._epoch, now_ms=now_ms))
            repeats = txn is None and _means_the_same(metadata) and record.timestamp_ms == metadata.publish_time_ms
            size = None if metadata.uncompressed_bytes is None else len(payload)
            return [(command.sequence_id, record)], txn, (encoded, size) if repeats else None
        records = [
            (each.sequence_id or 0, self._ids.named(record_of(each, body, epoch=self._epoch, now_ms=now_ms)))
            for each, body in messages
        ]
        return records, txn, None

    def _look_at_key(self, scheme: KeyScheme, key: bytes) -> None:
        """Record the client's hashing scheme with the topic."""
        found = scheme.saw(key)
        if found is not None:
            self._outlet.admitted.routes_keys(found)
        if scheme.is_over:
            self._key_scheme = None

    def close(self) -> None:
        """Return when all earlier messages have their reply. A second call does nothing."""
        try:
            self.sender.close(lambda: None)
        except AlreadyClosed:
            return
        self._left()

    def follow_policies(self, policies: ProducerPolicies, deadline: Deadline) -> None:
        """Close the producer when its topic was deleted by force or terminated, or the backlog quota is exceeded, as in
        Pulsar. The client reopens it: on a new topic, or when the quota allows, or in vain (TopicTerminated). Raises
        LayerError."""
        is_over = policies.incarnation != self._topic.layout.incarnation or policies.terminated
        if (is_over or policies.backlog_exceeded is not None) and not self.sender.outlet.closed:
            self._lost()
        self._outlet.follow_rate(policies.publish_rate)
        self.sender.follow_deduplication(policies.deduplication, deadline)
        self._native.follow(policies.entry_format, deadline)

    def thrown_out(self, records: int) -> None:
        """Close the producer instead of a reply, as in Pulsar: its client gets the reason when it reopens the producer.
        Later messages are not stored, or they would precede the resent one."""
        self._has_ended = True
        self.answered(records)
        self._lost()

    def reply(self, answer: bytes, records: int) -> None:
        self._frames.send_one(answer)
        self.answered(records)


def _check_ids(*sequence_ids: int | None) -> None:
    """Raises InvalidMessage: no receipt could have one of these sequence ids."""
    for sequence_id in sequence_ids:
        if sequence_id is not None and sequence_id > MAX_SEQUENCE_ID:
            raise InvalidMessage(f"sequence id is {sequence_id}, expected up to {MAX_SEQUENCE_ID}")


def _means_the_same(metadata: PulsarMetadata) -> bool:
    """Whether metadata mean the same with any payload and number. Compressed messages and batches may have to be
    decoded."""
    return not metadata.compression and metadata.messages is None and metadata.highest_sequence_id is None


def _needed_of(record: EntryRecord) -> int:
    """The features that the topic must announce to its readers before this record."""
    names = {name for name, _ in record.headers}
    if record.value is not None and not names & _LOOKED_AT:
        return _PLAIN
    return _MORE | (_CHUNKS if CHUNK in names else 0) | (_RAW if BATCH in names else 0)


class _Meaning(NamedTuple):
    """A record without its number, time and payload."""

    key: bytes | None
    is_null: bool
    headers: Sequence[tuple[str, bytes | None]]


class _Sent(OwnCallback):
    """The callback of one entry in flight."""

    __slots__ = ("_number", "_producer", "_sequence_id", "highest_sequence_id", "part", "records")

    prompt = True
    part: ClientTransaction | None
    """The transaction of which the entry is an operation, until its reply."""
    records: int
    """The number of the entry's records."""

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
        if producer.generation_bits:
            ledger |= producer.generation_bits
        self._reply(send_receipt(producer.encoded_number, self._number, ledger, entry, self.highest_sequence_id))

    def fail(self, failure: PulsarException) -> None:
        if isinstance(failure, ProducerFenced):
            self._thrown_out()
        else:
            self.refused(*error_code_of(failure))

    def refused(self, code: ServerError, reason: str) -> None:
        """Close the producer if a retry may succeed: SEND_ERROR would close the whole connection."""
        producer = self._producer
        code = ServerError.NOT_ALLOWED if code in _OF_TRANSACTIONS else code
        if code not in _OF_ONE_MESSAGE:
            if not producer.is_over():  # once
                _log.info("%s is closed, for its client to reopen it: %s", producer.sender.outlet, reason)
            self._thrown_out()
            return
        refusal = {"sequence_id": self._sequence_id, "error": code, "message": reason}
        self._reply(frame(encode_command(Type.SEND_ERROR, producer_id=producer.number, **refusal)))

    def _reply(self, answer: bytes) -> None:
        if self.part is not None:
            self._end_operation()  # first: the client may end the transaction after the reply
        self._producer.reply(answer, self.records)

    def _thrown_out(self) -> None:
        self._end_operation()
        self._producer.thrown_out(self.records)

    def _end_operation(self) -> None:
        part, self.part = self.part, None
        if part is not None:
            part.end_operation()


class Refusal:
    """The refusal of an entry, which has to follow the replies to all earlier entries. Java's client ignores the
    refusal of any but its oldest entry, and C++'s client closes its connection. For the event loop. Source:
    `ProducerImpl.recoverNotAllowedError` of the Java client, `ProducerImpl::removeCorruptMessage` of C++."""

    def __init__(
        self, producer: WireProducer, refused: Callable[[ServerError, str], None], code: ServerError, reason: str
    ) -> None:
        self._producer = producer
        self._refused = refused
        self._code = code
        self._reason = reason

    def given(self) -> Refusal | None:
        """Refuse now if possible (None), else later."""
        return None if self.retry(closing=False) else self

    def retry(self, *, closing: bool) -> bool:
        """Returns whether the refusal was sent, or is not to be sent (`closing`). Otherwise the caller retries."""
        producer = self._producer
        if closing or producer.is_over():
            self._refused(*_ENDED)
        elif producer.has_unanswered():
            return False
        else:
            self._refused(self._code, self._reason)
        return True


class EntryLeft:
    """The records of an entry that librdkafka has yet to take, in order. After a refused record no later one is sent.
    For the event loop."""

    def __init__(
        self,
        producer: WireProducer,
        records: Sequence[tuple[int, EntryRecord]],
        txn: TxnId | None,
        part: ClientTransaction | None,
        sent: _Sent,
    ) -> None:
        """`part`: this process's share of the transaction `txn`."""
        self._producer = producer
        self._records = records
        self._txn = txn
        self._part = part
        self._sent = sent
        self._together = SplitEntry(sent, len(records)) if len(records) > 1 else None
        self._at = 0
        self._refusal: Refusal | None = None

    def hand_over(self) -> bool:
        """Returns whether nothing is left. Otherwise librdkafka has no room, or earlier replies come first, and the
        caller retries."""
        together, part = self._together, self._part
        for at in range(self._at, len(self._records)):
            self._at = at
            if together is not None and together.failed:
                together.answered(len(self._records) - at)
                return True
            if self._producer.full():
                return False
            try:
                callback = self._sent if together is None else SplitRecord(together, at)
                self._producer.hand_over(*self._records[at], part, callback)
            except BufferError:
                return False
            except (LayerError, PulsarException) as failure:
                self._refusal = Refusal(self._producer, self._refuse, *error_code_of(failure))
                return self._refusal.retry(closing=False)
        return True

    def retry(self, *, closing: bool) -> bool:
        """`hand_over` again, unless the producer or its connection (`closing`) has ended meanwhile. The producer ends
        if deduplication has to read Kafka by now."""
        producer = self._producer
        if self._refusal is not None:
            return self._refusal.retry(closing=closing)
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
"""The rest of an entry. Later frames of the connection wait for it."""
