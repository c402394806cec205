"""Processes ask a cursor's owner, and it answers, by values of the `deliveries` state topic. JSON objects.

    {"v":1,"ask":"seek","id":"9f86d081884c7d65","life":["<topic id>",17,42],"offset":120,"batch_size":0,"begun":0}
    {"v":1,"ask":"acknowledge","id":"1b4f0e9851971998","life":["<topic id>",17,42],"ledgers":"<base64>"}
    {"v":1,"ask":"hold","id":"60303ae22b998861","life":["<topic id>",17,42],"txn":[0,7],"ack":"<base64>","again":false}
    {"v":1,"answer":"9f86d081884c7d65","result":0,"refused":"","reason":""}
    {"v":1,"told":"5c3a1d20aa17be01","member":"<client id>","consumers":[{"name":"a","permits":12, ...}]}

    ledgers = count varint | (ledger index varint, holes: see cursor_state)*
    ack     = what a transaction acknowledges: see pending_acks

A value that is no JSON object, or one with none of `ask`, `answer` and `told`, is of another kind and not for these
functions.
The key (`DeliveryKey`) names topic, partition and subscription; partition -1: every process with consumers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple

import orjson

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.cursors.cursor_state import REQUEST_ID_BYTES, Holes, read_holes, write_holes
from pulsar_on_kafka.mapping.state.transactions.pending_acks import TxnAck, read_ack, write_ack

FORMAT: Final = 1
EVERYBODY: Final = -1
"""In the key: the request is for every process that has consumers on the subscription, owner or not."""


class CursorLife(NamedTuple):
    """A request is about this life of topic and subscription: an owner of another one ignores it."""

    topic_id: str
    topic_incarnation: int
    subscription_incarnation: int


@dataclass(frozen=True, slots=True)
class Seek:
    """The owner sets the cursor to `offset`: everything below is acknowledged, nothing at or above it is.

    With `batch_size` above 0 a batch entry of that many messages lies there, of which the first `begun` are not to
    come.
    """

    offset: int
    batch_size: int = 0
    begun: int = 0


@dataclass(frozen=True, slots=True)
class AcknowledgeUpTo:
    """The owner acknowledges every entry up to and including the offset `upto`."""

    upto: int


@dataclass(frozen=True, slots=True)
class Skip:
    """The owner acknowledges the next `count` unacknowledged entries below the offset `end`; the result is how many
    those are."""

    count: int
    end: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The owner acknowledges these entries and messages of batch entries, by ledger index and entry id; what is
    acknowledged already stays so, what lies beyond the log's end is passed over. The result is how many ledgers
    changed.

    One request is one record: `subscriptions.requests.acks_by_readers` splits what is too much for one.
    """

    ledgers: Mapping[int, Holes]


@dataclass(frozen=True, slots=True)
class SaveNow:
    """The owner makes durable what was acknowledged."""


@dataclass(frozen=True, slots=True)
class CloseConsumers:
    """The subscription is being deleted, and every consumer of it ends. Nobody answers; the group tells."""


@dataclass(frozen=True, slots=True)
class TellConsumers:
    """Every process tells of its consumers (`ConsumersTold`)."""


Wish = Seek | AcknowledgeUpTo | Acknowledge | Skip | SaveNow | CloseConsumers | TellConsumers


@dataclass(frozen=True, slots=True)
class Request:
    """A request has an `id` of 8 random bytes; one that is sent again keeps it, so that it takes effect once."""

    id: bytes
    life: CursorLife
    wish: Wish


@dataclass(frozen=True, slots=True)
class CursorTransactionRequest:
    """A transaction is to hold this acknowledgement. `again`: it was asked before, so it may be held already."""

    id: bytes
    life: CursorLife
    txn: TxnId
    ack: TxnAck
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The request with this id took effect, durably, with this result; or it was `refused`, for that reason."""

    id: bytes
    result: int = 0
    refused: str = ""
    reason: str = ""
    """What kind of refusal it is, where there are several."""


@dataclass(frozen=True, slots=True)
class ToldConsumer:
    """A process tells this of one of its consumers.

    `permits` is how many messages its inbox takes now, `unacked` how many it has in its hands (Shared, Key_Shared),
    `delivered` how many it got in all, `rate` how many a second lately. `lease_age_s`: since it was leased a message of
    another process's partition last; -1 when it never was.
    """

    name: str
    priority: int
    permits: int
    unacked: int
    delivered: int
    rate: float
    lease_age_s: float


@dataclass(frozen=True, slots=True)
class ConsumersTold:
    """A process, known by the client id of its membership, answers the request with this id."""

    id: bytes
    member: str
    consumers: tuple[ToldConsumer, ...]


_WISHES: Final[dict[str, type[Any]]] = {
    "seek": Seek,
    "acknowledge_up_to": AcknowledgeUpTo,
    "acknowledge": Acknowledge,
    "skip": Skip,
    "save": SaveNow,
    "close": CloseConsumers,
    "consumers": TellConsumers,
}
_HOLD: Final = "hold"
_NAMES: Final = {kind: name for name, kind in _WISHES.items()}


def encode_request(request: Request) -> bytes:
    name = _NAMES[type(request.wish)]
    wish = request.wish
    said = {"ledgers": _ledgers_text(wish.ledgers)} if isinstance(wish, Acknowledge) else asdict(wish)
    return orjson.dumps({"v": FORMAT, "ask": name, "id": request.id.hex(), "life": list(request.life), **said})


def encode_answer(answer: Answer) -> bytes:
    said = {"v": FORMAT, "answer": answer.id.hex(), "result": answer.result, "refused": answer.refused}
    return orjson.dumps({**said, "reason": answer.reason} if answer.reason else said)


def encode_transaction(request: CursorTransactionRequest) -> bytes:
    """Raises MappingError as `encode_pending_ack`."""
    ack = bytearray()
    write_ack(ack, request.ack)
    return orjson.dumps(
        {
            "v": FORMAT, "ask": _HOLD, "id": request.id.hex(), "life": list(request.life), "txn": list(request.txn),
            "ack": base64.b64encode(bytes(ack)).decode("ascii"), "again": request.again,
        }
    )  # fmt: skip


def encode_told(told: ConsumersTold) -> bytes:
    consumers = [asdict(consumer) for consumer in told.consumers]
    return orjson.dumps({"v": FORMAT, "told": told.id.hex(), "member": told.member, "consumers": consumers})


def decode(value: bytes) -> Request | CursorTransactionRequest | Answer | ConsumersTold | None:
    """A request or an answer; None for a value of another kind, a wish that a later version has among them.

    Raises:
        CorruptRecord: it says that it is one of ours, and cannot be read.
    """
    if value[:1] != b"{":
        return None
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"cursor request {value[:60]!r} is no JSON: {error}") from error
    if "answer" in parsed:
        return _answer(value, parsed)
    if "told" in parsed:
        return _told(value, parsed)
    return _request(value, parsed) if "ask" in parsed else None


def _told(value: bytes, parsed: dict[str, Any]) -> ConsumersTold | None:
    if parsed.get("v") != FORMAT:
        return None
    try:
        known = {each.name for each in fields(ToldConsumer)}
        consumers = tuple(
            ToldConsumer(**{name: said for name, said in consumer.items() if name in known})
            for consumer in parsed["consumers"]
        )
        return ConsumersTold(bytes.fromhex(parsed["told"]), str(parsed["member"]), consumers)
    except (AttributeError, KeyError, TypeError, ValueError) as reason:
        raise CorruptRecord(f"consumers of a process {value[:60]!r}: {reason}") from reason


def _request(value: bytes, parsed: dict[str, Any]) -> Request | CursorTransactionRequest | None:
    name, life = parsed["ask"], parsed.get("life")
    if parsed.get("v") != FORMAT or not isinstance(name, str) or name not in {*_WISHES, _HOLD}:
        return None
    if (
        not isinstance(life, list)
        or len(life) != len(CursorLife._fields)
        or not isinstance(life[0], str)
        or not all(_is_count(number) for number in life[1:])
    ):
        raise CorruptRecord(f"cursor request {value[:200]!r}: life is {life!r:.100}, expected a text and two numbers")
    if name == _HOLD:
        return _transaction(value, parsed, CursorLife(*life))
    kind = _WISHES[name]
    if kind is Acknowledge:
        return Request(_id(value, parsed.get("id")), CursorLife(*life), Acknowledge(_ledgers(value, parsed)))
    numbers = {each.name: parsed.get(each.name) for each in fields(kind)}
    wrong = [field for field, number in numbers.items() if not _is_count(number, least=-1)]
    if wrong:
        raise CorruptRecord(f"cursor request {value[:200]!r}: {', '.join(wrong)} must be a number")
    return Request(_id(value, parsed.get("id")), CursorLife(*life), kind(**numbers))


def _ledgers_text(ledgers: Mapping[int, Holes]) -> str:
    out = bytearray()
    write_varint(out, len(ledgers))
    for index in sorted(ledgers):
        write_varint(out, index)
        write_holes(out, ledgers[index])
    return base64.b64encode(bytes(out)).decode("ascii")


def _transaction(value: bytes, parsed: dict[str, Any], life: CursorLife) -> CursorTransactionRequest:
    txn, again = parsed.get("txn"), parsed.get("again")
    if not isinstance(txn, list) or len(txn) != len(TxnId._fields) or not all(_is_count(number) for number in txn):
        raise CorruptRecord(f"cursor request {value[:200]!r}: txn is {txn!r:.60}, expected two numbers")
    reader = _base64(value, parsed, "ack")
    ack = read_ack(reader)
    reader.expect_end()
    return CursorTransactionRequest(_id(value, parsed.get("id")), life, TxnId(*txn), ack, again is True)


def _base64(value: bytes, parsed: dict[str, Any], name: str) -> Reader:
    text = parsed.get(name)
    try:
        raw = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (ValueError, binascii.Error):
        raw = b""
    if not raw:
        raise CorruptRecord(f"cursor request {value[:200]!r}: {name} must be base64")
    return Reader(raw, "cursor request")


def _ledgers(value: bytes, parsed: dict[str, Any]) -> dict[int, Holes]:
    reader = _base64(value, parsed, "ledgers")
    found = {}
    for _ in range(reader.count(6)):
        index = reader.varint()
        found[index] = read_holes(reader)
    reader.expect_end()
    return found


def _answer(value: bytes, parsed: dict[str, Any]) -> Answer | None:
    if parsed.get("v") != FORMAT:
        return None
    result, refused, reason = parsed.get("result"), parsed.get("refused"), parsed.get("reason", "")
    if not _is_count(result) or not isinstance(refused, str) or not isinstance(reason, str):
        raise CorruptRecord(f"answer {value[:200]!r}: expected the number result and the text refused")
    assert isinstance(result, int)  # noqa: S101 - checked
    return Answer(_id(value, parsed["answer"]), result, refused, reason)


def _id(value: bytes, text: object) -> bytes:
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != REQUEST_ID_BYTES:
        raise CorruptRecord(f"{value[:200]!r} has id {text!r:.60}, expected {2 * REQUEST_ID_BYTES} hexadecimal digits")
    return found


def _is_count(number: object, least: int = 0) -> bool:
    return type(number) is int and number >= least
