"""JsonSchema beside payloads that are damaged or hostile."""

from __future__ import annotations

from enum import Enum

import pytest
from fastavro.schema import UnknownType

from pulsar_on_kafka.schema import Array, AutoConsumeSchema, AvroSchema, CustomEnum, Integer, JsonSchema, Record


class Small(Record):
    n = Integer()


@pytest.mark.parametrize("text", [b"[", b'{"n":'], ids=["arrays", "objects"])
def test_a_text_of_a_hundred_thousand_levels_is_refused(text: bytes) -> None:
    schema = JsonSchema(Small)
    with pytest.raises(ValueError, match="00000 bytes has too many levels"):
        schema.decode(text * 100_000)
    with pytest.raises(ValueError, match="00000 bytes has too many levels"):
        AutoConsumeSchema().decode_as_written(text * 100_000, schema.schema_info())


@pytest.mark.parametrize("text", [b"[]", b"null", b'"x"', b"5"])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(TypeError, match="Small is a JSON object"):
        JsonSchema(Small).decode(text)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"n": 1}}', b'{"n": ' + b"9" * 100_000 + b"}"], ids=repr)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        JsonSchema(Small).decode(text)


class _Shade(Enum):
    DARK = 1


class _Shades(Record):
    all_of_them = Array(CustomEnum(_Shade))


def test_an_array_of_enums_that_cannot_be_read_is_told_by_its_field() -> None:
    written = JsonSchema(_Shades).encode(_Shades(all_of_them=[_Shade.DARK]))
    with pytest.raises(
        TypeError, match=r"field 'all_of_them' takes members of _Shade .* got int at 0: 1.*Array\(String"
    ):
        JsonSchema(_Shades).decode(written)
    with pytest.raises(UnknownType, match=r"'_Shades' has a type 'enum' .* Array\(String"):
        AvroSchema(_Shades)
