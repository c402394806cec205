"""Section 7 of the rules: KEY_VALUE."""

from __future__ import annotations

import json
import struct

import pytest

from pulsar_on_kafka.schema_compat import SchemaInfo, SchemaType, UnreadableSchema
from pulsar_on_kafka_schema_compat.key_value import from_rest_form, rest_form
from tests.unit.schema_compat.avro_text import avro, field, found, record

EMPTY = SchemaInfo(SchemaType.STRING, b"")
BYTES = SchemaInfo(SchemaType.BYTES, b"")
STRATEGIES = ["BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"]


def key_value(key: SchemaInfo, value: SchemaInfo, encoding: str = "INLINE") -> SchemaInfo:
    """A key/value schema in the form of Pulsar's clients."""
    return SchemaInfo(
        SchemaType.KEY_VALUE,
        b"".join(struct.pack(">i", len(part.schema)) + part.schema for part in (key, value)),
        "KeyValue",
        {
            "key.schema.name": key.name,
            "key.schema.type": key.type.name,
            "key.schema.properties": json.dumps(dict(key.properties)),
            "value.schema.name": value.name,
            "value.schema.type": value.type.name,
            "value.schema.properties": json.dumps(dict(value.properties)),
            "kv.encoding.type": encoding,
        },
    )


def raw(data: bytes, **properties: str) -> SchemaInfo:
    return SchemaInfo(
        SchemaType.KEY_VALUE, data, properties={name.replace("_", "."): value for name, value in properties.items()}
    )


def lengths(*parts: bytes | int) -> bytes:
    return b"".join(
        struct.pack(">i", part) if isinstance(part, int) else struct.pack(">i", len(part)) + part for part in parts
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_7_a_missing_type_is_bytes(strategy: str) -> None:
    assert found(raw(lengths(b"{", b"[")), [raw(lengths(b"a", b"b"))], strategy) == []
    assert found(key_value(BYTES, BYTES), [raw(lengths(b"a", b"b"))], strategy) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_7_length_minus_one_is_an_absent_schema(strategy: str) -> None:
    new = raw(lengths(-1, -1), key_schema_type="STRING", value_schema_type="STRING")
    assert found(new, [key_value(EMPTY, EMPTY)], strategy) == []
    absent = raw(lengths(-1, b""), key_schema_type="AVRO", value_schema_type="STRING")
    assert ("SCHEMA_UNREADABLE", "key:") in found(absent, [key_value(avro("int"), EMPTY)], strategy)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0",
        lengths(1),
        lengths(b"a"),
        lengths(b"a") + b"\0",
        lengths(b"a", 5) + b"1234",
        lengths(2**31 - 1, b""),
        lengths(-2, b""),
    ],
    ids=repr,
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_7_lengths_beyond_the_data(data: bytes, strategy: str) -> None:
    good = key_value(BYTES, BYTES)
    assert found(raw(data), [good], strategy) == [("SCHEMA_UNREADABLE", "")]
    assert found(good, [raw(data)], strategy) == [("SCHEMA_UNREADABLE", "")]


@pytest.mark.parametrize(
    "properties",
    [
        {"key_schema_type": "TEXT"},
        {"value_schema_type": ""},
        {"key_schema_properties": "{"},
        {"value_schema_properties": "[]"},
        {"value_schema_properties": '{"a": 1}'},
    ],
)
def test_7_properties_that_are_none(properties: dict[str, str]) -> None:
    assert found(raw(lengths(b"a", b""), **properties), [key_value(BYTES, BYTES)], "FULL") == [
        ("SCHEMA_UNREADABLE", "")
    ]


def test_7_1_always_compatible_accepts_whatever_the_existing_type() -> None:
    assert found(raw(b"x"), [avro("int"), key_value(EMPTY, BYTES)], "ALWAYS_COMPATIBLE") == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_7_2_a_schema_of_another_type(strategy: str) -> None:
    assert found(key_value(EMPTY, EMPTY), [avro("int")], strategy) == [("SCHEMA_TYPE_CHANGED", "")]
    assert found(avro("int"), [key_value(EMPTY, EMPTY)], strategy) == [("SCHEMA_TYPE_CHANGED", "")]


@pytest.mark.parametrize("strategy", [*STRATEGIES, "ALWAYS_INCOMPATIBLE"])
def test_7_3_types_of_key_and_value_stay(strategy: str) -> None:
    old = key_value(EMPTY, EMPTY)
    number = SchemaInfo(SchemaType.INT32, b"")  # the same bytes as STRING: none
    assert found(key_value(number, EMPTY), [old], strategy) == [("KEY_SCHEMA_TYPE_CHANGED", "key:")]
    assert found(key_value(EMPTY, number), [old], strategy) == [("VALUE_SCHEMA_TYPE_CHANGED", "value:")]
    assert found(key_value(number, number), [old], strategy) == [
        ("KEY_SCHEMA_TYPE_CHANGED", "key:"),
        ("VALUE_SCHEMA_TYPE_CHANGED", "value:"),
    ]


def test_7_3_in_any_version_looked_at() -> None:
    number = SchemaInfo(SchemaType.INT32, b"")
    versions = [key_value(number, EMPTY), key_value(EMPTY, EMPTY)]
    assert found(key_value(EMPTY, EMPTY, "SEPARATED"), versions, "FULL") == []
    assert found(key_value(EMPTY, EMPTY), versions, "FULL_TRANSITIVE") == [("KEY_SCHEMA_TYPE_CHANGED", "key:")]


def test_7_4_key_and_value_are_judged_by_their_own_types() -> None:
    old = key_value(avro("int"), avro(record("A", field("a", "int"))))
    new = key_value(avro("long"), avro(record("A", field("a", "string"), field("b", "int"))))
    assert found(new, [old], "BACKWARD") == [
        ("TYPE_MISMATCH", "value:/fields/0/type"),
        ("READER_FIELD_MISSING_DEFAULT_VALUE", "value:/fields/1"),
    ]
    assert found(new, [old], "FORWARD") == [("TYPE_MISMATCH", "key:/"), ("TYPE_MISMATCH", "value:/fields/0/type")]


def test_7_4_both_always_also_where_one_type_changed() -> None:
    old = key_value(avro("int"), avro("int"))
    assert found(key_value(EMPTY, avro("string")), [old], "BACKWARD") == [
        ("KEY_SCHEMA_TYPE_CHANGED", "key:"),
        ("TYPE_MISMATCH", "value:/"),
    ]


def test_7_4_with_the_strategy() -> None:
    old, older = key_value(EMPTY, avro("int")), key_value(EMPTY, avro("string"))
    new = key_value(EMPTY, avro("long"))
    assert found(new, [older, old], "BACKWARD") == []
    assert found(new, [older, old], "BACKWARD_TRANSITIVE") == [("TYPE_MISMATCH", "value:/")]
    assert found(new, [older, old], "ALWAYS_INCOMPATIBLE") == [("STRATEGY_FORBIDS_CHANGE", "value:")]


def test_7_4_key_values_within() -> None:
    old = key_value(EMPTY, key_value(EMPTY, avro("int")))
    assert found(key_value(EMPTY, key_value(EMPTY, avro("long"))), [old], "BACKWARD") == []
    assert found(key_value(EMPTY, key_value(EMPTY, avro("string"))), [old], "BACKWARD") == [
        ("TYPE_MISMATCH", "value:value:/")
    ]


@pytest.mark.parametrize("strategy", [*STRATEGIES, "ALWAYS_INCOMPATIBLE"])
def test_7_5_names_and_the_place_of_the_key_may_change(strategy: str) -> None:
    old = key_value(avro("int"), EMPTY, "INLINE")
    named = SchemaInfo(SchemaType.AVRO, avro("int").schema, "Number", {"a": "b"})
    assert found(key_value(named, EMPTY, "SEPARATED"), [old], strategy) == []


def test_the_form_of_rest_leads_back_to_the_schema() -> None:
    order = SchemaInfo(SchemaType.AVRO, '{"type":"record","name":"Über","fields":[]}'.encode())
    schema = key_value(EMPTY, order)
    assert from_rest_form(rest_form(schema)) == schema.schema
    for wrong in ("{", "[]", '{"key": ""}', '{"key": "", "value": "", "more": ""}'):
        with pytest.raises(UnreadableSchema, match=r"is not JSON|expected an object of the schemas"):
            from_rest_form(wrong)


def test_rest_tells_the_definitions_of_its_parts() -> None:
    order = SchemaInfo(SchemaType.AVRO, b'{"type": "record", "name": "\xc3\x9cber", "fields": []}')
    assert json.loads(rest_form(key_value(EMPTY, order))) == {
        "key": "",
        "value": {"type": "record", "name": "Über", "fields": []},
    }
    assert rest_form(key_value(BYTES, SchemaInfo(SchemaType.STRING, b"whatever it says"))) == '{"key":"","value":""}'
    with pytest.raises(UnreadableSchema, match="the key schema is not JSON"):
        rest_form(key_value(SchemaInfo(SchemaType.JSON, b"{"), EMPTY))
    with pytest.raises(UnreadableSchema, match="before the length of the value schema"):
        rest_form(raw(lengths(b"{}")))
