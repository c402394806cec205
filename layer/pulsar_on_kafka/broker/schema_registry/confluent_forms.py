"""Schemas that Confluent's registry has a type for, and the headers by which its deserializers find them. Pure.

AVRO is Confluent's AVRO, JSON its JSON, and PROTOBUF_NATIVE its PROTOBUF. Each describes the values, or it is a part of
a KEY_VALUE schema whose keys are separated. Other schemas have no counterpart there. Decision: mapping/decisions/0034.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final
from uuid import UUID

from pulsar_on_kafka_mapping.ids.confluent_ids import header_value, schema_guid
from pulsar_on_kafka_mapping.records.record_headers import KEY_SCHEMA_ID, VALUE_SCHEMA_ID
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType, UnreadableSchema
from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.key_value import split
from pulsar_on_kafka_schema_compat.protobuf.descriptor_reading import DescriptorRecord

CONFLUENT_TYPES: Final[Mapping[SchemaType, str]] = {
    SchemaType.AVRO: "AVRO",
    SchemaType.JSON: "JSON",
    SchemaType.PROTOBUF_NATIVE: "PROTOBUF",
}


ConfluentHeaders = tuple[tuple[str, bytes], ...]
"""Headers of a record that name the schemas of its key and value."""


class RecordPart(str, Enum):
    """The part of a record that a schema describes; the value ends the subject's name."""

    KEY = "key"
    VALUE = "value"

    @property
    def header(self) -> str:
        return KEY_SCHEMA_ID if self is RecordPart.KEY else VALUE_SCHEMA_ID


def confluent_parts(info: SchemaInfo) -> dict[RecordPart, SchemaInfo]:
    """The schemas of a record's key and value that Confluent's registry has a type for. Raises nothing."""
    if info.type in CONFLUENT_TYPES:
        return {RecordPart.VALUE: info} if info.schema else {}
    if info.type is not SchemaType.KEY_VALUE or info.properties.get("kv.encoding.type") != "SEPARATED":
        return {}
    try:
        parts = split(info)
    except UnreadableSchema:
        return {}
    return {
        part: parts[part.value] for part in RecordPart if parts[part.value].type in CONFLUENT_TYPES and
        parts[part.value].schema
    }  # fmt: skip


def guid_of(part: SchemaInfo) -> UUID:
    """The GUID of what `confluent_parts` gives."""
    return schema_guid(part.type.name, hashlib.sha256(part.schema).hexdigest())


def schema_id_headers(info: SchemaInfo) -> list[tuple[str, bytes]]:
    """The headers of a record with this schema; none for a schema without a counterpart.

    Raises:
        UnreadableSchema: a Protobuf definition has no message of the name that it gives.
    """
    found = []
    for part, schema in confluent_parts(info).items():
        path = ProtobufDefinition.of(schema).message_path() if schema.type is SchemaType.PROTOBUF_NATIVE else None
        found.append((part.header, header_value(guid_of(schema), path)))
    return found


@dataclass(frozen=True, slots=True)
class ProtobufDefinition:
    """The files of a PROTOBUF_NATIVE definition, as serialized FileDescriptorProtos by name."""

    files: Mapping[str, bytes]
    root_file: str
    root_message: str
    """Full name, without a leading dot."""

    @classmethod
    def of(cls, schema: SchemaInfo) -> ProtobufDefinition:
        """Raises UnreadableSchema: it is no definition."""
        try:
            value: Any = parse_json(schema.schema)
            data = base64.b64decode(value["fileDescriptorSet"], validate=True)
            root_file, root_message = str(value["rootFileDescriptorName"]), str(value["rootMessageTypeName"])
        except (NotJson, KeyError, TypeError, binascii.Error, ValueError) as error:
            raise UnreadableSchema(f"no definition of Protobuf: {error}") from None
        files = {}
        for blob in DescriptorRecord(data, "the file descriptor set").blobs(1):
            files[DescriptorRecord(blob, "a file descriptor").text(1)] = blob
        if root_file not in files:
            raise UnreadableSchema(f"the file descriptor set has no file {root_file!r:.200}")
        return cls(files, root_file, root_message.removeprefix("."))

    def imports(self, file: str) -> list[str]:
        """Names of the files that this one imports."""
        return DescriptorRecord(self.files[file], f"the file {file!r:.200}").texts(3)

    def message_path(self) -> list[int]:
        """The place of the root message in its file: the index of the outermost message, then of each inner one."""
        record = DescriptorRecord(self.files[self.root_file], f"the file {self.root_file!r:.200}")
        package, inner = record.text(2), 4
        name = self.root_message
        if package:
            if not name.startswith(f"{package}."):
                raise UnreadableSchema(f"message {name!r:.200} is not in the package {package!r:.200} of its file")
            name = name[len(package) + 1 :]
        path = []
        for step in name.split("."):
            messages = [DescriptorRecord(blob, f"a message of {step!r:.200}") for blob in record.blobs(inner)]
            index = next((i for i, message in enumerate(messages) if message.text(1) == step), None)
            if index is None:
                raise UnreadableSchema(f"the file {self.root_file!r:.200} has no message {self.root_message!r:.200}")
            path.append(index)
            record, inner = messages[index], 3
        return path
