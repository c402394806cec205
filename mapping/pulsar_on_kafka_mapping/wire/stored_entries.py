"""Converts entries of Pulsar's clients into Kafka records, and back: format R.

The payload is the record's value as it was sent. Kafka's headers, key and timestamp hold the data for other programs,
dispatching, deduplication, transactions and delays, and `__pulsar.metadata` keeps the rest, so that a Pulsar client
receives exactly the bytes that another one sent. A plain message that was sent alone is a record as this SDK writes it.
Decision: mapping/decisions/0028.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_on_kafka_mapping.encoding.decimals import NoDecimal, decimal
from pulsar_on_kafka_mapping.encoding.varint import text_or_latin1, utf8
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.encryption_header import TAG_BYTES
from pulsar_on_kafka_mapping.records.message_record import (
    SCHEMA_VERSION_BYTES,
    BatchInfo,
    ChunkInfo,
    Codec,
    CompressionInfo,
    Headers,
    MessageMetadata,
    RecordHeaders,
    compression_info,
    decode_headers,
    encode_headers,
)
from pulsar_on_kafka_mapping.records.record_headers import (
    BATCH,
    CHUNK,
    ENCRYPTION,
    HIGHEST_SEQUENCE,
    MARKER,
    METADATA,
    PREFIX,
    PRODUCER,
    PROPERTY_ESCAPE,
    SCHEMA_IDS,
    TXN,
    PayloadFormat,
    producer_suffix,
    property_header,
)
from pulsar_on_kafka_mapping.wire.compression import MAX_UNCOMPRESSED_BYTES
from pulsar_on_kafka_mapping.wire.message_metadata import Field, PulsarMetadata, decode_some, encode_fields
from pulsar_on_kafka_mapping.wire.single_messages import MAX_IN_BATCH, MIN_BYTES, kafka_key

MAX_CLOCK_DIFFERENCE_MS: Final = 60_000
"""The largest difference between a client's clock and the gateway's: a message of a time farther away gets the
gateway's, and a header with the client's. Kafka refuses times an hour ahead."""
_MAX_SEQUENCE_ID: Final = 2**64 - 1
NOWHERE: Final = "__local__"
"""The destination that Pulsar's clients name for a message that is not to be replicated."""

_DECISIVE: Final = frozenset((BATCH, CHUNK, MARKER, TXN))
"""Headers that decide how a record is read."""

_UNCOMPRESSED = 9
_PROPERTIES, _IN_BASE64, _SCHEMA_VERSION, _DELIVER_AT, _HIGHEST = 4, 17, 16, 19, 24
_TXN_LEAST_BITS, _TXN_MOST_BITS, _UUID, _CHUNKS, _CHUNKED_BYTES, _CHUNK_ID = 22, 23, 26, 27, 28, 29
_SCHEMA_ID, _ENTRY_HASH_MIN, _ENTRY_HASH_MAX = 32, 33, 34


class EntryRecord(NamedTuple):
    """A record to be written; a record that was read has these, too."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def record_of(metadata: PulsarMetadata, payload: bytes, *, epoch: int, now_ms: int) -> EntryRecord:
    """The record of an entry that a producer with this epoch sent.

    Raises:
        MappingError: it can be no record; names the value.
    """
    if metadata.marker_type is not None:
        raise MappingError(f"entry is a marker of type {metadata.marker_type}, which clients do not send")
    is_null = bool(metadata.null_value) and metadata.messages is None
    compression = None if is_null else _compression(metadata)
    key, key_rest = _key(metadata)
    publish_time_ms = metadata.publish_time_ms or 0
    late = abs(publish_time_ms - now_ms) > MAX_CLOCK_DIFFERENCE_MS
    rest: list[Field] = [*metadata.others, *key_rest, *_pulsar_5_fields(metadata)]
    reported = MessageMetadata(
        event_time_ms=metadata.event_time_ms or 0,
        deliver_at_ms=_deliver_at(metadata, rest),
        publish_time_ms=publish_time_ms if late else None,
        ordering_key=metadata.ordering_key if key is not None else None,
        key_is_ordering_key=key is None and metadata.ordering_key is not None,
        schema_version=_schema_version(metadata, rest),
        txn=_txn(metadata, rest),
        chunk=_chunk(metadata, rest),
        replicated_from=metadata.replicated_from or "",
        replicate_to=_replicate_to(metadata),
        batch=_payload_format(metadata, len(payload), compression),
        compression=compression,
    )
    value = None if is_null else payload
    if compression is None:
        _keep_uncompressed(metadata, reported.chunk, value, rest)
    sequence_id = metadata.sequence_id or 0
    producer = f"{sequence_id}{producer_suffix(epoch, metadata.producer_name or '')}".encode()
    properties = _property_headers(metadata, rest)
    headers: Headers = [(PRODUCER, producer), *encode_headers(reported)]
    if metadata.encryption and not is_null:
        headers.append((ENCRYPTION, encode_fields(metadata.encryption)))
    if metadata.highest_sequence_id not in (None, sequence_id + (metadata.messages or 1) - 1):
        headers.append((HIGHEST_SEQUENCE, b"%d" % metadata.highest_sequence_id))
    if rest:
        headers += encode_headers(MessageMetadata(pulsar_fields=encode_fields(rest)))
    return EntryRecord(
        key if key is not None else metadata.ordering_key,
        value,
        headers + properties,
        now_ms if late else publish_time_ms,
    )


def metadata_of(record: EntryRecord) -> PulsarMetadata:
    """The metadata for a Pulsar client of a record from `record_of`, or of one plain message.

    A header that cannot be read counts as absent, as for the SDK's consumers, unless the value cannot be read without
    it.

    Raises:
        CorruptRecord: one of those cannot be read.
    """
    headers = decode_headers(record.headers, lambda _: None, _DECISIVE)
    found = _kept_fields(headers.pulsar_fields)
    count = None if headers.batch is None or _is_alone(headers) else headers.batch.messages
    found.producer_name = headers.producer_name
    found.sequence_id = headers.sequence_id if 0 <= headers.sequence_id <= _MAX_SEQUENCE_ID else 0
    found.publish_time_ms = record.timestamp_ms if headers.publish_time_ms is None else headers.publish_time_ms
    found.messages = count
    found.properties = [*_properties(record.headers), *found.properties]
    found.event_time_ms = headers.event_time_ms or None
    found.null_value = 1 if record.value is None else None
    found.replicated_from = headers.replicated_from or None
    if headers.replicate_to is not None:
        found.replicate_to = headers.replicate_to or (NOWHERE,)
    for name, value in record.headers:
        if name == ENCRYPTION and value is not None:
            found.encryption = _kept_fields(value).encryption
        elif name == HIGHEST_SEQUENCE and value is not None:
            found.highest_sequence_id = _highest(value)
    if count is not None and found.highest_sequence_id is None:
        found.highest_sequence_id = min(found.sequence_id + count - 1, _MAX_SEQUENCE_ID)
    if headers.deliver_at_ms is not None:
        found.deliver_at_ms = headers.deliver_at_ms
    found.schema_version = headers.schema_version or found.schema_version or None
    if headers.txn is not None:
        found.txn_most, found.txn_least = headers.txn
    if headers.chunk is not None:
        found.chunk_id, found.chunks, found.chunked_bytes, found.uuid = headers.chunk
    _set_size(found, record, headers)
    if headers.key_is_ordering_key:
        found.ordering_key = record.key
    else:
        found.ordering_key = headers.ordering_key
        found.partition_key, found.in_base64 = key_as_sent(record.key, found.in_base64)
    return found


def _kept_fields(data: bytes) -> PulsarMetadata:
    try:
        return decode_some(data)
    except CorruptRecord:
        return PulsarMetadata()


def kept_properties(pulsar_fields: bytes) -> dict[str, str]:
    """Properties whose names no header can have, of a record's `__pulsar.metadata`, as text (`text_or_latin1`)."""
    kept = _kept_fields(pulsar_fields).properties if pulsar_fields else ()
    return {text_or_latin1(name): text_or_latin1(value) for name, value in kept}


def split_properties(properties: Mapping[str, str]) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """Properties that headers can have; and the header, if any, that keeps the others (`kept_properties`).

    Raises:
        MappingError: text has lone surrogates.
    """
    odd = [name for name in properties if "\x00" in name]
    if not odd:
        return dict(properties), []
    pairs = [(utf8(name, "property name"), utf8(properties[name], f"property {name!r}")) for name in odd]
    kept = encode_fields([(_PROPERTIES, encode_fields([(1, name), (2, value)])) for name, value in pairs])
    return {name: value for name, value in properties.items() if name not in odd}, [(METADATA, kept)]


def _uncompressed(value: bytes | None, chunk: ChunkInfo | None, *, encrypted: bool) -> int:
    """The size of an uncompressed message before it was cut into chunks and encrypted, as Pulsar's clients send it.

    Go's client reads a message in chunks, or an encrypted one, only if its metadata contain a size.
    """
    if chunk is not None:
        return chunk.total_bytes
    size = len(value or b"")
    return max(0, size - TAG_BYTES) if encrypted else size


def _set_size(found: PulsarMetadata, record: EntryRecord, headers: RecordHeaders) -> None:
    compression = None
    if headers.batch is not None and headers.batch.format_version != PayloadFormat.COLUMNS:
        compression = compression_info(record.headers)  # no other record of this product has it
    found.compression, found.uncompressed_bytes = compression or (None, found.uncompressed_bytes)
    if found.uncompressed_bytes is None:
        found.uncompressed_bytes = _uncompressed(record.value, headers.chunk, encrypted=bool(found.encryption))


def _keep_uncompressed(
    metadata: PulsarMetadata, chunk: ChunkInfo | None, value: bytes | None, rest: list[Field]
) -> None:
    reported = metadata.uncompressed_bytes
    encrypted = bool(metadata.encryption) and value is not None
    if reported is not None and reported != _uncompressed(value, chunk, encrypted=encrypted):
        rest.append((_UNCOMPRESSED, reported))


def _highest(value: bytes) -> int | None:
    try:
        return decimal(value, 0, _MAX_SEQUENCE_ID)
    except NoDecimal:
        return None


def _is_alone(headers: RecordHeaders) -> bool:
    return headers.batch is not None and headers.batch.format_version == PayloadFormat.PULSAR_MESSAGE


def _compression(metadata: PulsarMetadata) -> CompressionInfo | None:
    if not metadata.compression:
        return None
    try:
        codec = Codec(metadata.compression)
    except ValueError:
        known = ", ".join(f"{each.value} ({each.name})" for each in Codec)
        raise MappingError(f"compression is {metadata.compression}, expected 0 (none), {known}") from None
    size = metadata.uncompressed_bytes or 0
    if size > MAX_UNCOMPRESSED_BYTES:
        raise MappingError(f"payload has {size} bytes uncompressed, expected up to {MAX_UNCOMPRESSED_BYTES}")
    return CompressionInfo(codec, size)


def _payload_format(
    metadata: PulsarMetadata, payload_bytes: int, compression: CompressionInfo | None
) -> BatchInfo | None:
    if metadata.messages is None:
        return None if compression is None else BatchInfo(PayloadFormat.PULSAR_MESSAGE, 1)
    plain_bytes = payload_bytes if compression is None else compression.uncompressed_bytes
    most = min(MAX_IN_BATCH, plain_bytes // MIN_BYTES)
    if not 1 <= metadata.messages <= most:
        raise MappingError(f"batch of {metadata.messages} messages in {plain_bytes} bytes, expected 1 to {most}")
    return BatchInfo(PayloadFormat.PULSAR_BATCH, metadata.messages)


def _key(metadata: PulsarMetadata) -> tuple[bytes | None, list[Field]]:
    """The partition key's own bytes, and what has to be kept so that it is given back as it was sent."""
    sent, in_base64 = metadata.partition_key, bool(metadata.in_base64)
    key = kafka_key(sent, in_base64=in_base64)
    if sent is None or key is None:
        return None, []
    if in_base64 and base64.b64encode(key) != sent:
        raise MappingError(f"partition key is {sent[:60]!r}, expected base64, as its metadata say")
    return key, [] if in_base64 is not _is_text(key) else [(_IN_BASE64, int(in_base64))]


def key_as_sent(key: bytes | None, in_base64: int | None) -> tuple[bytes | None, int | None]:
    """A key in the form of Pulsar's clients: `in_base64` None leaves it to the bytes, since binary ones are."""
    if key is None:
        return None, None
    if in_base64 or (in_base64 is None and not _is_text(key)):
        return base64.b64encode(key), 1
    return key, None


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _pulsar_5_fields(metadata: PulsarMetadata) -> list[Field]:
    """Fields for which no header exists."""
    fields = (
        (_SCHEMA_ID, metadata.schema_id),
        (_ENTRY_HASH_MIN, metadata.entry_hash_min),
        (_ENTRY_HASH_MAX, metadata.entry_hash_max),
    )
    return [(number, value) for number, value in fields if value is not None]


def _deliver_at(metadata: PulsarMetadata, rest: list[Field]) -> int | None:
    due_ms = metadata.deliver_at_ms
    if due_ms is None or due_ms >= 0:
        return due_ms
    rest.append((_DELIVER_AT, due_ms + 2**64))
    return None


def _schema_version(metadata: PulsarMetadata, rest: list[Field]) -> bytes | None:
    """The schema version; None also for an empty one, which Go's client sends for a schema without a version: its
    consumers take an empty one for a version that they have to request."""
    version = metadata.schema_version or None
    if version is None or len(version) == SCHEMA_VERSION_BYTES:
        return version
    rest.append((_SCHEMA_VERSION, version))
    return None


def _txn(metadata: PulsarMetadata, rest: list[Field]) -> TxnId | None:
    most, least = metadata.txn_most, metadata.txn_least
    if most is not None and least is not None:
        return TxnId(most, least)
    if least is not None:
        rest.append((_TXN_LEAST_BITS, least))
    if most is not None:
        rest.append((_TXN_MOST_BITS, most))
    return None


def _chunk(metadata: PulsarMetadata, rest: list[Field]) -> ChunkInfo | None:
    if (metadata.chunks or 0) > 1:
        return ChunkInfo(metadata.chunk_id or 0, metadata.chunks or 0, metadata.chunked_bytes or 0, metadata.uuid or "")
    if metadata.uuid is not None:
        rest.append((_UUID, utf8(metadata.uuid, "uuid")))
    for number, value in (
        (_CHUNKS, metadata.chunks),
        (_CHUNKED_BYTES, metadata.chunked_bytes),
        (_CHUNK_ID, metadata.chunk_id),
    ):
        if value is not None:
            rest.append((number, value % 2**64))
    return None


def _replicate_to(metadata: PulsarMetadata) -> tuple[str, ...] | None:
    named = tuple(metadata.replicate_to)
    return (() if named == (NOWHERE,) else named) if named else None


def _property_headers(metadata: PulsarMetadata, rest: list[Field]) -> Headers:
    """Properties as headers; a name that no header can have goes to the rest, where a client of Pulsar's finds it."""
    headers: Headers = []
    for name, value in metadata.properties:
        if b"\x00" in name or not _is_text(name):
            rest.append((_PROPERTIES, encode_fields([(1, name), (2, value)])))
        else:
            headers.append((property_header(name.decode("utf-8")), value))
    return headers


def _properties(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[bytes, bytes]]:
    found = []
    for name, value in headers:
        if name.startswith(PROPERTY_ESCAPE):
            found.append((name[len(PROPERTY_ESCAPE) :].encode(), value or b""))
        elif not name.startswith(PREFIX) and name not in SCHEMA_IDS:
            found.append((name.encode(), value or b""))
    return found
