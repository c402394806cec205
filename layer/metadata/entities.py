"""All entities of one compare-and-set state topic, whichever partition they are in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from layer.clock import Clock
from layer.deadline import Deadline
from layer.statelog.api import StateLog
from layer.statelog.compare_and_set import CompareAndSet, Versioned, VersionedKey
from mapping.state_keys import decode_key, encode_key
from mapping.state_topics import StateTopic

__all__ = ["Entities", "EntityKeys", "Versioned"]

E = TypeVar("E")


class EntityKeys(Generic[E]):
    """Keys of one kind (`TopicKey` ...) as the compare-and-set wants them; `fields` gives an entity's own."""

    def __init__(self, kind: type[Any], entity_of: Callable[[Any], E], fields: Callable[[E], tuple[str, ...]]) -> None:
        self._kind = kind
        self._entity_of = entity_of
        self._fields = fields

    def encode(self, entity: E, version: int, attempt: str) -> bytes:
        return encode_key(self._kind(*self._fields(entity), version, attempt))

    def decode(self, key: bytes) -> VersionedKey[E] | None:
        """None for a key of another kind. Raises CorruptRecord for no key at all."""
        found: Any = decode_key(key)
        if not isinstance(found, self._kind):
            return None
        return VersionedKey(self._entity_of(found), found.version, found.attempt)


class Entities(Generic[E]):
    """Thread-safe. `place` (the topic's or namespace's name) says in which partition an entity lies.

    Memory: the entities of the partitions that were asked for.
    """

    def __init__(self, log: StateLog, topic: StateTopic, keys: EntityKeys[E], clock: Clock) -> None:
        self._log = log
        self._topic = topic
        self._keys = keys
        self._clock = clock
        self._partitions: dict[int, CompareAndSet[E]] = {}
        self._lock = threading.Lock()

    def read(self, place: str, entity: E, deadline: Deadline) -> Versioned | None:
        return self._at(self._topic.partition_for(place)).read(entity, deadline)

    def update(
        self, place: str, entity: E, change: Callable[[Versioned | None], bytes | None], deadline: Deadline
    ) -> Versioned:
        """See `CompareAndSet.update`."""
        return self._at(self._topic.partition_for(place)).update(entity, change, deadline)

    def of_partition(self, place: str, deadline: Deadline) -> list[Versioned]:
        """Every entity that lies in the same partition as `place`."""
        return list(self._at(self._topic.partition_for(place)).entities(deadline).values())

    def all(self, deadline: Deadline) -> list[Versioned]:
        """Every entity; reads all partitions."""
        return [
            found
            for partition in range(self._topic.partitions)
            for found in self._at(partition).entities(deadline).values()
        ]

    def _at(self, partition: int) -> CompareAndSet[E]:
        with self._lock:
            store = self._partitions.get(partition)
            if store is None:
                store = self._partitions[partition] = CompareAndSet(
                    self._log, self._topic, partition, self._keys, clock=self._clock
                )
            return store
