"""Compare-and-set decides the state of an entity when any process may propose the next one and Kafka cannot append
conditionally.

Every record is an entity's whole state; its key names entity, version and attempt, and is written once. The state is
*the first record, in log order, of the highest version present*. That needs no history, so readers agree after any
compaction, as long as records are cleaned in one order: losers of a version before its winner, and never the winner of
the highest version. Pure: no log, no clock.

A dead entity can be removed with all its records. Its versions must not be reused: an earlier proposal that arrives
late would stand above those of a recreated entity. So removing opens an *epoch* of the partition first, a record that
stays, and versions of new entities lie behind those of all earlier epochs. Two processes that create the same entity
may have read different epochs; a first version is void behind any record of a lower version. Decision:
mapping/decisions/0026.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.state_keys import epoch_of

E = TypeVar("E")
"""The identity of an entity; hashable."""

EPOCH_VERSIONS: Final = 1 << 32
"""More than an entity ever has in one life: version 1 of epoch e is e times this, plus 1."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """The record that stands for one version of an entity. Versions count from 1. `value`: or what is kept of it.
    `written_ms`: by the log's clock; 0 where it was not read from the log."""

    version: int
    offset: int
    attempt: str
    value: bytes
    written_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class VersionedKey(Generic[E]):
    """The content of a key; `attempt` is random hexadecimal text, so that no two proposals share a key."""

    entity: E
    version: int
    attempt: str


class VersionedKeys(Protocol[E]):
    """Codec of such keys: one byte form each, because compaction compares bytes."""

    def encode(self, entity: E, version: int, attempt: str) -> bytes: ...

    def decode(self, key: bytes) -> VersionedKey[E] | None:
        """None for a key of another kind in the same topic. Raises ValueError for bytes that cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Won:
    """The proposal is the state: version and offset of its record."""

    version: int
    offset: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Another process's record is this version; the proposal never took effect, nor will it."""

    state: Versioned


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The proposal took effect and was superseded, or it did not; or it is still on its way. `state` is what stands."""

    state: Versioned | None


Outcome: TypeAlias = Won | Lost | OutcomeUnknown


def judge(version: int, attempt: str, state: Versioned | None, winner: Versioned | None = None) -> Outcome:
    """The outcome of the proposal (version, attempt), given the state at an end that was taken after its append.

    A lower version stands there only when the append was not acknowledged: the record may still arrive, and win. A
    higher one proves nothing: compaction may have deleted the evidence. Where winners are never cleaned it cannot:
    `winner` is the version's first record then, if there is one.
    """
    decisive = winner or state
    if state is None or decisive is None or decisive.version != version:
        return OutcomeUnknown(state)
    if decisive.attempt != attempt:
        return Lost(state)
    return Won(version, decisive.offset)


def whole(value: bytes) -> bytes:
    return value


@dataclass(frozen=True, slots=True)
class Keeping(Generic[E]):
    """The retained parts of entities: in the log the winner of every version (schemas), or else superseded ones are
    cleaned; in memory, and for readers, `value` of each value (it raises nothing; with another one than `whole` there
    is no `update`). `place_of`: the place of an entity, for reads of all entities of one place."""

    winners: bool = False
    value: Callable[[bytes], bytes] = whole
    place_of: Callable[[E], str] | None = None


class VersionedEntities(Generic[E]):
    """The entities of one partition, as a fold. Keeps what is neither tombstoned nor compacted.

    Memory: some 600 bytes a record, and `kept` of its value, which raises nothing.
    """

    def __init__(
        self,
        keys: VersionedKeys[E],
        kept: Callable[[bytes], bytes] = whole,
        place_of: Callable[[E], str] | None = None,
    ) -> None:
        self._keys = keys
        self._kept = kept
        self._place_of = place_of
        self._at: dict[str, set[E]] = {}
        self._epochs: set[int] = set()
        self._versions: dict[E, dict[int, dict[str, Versioned]]] = {}  # attempts in log order

    def apply(self, record: LogRecord) -> None:
        """Raises ValueError for a key that cannot be read; then nothing has changed."""
        epoch = epoch_of(record.key)
        if epoch is not None:
            (self._epochs.discard if record.value is None else self._epochs.add)(epoch)
            return
        key = self._keys.decode(record.key)
        if key is None:
            return
        if record.value is None:
            self._forget(key)
        else:
            if self._place_of is not None and key.entity not in self._versions:
                self._at.setdefault(self._place_of(key.entity), set()).add(key.entity)
            attempts = self._versions.setdefault(key.entity, {}).setdefault(key.version, {})
            if key.attempt not in attempts:
                value = self._kept(record.value)
                attempts[key.attempt] = Versioned(key.version, record.offset, key.attempt, value, record.timestamp_ms)

    def _forget(self, key: VersionedKey[E]) -> None:
        versions = self._versions.get(key.entity, {})
        attempts = versions.get(key.version, {})
        attempts.pop(key.attempt, None)
        if not attempts:
            versions.pop(key.version, None)
        if not versions and self._versions.pop(key.entity, None) is not None and self._place_of is not None:
            place = self._place_of(key.entity)
            self._at[place].discard(key.entity)
            if not self._at[place]:
                del self._at[place]

    @property
    def epochs(self) -> list[int]:
        """The recorded epochs, in order; the last one counts."""
        return sorted(self._epochs)

    @property
    def first_version(self) -> int:
        """The version that an entity begins with that is not there."""
        return max(self._epochs, default=0) * EPOCH_VERSIONS + 1

    def state(self, entity: E) -> Versioned | None:
        """The entity's state; None before the first write."""
        versions = self._versions.get(entity)
        return _standing(versions) if versions else None

    def states(self) -> dict[E, Versioned]:
        return {entity: _standing(versions) for entity, versions in self._versions.items()}

    def states_at(self, place: str) -> dict[E, Versioned]:
        """The states of one place's entities alone. Raises LookupError without `place_of`."""
        if self._place_of is None:
            raise LookupError("the place of an entity is not defined")
        return {entity: _standing(self._versions[entity]) for entity in self._at.get(place, ())}

    def winners(self, entity: E) -> list[Versioned]:
        """The winner of every version still present, oldest first. Complete where winners are never cleaned."""
        versions = self._versions.get(entity, {})
        return [_first(versions[version]) for version in sorted(versions) if not _is_void(version, versions)]

    def histories(self) -> dict[E, list[Versioned]]:
        """The `winners` of every entity."""
        return {entity: self.winners(entity) for entity in self._versions}

    def winner(self, entity: E, version: int) -> Versioned | None:
        """The winner of this version, where superseded winners stay; None when it is not there.

        A proposer read what it followed. So a first record behind one of a higher version came late, when the winner
        had been removed.
        """
        versions = self._versions.get(entity, {})
        if version not in versions:
            return None
        found = _first(versions[version])
        came_first = all(found.offset < _first(versions[higher]).offset for higher in versions if higher > version)
        return found if came_first else None

    def to_clean(self, entity: E, *, keep_winners: bool = False) -> list[bytes]:
        """Keys to tombstone now: every version's losers; once none is left, superseded winners, oldest first.

        Any process may do it at any time, also on a view that is not the newest: a loser stays one, and so does a
        superseded winner. The first step does not name keys of the second, so that a failure between two tombstones
        cannot leave a loser without its winner.
        """
        winners = self.winners(entity)
        losers = self._losers(entity, winners)
        if losers or keep_winners:
            return [self._key(entity, loser) for loser in losers]
        return [self._key(entity, winner) for winner in winners[:-1]]

    def keys_below(self, entity: E, end: float) -> list[bytes]:
        """Keys to tombstone, in the order of `to_clean`, of versions below `end` that are no longer needed."""
        winners = self.winners(entity)
        every = (*self._losers(entity, winners), *winners)
        return [self._key(entity, record) for record in every if record.version < end]

    def _losers(self, entity: E, winners: Sequence[Versioned]) -> list[Versioned]:
        won = {winner.offset for winner in winners}
        versions = self._versions.get(entity, {})
        every = (record for version in sorted(versions) for record in versions[version].values())
        return [record for record in every if record.offset not in won]

    def _key(self, entity: E, record: Versioned) -> bytes:
        return self._keys.encode(entity, record.version, record.attempt)


def _first(attempts: dict[str, Versioned]) -> Versioned:
    return next(iter(attempts.values()))


def _standing(versions: dict[int, dict[str, Versioned]]) -> Versioned:
    return _first(versions[max(version for version in versions if not _is_void(version, versions))])


def _is_void(version: int, versions: dict[int, dict[str, Versioned]]) -> bool:
    """Whether it is a void first version: its proposer had not seen the record of a lower version before it."""
    if version < EPOCH_VERSIONS or version % EPOCH_VERSIONS != 1:
        return False
    begun = _first(versions[version]).offset
    return any(_first(versions[lower]).offset < begun for lower in versions if lower < version)
