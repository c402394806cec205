"""A value of the `cursor_checkpoints` state topic is a copy of an accepted group commit, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

import orjson

from pulsar_on_kafka.mapping.errors import CorruptRecord

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class CursorCheckpoint:
    """A checkpoint counts if it has the highest (`version`, `save`) of its cursor."""

    version: int
    save: int
    kafka_offset: int
    metadata: str
    written_ms: int


def encode_checkpoint(checkpoint: CursorCheckpoint) -> bytes:
    return orjson.dumps({"v": FORMAT, **asdict(checkpoint)})


def decode_checkpoint(value: bytes) -> CursorCheckpoint:
    """Raises CorruptRecord."""
    try:
        parsed = orjson.loads(value)
        if parsed.pop("v") != FORMAT:
            raise CorruptRecord(f"cursor checkpoint {value[:60]!r} is not of format {FORMAT}")
        checkpoint = CursorCheckpoint(**parsed)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CorruptRecord(f"cursor checkpoint {value[:60]!r} cannot be read: {error}") from error
    numbers = (checkpoint.version, checkpoint.save, checkpoint.kafka_offset, checkpoint.written_ms)
    if not all(isinstance(number, int) for number in numbers) or not isinstance(checkpoint.metadata, str):
        raise CorruptRecord(f"cursor checkpoint {value[:60]!r} mistypes a field")
    return checkpoint
