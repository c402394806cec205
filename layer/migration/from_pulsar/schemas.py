"""A schema as Pulsar's admin API tells it. Pure.

The definition of a KEY_VALUE schema is told as JSON, `{"key": ..., "value": ...}`; it is kept as both definitions with
their lengths (4 bytes, big endian) before them. Source: Pulsar's convertKeyValueDataStringToSchemaInfoSchema.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType

_LENGTH: Final = struct.Struct(">i")
_SEPARATED: Final = "SEPARATED"


def schema_of(told: Mapping[str, Any], topic: TopicName) -> SchemaInfo:
    """One of `getSchemaResponses`. Raises Corrupt: it is not understood."""
    try:
        kind = SchemaType[told["type"]]
        properties = {str(key): str(value) for key, value in (told.get("properties") or {}).items()}
        data: str = told["data"]
        if kind is not SchemaType.KEY_VALUE:
            return SchemaInfo(kind, data.encode("utf-8"), topic.local_name, properties)
        both = json.loads(data)
        definition = b"".join(
            _LENGTH.pack(len(part)) + part for part in (_part(both[name]) for name in ("key", "value"))
        )
        return SchemaInfo(kind, definition, "KeyValue", properties)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.Corrupt(f"a schema of {topic} is told as {told!r:.200}: {type(error).__name__} {error}") from error


def separates_keys(info: SchemaInfo) -> bool:
    """Whether messages of this schema have their keys in base64, as Pulsar's clients write them."""
    return info.type is SchemaType.KEY_VALUE and info.properties.get("kv.encoding.type") == _SEPARATED


def _part(told: object) -> bytes:
    if told is None or told == "":
        return b""
    return (told if isinstance(told, str) else json.dumps(told, separators=(",", ":"), ensure_ascii=False)).encode()
