"""A KEY_VALUE schema holds two schemas in one.

    +-------------+------------+---------------+--------------+
    | key length  | key schema | value length  | value schema |     lengths: 4 bytes, big-endian, -1: no schema
    +-------------+------------+---------------+--------------+

Types, names and properties of the two stand in the properties of the whole. Whether keys are inlined or separated
(`kv.encoding.type`) changes nothing here.
Source: Pulsar `KeyValueSchemaInfo`, `KeyValueSchemaCompatibilityCheck`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.base.schema_model import (
    KEY_SCHEMA_TYPE_CHANGED,
    VALUE_SCHEMA_TYPE_CHANGED,
    CompatibilityStrategy,
    Incompatibility,
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
)
from pulsar_on_kafka_schema_compat.strategies import Version, unreadable_new, unreadable_version

CheckSameType = Callable[[SchemaInfo, Sequence[Version], CompatibilityStrategy], list[Incompatibility]]

_LENGTH: Final = struct.Struct(">i")
_ABSENT: Final = -1
_PARTS: Final = ("key", "value")
_DEFINED: Final = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE})
"""Types of parts that have a definition."""
_TYPE_CHANGED: Final = {"key": KEY_SCHEMA_TYPE_CHANGED, "value": VALUE_SCHEMA_TYPE_CHANGED}


def split(schema: SchemaInfo) -> dict[str, SchemaInfo]:
    """The schemas of `key` and `value`. A type that is not named is BYTES; an absent schema is an empty one.

    Raises:
        UnreadableSchema: the lengths are not those of the data, or a property is not what it should be.
    """
    data, at = schema.schema, 0
    parts: dict[str, SchemaInfo] = {}
    for part in _PARTS:
        if len(data) < at + _LENGTH.size:
            raise UnreadableSchema(f"it ends at byte {len(data)}, before the length of the {part} schema")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        end = at + max(length, 0)
        if length < _ABSENT or end > len(data):
            raise UnreadableSchema(f"the {part} schema has {length} bytes, where {len(data) - at} are left")
        parts[part] = SchemaInfo(
            _type_of(schema.properties, part),
            data[at:end],
            schema.properties.get(f"{part}.schema.name", ""),
            _properties_of(schema.properties, part),
        )
        at = end
    return parts


def _type_of(properties: Mapping[str, str], part: str) -> SchemaType:
    name = properties.get(f"{part}.schema.type", SchemaType.BYTES.name)
    if name not in SchemaType.__members__:
        raise UnreadableSchema(
            f"{part}.schema.type is {name!r:.60}; expected one of {', '.join(SchemaType.__members__)}"
        )
    return SchemaType[name]


def _properties_of(properties: Mapping[str, str], part: str) -> Mapping[str, str]:
    text = properties.get(f"{part}.schema.properties") or "{}"
    try:
        found = parse_json(text.encode("utf-8", "replace"))
    except NotJson as error:
        raise UnreadableSchema(f"{part}.schema.properties is not JSON: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UnreadableSchema(f"{part}.schema.properties must be an object of texts, got {text!r:.60}")
    return found


def rest_form(schema: SchemaInfo) -> str:
    """The form of Pulsar's REST API: an object of the two definitions, '' for one of a type that has none.

    Raises:
        UnreadableSchema: see `split`, or a definition is no JSON.
    Source: `SchemaUtils.convertKeyValueSchemaInfoDataToString`.
    """
    parts = split(schema)
    return "{" + ",".join(f'"{part}":{_definition(part, parts[part])}' for part in _PARTS) + "}"


def from_rest_form(text: str) -> bytes:
    """The definition of a KEY_VALUE schema in Pulsar's REST API (`rest_form`), as the schema has it.

    Raises:
        UnreadableSchema: the text is no object of a key's and a value's definition.
    Source: `SchemaUtils.convertKeyValueDataStringToSchemaInfoSchema`.
    """
    try:
        found = parse_json(text.encode())
    except (NotJson, UnicodeEncodeError) as error:
        raise UnreadableSchema(f"a KEY_VALUE schema is not JSON: {error}") from None
    if not isinstance(found, dict) or found.keys() != set(_PARTS):
        raise UnreadableSchema(f"expected an object of the schemas of key and value, got {text!r:.120}")
    data = b""
    for part in map(found.__getitem__, _PARTS):
        definition = part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, separators=(",", ":"))
        data += _LENGTH.pack(len(definition.encode())) + definition.encode()
    return data


def _definition(part: str, schema: SchemaInfo) -> str:
    if schema.type not in _DEFINED or not schema.schema:
        return '""'
    try:
        parse_json(schema.schema)
    except NotJson as error:
        raise UnreadableSchema(f"the {part} schema is not JSON: {error}") from None
    return schema.schema.decode("utf-8-sig")


def same_parts(schema: SchemaInfo, other: SchemaInfo) -> bool:
    """True when bytes and both types are the same: names, properties and the encoding of keys are no change."""
    types = [f"{part}.schema.type" for part in _PARTS]
    bytes_name = SchemaType.BYTES.name
    return schema.schema == other.schema and all(
        schema.properties.get(name, bytes_name) == other.properties.get(name, bytes_name) for name in types
    )


def check_key_value(
    new: SchemaInfo, versions: Sequence[Version], strategy: CompatibilityStrategy, check_same_type: CheckSameType
) -> list[Incompatibility]:
    """The incompatibilities of `new` with `versions`, all of type KEY_VALUE: by key and value, each by its own type.

    Args:
        check_same_type: checks two schemas of one type.
    """
    found: list[Incompatibility] = []
    try:
        own = split(new)
    except UnreadableSchema as error:
        found.append(unreadable_new(versions[0], error))
        own = {}
    facing: dict[str, list[Version]] = {part: [] for part in own}
    for version in versions:
        try:
            parts = split(version.schema)
        except UnreadableSchema as error:
            found.append(unreadable_version(version, error))
            continue
        for part, schema in own.items():
            old = parts[part]
            if old.type is schema.type:
                facing[part].append(Version(version.index, old))
            else:
                message = (
                    f"version {version.index}: its {part} has type {old.type.name}, the new one {schema.type.name}"
                )
                found.append(Incompatibility(f"{part}:", _TYPE_CHANGED[part], message, version.index))
    for part, schema in own.items():
        for one in check_same_type(schema, facing[part], strategy):
            found.append(replace(one, path=f"{part}:{one.path}", message=f"{part}, {one.message}"))
    return found
