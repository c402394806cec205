"""Converts a schema of Pulsar's admin API. Pure.

The API returns the definition of a KEY_VALUE schema as JSON, `{"key": ..., "value": ...}`; this product stores both
definitions with their lengths (4 bytes, big endian) before them. Source: Pulsar's
convertKeyValueDataStringToSchemaInfoSchema.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType

_log: Final = logging.getLogger(__name__)

_LENGTH: Final = struct.Struct(">i")
_SEPARATED: Final = "SEPARATED"


def schema_of(reported: Mapping[str, Any], topic: TopicName) -> SchemaInfo:
    """One of `getSchemaResponses`. Raises Corrupt: it is not understood."""
    try:
        kind = SchemaType[reported["type"]]
        properties = {str(key): str(value) for key, value in (reported.get("properties") or {}).items()}
        data: str = reported["data"]
        if kind is not SchemaType.KEY_VALUE:
            return SchemaInfo(kind, data.encode("utf-8"), topic.local_name, properties)
        both = json.loads(data)
        definition = b"".join(
            _LENGTH.pack(len(part)) + part for part in (_part(both[name]) for name in ("key", "value"))
        )
        return SchemaInfo(kind, definition, "KeyValue", properties)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.Corrupt(
            f"a schema of {topic} is returned as {reported!r:.200}: {type(error).__name__} {error}"
        ) from error


def separates_keys(info: SchemaInfo) -> bool:
    """Whether messages of this schema have their keys in base64, as Pulsar's clients write them."""
    return info.type is SchemaType.KEY_VALUE and info.properties.get("kv.encoding.type") == _SEPARATED


def _part(reported: object) -> bytes:
    if reported is None or reported == "":
        return b""
    return (
        reported if isinstance(reported, str) else json.dumps(reported, separators=(",", ":"), ensure_ascii=False)
    ).encode()


_ASK_S: Final = 60.0
_WHATEVER_IT_IS: Final = SchemaPolicies(CompatibilityStrategy.ALWAYS_COMPATIBLE)
"""Compatibility was checked where the schema was registered."""


class SchemasHere:
    """The schemas of a topic here, in one thread. Memory: a header for each version of the topic."""

    def __init__(self, node: Node, topic: TopicName, request: Callable[[], Mapping[int, SchemaInfo]]) -> None:
        """`request`: returns Pulsar's schemas of the topic, by version in order."""
        self._node = node
        self._topic = topic.base
        self._query = request
        self._known: dict[int, tuple[bytes | None, bool]] = {-1: (None, False)}

    def register(self, versions: Mapping[int, SchemaInfo]) -> None:
        """Registers all of them here, in order; existing ones stay. Raises LayerError."""
        for number, info in versions.items():
            if number not in self._known:
                deadline = Deadline.after(_ASK_S)
                version = self._node.schemas.for_producer(self._topic, info, deadline, _WHATEVER_IT_IS)
                self._known[number] = (None if version is None else version.header(), separates_keys(info))

    def of(self, number: int) -> tuple[bytes | None, bool]:
        """The header that names the schema here, and whether it has keys in base64. A version that Pulsar does not
        return (it was deleted) has no header: its messages are bytes. Raises LayerError."""
        known = self._known.get(number)
        if known is None:
            self.register(self._query())
            if number not in self._known:
                _log.warning("topic=%s Pulsar's schema version %d is gone; its messages name none", self._topic, number)
            known = self._known.setdefault(number, (None, False))
        return known
