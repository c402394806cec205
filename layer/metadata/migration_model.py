"""The steps of a migration, as a table. Pure.

Each step is done by comparing the two clusters, so that whoever comes after a crash does what is left of it; only that
it is done is on record, by compare-and-set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.mapping.state.clusters.tenant_records import MigrationRecord, MigrationStep

_S = MigrationStep


class Event(str, Enum):
    """Reports of a worker, and wishes of an operator."""

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
    # Nobody has left the source yet: there is nothing to bring back.
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
    """The record when `event` has happened.

    Raises:
        Refused: not legal now; names the tenant, its step and what was asked.
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
