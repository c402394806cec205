"""The checker of PROTOBUF_NATIVE schemas reads two messages and compares them.

    {"fileDescriptorSet": base64 of a FileDescriptorSet with all imports,
     "rootMessageTypeName": the full name of a message, nested ones included,
     "rootFileDescriptorName": the file that defines it}

Source: Pulsar's ProtobufNativeSchemaUtils. Differs from Pulsar: a released broker compares the roots' names alone, as
`ROOT_ONLY` does; fields are compared here unless the new schema's properties ask for that.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka.schema_compat.base.json_text import NotJson, parse_json, shown
from pulsar_on_kafka.schema_compat.base.schema_model import Difference, SchemaInfo, UnreadableSchema
from pulsar_on_kafka.schema_compat.protobuf.descriptor_reading import DescriptorSet
from pulsar_on_kafka.schema_compat.protobuf.descriptors import Message
from pulsar_on_kafka.schema_compat.protobuf.message_comparison import message_differences, root_differences

COMPATIBILITY_PROPERTY: Final = "protobuf.compatibility"
_ROOT_ONLY: Final = "root-only"


@dataclass(frozen=True, slots=True)
class ProtobufNativeChecker:
    """The checker judges messages by what `compare` (reader, writer) finds."""

    compare: Callable[[Message, Message], Iterator[Difference]]

    def parse(self, schema: SchemaInfo) -> Message:
        return read_protobuf_native(schema.schema)

    def differences(self, reader: Message, writer: Message) -> Iterator[Difference]:
        return self.compare(reader, writer)


FIELD_AWARE: Final = ProtobufNativeChecker(message_differences)
ROOT_ONLY: Final = ProtobufNativeChecker(root_differences)


def protobuf_native_checker(new: SchemaInfo) -> ProtobufNativeChecker:
    """The checker that the new schema asks for with its property `protobuf.compatibility`."""
    return ROOT_ONLY if new.properties.get(COMPATIBILITY_PROPERTY) == _ROOT_ONLY else FIELD_AWARE


def read_protobuf_native(text: bytes) -> Message:
    """The root message of a PROTOBUF_NATIVE definition.

    Raises:
        UnreadableSchema: it is not of the form above.
    """
    try:
        value = parse_json(text)
    except NotJson as error:
        raise UnreadableSchema(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise UnreadableSchema(f"a protobuf definition is a JSON object, not {shown(value)}")
    encoded, root, file = (
        _text(value, name) for name in ("fileDescriptorSet", "rootMessageTypeName", "rootFileDescriptorName")
    )
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnreadableSchema(f"fileDescriptorSet is no base64: {error}") from None
    return DescriptorSet(data, file).message(root.removeprefix("."), file)


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found:
        raise UnreadableSchema(f"{name} must be a string that is not empty, got {shown(found)}")
    return found
