"""Pulsar's `MessageMetadata` holds everything about an entry besides its payload; of a batch, about the whole.

    1 producer_name   2 sequence_id   3 publish_time   4 properties* {1 key, 2 value}   5 replicated_from
    6 partition_key   7 replicate_to*   8 compression   9 uncompressed_size   11 num_messages_in_batch   12 event_time
    13 encryption_keys*   14 encryption_algo   15 encryption_param   16 schema_version   17 partition_key_b64_encoded
    18 ordering_key   19 deliver_at_time   20 marker_type   22, 23 txnid_least_bits, _most_bits
    24 highest_sequence_id   25 null_value   26 uuid   27 num_chunks_from_msg   28 total_chunk_msg_size   29 chunk_id
    32 schema_id   33 entry_hash_min   34 entry_hash_max

Read and written by hand, since every message that is sent and handed out goes through here. Source: the constants of
`org.apache.pulsar.common.api.proto.MessageMetadata` of pulsar-common 4.0.7, from 32 on of 5.0.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from pulsar_on_kafka_mapping.encoding.varint import ByteReader, utf8, write_varint
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.wire.key_values import decode_key_value

MAX_FIELDS: Final = 65_536
"""The limit of one entry's metadata, each property and each destination counted by itself."""

Field = tuple[int, int | bytes]
"""A field's number in Pulsar's MessageMetadata, and its value as Protobuf has it."""

_TEXT, _BYTES, _UNSIGNED, _SIGNED = "text", "bytes", "a number", "a signed number"
_PROPERTIES, _REPLICATE_TO = 4, 7
_REPEATED: Final = {_PROPERTIES, _REPLICATE_TO}
_FIELDS: Final[dict[int, tuple[str, str]]] = {
    1: ("producer_name", _TEXT),
    2: ("sequence_id", _UNSIGNED),
    3: ("publish_time_ms", _UNSIGNED),
    5: ("replicated_from", _TEXT),
    6: ("partition_key", _BYTES),
    8: ("compression", _UNSIGNED),
    9: ("uncompressed_bytes", _UNSIGNED),
    11: ("messages", _SIGNED),
    12: ("event_time_ms", _UNSIGNED),
    16: ("schema_version", _BYTES),
    17: ("in_base64", _UNSIGNED),
    18: ("ordering_key", _BYTES),
    19: ("deliver_at_ms", _SIGNED),
    20: ("marker_type", _SIGNED),
    22: ("txn_least", _UNSIGNED),
    23: ("txn_most", _UNSIGNED),
    24: ("highest_sequence_id", _UNSIGNED),
    25: ("null_value", _UNSIGNED),
    26: ("uuid", _TEXT),
    27: ("chunks", _SIGNED),
    28: ("chunked_bytes", _SIGNED),
    29: ("chunk_id", _SIGNED),
    32: ("schema_id", _BYTES),
    33: ("entry_hash_min", _UNSIGNED),
    34: ("entry_hash_max", _UNSIGNED),
}
_ENCRYPTION: Final = (13, 14, 15)
_REQUIRED: Final = ("producer_name", "sequence_id", "publish_time_ms")


class PulsarMetadata(Struct):
    """The fields as they were set; None where one was not. Times are Unix times in ms.

    Args:
        properties: name and value, as bytes because some clients write any.
        messages: the size of a batch, also of one message; None without a batch.
        encryption: the fields about the payload's encryption.
        schema_id: the schema's id in an external registry.
        entry_hash_min, entry_hash_max: the range of the low 16 bits of Murmur3 of the entry's keys, both inclusive.
        others: the fields that are not known here.
    """

    producer_name: str | None = None
    sequence_id: int | None = None
    publish_time_ms: int | None = None
    properties: Sequence[tuple[bytes, bytes]] = ()
    replicated_from: str | None = None
    partition_key: bytes | None = None
    replicate_to: Sequence[str] = ()
    compression: int | None = None
    uncompressed_bytes: int | None = None
    messages: int | None = None
    event_time_ms: int | None = None
    encryption: Sequence[Field] = ()
    schema_version: bytes | None = None
    in_base64: int | None = None
    ordering_key: bytes | None = None
    deliver_at_ms: int | None = None
    marker_type: int | None = None
    txn_least: int | None = None
    txn_most: int | None = None
    highest_sequence_id: int | None = None
    null_value: int | None = None
    uuid: str | None = None
    chunks: int | None = None
    chunked_bytes: int | None = None
    chunk_id: int | None = None
    schema_id: bytes | None = None
    entry_hash_min: int | None = None
    entry_hash_max: int | None = None
    others: Sequence[Field] = ()


def decode_metadata(data: bytes) -> PulsarMetadata:
    """An entry's metadata. Fields of fixed size, which Pulsar has none of, are left out.

    Raises:
        CorruptRecord: it is no MessageMetadata, or has more than `MAX_FIELDS`.
    """
    found = decode_some(data)
    for name in _REQUIRED:
        if getattr(found, name) is None:
            raise CorruptRecord(f"metadata of {len(data)} bytes lacks its {name}")
    return found


def decode_some(data: bytes) -> PulsarMetadata:
    """`decode_metadata` of some of the fields: none is required."""
    reader = ByteReader(data, "an entry's metadata")
    found: dict[str, Any] = {}
    for count, (number, value) in enumerate(reader.fields()):
        if count >= MAX_FIELDS:
            raise CorruptRecord(f"{reader.what} has more than {MAX_FIELDS} fields")
        field = _FIELDS.get(number)
        if field is not None:
            found[field[0]] = _typed(number, value, field[1])
        elif number in _REPEATED:
            name, item = _item(number, value)
            found.setdefault(name, []).append(item)
        else:
            found.setdefault("encryption" if number in _ENCRYPTION else "others", []).append((number, value))
    return PulsarMetadata(**found)


def encode_metadata(metadata: PulsarMetadata) -> bytes:
    """Metadata in the order of the fields' numbers; what is not known follows.

    Raises:
        MappingError: a number is too large, or text has lone surrogates.
    """
    fields: list[Field] = []
    for number, (name, kind) in _FIELDS.items():
        value = getattr(metadata, name)
        if value is not None:
            fields.append((number, _plain(value, kind, name)))
    for name_of, value_of in metadata.properties:
        fields.append((_PROPERTIES, encode_fields([(1, name_of), (2, value_of)])))
    fields += [(_REPLICATE_TO, utf8(name, "name of a cluster")) for name in metadata.replicate_to]
    fields += metadata.encryption
    fields.sort(key=_number)
    return encode_fields([*fields, *metadata.others])


def encode_fields(fields: Sequence[Field]) -> bytes:
    """Protobuf of fields that are numbers and bytes. Raises MappingError: a number is below 0."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            write_varint(out, number << 3)
            write_varint(out, value)
        else:
            write_varint(out, number << 3 | 2)
            write_varint(out, len(value))
            out += value
    return bytes(out)


def _number(field: Field) -> int:
    return field[0]


def _typed(number: int, value: int | bytes, kind: str) -> int | str | bytes:
    """Raises CorruptRecord: it is of another type."""
    if isinstance(value, int) is (kind in (_TEXT, _BYTES)):
        raise CorruptRecord(f"an entry's metadata has field {number} {value!r:.60}, expected {kind}")
    if isinstance(value, int):
        return value - 2**64 if kind is _SIGNED and value >> 63 else value
    if kind is _BYTES:
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"an entry's metadata has field {number} {value[:60]!r}, expected UTF-8") from error


def _plain(value: Any, kind: str, name: str) -> int | bytes:
    if kind is _TEXT:
        return utf8(value, name)
    if kind is _SIGNED and value < 0:
        return int(value) + 2**64
    if kind is _UNSIGNED and value >> 64:
        raise MappingError(f"{name} is {value}, expected up to 2^64 - 1")
    found: int | bytes = value
    return found


def _item(number: int, value: int | bytes) -> tuple[str, Any]:
    if isinstance(value, int):
        raise CorruptRecord(f"an entry's metadata has field {number} {value!r}, expected a message or text")
    if number == _REPLICATE_TO:
        return "replicate_to", _typed(number, value, _TEXT)
    return "properties", decode_key_value(value, "a property in an entry's metadata")
