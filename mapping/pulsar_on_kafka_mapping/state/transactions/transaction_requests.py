"""Values of `transaction_requests`: requests to a coordinator that another process owns. JSON objects.

    {"v":1,"until_ms":1700000030000,"ask":"begin","timeout_ms":60000}
    {"v":1,"until_ms":...,"ask":"add_partitions","txn":"844424930131968:5","partitions":[["persistent://...",0]]}
    {"v":1,"until_ms":...,"ask":"add_subscriptions","txn":"844424930131968:5","subscriptions":[["persistent://...",0,"audit"]]}
    {"v":1,"until_ms":...,"ask":"end","txn":"844424930131968:5","commit":true}

The key (`TransactionRequestKey`) names coordinator and request: 16 random bytes, kept when the request is resent, so
that it takes effect once. After `until_ms` (Unix time) the sender no longer waits, and it is not executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Final, TypeAlias, get_type_hints

import msgspec

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, JsonRecords, json_record
from pulsar_on_kafka_mapping.state.transactions.transaction_log import (
    MAX_RECORD_BYTES,
    TopicPartition,
    TopicSubscription,
)


@dataclass(frozen=True, slots=True)
class Begin:
    """Requests a new transaction that is aborted after `timeout_ms`. `owner` is the role for which a gateway begins it;
    "" without authentication."""

    timeout_ms: Count
    owner: str = ""


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


Command: TypeAlias = Begin | AddPartitions | AddSubscriptions | End


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A process's request to the coordinator."""

    until_ms: int
    command: Command


@dataclass(frozen=True, slots=True)
class _Asked:
    until_ms: Count


_KINDS: Final[Mapping[str, type[Command]]] = {
    "begin": Begin,
    "add_partitions": AddPartitions,
    "add_subscriptions": AddSubscriptions,
    "end": End,
}
_SAID: Final[Mapping[type[Command], type[msgspec.Struct]]] = {
    kind: msgspec.defstruct(
        kind.__name__,
        [
            (name, str if of is TxnId else of, *((default,) if default is not MISSING else ()))
            for (name, of), default in zip(
                get_type_hints(kind, include_extras=True).items(), (each.default for each in fields(kind)), strict=True
            )
        ],
        omit_defaults=True,
    )
    for kind in _KINDS.values()
}
"""Commands in JSON form, where a transaction's id is text."""
_OF_SAID: Final = {reported: kind for kind, reported in _SAID.items()}
_COMMANDS: Final = JsonRecords(
    "transaction request",
    {word: _SAID[kind] for word, kind in _KINDS.items()},
    tag="ask",
    limit_bytes=MAX_RECORD_BYTES,
)
_ASKED: Final = json_record("transaction request", _Asked)


def encode_transaction_request(request: TransactionRequest) -> bytes:
    """Raises MappingError: more than the topic takes, or text that is no Unicode."""
    kind = type(request.command)
    reported = [getattr(request.command, each.name) for each in fields(kind)]
    texts = [each.to_bytes().decode() if isinstance(each, TxnId) else each for each in reported]
    return _COMMANDS.encode(_SAID[kind](*texts), until_ms=request.until_ms)


def decode_transaction_request(data: bytes) -> TransactionRequest:
    """Raises CorruptRecord, naming what was expected. Unknown fields are ignored."""
    reported = _COMMANDS.decode(data)
    members = msgspec.structs.asdict(reported)
    if "txn" in members:
        try:
            members["txn"] = TxnId.from_bytes(members["txn"].encode())
        except MappingError as error:
            raise CorruptRecord(f"transaction request: {error}") from error
    return TransactionRequest(_ASKED.decode(data).until_ms, _OF_SAID[type(reported)](**members))
