"""Values of the `tenants` state topic under `MigrationKey` say how far a tenant's migration is. JSON with a format
number.

    {"v":1,"tenant":"acme","source":"west","target":"east","step":"REPLICATING","started_ms":1700000000000,"problem":""}

What is done of a step is not on record: each step compares the two clusters and does what is left. Decision:
mapping/decisions/0020.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka.mapping.state.codecs.json_record import decode_record, encode_record

FORMAT: Final = 1


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
    started_ms: int
    problem: str = ""


def encode_migration(record: MigrationRecord) -> bytes:
    return encode_record(record, FORMAT)


def decode_migration(value: bytes) -> MigrationRecord:
    """Raises CorruptRecord."""
    return decode_record(value, MigrationRecord, "migration record", FORMAT)
