"""A producer of a connection: what it sends becomes records, and what Kafka reports becomes receipts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption
from pulsar_on_kafka.exceptions import AlreadyClosed, NotSupported, PulsarException, Result
from pulsar_on_kafka.gateway.answers import told
from pulsar_on_kafka.gateway.outgoing import Outgoing as Frames
from pulsar_on_kafka.gateway.schemas import producers_version, schema_info
from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.names.subscription_group import check_subscription_name
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.records.record_headers import BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY
from pulsar_on_kafka.mapping.state.metadata.metadata_records import BacklogExceeded
from pulsar_on_kafka.mapping.wire.commands import ServerError, Type, command
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

MODES: Final = (
    AccessMode.SHARED,
    AccessMode.EXCLUSIVE,
    AccessMode.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE_WITH_FENCING,
)
"""By their numbers in Pulsar's ProducerAccessMode."""
_LIMITS: Final = Limits(max_pending=0, max_pending_across=0, block_if_full=False, send_timeout_ms=0)
"""The client has its own, and waits as long as it wants to."""
_MORE: Final = frozenset({BATCH, CHUNK, DELIVER_AT, ENCRYPTION, ORDERING_KEY})
"""Headers that readers have to look at."""
_NOWHERE: Final = 2**64 - 1
"""Ledger and entry id of a message that was stored before (Pulsar's -1)."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An admitted producer, and what its client is told."""

    sender: Sender
    partition: int
    schema_version: bytes | None


def open_producer(node: Node, asked: Any, deadline: Callable[[], Deadline]) -> Opened:
    """Admit a producer to a topic, which may make it, and a subscription that its messages are to wait for.

    Raises:
        LayerError, MappingError: as `Admission`, `SchemaRegistry.for_producer`, `check_subscription_name`;
        InvalidOption: an access mode that is not one of Pulsar's.
    """
    if not 0 <= asked.producer_access_mode < len(MODES):
        raise InvalidOption(f"producer_access_mode is {asked.producer_access_mode}, expected 0 to {len(MODES) - 1}")
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
            mode=MODES[asked.producer_access_mode],
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
        self._recorded = -1
        """0: that there is more than plain messages; 1: and chunks."""
        self._partition = opened.partition
        self._epoch = sender.epoch
        self._marks = sender.marks
        self._frames = frames
        self.answered = answered
        self._lost = lost

    def send(self, asked: Any, entry: bytes) -> Callable[[], None] | None:
        """Have one entry stored; its client hears of that. Or give what has to be done first, which may block: then
        nothing has happened, and the entry is to be sent again after it. It raises PulsarException."""
        sent = _Sent(
            self, asked.sequence_id, asked.highest_sequence_id if asked.HasField("highest_sequence_id") else None
        )
        try:
            if asked.HasField("txnid_most_bits") or asked.HasField("txnid_least_bits"):
                raise NotSupported("a message in a transaction: not served by this gateway")
            record = self._record(entry)
        except CorruptRecord as failure:
            sent.refused(ServerError.CHECKSUM, str(failure))
            return None
        except (MappingError, PulsarException) as failure:
            sent.refused(*told(failure))
            return None
        first = self._first(record)
        if first is None and not self._outlet.refuses(sent):
            self._put(
                Outgoing(
                    record.value,
                    record.key,
                    None,
                    self._partition,
                    sent,
                    asked.sequence_id,
                    self._marks,
                    lambda: record.timestamp_ms,
                    record.headers[1:],
                )
            )
        return first

    def refuse(self, asked: Any, code: ServerError, reason: str) -> None:
        _Sent(self, asked.sequence_id, None).refused(code, reason)

    def _first(self, record: EntryRecord) -> Callable[[], None] | None:
        """Putting on record, once, that readers of the topic have to look at headers, and to put chunks together."""
        names = {name for name, _ in record.headers}
        chunks = CHUNK in names
        if self._recorded >= chunks and (self._recorded >= 0 or (record.value is not None and not names & _MORE)):
            return None

        def put_on_record() -> None:
            self._outlet.admitted.more_than_plain(chunks=chunks)
            self._recorded = max(self._recorded, chunks)

        return put_on_record

    def _record(self, entry: bytes) -> EntryRecord:
        said, payload, _ = read_entry(entry)
        metadata = decode_metadata(said)
        metadata.producer_name = self.sender.name
        return record_of(metadata, payload, epoch=self._epoch, now_ms=self._node.clock.now_ms())

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

    def tell(self, answer: bytes) -> None:
        self._frames.send((answer,))
        self.answered()


class _Sent(OwnCallback):
    """The callback of one entry that was sent."""

    __slots__ = ("_producer", "_sequence_id", "highest_sequence_id")

    waited_for = False

    def __init__(self, producer: WireProducer, sequence_id: int, highest: int | None) -> None:
        self._producer = producer
        self._sequence_id = sequence_id
        self.highest_sequence_id = highest

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is not Result.Ok:
            self.refused(ServerError.UNKNOWN, result.name)
            return
        self._producer.tell(
            frame(
                command(
                    Type.SEND_RECEIPT,
                    producer_id=self._producer.number,
                    sequence_id=self._sequence_id,
                    message_id={
                        "ledgerId": message_id.ledger_id() & _NOWHERE,
                        "entryId": message_id.entry_id() & _NOWHERE,
                    },
                    highest_sequence_id=self.highest_sequence_id,
                )
            )
        )

    def fail(self, failure: PulsarException) -> None:
        self.refused(*told(failure))

    def refused(self, code: ServerError, reason: str) -> None:
        self._producer.tell(
            frame(
                command(
                    Type.SEND_ERROR,
                    producer_id=self._producer.number,
                    sequence_id=self._sequence_id,
                    error=code,
                    message=reason,
                )
            )
        )
