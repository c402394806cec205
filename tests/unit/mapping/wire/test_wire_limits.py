"""What entries of Pulsar's clients may say, and what is refused with which words."""

from __future__ import annotations

import struct
import zlib

import cramjam
import pytest

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.records.message_record import Codec, CompressionInfo
from pulsar_on_kafka_mapping.records.record_headers import (
    BATCH,
    COMPRESSION,
    HIGHEST_SEQUENCE,
    METADATA,
    PRODUCER,
    PUBLISH_TIME,
)
from pulsar_on_kafka_mapping.wire.compression import MAX_UNCOMPRESSED_BYTES, decompress
from pulsar_on_kafka_mapping.wire.entries import MAX_ENTRY_BYTES, WireEntry, read_entry, write_entry
from pulsar_on_kafka_mapping.wire.message_metadata import (
    MAX_FIELDS,
    PulsarMetadata,
    decode_metadata,
    encode_fields,
    encode_metadata,
)
from pulsar_on_kafka_mapping.wire.single_messages import PulsarBatch, kafka_key
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord, metadata_of, record_of

NOW_MS = 1_800_000_000_000
PLAIN = PulsarMetadata(producer_name="p", sequence_id=7, publish_time_ms=NOW_MS)


def headers_of(**fields: object) -> dict[str, bytes | None]:
    changed = decode_metadata(encode_metadata(PLAIN))
    for name, value in fields.items():
        setattr(changed, name, value)
    return dict(record_of(changed, b"payload", epoch=3, now_ms=NOW_MS).headers)


def test_a_plain_message_has_no_header_but_its_producer_s() -> None:
    assert headers_of() == {"__pulsar.producer": b"7:3:p"}


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"messages": 1}, BATCH, b"2:1"),
        ({"messages": 5, "compression": 4, "uncompressed_bytes": 99}, COMPRESSION, b"SNAPPY:99"),
        ({"compression": 1, "uncompressed_bytes": 12}, BATCH, b"3:1"),
        ({"compression": 0, "uncompressed_bytes": 7}, BATCH, None),
        ({"null_value": 1, "compression": 1}, BATCH, None),
        ({"publish_time_ms": 5}, PUBLISH_TIME, b"5"),
        ({"publish_time_ms": NOW_MS + 60_000}, PUBLISH_TIME, None),
        ({"partition_key": b"aGk=", "in_base64": 1}, METADATA, encode_fields([(17, 1)])),
        ({"partition_key": b"/w==", "in_base64": 1}, METADATA, None),
        ({"replicate_to": ["__local__"]}, "__pulsar.replicate_to", b""),
        ({"others": [(30, 1), (32, b"id")]}, METADATA, encode_fields([(30, 1), (32, b"id")])),
    ],
)
def test_headers_say_what_a_reader_has_to_know(fields: dict[str, object], name: str, value: bytes | None) -> None:
    assert headers_of(**fields).get(name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [(HIGHEST_SEQUENCE, b"x"), (HIGHEST_SEQUENCE, b"%d" % 2**64), (PRODUCER, b"%d:0:p" % 2**64)],
)
def test_sequence_ids_of_foreign_records_that_no_client_could_read_are_left_out(name: str, value: bytes) -> None:
    found = decode_metadata(encode_metadata(metadata_of(EntryRecord(None, b"", [(name, value)], 5))))
    assert (found.sequence_id, found.highest_sequence_id) == (0, None)


def test_a_message_from_a_wrong_clock_has_ours() -> None:
    told = record_of(PLAIN, b"", epoch=0, now_ms=5)
    assert (told.timestamp_ms, dict(told.headers)[PUBLISH_TIME]) == (5, b"%d" % NOW_MS)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"marker_type": 21}, "a marker of type 21"),
        ({"messages": 0}, "batch of 0 messages in 7 bytes, expected 1 to 1"),
        ({"messages": 2}, "batch of 2 messages in 7 bytes, expected 1 to 1"),
        (
            {"messages": 10**6 + 1, "compression": 4, "uncompressed_bytes": 10**7},
            "batch of 1000001 messages in 10000000 bytes, expected 1 to 1000000",
        ),
        ({"compression": 9}, r"compression is 9, expected 0 \(none\), 1 \(LZ4\)"),
        ({"compression": 3, "uncompressed_bytes": 2**28 + 1}, "268435457 bytes uncompressed, expected up to 268435456"),
        ({"partition_key": b"no base64", "in_base64": 1}, "b'no base64', expected base64"),
        ({"chunks": 3, "chunk_id": 3, "uuid": "u"}, "chunk_id=3"),
        ({"event_time_ms": 2**64}, "event time is 18446744073709551616"),
    ],
)
def test_what_can_be_no_record_is_refused_and_named(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(MappingError, match=complaint):
        headers_of(**fields)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "lacks its producer_name"),
        (encode_fields([(1, b"p"), (2, 1)]), "lacks its publish_time_ms"),
        (encode_fields([(1, 5)]), "field 1 5, expected text"),
        (encode_fields([(1, b"\xff")]), r"field 1 b'\\xff', expected UTF-8"),
        (encode_fields([(2, b"x")]), "field 2 b'x', expected a number"),
        (encode_fields([(4, b"\x0a\x00")]), "lacks its key or its value"),
        (encode_fields([(4, 1)]), "field 4 1, expected"),
        (encode_fields([(31, 0)] * (MAX_FIELDS + 1)), "more than 65536 fields"),
    ],
)
def test_metadata_that_are_none_are_refused_and_named(data: bytes, complaint: str) -> None:
    with pytest.raises(CorruptRecord, match=complaint):
        decode_metadata(data)


@pytest.mark.parametrize(
    ("packed", "info", "complaint"),
    [
        (b"x" * 9, CompressionInfo(Codec.ZSTD, MAX_UNCOMPRESSED_BYTES + 1), "expected up to 268435456"),
        (b"x" * 9, CompressionInfo(Codec.LZ4, MAX_UNCOMPRESSED_BYTES), "expected up to 2304"),
        (b"x" * 9, CompressionInfo(Codec.SNAPPY, 100), "no SNAPPY of 100 bytes"),
        (zlib.compress(b"ab")[:-6], CompressionInfo(Codec.ZLIB, 2), "has 1 bytes uncompressed or more, expected 2"),
        (b"no zlib", CompressionInfo(Codec.ZLIB, 2), "no ZLIB of 2 bytes"),
        (zlib.compress(b"a" * 50), CompressionInfo(Codec.ZLIB, 49), "has 50 bytes uncompressed or more, expected 49"),
    ],
)
def test_what_does_not_decompress_is_named(packed: bytes, info: CompressionInfo, complaint: str) -> None:
    with pytest.raises(CorruptRecord, match=complaint):
        decompress(packed, info)


def test_the_most_that_each_codec_makes_of_its_input_is_allowed() -> None:
    """Zeros, as many as one payload may have in the tests' memory."""
    plain = bytes(32 * 1024 * 1024)
    for codec, packed in (
        (Codec.LZ4, bytes(cramjam.lz4.compress_block(plain, store_size=False))),
        (Codec.ZLIB, zlib.compress(plain, 9)),
        (Codec.ZSTD, bytes(cramjam.zstd.compress(plain, 19))),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(plain))),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress(plain))),  # as the Rust crate frames it
    ):
        assert decompress(packed, CompressionInfo(codec, len(plain))) == plain, codec


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x0e\x01\x00", "ends at byte 3"),
        (b"\x00\x00\x00\x09abc", "ends at byte 7, expected 9 more"),
        (b"\x0e\x02\xff\xff\xff\xff", "expected 4294967295 more"),
        (bytes(MAX_ENTRY_BYTES + 1), f"expected up to {MAX_ENTRY_BYTES}"),
        (b"\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x00", "expected 00000000"),
    ],
)
def test_entries_that_are_none_are_refused_and_named(data: bytes, complaint: str) -> None:
    with pytest.raises(CorruptRecord, match=complaint):
        read_entry(data)


def test_a_producer_s_entry_has_a_checksum() -> None:
    with pytest.raises(CorruptRecord, match="expected a checksum"):
        read_entry(bytes(4), checksum_required=True)
    assert read_entry(bytes(4)) == WireEntry(b"", b"")
    with pytest.raises(MappingError, match="expected up to"):
        write_entry(WireEntry(b"", bytes(MAX_ENTRY_BYTES)))


def test_a_batch_has_the_face_of_our_own() -> None:
    first = encode_fields(
        [(1, encode_fields([(1, b"p"), (2, b"1")])), (2, b"/w=="), (3, 1), (5, 5), (6, 1), (7, b"o"), (8, 9)]
    )
    second = encode_fields([(3, 0), (9, 1)])
    payload = b"".join([struct.pack(">I", len(first)), first, b"a", struct.pack(">I", len(second)), second])
    batch = PulsarBatch(payload, 2)
    assert (len(batch), batch.payloads, batch.payload(1)) == (2, [b"a", b""], None)
    assert tuple(batch.message(0)) == (b"a", b"\xff", b"o", {"p": "1"}, 5, 9)
    assert tuple(batch.message(1)) == (None, None, None, None, 0, None)
    with pytest.raises(IndexError, match="batch index is 2, expected 0 to 1"):
        batch.message(2)
    assert kafka_key(b"not!", in_base64=True) == b"not!"
