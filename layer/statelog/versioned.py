"""Which state an entity has, when anybody may propose the next one and Kafka cannot append conditionally.

Every record is an entity's whole state; its key names entity, version and attempt, and is written once. The state is
*the first record, in log order, of the highest version present*. That needs no history, so readers agree whatever
compaction took, as long as records are cleaned in one order: losers of a version before its winner, and never the
winner of the highest version. Pure: no log, no clock. Source: design.md 5, recipes/sim/compare_and_set.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from layer.statelog.api import LogRecord

E = TypeVar("E")
"""What identifies an entity; hashable."""


@dataclass(frozen=True, slots=True)
class Versioned:
    """The record that stands for one version of an entity. Versions count from 1. `value`: or what is kept of it."""

    version: int
    offset: int
    attempt: str
    value: bytes


@dataclass(frozen=True, slots=True)
class VersionedKey(Generic[E]):
    """What a key says; `attempt` is random hexadecimal text, so that no two proposals share a key."""

    entity: E
    version: int
    attempt: str


class VersionedKeys(Protocol[E]):
    """How such keys are written: one byte form each, because compaction compares bytes."""

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
    """Somebody else's record is this version; the proposal never took effect, nor will it."""

    state: Versioned


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The proposal took effect and was superseded, or it did not; or it is still on its way. `state` is what stands."""

    state: Versioned | None


Outcome: TypeAlias = Won | Lost | OutcomeUnknown


def judge(version: int, attempt: str, state: Versioned | None, winner: Versioned | None = None) -> Outcome:
    """What became of the proposal (version, attempt), given the state at an end that was asked for after its append.

    A lower version stands there only when the append was not acknowledged: the record may still arrive, and win.
    A higher one proves nothing either way: compaction may have taken the evidence. Where winners are never cleaned it
    cannot: `winner` is the version's first record then, if there is one.
    """
    decisive = winner or state
    if state is None or decisive is None or decisive.version != version:
        return OutcomeUnknown(state)
    if decisive.attempt != attempt:
        return Lost(state)
    return Won(version, decisive.offset)


def whole(value: bytes) -> bytes:
    """Values are kept as they are."""
    return value


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
        """`place_of`: what `states_at` is asked by, if it is."""
        self._keys = keys
        self._kept = kept
        self._place_of = place_of
        self._at: dict[str, set[E]] = {}
        self._versions: dict[E, dict[int, dict[str, Versioned]]] = {}  # attempts in log order

    def apply(self, record: LogRecord) -> None:
        """Raises ValueError for a key that cannot be read; then nothing has changed."""
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
                attempts[key.attempt] = Versioned(key.version, record.offset, key.attempt, value)

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

    def state(self, entity: E) -> Versioned | None:
        """The entity's state, or None when nobody has written it yet."""
        versions = self._versions.get(entity)
        return _first(versions[max(versions)]) if versions else None

    def states(self) -> dict[E, Versioned]:
        return {entity: _first(versions[max(versions)]) for entity, versions in self._versions.items()}

    def states_at(self, place: str) -> dict[E, Versioned]:
        """Of the entities of one place alone. Raises LookupError without `place_of`."""
        if self._place_of is None:
            raise LookupError("nobody said which place an entity is of")
        versions = {entity: self._versions[entity] for entity in self._at.get(place, ())}
        return {entity: _first(found[max(found)]) for entity, found in versions.items()}

    def winners(self, entity: E) -> list[Versioned]:
        """The winner of every version still present, oldest first. Complete where winners are never cleaned."""
        versions = self._versions.get(entity, {})
        return [_first(versions[version]) for version in sorted(versions)]

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

        Anybody may do it at any time, also on a view that is not the newest: a loser stays one, and so does a
        superseded winner. What comes in the second step is not named in the first, so that a failure between two
        tombstones cannot leave a loser without its winner.
        """
        versions = self._versions.get(entity, {})
        losers = [loser for version in sorted(versions) for loser in list(versions[version].values())[1:]]
        if losers or keep_winners:
            return [self._key(entity, loser) for loser in losers]
        return [self._key(entity, winner) for winner in self.winners(entity)[:-1]]

    def keys_below(self, entity: E, end: float) -> list[bytes]:
        """What to tombstone, in the order of `to_clean`, of versions below `end` that nobody will ask for again."""
        versions = self._versions.get(entity, {})
        below = [version for version in sorted(versions) if version < end]
        losers = [loser for version in below for loser in list(versions[version].values())[1:]]
        return [self._key(entity, record) for record in (*losers, *(_first(versions[version]) for version in below))]

    def _key(self, entity: E, record: Versioned) -> bytes:
        return self._keys.encode(entity, record.version, record.attempt)


def _first(attempts: dict[str, Versioned]) -> Versioned:
    return next(iter(attempts.values()))
