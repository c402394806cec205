"""Protobuf's wire format is read, and what is none is refused."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_schema_compat.protobuf.descriptor_reading import NotProtobuf, fields


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x08\x96\x01", [(1, 150)]),
        (b"\x12\x02ab", [(2, b"ab")]),
        (b"\x0d\x01\x02\x03\x04\x11\x01\x02\x03\x04\x05\x06\x07\x08\x18\x05", [(3, 5)]),
        (b"\x0b\x08\x01\x13\x14\x0c\x08\x02", [(1, 2)]),
        (b"\x08" + b"\xff" * 9 + b"\x01", [(1, (1 << 64) - 1)]),
    ],
)
def test_wire_format(data: bytes, expected: list[tuple[int, int | bytes]]) -> None:
    assert list(fields(data)) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"\x08",
        b"\x08\x80",
        b"\x12\x05ab",
        b"\x0d\x01",
        b"\x00\x01",
        b"\x0b",
        b"\x0b\x14",
        b"\x0c",
        b"\x0f",
        b"\x08" + b"\xff" * 11,
    ],
)
def test_broken_wire_format(data: bytes) -> None:
    with pytest.raises(NotProtobuf):
        list(fields(data))
