"""Schema records and versions: round trips, and garbage raises CorruptRecord and nothing else."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError, NewerFormat
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.state.metadata.schema_records import (
    MAX_DEFINITION_BYTES,
    MAX_RECORD_BYTES,
    SchemaRecord,
    decode_schema,
    deletion,
    encode_schema,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
RECORDS = st.builds(
    SchemaRecord,
    type=st.sampled_from(["AVRO", "JSON", "KEY_VALUE", "PROTOBUF_NATIVE"]),
    schema=st.binary(max_size=200) | st.just(b"\n") | st.just(b'{"a":\n1}\n\n'),
    name=TEXT,
    properties=st.dictionaries(TEXT, TEXT, max_size=4),
    user=TEXT,
    timestamp_ms=st.integers(0, 2**53),
    deleted=st.booleans(),
    forced=st.booleans(),
)


@given(RECORDS)
def test_records_round_trip(record: SchemaRecord) -> None:
    value = encode_schema(record)
    assert decode_schema(value) == record
    assert encode_schema(decode_schema(value)) == value


@given(st.binary(max_size=80))
def test_garbage_is_corrupt(value: bytes) -> None:
    with suppress(CorruptRecord):
        decode_schema(value)


@given(RECORDS, st.data())
def test_a_changed_byte_never_passes_for_another_definition(record: SchemaRecord, data: st.DataObject) -> None:
    value = bytearray(encode_schema(record))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptRecord):
        assert decode_schema(bytes(value)).schema == record.schema


@given(RECORDS, st.data())
def test_a_missing_or_mistyped_field_is_corrupt(record: SchemaRecord, data: st.DataObject) -> None:
    line, _, schema = encode_schema(record).partition(b"\n")
    names = ("type", "name", "properties", "user", "timestamp_ms", "deleted", "forced", "sha256", "v")
    field = b'"%s":' % data.draw(st.sampled_from(names)).encode()
    renamed = line.replace(field, b'"other":', 1)
    for broken in (renamed, renamed.replace(b"{", b"{" + field + b"[],", 1)):
        with pytest.raises(CorruptRecord):
            decode_schema(broken + b"\n" + schema)


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]\n", b'{"v":0}\n', b'{"v":true}\n', b"\xff\n", b"[" * 100_000 + b"\n"]
)
def test_what_is_no_record(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_schema(value)


def test_a_newer_format_is_told_apart() -> None:
    with pytest.raises(NewerFormat, match="format 2, this version reads 1"):
        decode_schema(encode_schema(SchemaRecord("AVRO", b"")).replace(b'"v":1', b'"v":2'))


def test_the_largest_record() -> None:
    largest = SchemaRecord("AVRO", b"x" * MAX_DEFINITION_BYTES, properties={"p": ""})
    room = MAX_RECORD_BYTES - len(encode_schema(largest))
    assert len(encode_schema(replace(largest, properties={"p": "x" * room}))) == MAX_RECORD_BYTES
    definition = rf"\({MAX_DEFINITION_BYTES} for the definition"
    with pytest.raises(MappingError, match=rf"takes {MAX_RECORD_BYTES + 1} bytes.*{definition}"):
        encode_schema(replace(largest, properties={"p": "x" * (room + 1)}))
    with pytest.raises(MappingError, match=rf"has {MAX_DEFINITION_BYTES + 1} bytes, at most {MAX_DEFINITION_BYTES} "):
        encode_schema(SchemaRecord("AVRO", b"x" * (MAX_DEFINITION_BYTES + 1)))


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(MappingError, match="cannot be written"):
        encode_schema(SchemaRecord("AVRO", b"", name="\ud800"))


def test_a_deletion_has_no_schema() -> None:
    assert decode_schema(encode_schema(deletion("ann", 17, forced=True, removes=True))).removes
    record = decode_schema(encode_schema(deletion("ann", 17, forced=True)))
    assert not record.removes
    assert (record.schema, record.deleted, record.forced, record.user, record.timestamp_ms) == (
        b"",
        True,
        True,
        "ann",
        17,
    )


@given(st.integers(0, 2**63 - 1))
def test_versions_round_trip_in_headers_and_sort_alike(number: int) -> None:
    version = SchemaVersion(number)
    assert SchemaVersion.from_header(version.header()) == version
    assert (version < SchemaVersion(2**62)) == (version.header() < SchemaVersion(2**62).header())


@given(st.binary(max_size=10).filter(lambda header: len(header) != 8) | st.just(b"\xff" * 8))
def test_no_version(header: bytes) -> None:
    with pytest.raises(CorruptRecord):
        SchemaVersion.from_header(header)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_numbers_beyond_the_header_are_refused(number: int) -> None:
    with pytest.raises(MappingError):
        SchemaVersion(number)
