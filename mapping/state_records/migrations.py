"""Values of the `tenants` state topic under `MigrationKey`: how far a tenant's migration is. JSON with a format number.

    {"v":1,"tenant":"acme","source":"west","target":"east","step":"REPLICATING","started_ms":1700000000000,"problem":""}

What is done of a step is not on record: each step compares the two clusters and does what is left. Decision:
mapping/decisions/0020.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final

import orjson

from mapping.errors import CorruptRecord

FORMAT: Final = 1


class MigrationStep(str, Enum):
    """What is being done, or (READY, SWITCHED, DONE, ROLLED_BACK) what may be asked for next."""

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
    """`problem` is what the last worker could not do, "" when nothing went wrong."""

    tenant: str
    source: str
    target: str
    step: MigrationStep
    started_ms: int
    problem: str = ""


_FIELD_TYPES: Final[dict[str, type[object]]] = {
    "tenant": str,
    "source": str,
    "target": str,
    "started_ms": int,
    "problem": str,
}


def encode_migration(record: MigrationRecord) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(record)}, option=orjson.OPT_SORT_KEYS)


def decode_migration(value: bytes) -> MigrationRecord:
    """Raises CorruptRecord."""
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise CorruptRecord(f"migration record is no JSON: {value[:60]!r} ({error})") from error
    if not isinstance(parsed, dict) or parsed.get("v") != FORMAT:
        raise CorruptRecord(f"migration record is no object with v={FORMAT}: {value[:60]!r}")
    fields: dict[str, Any] = {name: parsed[name] for name in MigrationRecord.__dataclass_fields__ if name in parsed}
    try:
        fields["step"] = MigrationStep(fields.get("step"))
        record = MigrationRecord(**fields)
    except (TypeError, ValueError) as error:
        raise CorruptRecord(f"migration record {value[:200]!r} lacks or mistypes a field: {error}") from error
    for name, wanted in _FIELD_TYPES.items():
        if type(getattr(record, name)) is not wanted:
            raise CorruptRecord(f"field {name} is {getattr(record, name)!r}, expected {wanted.__name__}")
    return record
