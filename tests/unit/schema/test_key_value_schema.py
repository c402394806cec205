"""KeyValueSchema: its bytes are those that Pulsar's Java client 4.0.7 printed for the same schemas and values."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.schema import (
    AvroSchema,
    BytesSchema,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    Long,
    Record,
    StringSchema,
)
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.key_value import split

SEPARATED = KeyValueEncodingType.SEPARATED


class K(Record):
    a = Integer()


class Wider(Record):
    a = Long()


@pytest.mark.parametrize(
    ("pair", "java"),
    [(KeyValue(None, None), "//////////8="), (KeyValue("k", b"\x00\x00\x00\x05"), "AAAAAWsAAAAEAAAABQ=="),
     (KeyValue("", b"\x00\x00\x00\x05"), "AAAAAAAAAAQAAAAF")],
    ids=str,
)  # fmt: skip
def test_inline_payloads_are_javas(pair: KeyValue, java: str) -> None:
    schema = KeyValueSchema(StringSchema(), BytesSchema())
    assert schema.encode(pair) == base64.b64decode(java)
    assert schema.decode(base64.b64decode(java)) == pair


def test_the_definition_is_javas() -> None:
    info = KeyValueSchema(StringSchema(), BytesSchema()).schema_info()
    assert (info.type, info.name, info.schema) == (SchemaType.KEY_VALUE, "KeyValue", base64.b64decode("AAAAAAAAAAA="))
    assert info.properties == {
        "key.schema.name": "STRING", "key.schema.type": "STRING", "key.schema.properties": "{}",
        "value.schema.name": "BYTES", "value.schema.type": "BYTES", "value.schema.properties": "{}",
        "kv.encoding.type": "INLINE",
    }  # fmt: skip


def test_the_definition_holds_those_of_both() -> None:
    key, value = AvroSchema(K), JsonSchema(Wider)
    info = KeyValueSchema(key, value, SEPARATED).schema_info()
    assert split(info) == {"key": key.schema_info(), "value": value.schema_info()}
    assert info.properties["kv.encoding.type"] == "SEPARATED"


def test_properties_of_the_parts_are_in_the_definition() -> None:
    inner = KeyValueSchema(StringSchema(), AvroSchema(K))
    assert split(KeyValueSchema(BytesSchema(), inner).schema_info())["value"] == inner.schema_info()


@given(st.none() | st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary())
def test_what_is_written_is_read(key: str | None, value: bytes | None) -> None:
    inline = KeyValueSchema(StringSchema(), BytesSchema())
    pair = KeyValue(key, value)
    written = inline.encode(pair)
    assert written is not None
    assert inline.decode(written) == pair
    nested = KeyValueSchema(inline, StringSchema())
    assert nested.decode(nested.encode(KeyValue(pair, None)) or b"") == (pair, None)


def test_a_separated_key_is_beside_the_payload() -> None:
    schema = KeyValueSchema(StringSchema(), BytesSchema(), SEPARATED)
    pair = KeyValue("k", b"v")
    assert (schema.encode_key(pair), schema.encode(pair)) == (b"k", b"v")
    assert schema.decode_separated(b"k", b"v") == pair
    assert (schema.encode_key(KeyValue(None, None)), schema.encode(KeyValue(None, None))) == (None, None)
    assert schema.decode_separated(None, None) == (None, None)
    with pytest.raises(ValueError, match="decode_separated"):
        schema.decode(b"v")


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType))
def test_each_part_is_read_by_its_writer(encoding: KeyValueEncodingType) -> None:
    old, new = (KeyValueSchema(AvroSchema(cls), AvroSchema(cls), encoding) for cls in (K, Wider))
    pair = KeyValue(K(a=1), K(a=2))
    key, payload = old.encode_key(pair), old.encode(pair)
    if encoding is SEPARATED:
        found = new.decode_separated(key, payload, old.schema_info())
    else:
        found = new.decode_as_written(payload or b"", old.schema_info())
    assert found == KeyValue(Wider(a=1), Wider(a=2))


def test_a_writer_of_another_type() -> None:
    schema = KeyValueSchema(StringSchema(), BytesSchema())
    with pytest.raises(TypeError, match="AVRO"):
        schema.decode_as_written(b"\xff" * 8, SchemaInfo(SchemaType.AVRO, b"{}"))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\x00\x00", b"\x00\x00\x00\x05abcd", b"\xff\xff\xff\xfe\x00\x00\x00\x00", b"\x00\x00\x00\x01a",
     b"\xff\xff\xff\xff\x7f\xff\xff\xff"],
    ids=repr,
)  # fmt: skip
def test_a_payload_that_is_not_both(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|value"):
        KeyValueSchema(StringSchema(), BytesSchema()).decode(payload)


@pytest.mark.parametrize("wrong", [None, "x", ("k", b"v"), {"key": 1}])
def test_only_a_key_value_is_taken(wrong: Any) -> None:
    schema = KeyValueSchema(StringSchema(), BytesSchema())
    for encode in (schema.encode, schema.encode_key):
        with pytest.raises(TypeError, match="KeyValue"):
            encode(wrong)


def test_it_is_made_of_schemas() -> None:
    wrong: Any = str
    with pytest.raises(TypeError, match="key_schema"):
        KeyValueSchema(wrong, StringSchema())
    with pytest.raises(TypeError, match="value_schema"):
        KeyValueSchema(StringSchema(), wrong)
    with pytest.raises(TypeError, match="encoding_type"):
        KeyValueSchema(StringSchema(), StringSchema(), wrong)
