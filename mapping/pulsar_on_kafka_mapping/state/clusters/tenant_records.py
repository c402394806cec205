"""Values of the `tenants` state topic: the cluster of a tenant, its admin roles, and the progress of its migration or
its import.

    TenantKey     {"v":1,"tenant":"acme","cluster":"west","state":"SWITCHING","epoch":4,"target":"east"}
    TenantInfoKey {"v":1,"tenant":"acme","admin_roles":["boss"],"allowed_clusters":["west"],"deleted":false}
    MigrationKey  {"v":1,"tenant":"acme","source":"west","target":"east","step":"REPLICATING",
                   "started_ms":1700000000000,"problem":""}
    ImportKey     {"v":1,"tenant":"acme","origin":"pulsar:standalone","service_url":"pulsar://old:6650",
                   "admin_url":"http://old:8080","step":"MESSAGES","run":3,"started_ms":1700000000000,"problem":"",
                   "switch":"CLOSED"}

The progress within a step of a migration or an import is not recorded: each step compares both clusters and does the
rest. Decisions: mapping/decisions/0019, 0020, 0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, Int64, json_record

EVERY_OTHER_TENANT: Final = "*"
"""The key of the default place, for tenants without a record of their own. No tenant has this name."""


class TenantState(str, Enum):
    """A tenant is ACTIVE, SWITCHING or REMOVED. SWITCHING: no program may produce or consume until the tenant is ACTIVE
    on one cluster again. REMOVED: as if the record had never been written, except for its epoch."""

    ACTIVE = "ACTIVE"
    SWITCHING = "SWITCHING"
    REMOVED = "REMOVED"


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """The cluster of a tenant. `target` is its destination while it is SWITCHING, and "" otherwise; `epoch` counts the
    changes from 1, so that clients can request a later one than the known one."""

    tenant: str
    cluster: str
    state: TenantState
    epoch: Count
    target: str = ""


@dataclass(frozen=True, slots=True)
class TenantInfoRecord:
    """The admin roles of a tenant, and the clusters that its namespaces may be replicated to. `deleted`: the tenant was
    deleted, and has neither."""

    tenant: str
    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    deleted: bool = False


class MigrationStep(str, Enum):
    """The step under way, or (READY, SWITCHED, DONE, ROLLED_BACK) the legal next request."""

    METADATA = "METADATA"
    REPLICATING = "REPLICATING"
    PROGRESS = "PROGRESS"
    READY = "READY"
    SWITCHING = "SWITCHING"
    SWITCHED = "SWITCHED"
    RETURNING = "RETURNING"
    ROLLING_BACK = "ROLLING_BACK"
    ROLLED_BACK = "ROLLED_BACK"
    CLEANING = "CLEANING"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    """A tenant's migration has come to `step`. `problem` is what the last worker could not do, "" when nothing went
    wrong."""

    tenant: str
    source: str
    target: str
    step: MigrationStep
    started_ms: Int64
    problem: str = ""


class ImportStep(str, Enum):
    """The step is what is being done; IMPORTED: all that was there when the run began."""

    METADATA = "METADATA"
    MESSAGES = "MESSAGES"
    PROGRESS = "PROGRESS"
    IMPORTED = "IMPORTED"


class ImportSwitch(str, Enum):
    """A tenant that Pulsar sends here is CLOSED to producers and consumers at first. At CONSUMERS_WAIT all its messages
    are here, and it is closed to consumers only. At OPEN the tenant is here."""

    NOT_BEGUN = "NOT_BEGUN"
    CLOSED = "CLOSED"
    CONSUMERS_WAIT = "CONSUMERS_WAIT"
    OPEN = "OPEN"


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """The record of a tenant's import, at `step`. `origin` is the origin in the copies. `run` counts the workers that
    ever began, of which the latest counts. `problem` is the last worker's failure, "" without one. `switch`: progress
    of the tenant's programs on their way here."""

    tenant: str
    origin: str
    service_url: str
    admin_url: str
    step: ImportStep
    run: Count
    started_ms: Int64
    problem: str = ""
    switch: ImportSwitch = ImportSwitch.NOT_BEGUN


_TENANTS: Final = json_record("tenant record", TenantRecord)
encode_tenant_info, decode_tenant_info = json_record("tenant information record", TenantInfoRecord).both
encode_migration, decode_migration = json_record("migration record", MigrationRecord).both
encode_import, decode_import = json_record("import record", ImportRecord).both

encode_tenant: Final = _TENANTS.encode


def decode_tenant(value: bytes) -> TenantRecord:
    """Raises CorruptRecord."""
    record = _TENANTS.decode(value)
    if record.epoch < 1 or (record.target != "") is not (record.state is TenantState.SWITCHING):
        raise CorruptRecord(f"tenant record {value[:200]!r}: epochs count from 1, and exactly a switch has a target")
    return record
