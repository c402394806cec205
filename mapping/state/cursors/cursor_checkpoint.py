"""A value of the `cursor_checkpoints` state topic is a copy of an accepted group commit, as JSON.

{"v":1,"version":5,"save":300,"kafka_offset":120,"metadata":"pok1:...","written_ms":1700000000000}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.mapping.state.codecs.json_records import Count, Int64, json_record


@dataclass(frozen=True, slots=True)
class CursorCheckpoint:
    """A checkpoint counts if it has the highest (`version`, `save`) of its cursor."""

    version: Count
    save: Count
    kafka_offset: Int64
    metadata: str
    written_ms: Int64


_CHECKPOINTS: Final = json_record("cursor checkpoint", CursorCheckpoint)

encode_checkpoint: Final = _CHECKPOINTS.encode
decode_checkpoint: Final = _CHECKPOINTS.decode
