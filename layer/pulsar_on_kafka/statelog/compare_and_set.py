"""Compare-and-set on a log that only appends: propose, read to the end, and apply the result.

A proposal must contain the new state, not a change, because a proposal whose outcome is unknown is repeated on the
state that was found. An append that timed out is treated as follows. It is never repeated under its own key: that would
move the key's last record, and with compaction the place that decides. Reading to the end settles it when its version
is taken (won, or lost for good: a late record stands behind the winner). Otherwise it may still arrive; a further
proposal of the same version gets a fresh attempt, and whichever comes first in the log is the version, the other a
loser like any other.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from math import inf
from typing import Final, Generic

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    Closed,
    LayerError,
    NotAuthorized,
    Refused,
    StoreError,
)
from pulsar_on_kafka.statelog.api import StateLog, tombstone
from pulsar_on_kafka.statelog.versioned import (
    EPOCH_VERSIONS,
    E,
    Keeping,
    Lost,
    Outcome,
    OutcomeUnknown,
    Versioned,
    VersionedEntities,
    VersionedKey,
    VersionedKeys,
    Won,
    judge,
)
from pulsar_on_kafka.statelog.view import LogEnd, LogView
from pulsar_on_kafka_mapping.state.state_keys import EpochKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

__all__ = [
    "CompareAndSet",
    "Lost",
    "Outcome",
    "OutcomeUnknown",
    "Versioned",
    "VersionedEntities",
    "VersionedKey",
    "VersionedKeys",
    "Won",
]

_log: Final = logging.getLogger(__name__)
_ATTEMPT_BYTES: Final = 16
MAX_PROPOSALS: Final = 100
"""The limit of proposals in one `update`. Each loser lost to a winner of another process."""
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5
_CLEANED_AT_ONCE: Final = 16
_CLEANING_S: Final = 1.0


def random_attempt() -> str:
    return secrets.token_hex(_ATTEMPT_BYTES)


class CompareAndSet(Generic[E]):
    """The versioned entities of one partition of a state topic. Thread-safe."""

    def __init__(
        self,
        log: StateLog,
        topic: StateTopic,
        partition: int,
        keys: VersionedKeys[E],
        *,
        clock: Clock | None = None,
        keeping: Keeping[E] | None = None,
        new_attempt: Callable[[], str] = random_attempt,
        max_proposals: int = MAX_PROPOSALS,
    ) -> None:
        self._log = log
        self._topic = topic
        self._partition = partition
        self._name = f"{log.kafka_name(topic)}-{partition}"
        self._keys = keys
        kept: Keeping[E] = keeping or Keeping()
        self._keep_winners = kept.winners
        self._new_attempt = new_attempt
        self._max_proposals = max_proposals
        self._view: LogView[VersionedEntities[E]] = LogView(
            log, topic, partition, lambda: VersionedEntities(keys, kept.value, kept.place_of), clock or SystemClock()
        )

    def read(self, entity: E, deadline: Deadline) -> Versioned | None:
        """The state, read to the end first; None when the entity was never written."""
        return self._view.query(lambda entities: entities.state(entity), deadline)

    def read_all(self, entities: Collection[E], deadline: Deadline) -> dict[E, Versioned | None]:
        """The states of several entities, at one end."""
        return self._view.query(lambda found: {entity: found.state(entity) for entity in entities}, deadline)

    def entities(self, deadline: Deadline) -> dict[E, Versioned]:
        """Every entity of the partition with its state, read to the end first."""
        return self._view.query(lambda entities: entities.states(), deadline)

    def entities_at(self, place: str, deadline: Deadline) -> dict[E, Versioned]:
        """The same of one place alone (`place_of`)."""
        return self._view.query(lambda entities: entities.states_at(place), deadline)

    def winners(self, entity: E, deadline: Deadline) -> list[Versioned]:
        """The winner of every version, oldest first, read to the end first. Complete only with `keep_winners`."""
        return self._view.query(lambda entities: entities.winners(entity), deadline)

    def histories(self, deadline: Deadline) -> dict[E, list[Versioned]]:
        """The `winners` of every entity of the partition, read to the end first."""
        return self._view.query(lambda entities: entities.histories(), deadline)

    def cached(self, entity: E) -> Versioned | None:
        """The state when the end was last reached, without a request to the broker; None when it is unknown."""
        return self._view.glance(lambda entities: entities.state(entity))

    def propose(self, entity: E, expected_version: int, value: bytes, deadline: Deadline) -> Outcome:
        """Proposes `value` as the state after version `expected_version` (0: the entity was never written).

        After a win up to 16 superfluous records are tombstoned; a loser tombstones its own.

        Raises:
            AppendFailed, RecordTooLarge, NotAuthorized: certainly not proposed.
            AppendOutcomeUnknown: the deadline passed before the outcome could be read; `read` returns it.
            Corrupt: the partition holds a record that cannot be read. Perhaps proposed.
        """
        return self._propose(entity, expected_version, value, self._new_attempt(), deadline)

    def _propose(self, entity: E, expected_version: int, value: bytes, attempt: str, deadline: Deadline) -> Outcome:
        overtaken = self._overtaken(entity, expected_version, deadline)
        if overtaken is not None:
            return overtaken
        version = expected_version + 1 if expected_version else self._first_version(deadline)
        key = self._keys.encode(entity, version, attempt)
        at: LogEnd | None = None
        try:
            at = self._view.append([(key, value)], deadline)
        except AppendOutcomeUnknown as unknown:
            _log.info("entity=%s version=%d append outcome unknown, reading: %s", entity, version, unknown)
        outcome = self._judged(entity, version, attempt, deadline, at)
        if isinstance(outcome, Lost):
            self._tombstone(entity, [key], deadline)
        elif isinstance(outcome, Won):
            self._clean(entity, deadline)
        return outcome

    def _overtaken(self, entity: E, expected_version: int, deadline: Deadline) -> Outcome | None:
        """The loss when the known state is already beyond the expected version (versions never decrease), or was
        removed since."""
        known = self._view.glance(lambda entities: (entities.state(entity),))
        seen = None if known is None else known[0]
        if seen is not None and seen.version > expected_version:
            state = self.read(entity, deadline)
            return OutcomeUnknown(None) if state is None else Lost(state)
        return OutcomeUnknown(None) if known is not None and seen is None and expected_version else None

    def _first_version(self, deadline: Deadline) -> int:
        known = self._view.glance(lambda entities: entities.first_version)
        return self._view.query(lambda entities: entities.first_version, deadline) if known is None else known

    def _judged(self, entity: E, version: int, attempt: str, deadline: Deadline, at: LogEnd | None) -> Outcome:
        def judged(entities: VersionedEntities[E]) -> Outcome:
            winner = entities.winner(entity, version) if self._keep_winners else None
            return judge(version, attempt, entities.state(entity), winner)

        try:
            return self._view.query(judged, deadline, at)
        except (StoreError, Closed) as failure:
            kind = NotAuthorized if isinstance(failure, NotAuthorized) else AppendOutcomeUnknown
            raise kind(
                f"version {version} of {entity} in {self._name} was proposed, its outcome could not be read: {failure}"
            ) from failure

    def update(self, entity: E, change: Callable[[Versioned | None], bytes | None], deadline: Deadline) -> Versioned:
        """Reads, changes and proposes, until a proposal wins or nothing is left to write; returns the state then.

        `change` is called with each state found and returns the new state, or None to keep it. It raises an error of
        its own when the entity is missing, or does not allow the change. A `Refused` counts only if the state is still
        the newest one: `change` may have compared it with what it read later elsewhere, such as a group's members. It
        may get the outcome of an earlier proposal of this same call, which a time-out had hidden.

        Raises:
            DeadlineExceeded, AppendOutcomeUnknown: the deadline passed first.
            AppendFailed: `MAX_PROPOSALS` proposals lost; between two there is a pause that grows to half a second.
            ValueError: `change` returned None for a missing entity.
        """
        state = self._changed(entity, change, deadline)
        if state is None:
            raise ValueError(f"{entity} is not in {self._name}, and nothing is to be written")
        return state

    def amend(self, entity: E, change: Callable[[Versioned], bytes | None], deadline: Deadline) -> Versioned | None:
        """`update` of what is there; None, and nothing happens, where it never was or has been removed."""
        return self._changed(entity, lambda state: None if state is None else change(state), deadline)

    def _changed(
        self, entity: E, change: Callable[[Versioned | None], bytes | None], deadline: Deadline
    ) -> Versioned | None:
        state = self.read(entity, deadline)
        lost = 0
        while True:
            try:
                value = change(state)
            except Refused:
                newest = self.read(entity, deadline)
                if (newest and newest.version) == (state and state.version):
                    raise
                state = newest
                continue
            if value is None:
                return state
            deadline.check(f"an undisturbed proposal for {entity} in {self._name}")
            attempt = self._new_attempt()
            outcome = self._propose(entity, state.version if state else 0, value, attempt, deadline)
            if isinstance(outcome, Won):
                return Versioned(outcome.version, outcome.offset, attempt, value)
            state = outcome.state
            lost += 1
            if lost >= self._max_proposals:
                raise AppendFailed(f"{lost} proposals for {entity} in {self._name} lost, the last: {outcome!r:.200}")
            longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(lost, 16), deadline.remaining_s())
            threading.Event().wait(secrets.randbelow(1000) / 1000 * longest_s)

    def remove(self, entity: E, deadline: Deadline, *, below: float = inf) -> None:
        """Removes the versions below `below` from the log for good, whichever process won them: no process may read
        them again, nor propose one of them. Without `below` the entity counts as never written.

        Raises the errors of `StateLog`; a second call continues after a failure.
        """
        while keys := self._view.query(lambda entities: entities.keys_below(entity, below), deadline):
            deadline.check(f"the records of {entity} to be removed from {self._name}")
            tombstone(self._log, self._topic, self._partition, keys[:_CLEANED_AT_ONCE], deadline)

    def remove_dead(self, dead: Mapping[E, int], deadline: Deadline) -> int:
        """Removes entities from the log, each with all versions up to the one named here, its newest when it was found
        dead; one with a newer version stays. Returns the number of removed records.

        It is for entities without proposals for long: an earlier proposal that arrives late undoes it. It may be
        repeated after a failure. Raises the errors of `StateLog`.
        """
        epochs = self._view.query(lambda entities: entities.epochs, deadline)
        needed = max((version // EPOCH_VERSIONS + 1 for version in dead.values()), default=0)
        if needed > max(epochs, default=0):
            self._log.append(self._topic, self._partition, encode_key(EpochKey(needed)), b"%d" % needed, deadline)
        keys = self._view.query(
            lambda entities: [
                key
                for entity, version in dead.items()
                if (state := entities.state(entity)) is not None and state.version == version
                for key in entities.keys_below(entity, inf)
            ],
            deadline,
        )
        keys += [encode_key(EpochKey(epoch)) for epoch in epochs if epoch < needed]
        return tombstone(self._log, self._topic, self._partition, keys, deadline)

    def _clean(self, entity: E, deadline: Deadline) -> None:
        obsolete = self._view.glance(lambda entities: entities.to_clean(entity, keep_winners=self._keep_winners))
        if obsolete:
            self._tombstone(entity, obsolete[:_CLEANED_AT_ONCE], deadline)

    def _tombstone(self, entity: E, keys: list[bytes], deadline: Deadline) -> None:
        patience = deadline.at_most(_CLEANING_S)
        try:
            at = self._view.append([(key, None) for key in keys], patience)
        except (StoreError, Closed) as failure:
            _log.info("entity=%s left %d records to clean: %s", entity, len(keys), failure)
            return
        with suppress(LayerError):  # then the next question reads them
            self._view.refresh(patience, at)
