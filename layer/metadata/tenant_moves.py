"""The moves of a tenant between clusters, as a table.

A tenant is ACTIVE on one cluster, or SWITCHING from one to another, and then nobody produces or consumes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantRecord, TenantState


class TenantMove(str, Enum):
    """Changes of a tenant's entry in the map; each names a cluster, but for REMOVE."""

    ASSIGN = "assign"
    """Put it there at once: for tenants without data, or whose data is there already."""
    BEGIN_SWITCH = "begin the switch"
    FINISH_SWITCH = "finish the switch"
    ABANDON_SWITCH = "abandon the switch"
    """Stay where it was."""
    REMOVE = "remove"


_ABSENT: Final = TenantState.REMOVED
"""What was never there may do what was removed may."""

TRANSITIONS: Final[Mapping[tuple[TenantState, TenantMove], TenantState]] = {
    (TenantState.REMOVED, TenantMove.ASSIGN): TenantState.ACTIVE,
    (TenantState.ACTIVE, TenantMove.ASSIGN): TenantState.ACTIVE,
    (TenantState.ACTIVE, TenantMove.BEGIN_SWITCH): TenantState.SWITCHING,
    (TenantState.ACTIVE, TenantMove.REMOVE): TenantState.REMOVED,
    (TenantState.SWITCHING, TenantMove.BEGIN_SWITCH): TenantState.SWITCHING,  # a retry: to the same cluster only
    (TenantState.SWITCHING, TenantMove.FINISH_SWITCH): TenantState.ACTIVE,
    (TenantState.SWITCHING, TenantMove.ABANDON_SWITCH): TenantState.ACTIVE,
}


def moved(record: TenantRecord | None, tenant: str, move: TenantMove, cluster: str = "") -> TenantRecord | None:
    """The record after a move; None when it is true already.

    `cluster` is where the tenant shall be in the end: for ABANDON_SWITCH the one that it does not leave.

    Raises:
        Refused: not legal now; names the tenant, where it is and what was asked.
    """
    if _is_true(record, move, cluster):
        return None
    state = _ABSENT if record is None else record.state
    after = TRANSITIONS.get((state, move))
    if after is None or not _fits(record, move, cluster):
        raise errors.Refused(
            f"tenant {tenant} {described(record)}: cannot {move.value} {_towards(move, cluster)}".rstrip()
        )
    epoch = 1 if record is None else record.epoch + 1
    if after is TenantState.SWITCHING:
        assert record is not None  # noqa: S101 - the table: nothing switches that is nowhere
        return replace(record, state=after, target=cluster, epoch=epoch)
    at = record.cluster if record is not None and move is TenantMove.REMOVE else cluster
    return TenantRecord(tenant, at, after, epoch)


def described(record: TenantRecord | None) -> str:
    """The state in words, behind "tenant x"."""
    if record is None or record.state is TenantState.REMOVED:
        return "is on no cluster"
    if record.state is TenantState.SWITCHING:
        return f"is switching from cluster {record.cluster} to {record.target}"
    return f"is on cluster {record.cluster}"


def _is_true(record: TenantRecord | None, move: TenantMove, cluster: str) -> bool:
    if move is TenantMove.REMOVE:
        return record is None or record.state is TenantState.REMOVED
    if record is None:
        return False
    if move is TenantMove.BEGIN_SWITCH:
        return record.state is TenantState.SWITCHING and record.target == cluster
    return record.state is TenantState.ACTIVE and record.cluster == cluster


def _fits(record: TenantRecord | None, move: TenantMove, cluster: str) -> bool:
    """The cluster is one that the move can name."""
    if record is None:
        return True
    if move is TenantMove.BEGIN_SWITCH:
        return record.tenant != EVERY_OTHER_TENANT and record.state is TenantState.ACTIVE and record.cluster != cluster
    if move is TenantMove.FINISH_SWITCH:
        return record.target == cluster
    if move is TenantMove.ABANDON_SWITCH:
        return record.cluster == cluster
    return True


def _towards(move: TenantMove, cluster: str) -> str:
    return "" if move is TenantMove.REMOVE else f"with cluster {cluster}"
