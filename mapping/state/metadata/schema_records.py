"""A value of the `schemas` state topic is one version of a topic's schema, or its deletion.

    {"v":1,"type":"AVRO","name":"Order", ... ,"sha256":"9f86..."}   LF  schema
    |<-- a JSON object, no line feed in it ---------------------->|      |<-- the definition's bytes, as they were given

People read the first line with Kafka's own tools, and most definitions too. The version is the key's, less one. A
deletion has no schema, and `removes` only where it is true. An unknown field is ignored, a missing or mistyped one is
corrupt, as is a definition that `sha256` is not the hash of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord, MappingError

FORMAT: Final = 1
MAX_DEFINITION_BYTES: Final = 5 * 1024 * 1024
"""Pulsar's `maxMessageSize` is the same."""
MAX_RECORD_BYTES: Final = MAX_DEFINITION_BYTES + 256 * 1024
"""With name and properties. The state topic takes as much again for the key and Kafka's own bytes."""

_FIELD_TYPES: Final[Mapping[str, type[object]]] = {
    "type": str,
    "name": str,
    "properties": dict,
    "user": str,
    "timestamp_ms": int,
    "deleted": bool,
    "forced": bool,
    "sha256": str,
}
_BRIEF: Final = 100


class NewerFormat(CorruptRecord):
    """A later version of this project wrote the record, and can read it."""


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A record holds one version of a schema. `type` is a name of Pulsar's SchemaType; `user` who registered or
    deleted, "" for unknown.

    `forced` marks a deletion of schemas that nobody could read, or that was asked for with force; with `removes` what
    stands before it counts for nobody any more.
    """

    type: str
    schema: bytes
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    timestamp_ms: int = 0
    deleted: bool = False
    forced: bool = False
    removes: bool = False

    @property
    def sha256(self) -> str:
        """Hexadecimal, of the definition's bytes."""
        return hashlib.sha256(self.schema).hexdigest()


def deletion(user: str, timestamp_ms: int, *, forced: bool, removes: bool = False) -> SchemaRecord:
    """What ends a topic's schemas; the next one takes the number after this one's."""
    return SchemaRecord("NONE", b"", "", {}, user, timestamp_ms, deleted=True, forced=forced, removes=removes)


def encode_schema(record: SchemaRecord) -> bytes:
    """The inverse of `decode_schema`.

    Raises:
        MappingError: more than `MAX_DEFINITION_BYTES`, or `MAX_RECORD_BYTES` in all; or text that is no Unicode.
    """
    check_definition_size(record.type, record.name, record.schema)
    head = {name: getattr(record, name) for name in _FIELD_TYPES}
    if record.removes:
        head["removes"] = True
    try:
        line = orjson.dumps({"v": FORMAT, **head, "properties": dict(record.properties)}, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise MappingError(f"schema {record.name!r:.60} of type {record.type} cannot be written: {error}") from error
    size = len(line) + 1 + len(record.schema)
    if size > MAX_RECORD_BYTES:
        raise MappingError(
            f"schema {record.name!r:.60} of type {record.type} takes {size} bytes with its properties "
            f"({len(record.schema)} for the definition), at most {MAX_RECORD_BYTES} can be kept"
        )
    return line + b"\n" + record.schema


def check_definition_size(type_name: str, name: str, schema: bytes) -> None:
    """Raises MappingError for a definition of more than `MAX_DEFINITION_BYTES`."""
    if len(schema) > MAX_DEFINITION_BYTES:
        raise MappingError(
            f"the definition of schema {name!r:.60} of type {type_name} has {len(schema)} bytes, at most "
            f"{MAX_DEFINITION_BYTES} can be kept"
        )


def decode_schema(value: bytes) -> SchemaRecord:
    """Raises CorruptRecord, or NewerFormat for a format number above `FORMAT`."""
    line, feed, schema = value.partition(b"\n")
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"schema record does not begin with JSON: {value[:_BRIEF]!r} ({error})") from error
    if isinstance(parsed, dict) and type(parsed.get("v")) is int and parsed["v"] > FORMAT:
        raise NewerFormat(f"schema record has v={parsed['v']}, this version reads v={FORMAT}")
    if not feed or not isinstance(parsed, dict) or parsed.get("v") != FORMAT:
        raise CorruptRecord(f"schema record is no object with v={FORMAT} and a definition: {value[:_BRIEF]!r}")
    record = SchemaRecord(schema=schema, **_head(parsed))
    if parsed["sha256"] != record.sha256:
        raise CorruptRecord(
            f"schema record's definition has {len(schema)} bytes with SHA-256 {record.sha256}, "
            f"written was one with {parsed['sha256']!r:.70}"
        )
    return record


def _head(parsed: Mapping[str, Any]) -> dict[str, Any]:
    for name, wanted in _FIELD_TYPES.items():
        if type(parsed.get(name)) is not wanted:
            raise CorruptRecord(f"schema record's {name} is {parsed.get(name)!r:.60}, expected {wanted.__name__}")
    if not all(isinstance(text, str) for text in parsed["properties"].values()):
        raise CorruptRecord(f"schema record's properties are {parsed['properties']!r:.60}, expected texts")
    head = {name: parsed[name] for name in _FIELD_TYPES if name != "sha256"}
    return {**head, "removes": parsed.get("removes") is True}
