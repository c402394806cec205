"""Processes ask a coordinator that another process owns by values of `transaction_requests`. JSON objects.

    {"v":1,"until_ms":1700000030000,"ask":"begin","timeout_ms":60000}
    {"v":1,"until_ms":...,"ask":"add_partitions","txn":"844424930131968:5","partitions":[["persistent://...",0]]}
    {"v":1,"until_ms":...,"ask":"add_subscriptions","txn":"844424930131968:5","subscriptions":[["persistent://...",0,"audit"]]}
    {"v":1,"until_ms":...,"ask":"end","txn":"844424930131968:5","commit":true}

The key (`TransactionRequestKey`) names coordinator and request: 16 random bytes, kept when the request is sent again,
so that it takes effect once. After `until_ms` (Unix time) nobody waits for it any more, and it is not executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.codecs.tagged_records import Reader, TaggedRecords, read_bool, read_number, read_txn
from pulsar_on_kafka.mapping.state.transactions.transaction_log import (
    MAX_RECORD_BYTES,
    TopicPartition,
    TopicSubscription,
    read_partitions,
    read_subscriptions,
)

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Begin:
    """The coordinator opens a transaction that is aborted after `timeout_ms`."""

    timeout_ms: int


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


Wish = Begin | AddPartitions | AddSubscriptions | End


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A process asks the coordinator for this."""

    until_ms: int
    wish: Wish


_READERS: Final[Mapping[str, Reader]] = {
    "timeout_ms": read_number,
    "txn": read_txn,
    "partitions": read_partitions,
    "subscriptions": read_subscriptions,
    "commit": read_bool,
}
_WISHES: Final[TaggedRecords[Wish]] = TaggedRecords(
    "transaction request",
    "ask",
    {"begin": Begin, "add_partitions": AddPartitions, "add_subscriptions": AddSubscriptions, "end": End},
    _READERS,
    version=FORMAT,
    limit_bytes=MAX_RECORD_BYTES,
)


def encode_transaction_request(request: TransactionRequest) -> bytes:
    """Raises MappingError: more than the topic takes, or text that is no Unicode."""
    return _WISHES.encode(request.wish, until_ms=request.until_ms)


def decode_transaction_request(data: bytes) -> TransactionRequest:
    """Raises CorruptRecord, naming what was expected. Unknown fields are ignored."""
    wish, members = _WISHES.decode(data)
    return TransactionRequest(read_number(members.get("until_ms"), "until_ms"), wish)
