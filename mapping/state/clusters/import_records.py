"""Values of the `tenants` state topic under `ImportKey` say how far a tenant's import from Pulsar is. JSON, with a
format number.

    {"v":1,"tenant":"acme","origin":"pulsar:standalone","service_url":"pulsar://old:6650","admin_url":"http://old:8080",
     "step":"MESSAGES","run":3,"started_ms":1700000000000,"problem":""}

What is done of a step is not on record: each step compares both clusters and does what is left. Decision:
mapping/decisions/0022.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsar_on_kafka.mapping.state.codecs.json_record import decode_record, encode_record

FORMAT: Final = 1


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
    run: int
    started_ms: int
    problem: str = ""


def encode_import(record: ImportRecord) -> bytes:
    return encode_record(record, FORMAT)


def decode_import(value: bytes) -> ImportRecord:
    """Raises CorruptRecord."""
    return decode_record(value, ImportRecord, "import record", FORMAT)
