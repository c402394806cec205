"""Values of the `tenants` state topic: which cluster has a tenant. JSON objects with a format number `v`.

    {"v":1,"cluster":"west","epoch":4,"state":"SWITCHING","target":"east","tenant":"acme"}

People read them with Kafka's own tools, hence JSON. An unknown field is ignored, a missing or mistyped one is corrupt.
Decision: mapping/decisions/0019.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

import orjson

from mapping.errors import CorruptRecord

FORMAT: Final = 1
EVERY_OTHER_TENANT: Final = "*"
"""In the place of a tenant: where those are that have no record of their own. No tenant is named so."""


class TenantState(str, Enum):
    """SWITCHING: nobody may produce or consume until the tenant is ACTIVE on one cluster again. REMOVED: as if the
    record had never been written, but for its epoch."""

    ACTIVE = "ACTIVE"
    SWITCHING = "SWITCHING"
    REMOVED = "REMOVED"


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """Where a tenant is. `target` is where it goes while it is SWITCHING, and "" else; `epoch` counts the changes from
    1, so that whoever knows one can ask for a later one."""

    tenant: str
    cluster: str
    state: TenantState
    epoch: int
    target: str = ""


_FIELD_TYPES: Final[dict[str, type[object]]] = {"tenant": str, "cluster": str, "epoch": int, "target": str}


def encode_tenant(record: TenantRecord) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(record)}, option=orjson.OPT_SORT_KEYS)


def decode_tenant(value: bytes) -> TenantRecord:
    """Raises CorruptRecord."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"tenant record is no JSON: {value[:60]!r} ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("v") != FORMAT:
        raise CorruptRecord(f"tenant record is no object with v={FORMAT}: {value[:60]!r}")
    fields: dict[str, Any] = {name: parsed[name] for name in TenantRecord.__dataclass_fields__ if name in parsed}
    try:
        fields["state"] = TenantState(fields.get("state"))
        record = TenantRecord(**fields)
    except (TypeError, ValueError) as error:
        raise CorruptRecord(f"tenant record {value[:200]!r} lacks or mistypes a field: {error}") from error
    for name, wanted in _FIELD_TYPES.items():
        if type(getattr(record, name)) is not wanted:
            raise CorruptRecord(f"field {name} is {getattr(record, name)!r}, expected {wanted.__name__}")
    if record.epoch < 1 or (record.target != "") is not (record.state is TenantState.SWITCHING):
        raise CorruptRecord(f"tenant record {value[:200]!r}: epochs count from 1, and exactly a switch has a target")
    return record
