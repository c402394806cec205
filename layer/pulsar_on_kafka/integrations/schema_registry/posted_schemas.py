"""Schemas that a client posts, to be looked up or judged. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.broker.schema_registry.confluent_forms import CONFLUENT_TYPES, ProtobufDefinition
from pulsar_on_kafka.integrations.schema_registry.errors import invalid_schema
from pulsar_on_kafka.integrations.schema_registry.subjects import SubjectVersion
from pulsar_on_kafka_mapping.encoding.varint import varint
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType, UnreadableSchema, check_readable, same_schema
from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json
from pulsar_on_kafka_schema_compat.protobuf.descriptor_reading import DescriptorRecord

MAX_POSTED_BYTES: Final = 6 * 1024 * 1024
"""The largest body: a definition has at most 5 MiB."""
_TYPES: Final = {name: kind for kind, name in CONFLUENT_TYPES.items()}
_FILES: Final = b"\x0a"
"""The key of `file` in a FileDescriptorSet."""


@dataclass(frozen=True, slots=True)
class PostedSchema:
    """A schema in Confluent's form."""

    type: SchemaType
    text: str

    @classmethod
    def parse(cls, body: bytes) -> PostedSchema:
        """The schema of a request's body. Raises RegistryError: it is no schema."""
        try:
            value = parse_json(body)
        except NotJson as error:
            raise invalid_schema(f"the body is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise invalid_schema('expected an object {"schema": ..., "schemaType": ...}')
        text, kind = value.get("schema"), value.get("schemaType") or "AVRO"
        if not isinstance(text, str) or not text:
            raise invalid_schema(f"schema must be a text that is not empty, got {text!r:.60}")
        if kind not in _TYPES:
            raise invalid_schema(f"schemaType is {kind!r:.60}, expected one of {', '.join(_TYPES)}")
        posted = cls(_TYPES[kind], text)
        posted.check()
        return posted

    def check(self) -> None:
        """Raises RegistryError: the text is none of its type."""
        if self.type is SchemaType.PROTOBUF_NATIVE:
            self._file()
            return
        try:
            check_readable(SchemaInfo(self.type, self.text.encode("utf-8", "replace")))
        except UnreadableSchema as error:
            raise invalid_schema(str(error)) from error

    def is_same(self, version: SubjectVersion) -> bool:
        """Whether a subject's version is this schema: by meaning (AVRO), or by the value of its document or file."""
        if version.schema.type is not self.type:
            return False
        text = version.text()
        if self.text == text:
            return True
        if self.type is SchemaType.AVRO:
            return same_schema(SchemaInfo(self.type, self.text.encode("utf-8", "replace")), version.schema)
        if self.type is SchemaType.JSON:
            return bool(_json(self.text) == _json(text))
        return self._file() == base64.b64decode(text)

    def beside(self, version: SubjectVersion) -> tuple[SchemaInfo, SchemaInfo]:
        """This schema and that of the version in one form, to be compared.

        Raises:
            RegistryError: the file of Protobuf has no message of the version's name.
        """
        if self.type is SchemaType.PROTOBUF_NATIVE and version.schema.type is self.type:
            return self._definition(ProtobufDefinition.of(version.schema)), version.schema
        new = SchemaInfo(self.type, self.text.encode("utf-8", "replace"))
        if self.type is SchemaType.JSON and version.schema.type is self.type:
            return new, SchemaInfo(self.type, version.text().encode())
        return new, version.schema

    def _file(self) -> bytes:
        try:
            data = base64.b64decode(self.text, validate=True)
            DescriptorRecord(data, "the file").text(1)
        except (binascii.Error, ValueError, UnreadableSchema) as error:
            raise invalid_schema(f"a PROTOBUF schema is the base64 of a FileDescriptorProto here: {error}") from error
        return data

    def _definition(self, old: ProtobufDefinition) -> SchemaInfo:
        """The definition whose root file is the posted one; imported files and the root message are the old one's."""
        data = self._file()
        name = DescriptorRecord(data, "the file").text(1)
        files = {file: blob for file, blob in old.files.items() if file != old.root_file} | {name: data}
        together = b"".join(_FILES + varint(len(blob)) + blob for blob in files.values())
        definition = {
            "fileDescriptorSet": base64.b64encode(together).decode(),
            "rootMessageTypeName": old.root_message,
            "rootFileDescriptorName": name,
        }
        found = SchemaInfo(SchemaType.PROTOBUF_NATIVE, json.dumps(definition).encode())
        try:
            check_readable(found)
        except UnreadableSchema as error:
            raise invalid_schema(str(error)) from error
        return found


def _json(text: str) -> Any:
    try:
        return parse_json(text.encode("utf-8", "replace"))
    except NotJson as error:
        raise invalid_schema(f"no JSON: {error}") from None
