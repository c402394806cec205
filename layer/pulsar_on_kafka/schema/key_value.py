"""A KeyValueSchema has a key and a value in one message, each with a schema of its own.

Inline, both are in the payload; separated, the key is the message's key and the value its payload:

    +------------+-----+--------------+-------+
    | key length | key | value length | value |     lengths: 4 bytes, big-endian, -1: None
    +------------+-----+--------------+-------+

The definition has the inline form too, around the definitions of both; its properties describe them. Source: the Java
client (`KeyValueSchemaImpl`, `KeyValueSchemaInfo`, `KeyValue`) of Pulsar 4.0.7, since the official Python client has no
such schema.
"""

from __future__ import annotations

import json
import struct
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.schema.plain import Schema
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.key_value import split

_LENGTH: Final = struct.Struct(">i")
_STRUCTURED: Final = frozenset(
    {SchemaType.AVRO, SchemaType.JSON, SchemaType.KEY_VALUE, SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE}
)


class KeyValueEncodingType(Enum):
    """Place of a key/value message's key: in the payload (INLINE), or in the message's own key (SEPARATED)."""

    SEPARATED = "SEPARATED"
    INLINE = "INLINE"


class KeyValue(NamedTuple):
    """Value of a message with a KeyValueSchema."""

    key: Any
    value: Any


class KeyValueSchema(Schema[KeyValue]):
    """KeyValues of two schemas. Text and bytes have no definition in it, as Java's have none."""

    def __init__(
        self,
        key_schema: Schema,
        value_schema: Schema,
        encoding_type: KeyValueEncodingType = KeyValueEncodingType.INLINE,
    ) -> None:
        for name, schema in (("key_schema", key_schema), ("value_schema", value_schema)):
            if not isinstance(schema, Schema):
                raise TypeError(f"{name} must be a Schema, got {type(schema).__name__}: {schema!r:.60}")
        if not isinstance(encoding_type, KeyValueEncodingType):
            raise TypeError(f"encoding_type must be a KeyValueEncodingType, got {encoding_type!r:.60}")
        self._record_cls = KeyValue
        self._key, self._value, self.encoding_type = key_schema, value_schema, encoding_type
        self._schema_info = _joined(key_schema.schema_info(), value_schema.schema_info(), encoding_type)

    def encode(self, obj: Any) -> bytes | None:
        """The payload: both, or the value alone where the key is separated; None for a None that stands alone."""
        self._validate_object_type(obj)
        value = None if obj.value is None else self._value.encode(obj.value)
        if self.encoding_type is KeyValueEncodingType.SEPARATED:
            return value
        return _framed(self._encoded_key(obj)) + _framed(value)

    def encode_key(self, obj: Any) -> bytes | None:
        """The message's key where it is separated; None for a None."""
        self._validate_object_type(obj)
        return self._encoded_key(obj)

    def decode(self, data: bytes) -> KeyValue:
        """Raises ValueError for a payload that is not both, and where the key is separated (`decode_separated`)."""
        return self._read(*_both(data, self.encoding_type), None)

    def decode_as_written(self, data: bytes, writer: SchemaInfo) -> KeyValue:
        """Decode each part by its own writer's schema in `writer`, whose encoding counts and not this schema's.

        Raises ValueError for a payload that is not both, and where `writer` separates the key (`decode_separated`).
        """
        return self._read(*_both(data, encoding_of(writer)), writer)

    def decode_separated(self, key: bytes | None, data: bytes | None, writer: SchemaInfo | None = None) -> KeyValue:
        """The KeyValue of a message's key and payload, None for what is null; written with `writer` or this schema."""
        return self._read(key, data, writer)

    def __str__(self) -> str:
        return f"KeyValueSchema({self._key}, {self._value}, {self.encoding_type.name})"

    def _encoded_key(self, obj: KeyValue) -> bytes | None:
        return None if obj.key is None else self._key.encode(obj.key)

    def _read(self, key: bytes | None, value: bytes | None, writer: SchemaInfo | None) -> KeyValue:
        if writer is None:
            return KeyValue(
                None if key is None else self._key.decode(key), None if value is None else self._value.decode(value)
            )
        parts = _parts(writer)
        return KeyValue(
            None if key is None else self._key.decode_as_written(key, parts["key"]),
            None if value is None else self._value.decode_as_written(value, parts["value"]),
        )


def encoding_of(info: SchemaInfo) -> KeyValueEncodingType:
    """The place of keys in messages of a KEY_VALUE schema; INLINE by default. Raises ValueError."""
    name = info.properties.get("kv.encoding.type", KeyValueEncodingType.INLINE.name)
    if name not in KeyValueEncodingType.__members__:
        raise ValueError(f"kv.encoding.type is {name!r:.60}; expected INLINE or SEPARATED")
    return KeyValueEncodingType[name]


def _both(data: bytes, encoding: KeyValueEncodingType) -> tuple[bytes | None, bytes | None]:
    if encoding is KeyValueEncodingType.SEPARATED:
        raise ValueError("the key is separated and not in the payload: decode_separated(key, payload) takes both")
    return inline_parts(data)


def inline_parts(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of an inline payload. Raises ValueError for a payload that is not both."""
    key, at = _part(data, 0, "key")
    value, _ = _part(data, at, "value")
    return key, value


@lru_cache(maxsize=128)
def _parts(writer: SchemaInfo) -> dict[str, SchemaInfo]:
    if writer.type is not SchemaType.KEY_VALUE:
        raise TypeError(f"expected a schema of type KEY_VALUE, got {writer.type.name} {writer.name!r:.60}")
    return split(writer)


def _joined(key: SchemaInfo, value: SchemaInfo, encoding_type: KeyValueEncodingType) -> SchemaInfo:
    properties = {"kv.encoding.type": encoding_type.name}
    definition = b""
    for part, info in (("key", key), ("value", value)):
        definition += _framed(info.schema if info.type in _STRUCTURED else b"")
        properties[f"{part}.schema.name"] = info.name
        properties[f"{part}.schema.type"] = info.type.name
        properties[f"{part}.schema.properties"] = json.dumps(
            dict(info.properties), ensure_ascii=False, separators=(",", ":"), sort_keys=True
        )
    return SchemaInfo.declared(SchemaType.KEY_VALUE, definition, "KeyValue", properties)


def _framed(data: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if data is None else _LENGTH.pack(len(data)) + data


def _part(data: bytes, at: int, name: str) -> tuple[bytes | None, int]:
    """The part whose length begins at `at`, and where it ends."""
    if len(data) < at + _LENGTH.size:
        raise ValueError(f"the payload ends at byte {len(data)}, before the length of the {name}")
    (length,) = _LENGTH.unpack_from(data, at)
    start = at + _LENGTH.size
    if length == -1:
        return None, start
    if length < 0 or start + length > len(data):
        raise ValueError(f"the {name} should have {length} bytes, where {len(data) - start} are left")
    return data[start : start + length], start + length
