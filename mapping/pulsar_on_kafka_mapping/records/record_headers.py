"""The headers of a Kafka record: their names and small values.

    __pulsar.producer         <sequence id>:<epoch>:<producer name>
    __pulsar.fence            empty: of an exclusive producer; after it records of lower epochs are void
    __pulsar.schema_version   8 bytes, big endian
    __pulsar.event_time       Unix time in ms, decimal
    __pulsar.deliver_at       Unix time in ms, decimal
    __pulsar.publish_time     Unix time in ms, decimal: when a replicated record was first published
    __pulsar.ordering_key     null: the Kafka key is the ordering key and there is no partition key;
                              otherwise the ordering key, and the Kafka key is the partition key
    __pulsar.txn              <most significant bits>:<least significant bits>, decimal
    __pulsar.chunk            <chunk id>:<number of chunks>:<total bytes>:<uuid>
    __pulsar.replicated_from  name of the cluster, UTF-8
    __pulsar.original_id      <offset>:<partition>:<incarnation>:<epoch>, decimal: see original_position
    __pulsar.replicate_to     names of clusters between ','; in a name ',' is %2C and '%' is %25; empty: to none
    __pulsar.replicator       <epoch>:<origin>, of the marker of a replicator that takes over; or <epoch>:/<producer
                              name>, of a producer that takes a name over
    __pulsar.marker           a MarkerType; the record is no message
    __pulsar.batch            <payload format>:<number of messages>; the value is a batch entry, or what a client of
                              Pulsar's sent: see PayloadFormat
    __pulsar.compression      <LZ4, ZLIB, ZSTD or SNAPPY>:<bytes uncompressed>, of a value that such a client compressed
    __pulsar.metadata         fields of Pulsar's MessageMetadata that have no header here, under their numbers there
    __pulsar.highest_sequence decimal: the highest sequence id of a batch entry whose ids do not count up by one
    __pulsar.encryption       fields of Pulsar's MessageMetadata (see encryption_header); the value is encrypted
    __pulsar.deliveries       decimal: the delivery count of a dead letter's message
    __pulsar.p.<name>         the user property <name>, when <name> itself begins with __pulsar.

    __pulsar.p.__value_schema_id, __pulsar.p.__key_schema_id    user properties of these names

Confluent's serializers name the schema of value and key in these headers, which are no properties. With the policy
confluent_schema_ids our records have them, too (mapping/decisions/0034):

    __value_schema_id, __key_schema_id

Every other header is a user property of that name. Decision: mapping/decisions/0003.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none
from pulsar_on_kafka_mapping.encoding.varint import utf8
from pulsar_on_kafka_mapping.errors import MappingError

PREFIX: Final = "__pulsar."
PRODUCER: Final = "__pulsar.producer"
SCHEMA_VERSION: Final = "__pulsar.schema_version"
EVENT_TIME: Final = "__pulsar.event_time"
DELIVER_AT: Final = "__pulsar.deliver_at"
PUBLISH_TIME: Final = "__pulsar.publish_time"
ORDERING_KEY: Final = "__pulsar.ordering_key"
TXN: Final = "__pulsar.txn"
CHUNK: Final = "__pulsar.chunk"
REPLICATED_FROM: Final = "__pulsar.replicated_from"
ORIGINAL_ID: Final = "__pulsar.original_id"
REPLICATE_TO: Final = "__pulsar.replicate_to"
REPLICATOR: Final = "__pulsar.replicator"
MARKER: Final = "__pulsar.marker"
BATCH: Final = "__pulsar.batch"
COMPRESSION: Final = "__pulsar.compression"
METADATA: Final = "__pulsar.metadata"
HIGHEST_SEQUENCE: Final = "__pulsar.highest_sequence"
ENCRYPTION: Final = "__pulsar.encryption"
FENCE: Final = "__pulsar.fence"
DELIVERIES: Final = "__pulsar.deliveries"
PROPERTY_ESCAPE: Final = "__pulsar.p."
VALUE_SCHEMA_ID: Final = "__value_schema_id"
KEY_SCHEMA_ID: Final = "__key_schema_id"
SCHEMA_IDS: Final = frozenset((VALUE_SCHEMA_ID, KEY_SCHEMA_ID))
"""Headers of Confluent's serializers (`ids.confluent_ids`), which need no look. Source: confluent-kafka 2.16,
`header_schema_id_serializer`."""


class PayloadFormat(IntEnum):
    """A value that is more than the payload of one plain message has one of these forms. A reader stops at a record of
    a form that it does not know.

    COLUMNS: `batch_entry`'s. PULSAR_BATCH: a batch as Pulsar's clients write it (`wire.single_messages`), perhaps
    compressed. PULSAR_MESSAGE: one message, or a chunk of one, which is compressed. Decision: mapping/decisions/0028.
    """

    COLUMNS = 1
    PULSAR_BATCH = 2
    PULSAR_MESSAGE = 3


_RAW: Final = (b"%d:" % PayloadFormat.PULSAR_BATCH, b"%d:" % PayloadFormat.PULSAR_MESSAGE)


def is_raw(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """The value is as a client of Pulsar's batched or compressed it."""
    return any(name == BATCH and (value or b"").startswith(_RAW) for name, value in headers)


class MarkerType(str, Enum):
    """The type of a marker, a record without payload. Source: Pulsar's MarkerType."""

    TXN_COMMIT = "txn_commit"
    TXN_ABORT = "txn_abort"
    # Version 0.2.0 wrote these four for snapshots of replicated subscriptions (mapping/decisions/0023).
    SNAPSHOT_REQUEST = "snapshot_request"
    SNAPSHOT_RESPONSE = "snapshot_response"
    SNAPSHOT = "snapshot"
    SUBSCRIPTION_UPDATE = "subscription_update"
    REPLICATOR = "replicator"
    """Ours: from here on another replicator copies from this origin, or another producer has this name (see
    `mapping.records.epoch_fences`)."""


def producer_suffix(epoch: int, name: str) -> str:
    """The common suffix of all PRODUCER values of a producer: `f"{sequence_id}{suffix}"` in UTF-8 is the whole.

    Raises:
        MappingError: the epoch is negative, or the name has lone surrogates.
    """
    if epoch < 0:
        raise MappingError(f"epoch of producer {name!r} is {epoch}, expected 0 or more")
    utf8(name, "producer name")
    return f":{epoch}:{name}"


class HeaderProducer(NamedTuple):
    """The producer that a record's PRODUCER header names; `name` is meant to be UTF-8."""

    epoch: int
    name: bytes


def producer_of(headers: Iterable[tuple[str, bytes | None]] | None) -> HeaderProducer | None:
    """The producer in a record's PRODUCER header; None when it has none (a plain Kafka client's record)."""
    for name, value in headers or ():
        if name == PRODUCER and value is not None:
            parts = value.split(b":", 2)
            epoch = decimal_or_none(parts[1]) if len(parts) == 3 else None
            return None if epoch is None else HeaderProducer(epoch, parts[2])
    return None


def property_header(name: str) -> str:
    """The header that holds the user property `name`.

    Raises:
        MappingError: no header can have its name.
    """
    if "\x00" in name:  # librdkafka's names end there
        raise MappingError(f"property name is {name!r}, expected text without NUL")
    return PROPERTY_ESCAPE + name if name.startswith(PREFIX) or name in SCHEMA_IDS else name


def exclusive_epoch(headers: Iterable[tuple[str, bytes | None]] | None) -> int | None:
    """The epoch of an exclusive producer's record; None of any other."""
    if any(name == FENCE for name, _ in headers or ()):
        producer = producer_of(headers)
        return 0 if producer is None else producer.epoch
    return None


ALONE: Final = b"\x00"
"""A producer and nothing else: this and the header's value are the packed headers. Likewise with what `and_version` and
`and_transaction` give."""

VERSION: Final = b"\x01"
"""The first byte of what `and_version` gives."""
_TRANSACTION: Final = b"\x02"
_VERSION_END: Final = 1 + 8


def and_version(schema_version: bytes) -> bytes:
    """The bytes before a producer's header of a record with this schema version, of 8 bytes."""
    return VERSION + schema_version


def and_transaction(txn: bytes) -> bytes:
    """The bytes before a producer's header of a record in this transaction; its header's value has no NUL in it."""
    return _TRANSACTION + txn + b"\x00"


def unpack(headers: bytes) -> list[tuple[str, bytes | None]]:
    kind = headers[:1]
    if kind == ALONE:
        return [(PRODUCER, headers[1:])]
    if kind == VERSION:
        return [(PRODUCER, headers[_VERSION_END:]), (SCHEMA_VERSION, headers[1:_VERSION_END])]
    txn, _, producer = headers[1:].partition(b"\x00")
    return [(PRODUCER, producer), (TXN, txn)]
