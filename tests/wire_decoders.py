"""Decoders of what Pulsar's clients send, for the fuzzer, and bytes to begin with."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.records import record_headers
from pulsar_on_kafka_mapping.records.batch_entry import decode_batch as decode_columns
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka_mapping.wire.column_entries import as_columns_or_none
from pulsar_on_kafka_mapping.wire.compression import decompress
from pulsar_on_kafka_mapping.wire.entries import WireEntry, read_entry, write_entry
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, decode_metadata, encode_metadata
from pulsar_on_kafka_mapping.wire.native_messages import taken_apart
from pulsar_on_kafka_mapping.wire.single_messages import decode_batch
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, metadata_of, record_of
from tests.pulsar_sessions import CLIENTS, meaning, recorded
from tests.served_connection import ServedConnection

_METADATA: Final = PulsarMetadata(
    producer_name="p", sequence_id=5, publish_time_ms=10**12, properties=[(b"a", b"1")], partition_key=b"aGk=",
    in_base64=1, messages=2, compression=2, uncompressed_bytes=30, txn_most=1, txn_least=2, schema_version=bytes(8),
)  # fmt: skip
_HEADERS: Final = [
    value
    for value in vars(record_headers).values()
    if isinstance(value, str) and value.startswith(record_headers.PREFIX)
]
_MAX_HEADERS: Final = 20
_BATCH: Final = b"\0\0\0\x02\x18\x01a\0\0\0\x0c\x0a\x06\x0a\x01k\x12\x01v\x18\x02\x48\x00bc"


def _metadata(data: bytes) -> None:
    found = decode_metadata(data)
    with suppress(MappingError):
        assert metadata_of(record_of(found, data, epoch=1, now_ms=0)).producer_name == found.producer_name


def _compressed(data: bytes) -> None:
    codec, size = Codec(1 + data[0] % 4 if data else 1), int.from_bytes(data[1:3], "big")
    assert len(decompress(data[3:], CompressionInfo(codec, size))) == size


def _record(data: bytes) -> None:
    """Headers are a name, a length and so many bytes each; what follows the last one is the value."""
    headers: list[tuple[str, bytes | None]] = []
    while len(data) > 2 and len(headers) < _MAX_HEADERS:
        headers.append((_HEADERS[data[0] % len(_HEADERS)], data[2 : 2 + data[1]]))
        data = data[2 + data[1] :]
    with suppress(MappingError):
        encode_metadata(metadata_of(EntryRecord(data[:1] or None, data, headers, 5)))


def _frames(data: bytes) -> None:
    with suppress(MappingError):
        meaning(data)


def _connection(data: bytes) -> None:
    ServedConnection().hear(data)


def _recorded() -> Iterator[tuple[str, bytes]]:
    for client in CLIENTS:
        streams: dict[int, bytes] = {}
        for connection, data in recorded(client):
            yield "pulsar frames", data
            streams[connection] = streams.get(connection, b"") + data
        for stream in streams.values():
            yield "pulsar connection", stream


def _messages(data: bytes) -> None:
    """A batch that is taken apart, or made columns of: no message is lost, or can be no record."""
    count, payload = data[0] if data else 1, data[1:]
    batch = PulsarMetadata(producer_name="p", sequence_id=5, publish_time_ms=10**12, messages=count)
    apart, columns = taken_apart(batch, payload, 10_000), as_columns_or_none(payload, b"2:%d" % count, None)
    records = [record_of(*each, epoch=1, now_ms=0) for each in apart or ()]
    if records:
        assert columns is not None
        assert [record.value for record in records] == [
            decode_columns(columns, count).payload(index) for index in range(count)
        ]


DECODERS: Final[dict[str, Callable[[bytes], object]]] = {
    "pulsar entry": read_entry,
    "pulsar metadata": _metadata,
    "pulsar batch": lambda data: decode_batch(data[1:], data[0] if data else 1),
    "pulsar messages": _messages,
    "pulsar compression": _compressed,
    "pulsar record": _record,
    "pulsar frames": _frames,
    "pulsar connection": _connection,
}
SEEDS: Final = [
    ("pulsar entry", write_entry(WireEntry(encode_metadata(_METADATA), _BATCH))),
    ("pulsar metadata", encode_metadata(_METADATA)),
    ("pulsar record", bytes((_HEADERS.index(record_headers.PRODUCER), 5)) + b"1:2:p"),
    ("pulsar record", bytes((_HEADERS.index(record_headers.HIGHEST_SEQUENCE), 2)) + b"12"),
    ("pulsar record", bytes((_HEADERS.index(record_headers.METADATA), 2)) + b"\xf0\x01\x01"),
    ("pulsar batch", b"\x02" + _BATCH),
    ("pulsar messages", b"\x02" + _BATCH),
    ("pulsar compression", b"\x01\x00\x32" + zlib.compress(b"a" * 50)),
    *_recorded(),
]
