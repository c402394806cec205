"""Requests of processes to a cursor's owner, and its replies: values of the `deliveries` state topic. JSON objects.

    {"v":1,"ask":"seek","id":"9f86d081884c7d65","life":["<topic id>",17,42],"offset":120,"batch_size":0,"begun":0}
    {"v":1,"ask":"acknowledge","id":"1b4f0e9851971998","life":["<topic id>",17,42],"ledgers":"<base64>"}
    {"v":1,"ask":"hold","id":"60303ae22b998861","life":["<topic id>",17,42],"txn":[0,7],"ack":"<base64>","again":false}
    {"v":1,"answer":"9f86d081884c7d65","result":0,"refused":"","reason":""}
    {"v":1,"told":"5c3a1d20aa17be01","member":"<client id>","consumers":[{"name":"a","permits":12, ...}]}

    ledgers = count varint | (ledger index varint, holes: see cursor_state)*
    ack     = the acknowledgement of a transaction: see pending_acks

A value that is no JSON object, or one with none of `ask`, `answer` and `told`, is of another kind and not for these
functions. The key (`DeliveryKey`) names topic, partition and subscription; partition -1: every process with consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.codecs.json_records import (
    Count,
    FromMinusOne,
    Int64,
    JsonRecords,
    json_record,
    read_json,
)
from pulsar_on_kafka_mapping.state.codecs.layouts import VARINT, Whole, table
from pulsar_on_kafka_mapping.state.cursors.cursor_state import HOLES, REQUEST_ID_BYTES, Holes
from pulsar_on_kafka_mapping.state.traffic import Traffic
from pulsar_on_kafka_mapping.state.transactions.pending_acks import ACK, TxnAck

FORMAT: Final = 1
ALL_MEMBERS: Final = -1
"""In the key: the request is for every process that has consumers on the subscription, owner or not."""


class CursorLife(NamedTuple):
    """A request is about this life of topic and subscription: an owner of another one ignores it."""

    topic_id: str
    topic_incarnation: Count
    subscription_incarnation: Count


@dataclass(frozen=True, slots=True)
class Seek:
    """The owner sets the cursor to `offset`: everything below is acknowledged, nothing at or above it is.

    With `batch_size` above 0 a batch entry of that many messages lies there, of which the first `begun` are not to
    come.
    """

    offset: FromMinusOne
    batch_size: FromMinusOne = 0
    begun: FromMinusOne = 0


@dataclass(frozen=True, slots=True)
class AcknowledgeUpTo:
    """The owner acknowledges every entry up to and including the offset `upto`."""

    upto: FromMinusOne


@dataclass(frozen=True, slots=True)
class Skip:
    """The owner acknowledges the next `count` unacknowledged entries below the offset `end`; the result is how many
    those are."""

    count: FromMinusOne
    end: FromMinusOne


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The owner acknowledges these entries and messages of batch entries, by ledger index and entry id; what is
    acknowledged already stays so, what lies beyond the log's end is passed over. The result is how many messages were
    not acknowledged before; an entry as a whole counts as one.

    One request is one record: `live_cursors.acknowledge_ledgers` splits what is too much for one.
    """

    ledgers: Mapping[int, Holes]


@dataclass(frozen=True, slots=True)
class SaveNow:
    """The owner makes durable what was acknowledged."""


@dataclass(frozen=True, slots=True)
class CloseConsumers:
    """The subscription is being deleted, or its whole topic, and every consumer of it ends. There is no answer: the
    group's members show it."""

    topic_deleted: bool = False


@dataclass(frozen=True, slots=True)
class DescribeConsumers:
    """Requests a report of its consumers (`ConsumersReport`) from every process, and, from the owner of the partition,
    the holder of the entry at the offset; -1: of no entry."""

    partition: Int64 = -1
    offset: Int64 = -1


CursorCommand = Seek | AcknowledgeUpTo | Acknowledge | Skip | SaveNow | CloseConsumers | DescribeConsumers


@dataclass(frozen=True, slots=True)
class Request:
    """A request has an `id` of 8 random bytes; one that is sent again keeps it, so that it takes effect once."""

    id: bytes
    life: CursorLife
    command: CursorCommand


@dataclass(frozen=True, slots=True)
class CursorTransactionRequest:
    """Requests that a transaction holds this acknowledgement. `again`: the request was sent before, so it may be held
    already."""

    id: bytes
    life: CursorLife
    txn: TxnId
    ack: TxnAck
    again: bool = False


@dataclass(frozen=True, slots=True)
class CursorReply:
    """The request with this id took effect, durably, with this result; or it was `refused`, for that reason."""

    id: bytes
    result: int = 0
    refused: str = ""
    reason: str = ""
    """The kind of the refusal, where there are several."""


class ReportedConsumer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process's report on one of its consumers.

    `permits` is the room in its inbox, `unacked` its number of unacknowledged messages (Shared, Key_Shared),
    `delivered` its number of received messages, `rate` the recent number per second. `lease_age_s`: the time since its
    last lease of a message of another process's partition; -1 without one. `traffic` is reported by gateways.
    `metadata` are the consumer's properties; None where those of the process's consumers exceed the limit.
    `blocked_s`: the time since it reached its limit of unacknowledged messages; -1 below it.
    """

    name: str
    priority: Int64
    permits: Int64
    unacked: Int64
    delivered: Int64
    rate: float
    lease_age_s: float
    traffic: Traffic | None = None
    metadata: dict[str, str] | None = None
    blocked_s: float = -1.0


@dataclass(frozen=True, slots=True)
class ReportedWaiting:
    """Messages that wait for a Key_Shared consumer, and their age in seconds. `member`: client id of its process; ''
    for the reporting one."""

    member: str
    name: str
    messages: Int64
    for_s: float


@dataclass(frozen=True, slots=True)
class ReportedActive:
    """The active consumer of a partition (Exclusive, Failover) that the reporting process owns. `member`: client id of
    the consumer's process; '' for the reporting one."""

    partition: Count
    member: str
    name: str


@dataclass(frozen=True, slots=True)
class ReportedReading:
    """The read position of a partition that the reporting process owns: the first offset that no consumer got yet,
    redeliveries aside."""

    partition: Count
    read_position: Count


class ReportedThrottling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The number of times that dispatch rates held a partition of the reporting process back: by the subscription's
    rate of messages and of bytes, and by the topic's."""

    partition: Count
    subscription_messages: Count = 0
    subscription_bytes: Count = 0
    topic_messages: Count = 0
    topic_bytes: Count = 0


@dataclass(frozen=True, slots=True)
class ReportedKeys:
    """Keys of a partition that the reporting process owns: later messages of these wait for a refused one (ordered
    redelivery).

    `keys` counts hash slots, `messages` those that were read and wait. `oldest` is the offset of the refused message of
    the key that has waited longest, for `for_s` seconds.
    """

    partition: Count
    keys: Count
    messages: Int64
    oldest: Count
    for_s: float


@dataclass(frozen=True, slots=True)
class ReportedHolder:
    """The consumer that holds the requested entry. `member`: client id of its process; '' for the reporting one."""

    member: str
    name: str


@dataclass(frozen=True, slots=True)
class ConsumersReport:
    """A process, known by the client id of its membership, answers the request with this id."""

    id: bytes
    member: str
    consumers: tuple[ReportedConsumer, ...]
    waiting: tuple[ReportedWaiting, ...] = ()
    """Waiting messages of its own partitions."""
    holder: ReportedHolder | None = None
    active: tuple[ReportedActive, ...] = ()
    blocked_s: float = -1.0
    """The time since the subscription reached its limit of unacknowledged messages on its own partitions; -1 below
    it."""
    reading: tuple[ReportedReading, ...] = ()
    throttling: tuple[ReportedThrottling, ...] = ()
    """Its own partitions with a dispatch rate."""
    waiting_keys: tuple[ReportedKeys, ...] = ()


# In JSON ids are hexadecimal, and what is binary is base64.

_Half: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class _Acknowledge:
    ledgers: bytes


@dataclass(frozen=True, slots=True)
class _Hold:
    txn: tuple[_Half, _Half]
    ack: bytes
    again: bool = False


class _Head(msgspec.Struct):
    """The members of a value that identify its kind."""

    v: object = None
    ask: object = None
    answer: object = None
    told: object = None


@dataclass(frozen=True, slots=True)
class _Asked:
    id: str
    life: CursorLife


class _Answer(msgspec.Struct, omit_defaults=True):
    answer: str
    result: Count
    refused: str
    reason: str = ""


class _Told(msgspec.Struct, omit_defaults=True):
    told: str
    member: str
    consumers: tuple[ReportedConsumer, ...]
    waiting: tuple[ReportedWaiting, ...] = ()
    holder: ReportedHolder | None = None
    active: tuple[ReportedActive, ...] = ()
    blocked_s: float = -1.0
    reading: tuple[ReportedReading, ...] = ()
    throttling: tuple[ReportedThrottling, ...] = ()
    waiting_keys: tuple[ReportedKeys, ...] = ()


def _reported(report: ConsumersReport | _Told) -> dict[str, Any]:
    """The fields of a report without its id, which both classes have."""
    return {name: getattr(report, name) for name in _Told.__struct_fields__ if name != "told"}


class _Consumers(msgspec.Struct, omit_defaults=True):
    partition: Int64 = -1
    offset: Int64 = -1


_WireCommand: TypeAlias = Seek | AcknowledgeUpTo | _Acknowledge | Skip | SaveNow | CloseConsumers | _Consumers | _Hold
_LEDGERS: Final = Whole("cursor request", table(VARINT, HOLES))
_ACKS: Final = Whole("cursor request", ACK)
_HEADS: Final = msgspec.json.Decoder(_Head)
_ASKED: Final = json_record("cursor request", _Asked)
_ANSWERS: Final = json_record("answer to a cursor request", _Answer)
_TOLD: Final = json_record("consumers of a process", _Told)
_WISHES: Final[Mapping[str, type[_WireCommand]]] = {
    "seek": Seek,
    "acknowledge_up_to": AcknowledgeUpTo,
    "acknowledge": _Acknowledge,
    "skip": Skip,
    "save": SaveNow,
    "close": CloseConsumers,
    "consumers": _Consumers,
    "hold": _Hold,
}
_SAID: Final[JsonRecords[_WireCommand]] = JsonRecords("cursor request", _WISHES, tag="ask")


def encode_request(request: Request) -> bytes:
    wire: _WireCommand
    match request.command:
        case Acknowledge(ledgers):
            wire = _Acknowledge(_LEDGERS.encode(ledgers))
        case DescribeConsumers(partition, offset):
            wire = _Consumers(partition, offset)
        case command:
            wire = command
    return _SAID.encode(wire, id=request.id.hex(), life=request.life)


def encode_transaction(request: CursorTransactionRequest) -> bytes:
    """Raises MappingError as `encode_pending_ack`."""
    wire = _Hold(request.txn, _ACKS.encode(request.ack), request.again)
    return _SAID.encode(wire, id=request.id.hex(), life=request.life)


def encode_answer(answer: CursorReply) -> bytes:
    return _ANSWERS.encode(_Answer(answer.id.hex(), answer.result, answer.refused, answer.reason))


def encode_report(report: ConsumersReport) -> bytes:
    return _TOLD.encode(_Told(report.id.hex(), **_reported(report)))


def decode(value: bytes) -> Request | CursorTransactionRequest | CursorReply | ConsumersReport | None:
    """A request or a reply; None for a value of another kind, format or request that a later version has among them.

    Raises:
        CorruptRecord: it is marked as one of these, and cannot be read.
    """
    if value[:1] != b"{":
        return None
    head = read_json(_HEADS, value, "cursor request")
    if head.v != FORMAT:
        return None
    if head.answer is not None:
        answer = _ANSWERS.decode(value)
        return CursorReply(_id(answer.answer), answer.result, answer.refused, answer.reason)
    if head.told is not None:
        report = _TOLD.decode(value)
        return ConsumersReport(_id(report.told), **_reported(report))
    return _request(value) if isinstance(head.ask, str) and head.ask in _WISHES else None


def _request(value: bytes) -> Request | CursorTransactionRequest:
    requested, wire = _ASKED.decode(value), _SAID.decode(value)
    request_id = _id(requested.id)
    match wire:
        case _Hold(txn, ack, again):
            if max(txn) >= 1 << 64:
                raise CorruptRecord(f"cursor request's txn is {txn}, expected halves of 64 bits")
            return CursorTransactionRequest(request_id, requested.life, TxnId(*txn), _ACKS.decode(ack), again)
        case _Acknowledge(ledgers):
            return Request(request_id, requested.life, Acknowledge(_LEDGERS.decode(ledgers)))
        case _Consumers():
            return Request(request_id, requested.life, DescribeConsumers(wire.partition, wire.offset))
        case _:
            return Request(request_id, requested.life, wire)


def _id(text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != REQUEST_ID_BYTES:
        raise CorruptRecord(f"cursor request has id {text!r:.60}, expected {2 * REQUEST_ID_BYTES} hexadecimal digits")
    return found
