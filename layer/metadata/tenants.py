"""`Tenants`: which cluster has which tenant, by compare-and-set in the state topic `tenants`."""

from __future__ import annotations

import re
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.state.clusters.tenant_records import (
    EVERY_OTHER_TENANT,
    TenantRecord,
    TenantState,
    decode_tenant,
    encode_tenant,
)
from pulsar_on_kafka.mapping.state.state_keys import TenantKey
from pulsar_on_kafka.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka.metadata.tenant_moves import TenantMove, moved

_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)

TENANT_KEYS: Final[EntityKeys[str]] = EntityKeys(TenantKey, lambda key: str(key.tenant), lambda name: (name,))


class Tenants:
    """Thread-safe. Memory: every record of the map."""

    def __init__(self, entities: Entities[str]) -> None:
        self._entities = entities

    def record(self, tenant: str, deadline: Deadline) -> TenantRecord | None:
        """The tenant's own record; None where it has none, or it was removed."""
        return _present(self._entities.read(tenant, tenant, deadline))

    def place(self, tenant: str, deadline: Deadline) -> TenantRecord | None:
        """Where the tenant is: its own record, or else that of every other tenant."""
        found = self._entities.read_together({tenant: tenant, EVERY_OTHER_TENANT: tenant}, deadline)
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
        return _present(self._entities.update(tenant, tenant, changed, deadline))


def _present(found: Versioned | None) -> TenantRecord | None:
    record = None if found is None else decode_tenant(found.value)
    return None if record is None or record.state is TenantState.REMOVED else record


def _check(what: str, name: str, fine: bool) -> None:
    if not fine and _NAME.fullmatch(name) is None:
        raise errors.InvalidOption(f"a {what} is named by letters, digits and -=:._ , got {name!r}")
