"""Progress of a tenant's migration, and of its import from Pulsar: a record for each tenant, by compare-and-set in the
state topic `tenants`.

Each step compares both sides, so that the next worker after a crash does the rest of it; the record contains only the
completed steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, Generic, TypeVar

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    ImportRecord,
    ImportStep,
    ImportSwitch,
    MigrationRecord,
    MigrationStep,
    decode_import,
    decode_migration,
    encode_import,
    encode_migration,
)
from pulsar_on_kafka_mapping.state.state_keys import ImportKey, MigrationKey

_S = MigrationStep


class Event(str, Enum):
    """Reports of a worker, and requests of an operator."""

    METADATA_SYNCED = "metadata is synced"
    CAUGHT_UP = "replication has caught up"
    PROGRESS_SYNCED = "progress is synced"
    SWITCH = "switch"
    SWITCH_ABANDONED = "abandon the switch"
    SWITCH_DONE = "finish the switch"
    ROLL_BACK = "roll back"
    RETURNED = "the tenant is back"
    ROLLED_BACK = "finish rolling back"
    CLEAN = "clean"
    CLEANED = "finish cleaning"


TRANSITIONS: Final[Mapping[tuple[MigrationStep, Event], MigrationStep]] = {
    (_S.METADATA, Event.METADATA_SYNCED): _S.REPLICATING,
    (_S.REPLICATING, Event.CAUGHT_UP): _S.PROGRESS,
    (_S.PROGRESS, Event.PROGRESS_SYNCED): _S.READY,
    (_S.READY, Event.SWITCH): _S.SWITCHING,
    (_S.SWITCHING, Event.SWITCH): _S.SWITCHING,  # its worker died
    (_S.SWITCHING, Event.SWITCH_ABANDONED): _S.READY,
    (_S.SWITCHING, Event.SWITCH_DONE): _S.SWITCHED,
    # All programs are still on the source: there is nothing to roll back.
    (_S.METADATA, Event.ROLL_BACK): _S.ROLLING_BACK,
    (_S.REPLICATING, Event.ROLL_BACK): _S.ROLLING_BACK,
    (_S.PROGRESS, Event.ROLL_BACK): _S.ROLLING_BACK,
    (_S.READY, Event.ROLL_BACK): _S.ROLLING_BACK,
    (_S.SWITCHING, Event.ROLL_BACK): _S.ROLLING_BACK,
    (_S.ROLLING_BACK, Event.ROLL_BACK): _S.ROLLING_BACK,
    (_S.ROLLING_BACK, Event.ROLLED_BACK): _S.ROLLED_BACK,
    # What was done on the target since the switch goes back.
    (_S.SWITCHED, Event.ROLL_BACK): _S.RETURNING,
    (_S.RETURNING, Event.ROLL_BACK): _S.RETURNING,
    (_S.RETURNING, Event.SWITCH_ABANDONED): _S.SWITCHED,
    (_S.RETURNING, Event.RETURNED): _S.ROLLING_BACK,
    (_S.SWITCHED, Event.CLEAN): _S.CLEANING,
    (_S.CLEANING, Event.CLEAN): _S.CLEANING,
    (_S.CLEANING, Event.CLEANED): _S.DONE,
}

OVER: Final = frozenset({_S.DONE, _S.ROLLED_BACK})
"""A new migration of the tenant may begin."""


def after(record: MigrationRecord, event: Event) -> MigrationRecord:
    """The record after `event`.

    Raises:
        Refused: not legal now; names the tenant, its step and the request.
    """
    step = TRANSITIONS.get((record.step, event))
    if step is None:
        raise errors.Refused(
            f"the migration of tenant {record.tenant} from {record.source} to {record.target} is {record.step.value}: "
            f"cannot {event.value}"
        )
    return replace(record, step=step, problem="")


def begun(current: MigrationRecord | None, tenant: str, source: str, target: str, now_ms: int) -> MigrationRecord:
    """A new migration, or the one that is under way between the same clusters.

    Raises:
        Refused: another one is under way, or the tenant is there already.
    """
    if source == target:
        raise errors.Refused(f"tenant {tenant} is on cluster {target} already")
    if current is None or current.step in OVER:
        return MigrationRecord(tenant, source, target, _S.METADATA, now_ms)
    if (current.source, current.target) != (source, target):
        raise errors.Refused(
            f"tenant {tenant} is migrated from {current.source} to {current.target} now ({current.step.value}): finish "
            "that, or roll it back, before it goes elsewhere"
        )
    return current


IMPORT_KEYS: Final[EntityKeys[str]] = EntityKeys(ImportKey)
MIGRATION_KEYS: Final[EntityKeys[str]] = EntityKeys(MigrationKey)
_LONGEST_PROBLEM: Final = 1000
CLOSED_TO_PRODUCERS: Final = frozenset({ImportSwitch.CLOSED})
CLOSED_TO_CONSUMERS: Final = frozenset({ImportSwitch.CLOSED, ImportSwitch.CONSUMERS_WAIT})
_SWITCH_ORDER: Final = tuple(ImportSwitch)

R = TypeVar("R")


class _Steps(Generic[R]):
    """The steps of one kind of work. Thread-safe. Memory: a record for each tenant that it was ever begun for."""

    def __init__(
        self, entities: Entities[str], decode: Callable[[bytes], R], encode: Callable[[R], bytes], not_begun: str
    ) -> None:
        """`not_begun`: the error message for a tenant without a record."""
        self._entities = entities
        self._decode = decode
        self._encode = encode
        self._not_begun = not_begun

    def record(self, tenant: str, deadline: Deadline) -> R | None:
        """The last one, also when it is over."""
        found = self._entities.read(tenant, deadline)
        return None if found is None else self._decode(found.value)

    def require(self, tenant: str, deadline: Deadline) -> R:
        record = self.record(tenant, deadline)
        if record is None:
            raise errors.Refused(f"tenant {tenant} is not {self._not_begun.format(tenant)}")
        return record

    def _update(self, tenant: str, requested: Callable[[R | None], R | None], deadline: Deadline) -> R:
        """`requested` returns the new record; None to keep the present one."""

        def changed(current: Versioned | None) -> bytes | None:
            known = None if current is None else self._decode(current.value)
            record = requested(known)
            return None if record is None or record == known else self._encode(record)

        return self._decode(self._entities.update(tenant, changed, deadline).value)


class Imports(_Steps[ImportRecord]):
    """Records of imports. A worker begins by taking the next number of a run. From then on a worker with a lower number
    is refused: here before it continues, and in the logs by the marker that a later one appends (decision 0018, with
    the run for the epoch).
    """

    def __init__(self, entities: Entities[str], clock: Clock) -> None:
        not_begun = "imported from Pulsar (pok migrate import run {} --from URL --admin URL)"
        super().__init__(entities, decode_import, encode_import, not_begun)
        self._clock = clock

    def begin(self, tenant: str, origin: str, service_url: str, admin_url: str, deadline: Deadline) -> ImportRecord:
        """Take the next run, at the first step.

        Raises:
            Refused: the tenant was imported from another cluster before.
        """
        now_ms = self._clock.now_ms()

        def next_run(known: ImportRecord | None) -> ImportRecord:
            if known is not None and known.origin != origin:
                raise errors.Refused(
                    f"tenant {tenant} is imported from {known.origin} ({known.admin_url}): what is here of its topics "
                    f"cannot be distinguished from copies from {origin}"
                )
            if known is None:
                return ImportRecord(tenant, origin, service_url, admin_url, ImportStep.METADATA, 1, now_ms)
            addressed = replace(known, service_url=service_url, admin_url=admin_url)
            return replace(addressed, step=ImportStep.METADATA, run=known.run + 1, problem="")

        return self._update(tenant, next_run, deadline)

    def check(self, mine: ImportRecord, deadline: Deadline) -> None:
        """Raises Refused: another worker has begun since."""
        _check(mine, self.record(mine.tenant, deadline))

    def advance(self, mine: ImportRecord, step: ImportStep, deadline: Deadline) -> ImportRecord:
        """Raises Refused: another worker has begun since."""
        return self._change(mine, replace(mine, step=step, problem=""), deadline)

    def switch(self, mine: ImportRecord, to: ImportSwitch, deadline: Deadline) -> ImportRecord:
        """Advance the switch; one that is further already stays. Raises Refused: another worker has begun since."""
        if _SWITCH_ORDER.index(to) <= _SWITCH_ORDER.index(mine.switch):
            return mine
        return self._change(mine, replace(mine, switch=to), deadline)

    def require_open(self, tenant: str, closed: Collection[ImportSwitch], deadline: Deadline) -> None:
        """`closed`: `CLOSED_TO_PRODUCERS` or `CLOSED_TO_CONSUMERS`. Raises TenantIsMoving."""
        record = self.record(tenant, deadline)
        if record is not None and record.switch in closed:
            raise errors.TenantIsMoving(
                f"tenant {tenant} comes from {record.origin}, and its data are not complete here yet: try again"
            )

    def note(self, mine: ImportRecord, problem: str, deadline: Deadline) -> None:
        """Records a problem. Raises Refused: another worker has begun since."""
        self._change(mine, replace(mine, problem=problem[:_LONGEST_PROBLEM]), deadline)

    def _change(self, mine: ImportRecord, requested: ImportRecord, deadline: Deadline) -> ImportRecord:
        def changed(known: ImportRecord | None) -> ImportRecord:
            _check(mine, known)
            return requested

        return self._update(mine.tenant, changed, deadline)


def _check(mine: ImportRecord, known: ImportRecord | None) -> None:
    if known is None or known.run != mine.run:
        raise errors.Refused(f"run {mine.run} of importing tenant {mine.tenant} is over: a later one has begun")


class Migrations(_Steps[MigrationRecord]):
    """The rules: `TRANSITIONS`."""

    def __init__(self, entities: Entities[str], clock: Clock) -> None:
        super().__init__(entities, decode_migration, encode_migration, "migrated (pok migrate run {} --to CLUSTER)")
        self._clock = clock

    def begin(self, tenant: str, source: str, target: str, deadline: Deadline) -> MigrationRecord:
        """Begin a migration, by the rules of `begun`. Raises Refused."""
        now_ms = self._clock.now_ms()
        return self._update(tenant, lambda known: begun(known, tenant, source, target, now_ms), deadline)

    def advance(self, done: MigrationRecord, event: Event, deadline: Deadline) -> MigrationRecord:
        """Records `event` in the step that `done` names.

        Raises:
            Refused: not legal now; also when another worker has advanced meanwhile.
        """
        requested = after(done, event)

        def advanced(known: MigrationRecord | None) -> MigrationRecord:
            here = None if known is None else (known.started_ms, known.step)
            if here not in ((done.started_ms, done.step), (done.started_ms, requested.step)):
                found = "gone" if known is None else known.step.value
                raise errors.Refused(f"the migration of tenant {done.tenant} is {found}: another worker has gone on")
            return requested

        return self._update(done.tenant, advanced, deadline)

    def note(self, record: MigrationRecord, problem: str, deadline: Deadline) -> None:
        """Records a problem, unless the migration has advanced."""

        def noted(known: MigrationRecord | None) -> MigrationRecord | None:
            if known is None or (known.started_ms, known.step) != (record.started_ms, record.step):
                return None
            return replace(known, problem=problem[:_LONGEST_PROBLEM])

        if self.record(record.tenant, deadline) is not None:
            self._update(record.tenant, noted, deadline)
