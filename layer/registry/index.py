"""The index keeps a summary of each record of the `schemas` state topic in memory: all but names, properties and the
definition.

A summary, `[kind, type, sha256, bytes, time, reason]` as JSON, stands in the view for the record's value.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import Enum
from typing import Final

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord, NewerFormat
from pulsar_on_kafka.mapping.state.metadata.schema_records import decode_schema

_REASON_CHARS: Final = 300
_TYPE_CHARS: Final = 60


class Kind(str, Enum):
    """Kinds of records."""

    SCHEMA = "schema"
    DELETION = "deletion"
    REMOVAL = "removal"
    """A deletion that takes what was deleted before, too."""
    UNREADABLE = "unreadable"
    NEWER = "newer"
    """A later version of this project can read it."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of one record. `sha256` is that of a readable definition, `timestamp_ms` (Unix) when it was registered,
    `reason` says why a record cannot be read."""

    kind: Kind
    type_name: str = ""
    sha256: str = ""
    record_bytes: int = 0
    timestamp_ms: int = 0
    reason: str = ""


def summarized(value: bytes) -> bytes:
    """The summary of a record, at most some 700 bytes. Raises nothing."""
    # A copy: what orjson gives holds on to a buffer of kilobytes.
    return bytes(memoryview(orjson.dumps(astuple(_summary(value)))))


def summary_of(text: bytes) -> Summary:
    """The inverse."""
    kind, *others = orjson.loads(text)
    return Summary(Kind(kind), *others)


def _summary(value: bytes) -> Summary:
    try:
        record = decode_schema(value)
    except NewerFormat as error:
        return Summary(Kind.NEWER, record_bytes=len(value), reason=str(error)[:_REASON_CHARS])
    except CorruptRecord as error:
        return Summary(Kind.UNREADABLE, record_bytes=len(value), reason=str(error)[:_REASON_CHARS])
    kind = Kind.SCHEMA
    if record.deleted:
        kind = Kind.REMOVAL if record.removes else Kind.DELETION
    return Summary(kind, record.type[:_TYPE_CHARS], record.sha256, len(value), record.timestamp_ms)
