"""Decoders of what Pulsar's clients send, for the fuzzer, and bytes to begin with."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka.mapping.wire.compression import decompress
from pulsar_on_kafka.mapping.wire.entries import WireEntry, read_entry, write_entry
from pulsar_on_kafka.mapping.wire.message_metadata import PulsarMetadata, decode_metadata, encode_metadata
from pulsar_on_kafka.mapping.wire.single_messages import decode_batch
from pulsar_on_kafka.mapping.wire.stored_entries import metadata_of, record_of

_METADATA: Final = PulsarMetadata(
    producer_name="p", sequence_id=5, publish_time_ms=10**12, properties=[(b"a", b"1")], partition_key=b"aGk=",
    in_base64=1, messages=2, compression=2, uncompressed_bytes=30, txn_most=1, txn_least=2, schema_version=bytes(8),
)  # fmt: skip
_BATCH: Final = b"\0\0\0\x02\x18\x01a\0\0\0\x0c\x0a\x06\x0a\x01k\x12\x01v\x18\x02\x48\x00bc"


def _metadata(data: bytes) -> None:
    found = decode_metadata(data)
    with suppress(MappingError):
        assert metadata_of(record_of(found, data, epoch=1, now_ms=0)).producer_name == found.producer_name


def _compressed(data: bytes) -> None:
    codec, size = Codec(1 + data[0] % 4 if data else 1), int.from_bytes(data[1:3], "big")
    assert len(decompress(data[3:], CompressionInfo(codec, size))) == size


DECODERS: Final[dict[str, Callable[[bytes], object]]] = {
    "pulsar entry": read_entry,
    "pulsar metadata": _metadata,
    "pulsar batch": lambda data: decode_batch(data[1:], data[0] if data else 1),
    "pulsar compression": _compressed,
}
SEEDS: Final = [
    ("pulsar entry", write_entry(WireEntry(encode_metadata(_METADATA), _BATCH))),
    ("pulsar metadata", encode_metadata(_METADATA)),
    ("pulsar batch", b"\x02" + _BATCH),
    ("pulsar compression", b"\x01\x00\x32" + zlib.compress(b"a" * 50)),
]
