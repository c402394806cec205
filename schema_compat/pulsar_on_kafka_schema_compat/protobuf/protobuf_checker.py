"""The checker of PROTOBUF_NATIVE schemas reads two messages and compares them.

    {"fileDescriptorSet": base64 of a FileDescriptorSet with all imports,
     "rootMessageTypeName": the full name of a message, nested ones included,
     "rootFileDescriptorName": the file that defines it}

Source: Pulsar's ProtobufNativeSchemaUtils. Differs from Pulsar: a released broker compares the roots' names alone, as
`ROOT_ONLY` does; fields are compared here unless the new schema's properties select that.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pulsar_on_kafka_schema_compat.base.json_text import NotJson, parse_json, shown
from pulsar_on_kafka_schema_compat.base.schema_model import Difference, SchemaInfo, UnreadableSchema
from pulsar_on_kafka_schema_compat.protobuf.descriptor_reading import DescriptorRecord, DescriptorSet
from pulsar_on_kafka_schema_compat.protobuf.descriptors import ProtobufMessage
from pulsar_on_kafka_schema_compat.protobuf.message_comparison import message_differences, root_differences

COMPATIBILITY_PROPERTY: Final = "protobuf.compatibility"
_ROOT_ONLY: Final = "root-only"


@dataclass(frozen=True, slots=True)
class ProtobufNativeChecker:
    """The checker judges messages by what `compare` (reader, writer) finds."""

    compare: Callable[[ProtobufMessage, ProtobufMessage], Iterator[Difference]]

    def parse(self, schema: SchemaInfo) -> ProtobufMessage:
        return read_protobuf_native(schema.schema)

    def differences(self, reader: ProtobufMessage, writer: ProtobufMessage) -> Iterator[Difference]:
        return self.compare(reader, writer)


FIELD_AWARE: Final = ProtobufNativeChecker(message_differences)
ROOT_ONLY: Final = ProtobufNativeChecker(root_differences)


def protobuf_native_checker(new: SchemaInfo) -> ProtobufNativeChecker:
    """The checker that the new schema selects with its property `protobuf.compatibility`."""
    return ROOT_ONLY if new.properties.get(COMPATIBILITY_PROPERTY) == _ROOT_ONLY else FIELD_AWARE


def read_protobuf_native(text: bytes) -> ProtobufMessage:
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


_MAX_NESTING: Final = 100
_NAMED: Final = 5


def definition_of_set(data: bytes, root: str | None = None) -> bytes:
    """The definition with message `root` (its full name; None where the set has one message that is not in another).

    `check_readable` decides whether it can be used.

    Raises:
        UnreadableSchema: no descriptor set, or no such message in it; the error names some of its messages.
    """
    found: dict[str, str] = {}
    outermost: list[str] = []
    for name, file, depth in _messages(data):
        found.setdefault(name, file)
        if depth == 1:
            outermost.append(name)
    if root is None:
        if len(outermost) != 1:
            raise UnreadableSchema(f"the message must be named: {_some(outermost)}")
        root = outermost[0]
    root = root.removeprefix(".")
    if root not in found:
        raise UnreadableSchema(f"the file descriptor set has no message {root!r:.200}: {_some(list(found))}")
    definition = {
        "fileDescriptorSet": base64.b64encode(data).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": found[root],
    }
    return json.dumps(definition).encode()


def _messages(data: bytes) -> Iterator[tuple[str, str, int]]:
    """Full name, file and depth (from 1) of each message."""
    for blob in DescriptorRecord(data, "the file descriptor set").blobs(1):
        file = DescriptorRecord(blob, "a file descriptor")
        waiting = deque((inner, file.text(2), 1) for inner in file.blobs(4))
        while waiting:
            inner, scope, depth = waiting.popleft()
            if depth > _MAX_NESTING:
                raise UnreadableSchema(f"{scope[:100]}... is nested deeper than {_MAX_NESTING} messages")
            message = DescriptorRecord(inner, f"a message of {scope[:100]}")
            name = f"{scope}.{message.text(1)}" if scope else message.text(1)
            yield name, file.text(1), depth
            waiting.extend((nested, name, depth + 1) for nested in message.blobs(3))


def _some(names: list[str]) -> str:
    if not names:
        return "it has none"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"it has {', '.join(name[:100] for name in names[:_NAMED])}{more}"
