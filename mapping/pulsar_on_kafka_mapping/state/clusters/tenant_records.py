"""Values of the `tenants` state topic say which cluster has a tenant, and how far its migration or its import is.

    TenantKey     {"v":1,"tenant":"acme","cluster":"west","state":"SWITCHING","epoch":4,"target":"east"}
    MigrationKey  {"v":1,"tenant":"acme","source":"west","target":"east","step":"REPLICATING",
                   "started_ms":1700000000000,"problem":""}
    ImportKey     {"v":1,"tenant":"acme","origin":"pulsar:standalone","service_url":"pulsar://old:6650",
                   "admin_url":"http://old:8080","step":"MESSAGES","run":3,"started_ms":1700000000000,"problem":""}

What is done of a step of a migration or an import is not on record: each step compares both clusters and does what is
left. Decisions: mapping/decisions/0019, 0020, 0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.codecs.json_records import Count, Int64, json_record

EVERY_OTHER_TENANT: Final = "*"
"""In the place of a tenant: where those are that have no record of their own. No tenant is named so."""


class TenantState(str, Enum):
    """A tenant is ACTIVE, SWITCHING or REMOVED. SWITCHING: nobody may produce or consume until the tenant is ACTIVE on
    one cluster again. REMOVED: as if the record had never been written, but for its epoch."""

    ACTIVE = "ACTIVE"
    SWITCHING = "SWITCHING"
    REMOVED = "REMOVED"


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant is on a cluster. `target` is where it goes while it is SWITCHING, and "" else; `epoch` counts the
    changes from 1, so that whoever knows one can ask for a later one."""

    tenant: str
    cluster: str
    state: TenantState
    epoch: Count
    target: str = ""


class MigrationStep(str, Enum):
    """The step is what is being done, or (READY, SWITCHED, DONE, ROLLED_BACK) what may be asked for next."""

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


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """A tenant's import has come to `step`. `origin` is what copies say they were copied from. `run` counts the workers
    that ever began, of which the latest counts. `problem` is what the last worker could not do, "" when nothing went
    wrong."""

    tenant: str
    origin: str
    service_url: str
    admin_url: str
    step: ImportStep
    run: Count
    started_ms: Int64
    problem: str = ""


_TENANTS: Final = json_record("tenant record", TenantRecord)
encode_migration, decode_migration = json_record("migration record", MigrationRecord).both
encode_import, decode_import = json_record("import record", ImportRecord).both

encode_tenant: Final = _TENANTS.encode


def decode_tenant(value: bytes) -> TenantRecord:
    """Raises CorruptRecord."""
    record = _TENANTS.decode(value)
    if record.epoch < 1 or (record.target != "") is not (record.state is TenantState.SWITCHING):
        raise CorruptRecord(f"tenant record {value[:200]!r}: epochs count from 1, and exactly a switch has a target")
    return record
