"""Bytes of descriptor sets that nobody's compiler writes: they are refused, and what is not known is never taken for
something else.

`google.protobuf` is no help there. It drops an enum's number that its version does not know: an edition of a newer
protoc, or a field's type, reads as if it had not been written, differently from version to version. It does not look at
UTF-8 at all in one of its implementations.
"""

from __future__ import annotations

import pytest

from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.protobuf.descriptors import ProtobufMessage
from pulsar_on_kafka_schema_compat.protobuf.protobuf_checker import read_protobuf_native
from tests.unit.schema_compat.protobuf.protobuf_files import definition


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def blob(field: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(data)) + data


NAME = b"order.proto"
PACKAGE = blob(2, b"p")
INT32 = number(5, 5)


def a_field(*more: bytes, name: bytes = b"x", kind: bytes = INT32) -> bytes:
    return blob(2, blob(1, name), number(3, 1), number(4, 1), kind, *more)


def a_file(*more: bytes, message: bytes = b"", name: bytes = NAME) -> bytes:
    return blob(1, blob(1, name), PACKAGE, *more, blob(4, blob(1, b"Order"), message or a_field()))


def read(data: bytes) -> ProtobufMessage:
    return read_protobuf_native(definition(data).schema)


def said_of(data: bytes) -> str:
    with pytest.raises(UnreadableSchema) as caught:
        read(data)
    return str(caught.value)


def test_the_file_as_it_should_be() -> None:
    assert read(a_file()).by_name["x"].type.name == "int32"


@pytest.mark.parametrize("kind", [19, 22, 127, (1 << 31) - 1, (1 << 64) - 1])
def test_a_type_that_is_none_is_not_taken_for_one_left_out(kind: int) -> None:
    named = a_field(blob(6, b".p.Order"), kind=number(5, kind))
    assert "which is none" in said_of(a_file(message=named))


@pytest.mark.parametrize("edition", [998, 999, 1000, 1001, 1002])
def test_editions_that_are_known(edition: int) -> None:
    assert read(a_file(blob(12, b"editions"), number(14, edition))).name == "Order"


@pytest.mark.parametrize("edition", [0, 1, 900, 997, 1003, 9_999, 99_999, (1 << 31) - 1, (1 << 64) - 1])
def test_an_edition_that_is_not_known_is_refused(edition: int) -> None:
    assert "which is not known" in said_of(a_file(blob(12, b"editions"), number(14, edition)))


@pytest.mark.parametrize("syntax", [b"proto2", b"proto3", b"proto4", b"EDITIONS", b"editions "])
def test_an_edition_goes_with_its_syntax_alone(syntax: bytes) -> None:
    assert "which is not known" in said_of(a_file(blob(12, syntax), number(14, 1000)))


@pytest.mark.parametrize("feature", [1, 2, 5])
def test_a_feature_without_a_meaning_is_refused(feature: int) -> None:
    options = blob(8, blob(50, number(feature, 0)))
    assert "features without a meaning" in said_of(a_file(options, blob(12, b"editions"), number(14, 1000)))


@pytest.mark.parametrize(
    "data",
    [
        a_file(name=b"\xff\xfe"),
        a_file(blob(3, b"\xc3(")),
        a_file(blob(12, b"\xa0")),
        a_file(message=a_field(name=b"\xed\xa0\x80")),
        a_file(message=a_field(blob(6, b"\xf8\x88\x80\x80\x80"))),
        a_file(blob(5, blob(1, b"E\x80"), blob(2, blob(1, b"A")))),
        a_file(blob(5, blob(1, b"E"), blob(2, blob(1, b"\x80")))),
        a_file(message=a_field() + blob(8, blob(1, b"\xff"))),
    ],
)
def test_names_that_are_not_utf8_are_refused(data: bytes) -> None:
    assert "is not UTF-8" in said_of(data)


def test_a_number_where_a_name_is_expected_is_no_name() -> None:
    assert "a field has a name" in said_of(a_file(message=blob(2, number(1, 5), number(3, 1), INT32)))


@pytest.mark.parametrize("length", [1 << 20, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize("place", ["set", "file", "message"])
def test_a_length_that_is_not_there_is_refused(length: int, place: str) -> None:
    promise = varint(1 << 3 | 2) + varint(length) + b"abc"
    data = {"set": promise, "file": blob(1, promise), "message": a_file(message=blob(2, promise))}[place]
    assert "bytes promised" in said_of(data)


@pytest.mark.parametrize("start", [b"\x08" + b"\xff" * 10 + b"\x01", b"\x0a" + b"\x80" * 11, b"\x80" * 12])
def test_a_number_of_more_than_ten_bytes_is_refused(start: bytes) -> None:
    assert "more than 10 bytes" in said_of(start)


def test_cut_bytes_are_refused_or_say_less_and_nothing_else_is_raised() -> None:
    whole = a_file(blob(5, blob(1, b"E"), blob(2, blob(1, b"A"))), blob(12, b"proto3"))
    for end in range(len(whole)):
        assert said_of(whole[:end])


def test_lengthened_bytes_are_refused_or_mean_the_same() -> None:
    whole = a_file(blob(12, b"proto3"))
    for more in range(256):
        try:
            found = read(whole + bytes([more]))
        except UnreadableSchema:
            continue
        assert found.by_name.keys() == {"x"}
    for unknown in (number(99, 7), blob(99, b"?"), varint(99 << 3 | 3) + number(1, 1) + varint(99 << 3 | 4)):
        assert read(whole + unknown).by_name.keys() == {"x"}


@pytest.mark.parametrize("depth", [1, 100, 100_000])
def test_groups_in_groups_take_no_stack(depth: int) -> None:
    groups = varint(99 << 3 | 3) * depth
    assert read(a_file() + groups + varint(99 << 3 | 4) * depth).name == "Order"
    assert "does not end" in said_of(a_file() + groups)
