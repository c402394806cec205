"""Kafka's headers and key hold everything about a message besides its payload and timestamp.

The headers' names and the form of their values are in `record_headers`. Decision: mapping/decisions/0003.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from pulsar_on_kafka_mapping.encoding.decimals import decimal
from pulsar_on_kafka_mapping.encoding.varint import text_or_latin1, utf8
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.encryption_header import (
    EncryptionInfo,
    decode_encryption,
    encode_encryption,
    encode_keys,
)
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, decode_original, encode_original
from pulsar_on_kafka_mapping.records.record_headers import (
    BATCH,
    CHUNK,
    COMPRESSION,
    DELIVER_AT,
    ENCRYPTION,
    EVENT_TIME,
    MARKER,
    METADATA,
    ORDERING_KEY,
    ORIGINAL_ID,
    PREFIX,
    PRODUCER,
    PROPERTY_ESCAPE,
    PUBLISH_TIME,
    REPLICATE_TO,
    REPLICATED_FROM,
    SCHEMA_IDS,
    SCHEMA_VERSION,
    TXN,
    MarkerType,
    property_header,
    unpack,
)

SCHEMA_VERSION_BYTES: Final = 8

_PRODUCER: Final = re.compile(rb"(-?[0-9]{1,20}):([0-9]{1,20}):(.*)", re.DOTALL)
_PREFIX_CHARS: Final = len(PREFIX)
_NO_PROPERTIES: Final[Mapping[str, str]] = {}


Headers = list[tuple[str, bytes | None]]


class ChunkInfo(NamedTuple):
    """A chunk is one piece of a chunked message: number `chunk_id` (from 0) of `chunks`, which have `total_bytes`
    together."""

    chunk_id: int
    chunks: int
    total_bytes: int
    uuid: str


class BatchInfo(NamedTuple):
    """The record's value is a batch entry of so many messages (1 or more)."""

    format_version: int
    messages: int


class Codec(IntEnum):
    """A Pulsar client's way to compress payloads, by its number in Pulsar's CompressionType (where 0 is none)."""

    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class CompressionInfo(NamedTuple):
    """The record's value, once it is decrypted and its chunks are one, is compressed."""

    codec: Codec
    uncompressed_bytes: int


class MessageMetadata(Struct, frozen=True):
    """A sender's metadata of a message. Times are Unix times in ms; 0 and None mean "not given". A frozen dataclass of
    this size takes ten times as long to create.

    Args:
        ordering_key: given beside a partition key, which is the Kafka key then.
        key_is_ordering_key: there is no partition key, and the Kafka key is the ordering key.
        schema_version: 8 bytes, big endian.
        publish_time_ms: of a replicated record: the publish time of the original.
        original_id: of a replicated record: the place of the original in `replicated_from`.
        replicate_to: the target clusters; None leaves them to the policies, () means none.
        pulsar_fields: the fields of Pulsar's MessageMetadata without a field here (`wire.message_metadata`).
    """

    properties: Mapping[str, str] = {}
    event_time_ms: int = 0
    deliver_at_ms: int | None = None
    publish_time_ms: int | None = None
    ordering_key: bytes | None = None
    key_is_ordering_key: bool = False
    schema_version: bytes | None = None
    txn: TxnId | None = None
    chunk: ChunkInfo | None = None
    replicated_from: str = ""
    original_id: OriginalPosition | None = None
    replicate_to: tuple[str, ...] | None = None
    marker: MarkerType | None = None
    batch: BatchInfo | None = None
    encryption: EncryptionInfo | None = None
    compression: CompressionInfo | None = None
    pulsar_fields: bytes = b""


class RecordHeaders(NamedTuple):
    """The content of a record's headers; the defaults are a foreign record's. Fields are named as in `MessageMetadata`.

    `sequence_id` is -1 and `producer_name` '' when another program wrote it. A NamedTuple, because a frozen dataclass
    of this size takes four times as long to create, and consumers create one a message.
    """

    producer_name: str = ""
    producer_epoch: int = 0
    sequence_id: int = -1
    properties: Mapping[str, str] = _NO_PROPERTIES
    event_time_ms: int = 0
    deliver_at_ms: int | None = None
    publish_time_ms: int | None = None
    ordering_key: bytes | None = None
    key_is_ordering_key: bool = False
    schema_version: bytes | None = None
    txn: TxnId | None = None
    chunk: ChunkInfo | None = None
    replicated_from: str = ""
    original_id: OriginalPosition | None = None
    replicate_to: tuple[str, ...] | None = None
    marker: MarkerType | None = None
    batch: BatchInfo | None = None
    encryption: EncryptionInfo | None = None
    compression: CompressionInfo | None = None
    pulsar_fields: bytes = b""


_FOREIGN: Final = RecordHeaders()


def encode_headers(metadata: MessageMetadata) -> Headers:
    """All headers but the producer's, system headers first.

    Raises:
        MappingError: a value does not fit its header, or text has lone surrogates.
    """
    headers: Headers = []
    if metadata.key_is_ordering_key or metadata.ordering_key is not None:
        headers.append((ORDERING_KEY, _ordering_key(metadata)))
    if metadata.event_time_ms:
        headers.append((EVENT_TIME, _millis_bytes("event time", metadata.event_time_ms)))
    if metadata.deliver_at_ms is not None:
        headers.append((DELIVER_AT, _millis_bytes("deliver-at time", metadata.deliver_at_ms)))
    if metadata.schema_version is not None:
        headers.append((SCHEMA_VERSION, _schema_version(metadata.schema_version)))
    if metadata.txn is not None:
        headers.append((TXN, metadata.txn.to_bytes()))
    if metadata.chunk is not None:
        headers.append((CHUNK, _chunk_bytes(metadata.chunk)))
    if metadata.marker is not None:
        headers.append((MARKER, metadata.marker.value.encode("ascii")))
    if metadata.batch is not None:
        headers.append((BATCH, _batch_bytes(metadata.batch)))
    if metadata.encryption is not None:
        keys = encode_keys(metadata.encryption.keys, metadata.encryption.algorithm)
        headers.append((ENCRYPTION, encode_encryption(keys, metadata.encryption.param)))
    headers += _replication_headers(metadata)
    headers += _raw_headers(metadata)
    for name, value in metadata.properties.items():
        stored = property_header(name)
        utf8(name, "property name")
        headers.append((stored, utf8(value, f"property {name!r}")))
    return headers


def decode_headers(
    headers: Sequence[tuple[str, bytes | None]] | bytes | None,
    left_out: Callable[[CorruptRecord], None] | None = None,
    required: Collection[str] = (),
) -> RecordHeaders:
    """Read a record's headers, packed or not.

    Of several headers of one name the last counts. A property without value is ''; one that is no UTF-8 (a foreign
    program's) is read as Latin-1 (`text_or_latin1`). Unknown system headers are a later version's: passed over.

    Args:
        left_out: receives each system header that cannot be read, which then counts as absent.
        required: headers that are raised all the same.
    Raises:
        CorruptRecord: a system header cannot be read; names header and value.
    """
    if not headers:
        return _FOREIGN
    fields: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for name, value in unpack(headers) if isinstance(headers, bytes) else headers:
        if not name.startswith(PREFIX):
            if name not in SCHEMA_IDS:
                properties[name] = _property_text(value)
        elif name in _DECODERS:
            try:
                fields.update(_decoded(name, value))
            except CorruptRecord as reason:
                if left_out is None or name in required:
                    raise
                left_out(reason)
        elif name.startswith(PROPERTY_ESCAPE):
            properties[name[len(PROPERTY_ESCAPE) :]] = _property_text(value)
    if properties:
        fields["properties"] = properties
    return RecordHeaders(**fields)


def batch_info(headers: Sequence[tuple[str, bytes | None]] | None) -> BatchInfo | None:
    """The batch info of `decode_headers`, with any other headers; None for no batch entry.

    Raises:
        CorruptRecord: the header cannot be read.
    """
    return _alone(headers, BATCH).batch


def chunk_info(headers: Sequence[tuple[str, bytes | None]] | None) -> ChunkInfo | None:
    """Likewise of the message that the record is a chunk of. Raises CorruptRecord."""
    return _alone(headers, CHUNK).chunk


def encryption_info(headers: Sequence[tuple[str, bytes | None]] | None) -> EncryptionInfo | None:
    """Likewise of the value's encryption. Raises CorruptRecord."""
    return _alone(headers, ENCRYPTION).encryption


def compression_info(headers: Sequence[tuple[str, bytes | None]] | None) -> CompressionInfo | None:
    """Likewise of how a client of Pulsar's compressed the value. Raises CorruptRecord."""
    return _alone(headers, COMPRESSION).compression


def goes_to(headers: Iterable[tuple[str, bytes | None]] | None, cluster: str) -> bool:
    """Whether a replicator may copy the record to `cluster`, by its headers; False when they cannot be read."""
    try:
        named = _alone(headers, REPLICATE_TO).replicate_to
    except CorruptRecord:
        return False
    return named is None or cluster in named


def _alone(headers: Iterable[tuple[str, bytes | None]] | None, required: str) -> RecordHeaders:
    return decode_headers([header for header in headers or () if header[0] == required])


def is_plain(headers: Sequence[tuple[str, bytes | None]] | bytes | None) -> bool:
    """Nothing but payload, key, producer, schema version, transaction and user properties: once it is known that the
    transaction was committed, it is handed out without a further look.

    False also for a property whose name begins with `__pulsar.` (it costs a look, no more). Called for every record.
    Packed headers hold nothing else.
    """
    if not headers or isinstance(headers, bytes):
        return True
    for name, _ in headers:
        if name != PRODUCER and name != SCHEMA_VERSION and name[:_PREFIX_CHARS] == PREFIX and name != TXN:
            return False
    return True


def key_text(key: bytes | None) -> str:
    """A Kafka key as Pulsar shows it: '' for none, UTF-8 text, else base64.

    Source: Pulsar's MessageMetadata, `partition_key_b64_encoded`.
    """
    if key is None:
        return ""
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(key).decode("ascii")


# Values to bytes ------------------------------------------------------------------------------------------------------


def _ordering_key(metadata: MessageMetadata) -> bytes | None:
    if metadata.key_is_ordering_key and metadata.ordering_key is not None:
        raise MappingError(
            f"ordering key is {metadata.ordering_key[:40]!r} and also the Kafka key, expected one of the two"
        )
    return metadata.ordering_key


def _millis_bytes(what: str, millis: int) -> bytes:
    if not 0 <= millis < 2**64:
        raise MappingError(f"{what} is {millis}, expected Unix time in ms, 0 to 2^64 - 1")
    return b"%d" % millis


def _schema_version(version: bytes) -> bytes:
    if len(version) != SCHEMA_VERSION_BYTES:
        raise MappingError(f"schema version is {version[:40]!r}, expected {SCHEMA_VERSION_BYTES} bytes")
    return version


def _chunk_bytes(chunk: ChunkInfo) -> bytes:
    if not 0 <= chunk.chunk_id < chunk.chunks or chunk.total_bytes < 0:
        raise MappingError(f"{chunk} is out of range, expected 0 <= chunk_id < chunks and total_bytes of 0 or more")
    return b"%d:%d:%d:%b" % (chunk.chunk_id, chunk.chunks, chunk.total_bytes, utf8(chunk.uuid, "chunk's uuid"))


def _batch_bytes(batch: BatchInfo) -> bytes:
    if batch.format_version < 1 or batch.messages < 1:
        raise MappingError(f"{batch} is out of range, expected 1 or more of both")
    return b"%d:%d" % batch


def _raw_headers(metadata: MessageMetadata) -> Headers:
    headers: Headers = []
    if metadata.compression is not None:
        codec, size = metadata.compression
        if size < 0:
            raise MappingError(f"{metadata.compression} is out of range, expected 0 bytes or more")
        headers.append((COMPRESSION, b"%b:%d" % (codec.name.encode("ascii"), size)))
    if metadata.pulsar_fields:
        headers.append((METADATA, metadata.pulsar_fields))
    return headers


def _replication_headers(metadata: MessageMetadata) -> Headers:
    headers: Headers = []
    if metadata.publish_time_ms is not None:
        headers.append((PUBLISH_TIME, _millis_bytes("publish time", metadata.publish_time_ms)))
    if metadata.replicated_from:
        headers.append((REPLICATED_FROM, utf8(metadata.replicated_from, "name of a cluster")))
    if metadata.original_id is not None:
        headers.append((ORIGINAL_ID, encode_original(metadata.original_id)))
    if metadata.replicate_to is not None:
        if "" in metadata.replicate_to:
            raise MappingError(f"clusters to replicate to are {metadata.replicate_to!r}, expected names without ''")
        names = (name.replace("%", "%25").replace(",", "%2C") for name in metadata.replicate_to)
        headers.append((REPLICATE_TO, utf8(",".join(names), "names of clusters")))
    return headers


# Bytes to values ------------------------------------------------------------------------------------------------------


def _decoded(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        if name == ORDERING_KEY:
            return {"key_is_ordering_key": True, "ordering_key": None}
        raise CorruptRecord(f"header {name} is null, expected a value")
    try:
        return _DECODERS[name](value)
    except ValueError as error:
        raise CorruptRecord(f"header {name} is {value[:100]!r}: {error}") from error


def _property_text(value: bytes | None) -> str:
    return "" if value is None else text_or_latin1(value)


def _number(text: bytes, least: int = 0) -> int:
    return decimal(text, least, 2**64 - 1)


def _read_producer(value: bytes) -> dict[str, Any]:
    found = _PRODUCER.fullmatch(value)
    if found is None:
        raise ValueError("expected <sequence id>:<epoch>:<producer name>")
    return {
        "sequence_id": int(found[1]),
        "producer_epoch": int(found[2]),
        "producer_name": found[3].decode("utf-8"),
    }


def _read_schema_version(value: bytes) -> dict[str, Any]:
    return {"schema_version": _schema_version(value)}


def _read_chunk(value: bytes) -> dict[str, Any]:
    chunk_id, chunks, total_bytes, uuid = _split(value, 4)
    chunk = ChunkInfo(_number(chunk_id), _number(chunks), _number(total_bytes), uuid.decode("utf-8"))
    if chunk.chunk_id >= chunk.chunks:
        raise ValueError(f"chunk {chunk.chunk_id} of {chunk.chunks} does not exist")
    return {"chunk": chunk}


def _read_batch(value: bytes) -> dict[str, Any]:
    format_version, messages = _split(value, 2)
    return {"batch": BatchInfo(_number(format_version, 1), _number(messages, 1))}


def _read_compression(value: bytes) -> dict[str, Any]:
    codec, uncompressed_bytes = _split(value, 2)
    found = Codec.__members__.get(codec.decode("latin-1"))
    if found is None:
        raise ValueError(f"expected one of {', '.join(Codec.__members__)}")
    return {"compression": CompressionInfo(found, _number(uncompressed_bytes))}


def _read_replicate_to(value: bytes) -> dict[str, Any]:
    text = value.decode("utf-8")
    names = tuple(unquote(name, errors="strict") for name in text.split(",")) if text else ()
    if "" in names:
        raise ValueError("it names a cluster ''")
    return {"replicate_to": names}


def _split(value: bytes, parts: int) -> list[bytes]:
    found = value.split(b":", parts - 1)
    if len(found) != parts:
        raise ValueError(f"expected {parts} parts between ':'")
    return found


_DECODERS: Final[Mapping[str, Callable[[bytes], dict[str, Any]]]] = {
    PRODUCER: _read_producer,
    SCHEMA_VERSION: _read_schema_version,
    EVENT_TIME: lambda value: {"event_time_ms": _number(value)},
    DELIVER_AT: lambda value: {"deliver_at_ms": _number(value)},
    PUBLISH_TIME: lambda value: {"publish_time_ms": _number(value)},
    ORDERING_KEY: lambda value: {"ordering_key": value, "key_is_ordering_key": False},
    TXN: lambda value: {"txn": TxnId.from_bytes(value)},
    CHUNK: _read_chunk,
    REPLICATED_FROM: lambda value: {"replicated_from": value.decode("utf-8")},
    ORIGINAL_ID: lambda value: {"original_id": decode_original(value)},
    REPLICATE_TO: _read_replicate_to,
    MARKER: lambda value: {"marker": MarkerType(value.decode("ascii"))},
    BATCH: _read_batch,
    ENCRYPTION: lambda value: {"encryption": decode_encryption(value)},
    COMPRESSION: _read_compression,
    METADATA: lambda value: {"pulsar_fields": value},
}
