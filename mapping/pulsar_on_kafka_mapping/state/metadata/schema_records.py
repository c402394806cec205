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
from typing import Final

import msgspec

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.state.codecs.json_records import Int64, json_record

MAX_DEFINITION_BYTES: Final = 5 * 1024 * 1024
"""Pulsar's `maxMessageSize` is the same."""
MAX_RECORD_BYTES: Final = MAX_DEFINITION_BYTES + 256 * 1024
"""The limit with name and properties. The state topic allows as much again for the key and Kafka's own bytes."""

_BRIEF: Final = 100


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A record holds one version of a schema. `type` is a name of Pulsar's SchemaType; `user` the role that registered
    or deleted it, "" for unknown.

    `forced` marks a deletion of unreadable schemas, or one with force; with `removes` earlier versions no longer count.
    """

    type: str
    schema: bytes
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    timestamp_ms: Int64 = 0
    deleted: bool = False
    forced: bool = False
    removes: bool = False

    @property
    def sha256(self) -> str:
        """Hexadecimal, of the definition's bytes."""
        return hashlib.sha256(self.schema).hexdigest()


def deletion(user: str, timestamp_ms: int, *, forced: bool, removes: bool = False) -> SchemaRecord:
    """The record that ends a topic's schemas; the next one takes the number after this one's."""
    return SchemaRecord("NONE", b"", "", {}, user, timestamp_ms, deleted=True, forced=forced, removes=removes)


class _Head(msgspec.Struct, omit_defaults=True):
    type: str
    name: str
    properties: Mapping[str, str]
    user: str
    timestamp_ms: Int64
    deleted: bool
    forced: bool
    sha256: str
    removes: bool = False


_HEADS: Final = json_record("schema record", _Head)


def encode_schema(record: SchemaRecord) -> bytes:
    """The inverse of `decode_schema`.

    Raises:
        MappingError: more than `MAX_DEFINITION_BYTES`, or `MAX_RECORD_BYTES` in all; or text that is no Unicode.
    """
    check_definition_size(record.type, record.name, record.schema)
    line = _HEADS.encode(_Head(**{name: getattr(record, name) for name in _Head.__struct_fields__}))
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
    """Raises CorruptRecord, or NewerFormat."""
    line, feed, schema = value.partition(b"\n")
    head = _HEADS.decode(line)
    if not feed:
        raise CorruptRecord(f"schema record has no line with a definition: {value[:_BRIEF]!r}")
    record = SchemaRecord(
        head.type, schema, head.name, head.properties, head.user, head.timestamp_ms, head.deleted, head.forced,
        head.removes,
    )  # fmt: skip
    if head.sha256 != record.sha256:
        raise CorruptRecord(
            f"schema record's definition has {len(schema)} bytes with SHA-256 {record.sha256}, "
            f"written was one with {head.sha256!r:.70}"
        )
    return record
