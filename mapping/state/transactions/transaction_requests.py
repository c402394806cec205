"""Processes ask a coordinator that another process owns by values of `transaction_requests`. JSON objects.

    {"v":1,"until_ms":1700000030000,"ask":"begin","timeout_ms":60000}
    {"v":1,"until_ms":...,"ask":"add_partitions","txn":"844424930131968:5","partitions":[["persistent://...",0]]}
    {"v":1,"until_ms":...,"ask":"add_subscriptions","txn":"844424930131968:5","subscriptions":[["persistent://...",0,"audit"]]}
    {"v":1,"until_ms":...,"ask":"end","txn":"844424930131968:5","commit":true}

The key (`TransactionRequestKey`) names coordinator and request: 16 random bytes, kept when the request is sent again,
so that it takes effect once. After `until_ms` (Unix time) nobody waits for it any more, and it is not executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.codecs.json_records import Count, JsonRecords, json_record
from pulsar_on_kafka.mapping.state.transactions.transaction_log import (
    MAX_RECORD_BYTES,
    TopicPartition,
    TopicSubscription,
)


@dataclass(frozen=True, slots=True)
class Begin:
    """The coordinator opens a transaction that is aborted after `timeout_ms`."""

    timeout_ms: Count


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """The transaction will write to these."""

    txn: TxnId
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddSubscriptions:
    """The transaction will acknowledge on these."""

    txn: TxnId
    subscriptions: tuple[TopicSubscription, ...]


@dataclass(frozen=True, slots=True)
class End:
    """The coordinator ends the transaction."""

    txn: TxnId
    commit: bool


Wish: TypeAlias = Begin | AddPartitions | AddSubscriptions | End


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A process asks the coordinator for this."""

    until_ms: int
    wish: Wish


# In JSON a transaction's id is text.


@dataclass(frozen=True, slots=True)
class _AddPartitions:
    txn: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class _AddSubscriptions:
    txn: str
    subscriptions: tuple[TopicSubscription, ...]


@dataclass(frozen=True, slots=True)
class _End:
    txn: str
    commit: bool


@dataclass(frozen=True, slots=True)
class _Asked:
    until_ms: Count


_WISHES: Final[JsonRecords[Begin | _AddPartitions | _AddSubscriptions | _End]] = JsonRecords(
    "transaction request",
    {"begin": Begin, "add_partitions": _AddPartitions, "add_subscriptions": _AddSubscriptions, "end": _End},
    tag="ask",
    limit_bytes=MAX_RECORD_BYTES,
)
_ASKED: Final = json_record("transaction request", _Asked)


def encode_transaction_request(request: TransactionRequest) -> bytes:
    """Raises MappingError: more than the topic takes, or text that is no Unicode."""
    said: Begin | _AddPartitions | _AddSubscriptions | _End
    match request.wish:
        case Begin():
            said = request.wish
        case AddPartitions(txn, partitions):
            said = _AddPartitions(txn.to_bytes().decode(), partitions)
        case AddSubscriptions(txn, subscriptions):
            said = _AddSubscriptions(txn.to_bytes().decode(), subscriptions)
        case End(txn, commit):
            said = _End(txn.to_bytes().decode(), commit)
    return _WISHES.encode(said, until_ms=request.until_ms)


def decode_transaction_request(data: bytes) -> TransactionRequest:
    """Raises CorruptRecord, naming what was expected. Unknown fields are ignored."""
    said = _WISHES.decode(data)
    wish: Wish
    match said:
        case Begin():
            wish = said
        case _AddPartitions(txn, partitions):
            wish = AddPartitions(_read_txn(txn), partitions)
        case _AddSubscriptions(txn, subscriptions):
            wish = AddSubscriptions(_read_txn(txn), subscriptions)
        case _End(txn, commit):
            wish = End(_read_txn(txn), commit)
    return TransactionRequest(_ASKED.decode(data).until_ms, wish)


def _read_txn(text: str) -> TxnId:
    try:
        return TxnId.from_bytes(text.encode())
    except MappingError as error:
        raise CorruptRecord(f"transaction request: {error}") from error
