"""All entities of one compare-and-set state topic, whichever partition they are in."""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.compare_and_set import CompareAndSet, Versioned, VersionedKey
from pulsar_on_kafka.statelog.versioned import Keeping
from pulsar_on_kafka.statelog.views import ByPartition
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.state_keys import decode_key, encode_key
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

__all__ = ["Entities", "EntityKeys", "Versioned", "readable"]

_log: Final = logging.getLogger(__name__)

E = TypeVar("E")
T = TypeVar("T")


def _made_of(*fields: str) -> Any:
    return fields[0] if len(fields) == 1 else fields


def _fields_of(entity: Any) -> tuple[str, ...]:
    return (entity,) if isinstance(entity, str) else entity


class EntityKeys(Generic[E]):
    """Keys of one kind (`TopicKey` ...) in the form of the compare-and-set: an entity's own fields, of which the first
    is its place, then version and attempt."""

    def __init__(
        self,
        kind: type[Any],
        entity_of: Callable[..., E] = _made_of,
        fields: Callable[[E], tuple[str, ...]] = _fields_of,
        place: str = "",
    ) -> None:
        """`entity_of` makes an entity of its fields, which `fields` gives; `place`: of one that has none."""
        self._kind = kind
        self._entity_of = entity_of
        self._fields = fields
        self._place = place

    def place_of(self, entity: E) -> str:
        return (*self._fields(entity), self._place)[0]

    def encode(self, entity: E, version: int, attempt: str) -> bytes:
        return encode_key(self._kind(*self._fields(entity), version, attempt))

    def decode(self, key: bytes) -> VersionedKey[E] | None:
        """None for a key of another kind. Raises CorruptRecord for no key at all."""
        found: Any = decode_key(key)
        if not isinstance(found, self._kind):
            return None
        own = msgspec.structs.astuple(found)[:-2]
        return VersionedKey(self._entity_of(*own), found.version, found.attempt)


def readable(states: Iterable[Versioned], decode: Callable[[bytes], T]) -> Iterator[T]:
    """The values of several entities. An unreadable one is skipped and logged: it affects its own entity alone."""
    for state in states:
        try:
            yield decode(state.value)
        except CorruptRecord as failure:
            _log.warning("offset=%d of a state topic is skipped, `pok doctor` shows more: %s", state.offset, failure)


class Entities(Generic[E]):
    """Entities of one kind in a state topic. Thread-safe. An entity's place (the topic's or namespace's name) decides
    its partition.

    Memory: the entities of the partitions in use.
    """

    def __init__(
        self,
        log: StateLog,
        topic: StateTopic,
        keys: EntityKeys[E],
        clock: Clock,
        keeping: Keeping[E] | None = None,
    ) -> None:
        self._log = log
        self._topic = topic
        self._keys = keys
        self._at = ByPartition(
            lambda partition: CompareAndSet(log, topic, partition, keys, clock=clock, keeping=keeping)
        ).of

    def of(self, entity: E) -> CompareAndSet[E]:
        """The partition that it lies in."""
        return self._at(self._topic.partition_for(self._keys.place_of(entity)))

    def read(self, entity: E, deadline: Deadline) -> Versioned | None:
        return self.of(entity).read(entity, deadline)

    def read_together(self, entities: Iterable[E], deadline: Deadline) -> dict[E, Versioned | None]:
        """The states of several entities: each partition is read to its end once."""
        beside: defaultdict[CompareAndSet[E], list[E]] = defaultdict(list)
        for entity in entities:
            beside[self.of(entity)].append(entity)
        found: dict[E, Versioned | None] = {}
        for partition, together in beside.items():
            found |= partition.read_all(together, deadline)
        return found

    def update(self, entity: E, change: Callable[[Versioned | None], bytes | None], deadline: Deadline) -> Versioned:
        return self.of(entity).update(entity, change, deadline)

    def amend(self, entity: E, change: Callable[[Versioned], bytes | None], deadline: Deadline) -> Versioned | None:
        return self.of(entity).amend(entity, change, deadline)

    def in_partition(
        self, partition: int, decode: Callable[[bytes], T], deadline: Deadline
    ) -> dict[E, tuple[Versioned, T]]:
        """Every entity of one partition of the state topic whose value can be read, with its state."""
        found = self._at(partition).entities(deadline)
        return {entity: (state, value) for entity, state in found.items() for value in readable([state], decode)}

    def remove_dead(self, partition: int, dead: Mapping[E, Versioned], deadline: Deadline) -> int:
        """`dead`: entities with the states in which they were seen."""
        versions = {entity: state.version for entity, state in dead.items()}
        return self._at(partition).remove_dead(versions, deadline) if versions else 0

    def touch(self, entity: E, deadline: Deadline) -> None:
        """Appends the tombstone of an attempt that does not exist, for the timestamp of the reply. It changes
        nothing."""
        key = self._keys.encode(entity, 1, secrets.token_hex(16))
        self._log.append(self._topic, self._topic.partition_for(self._keys.place_of(entity)), key, None, deadline)

    def at(self, place: str, deadline: Deadline) -> dict[E, Versioned]:
        """The entities of `place`, with their states."""
        return self._at(self._topic.partition_for(place)).entities_at(place, deadline)

    def beside(self, place: str, deadline: Deadline) -> dict[E, Versioned]:
        """Every entity that lies in the same partition as `place`, with its state."""
        return self._at(self._topic.partition_for(place)).entities(deadline)

    def histories(self, deadline: Deadline) -> Iterator[tuple[E, list[Versioned]]]:
        """Every entity with the winners of its versions, oldest first; reads all partitions."""
        for partition in range(self._topic.partitions):
            yield from self._at(partition).histories(deadline).items()

    def all(self, deadline: Deadline) -> list[Versioned]:
        """Every entity; reads all partitions."""
        return [
            found
            for partition in range(self._topic.partitions)
            for found in self._at(partition).entities(deadline).values()
        ]
