"""A FileDescriptorSet, as `protoc --descriptor_set_out` writes it, becomes a PROTOBUF_NATIVE definition."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterator
from typing import Final

from pulsar_on_kafka.schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka.schema_compat.protobuf.descriptor_reading import Record

_MAX_NESTING: Final = 100
_NAMED: Final = 5


def definition_of_set(data: bytes, root: str | None = None) -> bytes:
    """The definition with message `root` (its full name; None where the set has one message that is not in another).

    Whether it can be used is for `check_readable` to say.

    Raises:
        UnreadableSchema: no descriptor set, or no such message in it; the message names some that are.
    """
    found: dict[str, str] = {}
    outermost: list[str] = []
    for name, file, depth in _messages(data):
        found.setdefault(name, file)
        if depth == 1:
            outermost.append(name)
    if root is None:
        if len(outermost) != 1:
            raise UnreadableSchema(f"which message is meant must be said: {_some(outermost)}")
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
    for blob in Record(data, "the file descriptor set").blobs(1):
        file = Record(blob, "a file descriptor")
        waiting = deque((inner, file.text(2), 1) for inner in file.blobs(4))
        while waiting:
            inner, scope, depth = waiting.popleft()
            if depth > _MAX_NESTING:
                raise UnreadableSchema(f"{scope[:100]}... is nested deeper than {_MAX_NESTING} messages")
            message = Record(inner, f"a message of {scope[:100]}")
            name = f"{scope}.{message.text(1)}" if scope else message.text(1)
            yield name, file.text(1), depth
            waiting.extend((nested, name, depth + 1) for nested in message.blobs(3))


def _some(names: list[str]) -> str:
    if not names:
        return "it has none"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"it has {', '.join(name[:100] for name in names[:_NAMED])}{more}"
