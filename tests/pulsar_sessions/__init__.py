"""What clients of Pulsar's said to a gateway, frame by frame, and what each frame means.

`fixtures/NAME.frames` has the bytes: of each frame a byte with the number of its connection, and the frame as it came.
`NAME.txt` has a line for each: the connection, the command with its fields and, where a message is behind it, what its
metadata and payload say. `python -m tests.pulsar_sessions` makes them anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf import text_format

from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka_mapping.wire.commands import Type, parsed
from pulsar_on_kafka_mapping.wire.compression import decompress
from pulsar_on_kafka_mapping.wire.entries import read_entry
from pulsar_on_kafka_mapping.wire.frames import FrameCutter
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, decode_metadata
from pulsar_on_kafka_mapping.wire.single_messages import SingleMessage, decode_batch
from pulsar_on_kafka_mapping.wire.stored_entries import record_of

FIXTURES: Final = Path(__file__).with_name("fixtures")
CLIENTS: Final = ("go", "java", "js", "python", "rust")
_LENGTH: Final = 4


class Said(NamedTuple):
    """A frame of a connection of a client's."""

    connection: int
    frame: bytes


def recorded(client: str) -> list[Said]:
    data = (FIXTURES / f"{client}.frames").read_bytes()
    found, at = [], 0
    while at < len(data):
        end = at + 1 + _LENGTH + int.from_bytes(data[at + 1 : at + 1 + _LENGTH], "big")
        found.append(Said(data[at], data[at + 1 : end]))
        at = end
    return found


def meanings(client: str) -> list[str]:
    return (FIXTURES / f"{client}.txt").read_text(encoding="utf-8").splitlines()


def keep(client: str, said: Iterable[Said]) -> int:
    """Write both files; gives their bytes."""
    said = list(said)
    data = b"".join(bytes((each.connection,)) + each.frame for each in said)
    text = "".join(f"{each.connection} {meaning(each.frame)}\n" for each in said)
    (FIXTURES / f"{client}.frames").write_bytes(data)
    (FIXTURES / f"{client}.txt").write_text(text, encoding="utf-8")
    return len(data) + len(text.encode())


def meaning(frame: bytes) -> str:
    """Raises MappingError: it is no whole frame of Pulsar's, or what is in it cannot be read."""
    return "; ".join(_meaning(command, entry) for command, entry in FrameCutter().feed(frame))


def _meaning(command: bytes, entry: bytes) -> str:
    kind, said = parsed(command)
    text = f"{kind.name} {text_format.MessageToString(said, as_one_line=True)}".strip()
    if kind is not Type.SEND:
        return text
    parts = read_entry(entry)
    metadata = decode_metadata(parts.metadata)
    record_of(metadata, parts.payload, epoch=0, now_ms=0)
    return f"{text} | {_set(metadata)} | {_payload(metadata, parts.payload)}"


def _payload(metadata: PulsarMetadata, payload: bytes) -> str:
    if metadata.compression:
        payload = decompress(payload, CompressionInfo(Codec(metadata.compression), metadata.uncompressed_bytes or 0))
    if metadata.messages is None:
        return repr(payload)
    return ", ".join(map(_one, decode_batch(payload, metadata.messages)))


def _one(message: SingleMessage) -> str:
    said = {**message._asdict(), "properties": message.property_texts()}
    told = {name: value for name, value in said.items() if value not in (None, False, 0, {}, b"")}
    return ", ".join(f"{name}={value!r}" for name, value in told.items())


def _set(metadata: PulsarMetadata) -> str:
    told: dict[str, Any] = {name: getattr(metadata, name) for name in metadata.__struct_fields__}
    return ", ".join(f"{name}={value!r}" for name, value in told.items() if value not in (None, ()))
