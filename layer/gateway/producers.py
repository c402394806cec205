"""A producer of a connection: what it sends becomes records, and what Kafka reports becomes receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption, InvalidTxnStatus, LayerError, Refused
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerFenced, PulsarException, Result
from pulsar_on_kafka.gateway.answers import told
from pulsar_on_kafka.gateway.key_schemes import KeyScheme
from pulsar_on_kafka.gateway.outgoing import Outgoing as Frames
from pulsar_on_kafka.gateway.schemas import producers_version, schema_info
from pulsar_on_kafka.gateway.transactions import OpenTransactions, txn_of, txn_of_metadata
from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.records.record_headers import BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY
from pulsar_on_kafka.mapping.state.metadata.metadata_records import BacklogExceeded
from pulsar_on_kafka.mapping.wire.commands import ServerError, Type, command, send_receipt
from pulsar_on_kafka.mapping.wire.entries import read_entry
from pulsar_on_kafka.mapping.wire.frames import frame
from pulsar_on_kafka.mapping.wire.message_metadata import decode_metadata
from pulsar_on_kafka.mapping.wire.stored_entries import EntryRecord, record_of
from pulsar_on_kafka.metadata.producers.admission import AccessMode
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.sending.admission import Admission, Application
from pulsar_on_kafka.sending.in_flight import OwnCallback
from pulsar_on_kafka.sending.outgoing_message import Outgoing
from pulsar_on_kafka.sending.outgoing_schema import LetterSchema
from pulsar_on_kafka.sending.outlet import Limits
from pulsar_on_kafka.sending.sender import Sender, SenderOptions
from pulsar_on_kafka.transactions.client_transaction import ClientTransaction

MODES: Final = (
    AccessMode.SHARED,
    AccessMode.EXCLUSIVE,
    AccessMode.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE_WITH_FENCING,
)
"""By their numbers in Pulsar's ProducerAccessMode."""
WAIT_FOR_EXCLUSIVE: Final = MODES.index(AccessMode.WAIT_FOR_EXCLUSIVE)
_LIMITS: Final = Limits(max_pending=0, max_pending_across=0, block_if_full=False, send_timeout_ms=0)
"""The client has its own, and waits as long as it wants to."""
_MORE: Final = frozenset({BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY})
"""Headers that readers have to look at."""
_PLAIN: Final = -1
_OF_TRANSACTIONS: Final = frozenset({ServerError.INVALID_TXN_STATUS, ServerError.TRANSACTION_NOT_FOUND})
"""A message that a transaction refuses is not allowed, as in Pulsar: with any other code its client would open the
producer anew, and send it again and again."""
_MOST_SEQUENCE_ID: Final = 2**63 - 1
"""Clients are told of the last one as a signed number."""
_OPERATION_S: Final = 30.0
_NOWHERE: Final = 2**64 - 1
"""Ledger and entry id of a message that was stored before (Pulsar's -1)."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An admitted producer, and what its client is told."""

    sender: Sender
    partition: int
    schema_version: bytes | None


def open_producer(node: Node, asked: Any, deadline: Callable[[], Deadline]) -> Opened:
    """Admit a producer to a topic, which may make it, and a subscription that its messages are to wait for. One that
    waits for being the only one is refused while there are others: its connection asks again.

    Raises:
        LayerError, MappingError: as `Admission`, `SchemaRegistry.for_producer`, `check_subscription_name`;
        InvalidOption: an access mode that is not one of Pulsar's.
    """
    if not 0 <= asked.producer_access_mode < len(MODES):
        raise InvalidOption(f"producer_access_mode is {asked.producer_access_mode}, expected 0 to {len(MODES) - 1}")
    mode = MODES[asked.producer_access_mode]
    if mode is AccessMode.WAIT_FOR_EXCLUSIVE:
        mode = AccessMode.EXCLUSIVE
    name = TopicName.parse(asked.topic)
    admission = Admission(node, name, deadline)
    schema = schema_info(asked.schema) if asked.HasField("schema") else None
    version = producers_version(node, admission.topic, schema, deadline())
    if asked.initial_subscription_name and name.is_persistent:
        check_subscription_name(asked.initial_subscription_name)
        node.memberships.create_subscription(name, asked.initial_subscription_name, deadline())
    properties: Mapping[str, str] = {each.key: each.value for each in asked.metadata}
    sender = admission.admit(
        Application(
            name=(asked.producer_name or None) if asked.user_provided_producer_name else None,
            former_name=asked.producer_name or None,
            schema=LetterSchema(),
            options=SenderOptions(limits=_LIMITS),
            mode=mode,
            properties=properties,
        )
    )
    return Opened(sender, max(0, name.partition), version)


class WireProducer:
    """For the loop of its connection. Memory: what is under way, which its connection bounds (`Connection`)."""

    def __init__(
        self,
        node: Node,
        number: int,
        opened: Opened,
        transactions: OpenTransactions,
        frames: Frames,
        answered: Callable[[], None],
        lost: Callable[[], None],
        bundle: int,
    ) -> None:
        """`answered` is called, by any thread, once for each message that `send` took; `lost` when the client has to
        open the producer anew."""
        self.number = number
        self.bundle = bundle
        self.sender = sender = opened.sender
        self._node = node
        self._put = sender.way.put
        self._outlet = sender.outlet
        self._topic = sender.outlet.admitted.topic
        self._registered_name = str(self._topic.name)
        self._recorded = _PLAIN
        """0: that there is more than plain messages; 1: and chunks."""
        self._partition = opened.partition
        partitions = self._topic.partitions
        self._key_scheme = KeyScheme(opened.partition, partitions) if partitions > 1 else None
        """Looked at until it is known, or cannot be."""
        self._epoch = sender.epoch
        self._marks = sender.marks
        self._transactions = transactions
        self._markers_recorded = False
        self._frames = frames
        self.answered = answered
        self._lost = lost

    def send(self, asked: Any, entry: bytes) -> Callable[[], None] | None:
        """Have one entry stored; its client hears of that. Or give what has to be done first, which may block: then
        nothing has happened, and the entry is to be sent again after it. It raises LayerError, PulsarException."""
        sent = _Sent(
            self, asked.sequence_id, asked.highest_sequence_id if asked.HasField("highest_sequence_id") else None
        )
        if asked.sequence_id > _MOST_SEQUENCE_ID:
            refused = f"sequence id is {asked.sequence_id}, expected up to {_MOST_SEQUENCE_ID}"
            sent.refused(ServerError.NOT_ALLOWED, refused)
            return None
        try:
            record, txn = self._record(asked, entry)
        except CorruptRecord as failure:
            sent.refused(ServerError.CHECKSUM, str(failure))
            return None
        except (MappingError, PulsarException) as failure:
            sent.refused(*told(failure))
            return None
        part = None if txn is None else self._transactions.known(txn)
        first = self._first(record, txn, part) or self._look_first(asked.sequence_id, txn)
        if first is not None or self._outlet.refuses(sent):
            return first
        try:
            if part is not None:
                part.begin_operation()
                sent.part = part
            self._put(
                Outgoing(
                    record.value,
                    record.key,
                    None,
                    self._partition,
                    sent,
                    asked.sequence_id,
                    self._marks,
                    lambda: self._stamp(record, part),
                    record.headers[1:],
                )
            )
        except (LayerError, PulsarException) as failure:
            sent.refused(*told(failure))
        return None

    def refuse(self, asked: Any, code: ServerError, reason: str) -> None:
        _Sent(self, asked.sequence_id, None).refused(code, reason)

    def _stamp(self, record: EntryRecord, part: ClientTransaction | None) -> int:
        """The record's time. In a transaction it is not later than now, and taken before the transaction's time is
        checked: see `TransactionalSend.stamp`."""
        if part is None:
            return record.timestamp_ms
        stamp = min(record.timestamp_ms, self._node.clock.now_ms())
        if not part.has_time():
            raise InvalidTxnStatus(f"transaction {part.id} has timed out")
        return stamp

    def _first(
        self, record: EntryRecord, txn: TxnId | None, part: ClientTransaction | None
    ) -> Callable[[], None] | None:
        """Putting on record, once, that readers of the topic have to look at headers, and to put chunks together; and
        registering the partition with a transaction whose client has not."""
        if txn is not None and not (
            self._markers_recorded and part is not None and part.has_registered(self._registered_name, self._partition)
        ):
            return partial(self._take_part, txn)
        names = {name for name, _ in record.headers}
        chunks = CHUNK in names
        needed = int(chunks) if record.value is None or names & _MORE else _PLAIN
        if self._recorded >= needed:
            return None

        def put_on_record() -> None:
            self._outlet.admitted.more_than_plain(chunks=chunks)
            self._recorded = max(self._recorded, chunks)

        return put_on_record

    def _look_first(self, sequence_id: int, txn: TxnId | None) -> Callable[[], None] | None:
        """Looking whether the message is stored already, where deduplication has to ask Kafka for that."""
        deduplication = self._outlet.admitted.deduplication
        if not deduplication.has_to_look(self._partition, sequence_id, txn):
            return None
        return partial(deduplication.look, self._partition, sequence_id, txn)

    def _take_part(self, txn: TxnId) -> None:
        if not self._topic.name.is_persistent:
            raise Refused(f"topic {self._topic.name} is not persistent: it takes part in no transaction")
        if not self._markers_recorded:
            self._outlet.admitted.more_than_plain(markers=True)
            self._markers_recorded = True
        deadline = Deadline.after(_OPERATION_S)
        self._transactions.part(txn, deadline).register_partition(self._registered_name, self._partition, deadline)

    def _record(self, asked: Any, entry: bytes) -> tuple[EntryRecord, TxnId | None]:
        """The record, and the transaction that it is of: that of the command, or else of the metadata."""
        said, payload, _ = read_entry(entry)
        metadata = decode_metadata(said)
        metadata.producer_name = self.sender.name
        if self._key_scheme is not None and metadata.partition_key is not None:
            self._look_at_key(self._key_scheme, metadata.partition_key)
        named = asked.HasField("txnid_most_bits") and asked.HasField("txnid_least_bits")
        txn = txn_of(asked) if named else txn_of_metadata(metadata)
        if txn is not None:
            metadata.txn_most, metadata.txn_least = txn
        return record_of(metadata, payload, epoch=self._epoch, now_ms=self._node.clock.now_ms()), txn

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

    def follow_backlog(self, exceeded: BacklogExceeded | None) -> None:
        """As in Pulsar its client is sent away when the quota is exceeded, and let in again when there is room."""
        if exceeded is not None and not self.sender.outlet.closed:
            self._lost()

    def follow_deduplication(self, wanted: bool, deadline: Deadline) -> None:
        self.sender.follow_deduplication(wanted, deadline)

    def thrown_out(self) -> None:
        """A message is answered by the producer's end, as in Pulsar: its client learns why when it opens it anew."""
        self.answered()
        self._lost()

    def tell(self, answer: bytes) -> None:
        self._frames.send((answer,))
        self.answered()


class _Sent(OwnCallback):
    """The callback of one entry that was sent."""

    __slots__ = ("_producer", "_sequence_id", "highest_sequence_id", "part")

    waited_for = False
    part: ClientTransaction | None
    """The transaction that it is an operation of, until it is answered."""

    def __init__(self, producer: WireProducer, sequence_id: int, highest: int | None) -> None:
        self._producer = producer
        self._sequence_id = sequence_id
        self.highest_sequence_id = highest
        self.part = None

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is Result.ProducerFenced:
            self._thrown_out()
            return
        if result is not Result.Ok:
            self.refused(ServerError.UNKNOWN, result.name)
            return
        self._tell(
            frame(
                send_receipt(
                    self._producer.number,
                    self._sequence_id,
                    message_id.ledger_id() & _NOWHERE,
                    message_id.entry_id() & _NOWHERE,
                    self.highest_sequence_id,
                )
            )
        )

    def fail(self, failure: PulsarException) -> None:
        if isinstance(failure, ProducerFenced):
            self._thrown_out()
        else:
            self.refused(*told(failure))

    def refused(self, code: ServerError, reason: str) -> None:
        self._tell(
            frame(
                command(
                    Type.SEND_ERROR,
                    producer_id=self._producer.number,
                    sequence_id=self._sequence_id,
                    error=ServerError.NOT_ALLOWED if code in _OF_TRANSACTIONS else code,
                    message=reason,
                )
            )
        )

    def _tell(self, answer: bytes) -> None:
        self._end_operation()  # first: who has heard of it may end the transaction
        self._producer.tell(answer)

    def _thrown_out(self) -> None:
        self._end_operation()
        self._producer.thrown_out()

    def _end_operation(self) -> None:
        part, self.part = self.part, None
        if part is not None:
            part.end_operation()
