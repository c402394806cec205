"""Answers of the registry are kept within a budget: a known schema costs no round trip to Kafka."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pulsar_on_kafka.broker.schema_registry.model import TopicLife
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat import SchemaInfo

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ENTRY_BYTES: Final = 500


class BoundedCache(Generic[K, V]):
    """Least recently used entries go when the sum of their sizes is above `max_bytes`. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """`size` in bytes, of key and value; what is above the whole budget is not kept."""
        size += _ENTRY_BYTES
        with self._lock:
            self._forget(key)
            if size > self._max_bytes:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._max_bytes:
                self._forget(next(iter(self._entries)))

    def forget(self, key: K) -> None:
        with self._lock:
            self._forget(key)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def _forget(self, key: K) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._bytes -= size

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True)
class SchemaQuestion:
    """A topic and a schema, by all distinguishing properties; not by a hash, which could collide."""

    life: TopicLife
    type: str
    schema: bytes
    properties: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, life: TopicLife, info: SchemaInfo) -> SchemaQuestion:
        return cls(life, info.type.name, info.schema, frozenset(info.properties.items()))

    @property
    def size_bytes(self) -> int:
        return len(self.life.topic) + len(self.schema) + sum(len(name) + len(text) for name, text in self.properties)


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """`version` was live when `newest` was the topic's newest version, deletions included."""

    version: SchemaVersion
    newest: SchemaVersion
    found_at_s: float
    """The time of the look-up on the monotonic clock."""
