"""Values of the `tenants` state topic say which cluster has a tenant. JSON objects with a format number `v`.

    {"v":1,"cluster":"west","epoch":4,"state":"SWITCHING","target":"east","tenant":"acme"}

Decision: mapping/decisions/0019.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka.mapping.errors import CorruptRecord
from pulsar_on_kafka.mapping.state.codecs.json_record import decode_record, encode_record

FORMAT: Final = 1
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
    epoch: int
    target: str = ""


def encode_tenant(record: TenantRecord) -> bytes:
    return encode_record(record, FORMAT)


def decode_tenant(value: bytes) -> TenantRecord:
    """Raises CorruptRecord."""
    record = decode_record(value, TenantRecord, "tenant record", FORMAT)
    if record.epoch < 1 or (record.target != "") is not (record.state is TenantState.SWITCHING):
        raise CorruptRecord(f"tenant record {value[:200]!r}: epochs count from 1, and exactly a switch has a target")
    return record
