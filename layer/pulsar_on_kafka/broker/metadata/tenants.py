"""The map of tenants to clusters, by compare-and-set in the state topic `tenants`.

A tenant is ACTIVE on one cluster, or SWITCHING from one to another, and then no program produces or consumes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    EVERY_OTHER_TENANT,
    TenantRecord,
    TenantState,
    decode_tenant,
    encode_tenant,
)
from pulsar_on_kafka_mapping.state.state_keys import TenantKey


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
"""An absent tenant allows the same moves as a removed one."""

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
    """The record after a move; None when it is the present one.

    `cluster` is the final cluster of the tenant: for ABANDON_SWITCH the one that it does not leave.

    Raises:
        Refused: not legal now; names the tenant, its cluster and the request.
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


_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)

TENANT_KEYS: Final[EntityKeys[str]] = EntityKeys(TenantKey)


class Tenants:
    """Thread-safe. Memory: every record of the map."""

    def __init__(self, entities: Entities[str]) -> None:
        self._entities = entities

    def record(self, tenant: str, deadline: Deadline) -> TenantRecord | None:
        """The tenant's own record; None where it has none, or it was removed."""
        return _present(self._entities.read(tenant, deadline))

    def place(self, tenant: str, deadline: Deadline) -> TenantRecord | None:
        """The place of the tenant: its own record, or else that of every other tenant."""
        found = self._entities.read_together((tenant, EVERY_OTHER_TENANT), deadline)
        return _present(found[tenant]) or _present(found[EVERY_OTHER_TENANT])

    def all(self, deadline: Deadline) -> dict[str, TenantRecord]:
        """Every tenant that has a record, by name."""
        records = (_present(found) for found in self._entities.all(deadline))
        return {record.tenant: record for record in sorted(filter(None, records), key=lambda record: record.tenant)}

    def move(self, tenant: str, move: TenantMove, deadline: Deadline, cluster: str = "") -> TenantRecord | None:
        """Do a move, unless it is true already; the record then (None: there is none).

        Raises:
            InvalidOption: no name for a tenant or a cluster.
            Refused: the move is not legal now.
        """
        _check("tenant", tenant, tenant == EVERY_OTHER_TENANT)
        _check("cluster", cluster, move is TenantMove.REMOVE)

        def changed(current: Versioned | None) -> bytes | None:
            record = moved(None if current is None else decode_tenant(current.value), tenant, move, cluster)
            return None if record is None else encode_tenant(record)

        if move is TenantMove.REMOVE and self.record(tenant, deadline) is None:
            return None
        return _present(self._entities.update(tenant, changed, deadline))


def _present(found: Versioned | None) -> TenantRecord | None:
    record = None if found is None else decode_tenant(found.value)
    return None if record is None or record.state is TenantState.REMOVED else record


def _check(what: str, name: str, fine: bool) -> None:
    if not fine and _NAME.fullmatch(name) is None:
        raise errors.InvalidOption(f"a {what} is named by letters, digits and -=:._ , got {name!r}")
