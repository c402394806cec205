"""Converts an entry of a Pulsar topic into the records of its copy. Pure.

A single message becomes one record, a batch one batch entry (so that positions stay positions). An entry too big for
one record is cut into chunks. Only the last chunk names the original entry and its producer: without it the others are
no message. Decision: mapping/decisions/0022.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position, place_of
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.records.batch_entry import FORMAT_VERSION, BatchMessage, encode_batch
from pulsar_on_kafka_mapping.records.encryption_header import EncryptionInfo
from pulsar_on_kafka_mapping.records.message_record import (
    BatchInfo,
    ChunkInfo,
    Headers,
    MessageMetadata,
    encode_headers,
)
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition
from pulsar_on_kafka_mapping.records.record_headers import (
    CHUNK,
    DELIVER_AT,
    HIGHEST_SEQUENCE,
    ORIGINAL_ID,
    PRODUCER,
    producer_suffix,
)

INCARNATION: Final = 0
"""The incarnation of a Pulsar topic: ledger ids distinguish its incarnations."""
_PER_HEADER_BYTES: Final = 10
_CHUNK_HEADER_BYTES: Final = 160


@dataclass(frozen=True, slots=True)
class PulsarMessage:
    """A message as Pulsar's client gives it. Times in ms (Unix), 0 for none; `sequence_id` -1: not known."""

    payload: bytes | None
    key: str = ""
    ordering_key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int = 0
    sequence_id: int = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of one partition, with all of its messages; of a chunked message the last chunk's, and all of it.

    `schema_version` is Pulsar's number, -1 for none. `encryption`: the payload is encrypted. `first_chunk`:
    of a chunked message, the first chunk's position.
    """

    position: Position
    producer_name: str
    publish_time_ms: int
    messages: Sequence[PulsarMessage]
    schema_version: int = -1
    encryption: EncryptionInfo | None = None
    deliver_at_ms: int | None = None
    first_chunk: Position | None = None

    @property
    def in_chunks(self) -> bool:
        return self.first_chunk is not None


class EntryCopy(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        return record_bytes(self.key, self.value, self.headers)


@dataclass(frozen=True, slots=True)
class OriginOfCopies:
    """The origin of copies: cluster, partition, and the epoch of the run that makes them."""

    cluster: str
    partition: int
    epoch: int


def copies(
    entry: Entry, origin: OriginOfCopies, schema_header: bytes | None, keys_are_base64: bool, max_bytes: int, uuid: str
) -> list[EntryCopy]:
    """The records of an entry, in order; `uuid` is for chunks, `schema_header` names the schema here.

    `keys_are_base64`: where a KEY_VALUE schema separates them, which Pulsar's clients write in base64.

    Raises:
        MappingError: it cannot be a record; names what of it.
    """
    place = place_of(entry.position)
    single = entry.messages[0] if len(entry.messages) == 1 else None
    key, ordering_key = _keys(entry.messages[0], keys_are_base64)
    metadata = MessageMetadata(
        properties={} if single is None else dict(single.properties),
        event_time_ms=0 if single is None else single.event_time_ms,
        deliver_at_ms=entry.deliver_at_ms,
        ordering_key=ordering_key if key is not None else None,
        key_is_ordering_key=key is None and ordering_key is not None,
        schema_version=schema_header,
        batch=None if single is not None else BatchInfo(FORMAT_VERSION, len(entry.messages)),
        encryption=entry.encryption,
        publish_time_ms=entry.publish_time_ms,
        replicated_from=origin.cluster,
    )
    headers = encode_headers(metadata)
    kafka_key = key if key is not None else ordering_key
    value = single.payload if single is not None else _batch(entry.messages, keys_are_base64, headers)
    original = OriginalPosition(place, origin.partition, INCARNATION, origin.epoch)
    named: Headers = encode_headers(MessageMetadata(original_id=original))
    if entry.messages[0].sequence_id >= 0:
        suffix = producer_suffix(0, entry.producer_name)
        named.append((PRODUCER, f"{entry.messages[0].sequence_id}{suffix}".encode()))
    whole = EntryCopy(kafka_key, value, [*headers, *named])
    if whole.size <= max_bytes or value is None:
        return [whole]
    if single is None or entry.encryption is not None:
        kind = "a batch" if single is None else "encrypted"
        raise MappingError(f"it is {kind} of {len(value)} bytes; a record here has at most {max_bytes}")
    room = max_bytes - record_bytes(kafka_key, None, whole.headers) - _CHUNK_HEADER_BYTES
    if room <= 0:
        raise MappingError(f"its key and properties leave no room in a record of {max_bytes} bytes")
    pieces = [value[start : start + room] for start in range(0, len(value), room)]
    found = []
    for number, piece in enumerate(pieces):
        info = ChunkInfo(number, len(pieces), len(value), uuid)
        marks = encode_headers(MessageMetadata(chunk=info))
        found.append(EntryCopy(kafka_key, piece, [*headers, *marks, *(named if number == len(pieces) - 1 else ())]))
    return found


def record_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """The bytes that Kafka's limits count, but for a record's frame."""
    sizes = sum(len(name.encode()) + len(header or b"") + _PER_HEADER_BYTES for name, header in headers)
    return sizes + len(key or b"") + len(value or b"")


class Digest:
    """Digest of the records of one entry in sequence: 64 bits of BLAKE2b over everything except the run, the chunking,
    and the due time (which is requested only on demand)."""

    def __init__(self) -> None:
        self._value = hashlib.blake2b(digest_size=8)
        self._rest = b""
        self._null = True

    def add(self, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> None:
        rest = hashlib.blake2b(digest_size=8)
        for part in _parts(key, headers):
            rest.update(b"-" if part is None else b"%d:" % len(part))
            rest.update(part or b"")
        self._rest = rest.digest()
        self._null = self._null and value is None
        self._value.update(value or b"")

    def number(self) -> int:
        self._value.update(self._rest + (b"n" if self._null else b"v"))
        return int.from_bytes(self._value.digest(), "big")


def digest_of(records: Iterable[EntryCopy]) -> int:
    digest = Digest()
    for each in records:
        digest.add(*each)
    return digest.number()


def _parts(key: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> Iterator[bytes | None]:
    yield key
    for name, value in headers:
        if name not in (ORIGINAL_ID, CHUNK, DELIVER_AT):
            yield name.encode("utf-8")
            yield value


def _batch(messages: Sequence[PulsarMessage], keys_are_base64: bool, headers: Headers) -> bytes:
    first = messages[0].sequence_id
    found = []
    for index, each in enumerate(messages):
        key, ordering_key = _keys(each, keys_are_base64)
        sequence_id = each.sequence_id if each.sequence_id not in (-1, first + index) else None
        found.append(BatchMessage(each.payload, key, ordering_key, each.properties, each.event_time_ms, sequence_id))
    if first >= 0 and any(each.sequence_id is not None for each in found):
        headers.append((HIGHEST_SEQUENCE, b"%d" % max(each.sequence_id for each in messages)))
    return encode_batch(found)


def _keys(message: PulsarMessage, keys_are_base64: bool) -> tuple[bytes | None, bytes | None]:
    key = message.key.encode("utf-8") if message.key else None
    if keys_are_base64 and key is not None:
        try:
            key = base64.b64decode(key, validate=True)
        except binascii.Error as error:
            raise MappingError(f"its key {message.key!r:.60} is no base64, as its schema requires: {error}") from error
    return key, message.ordering_key.encode("utf-8") if message.ordering_key else None
