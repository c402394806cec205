"""Raw records in the form of the SDK's own."""

from __future__ import annotations

import zlib

import pytest

from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import BatchMessage, decode_batch
from pulsar_on_kafka_mapping.wire.column_entries import as_columns, as_columns_or_none
from pulsar_on_kafka_mapping.wire.message_metadata import encode_fields


def single(payload: bytes, **fields: int) -> bytes:
    numbers = {"event_time": 5, "sequence_id": 8}
    metadata = encode_fields([(3, len(payload)), *((numbers[name], value) for name, value in fields.items())])
    return len(metadata).to_bytes(4, "big") + metadata + payload


def test_a_batch_has_what_columns_hold() -> None:
    most = 2**63 - 1
    packed = zlib.compress(
        single(b"a", event_time=most, sequence_id=most) + single(b"b", event_time=most + 1, sequence_id=most + 1)
    )
    size = len(zlib.decompress(packed))
    found = decode_batch(as_columns(packed, b"2:2", b"ZLIB:%d" % size), 2)
    assert found.message(0) == BatchMessage(b"a", event_time_ms=most, sequence_id=most)
    assert found.message(1) == BatchMessage(b"b")


def test_one_message_is_its_payload() -> None:
    assert as_columns(zlib.compress(b"abc"), b"3:1", b"ZLIB:3") == b"abc"


@pytest.mark.parametrize(
    ("value", "form", "compression"),
    [
        (b"no batch", b"2:3", None),
        (b"no zlib", b"3:1", b"ZLIB:3"),
        (b"", b"two", None),
        (b"", b"3:1", b"ZIP:3"),
    ],
)
def test_what_is_none_is_refused_and_told_as_nothing(value: bytes, form: bytes, compression: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        as_columns(value, form, compression)
    assert as_columns_or_none(value, form, compression) is None


def test_nothing_becomes_nothing() -> None:
    assert as_columns_or_none(None, None, None) is None
