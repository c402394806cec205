"""Payloads of hostile writers and damaged ones: they cost little, and the error says where and what was expected."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given

import pulsar_on_kafka.schema
from pulsar_on_kafka.schema import AutoConsumeSchema, AvroSchema
from pulsar_on_kafka.schema.avro_bounds import MAX_DEPTH, MAX_EMPTY, PayloadBounds
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from tests.unit.schema.record_pairs import Maker, RecordSpec
from tests.unit.schema.test_official_records import classes_and_values

EMPTY = {"type": "record", "name": "Nothing", "fields": []}
CHAIN = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
TREE = {"type": "record", "name": "n.T", "fields": [
    {"name": "below", "type": {"type": "map", "values": {"type": "array", "items": "T"}}},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}},
    {"name": "again", "type": ["null", "E", "F", "string", "double"]},
]}  # fmt: skip


@pytest.mark.parametrize("levels", [MAX_DEPTH, 5_000, 3_000_000])
def test_a_chain_of_a_thousand_levels_is_refused(levels: int) -> None:
    schema = AvroSchema(None, CHAIN)
    data = b"\x02" * levels + b"\x00"
    with pytest.raises(ValueError, match="levels"):
        schema.decode(data)
    with pytest.raises(ValueError, match="levels"):
        AutoConsumeSchema().decode_as_written(data, schema.schema_info())
    reader = AvroSchema(None, {"type": "record", "name": "L", "fields": []})
    with pytest.raises(ValueError, match="levels"):
        reader.decode_as_written(data, schema.schema_info())


def test_levels_that_take_no_bytes_count() -> None:
    chain: Any = ["null", "R0"]
    for number in range(150, -1, -1):
        chain = {"type": "record", "name": f"R{number}", "fields": [{"name": "next", "type": chain}]}
    schema = AvroSchema(None, chain)
    assert schema.decode(b"\x02\x00") == schema.decode(schema.encode(schema.decode(b"\x02\x00")))
    with pytest.raises(ValueError, match="levels"):
        schema.decode(b"\x02" * 900 + b"\x00")


def test_what_is_long_and_not_deep_is_read() -> None:
    schema = AvroSchema(None, TREE)
    leaf = {"below": {}, "e": "A", "f": b"abc", "again": "x" * 50}
    value = {"below": {"a": [leaf] * 200, "b": []}, "e": "A", "f": b"xyz", "again": None}
    data = schema.encode(value)
    assert len(data) > MAX_DEPTH
    assert schema.decode(data) == value
    with pytest.raises(ValueError, match=r"n.T.below.*expected .* are left"):
        schema.decode(data[: MAX_DEPTH + 1])


@pytest.mark.parametrize("data", [b"\x04" * 2000, b"\xff" * 2000, b"\x03" * 2000], ids=["branch", "number", "negative"])
def test_what_is_no_value_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="Avro payload"):
        AvroSchema(None, CHAIN).decode(data)


@given(classes_and_values())
def test_the_measure_moves_over_every_value_exactly(drawn: tuple[RecordSpec, dict[str, Any]]) -> None:
    spec, values = drawn
    cls = Maker(pulsar_on_kafka.schema).record_class(spec)
    try:
        schema = AvroSchema(cls)
        written = schema.encode(cls(**values))
    except (fastavro.schema.SchemaParseException, ValueError):
        return  # two types of one name, or an absent record that has something required
    PayloadBounds(schema._compiled).walk(written)
    if written:
        with pytest.raises(ValueError, match="are left"):
            PayloadBounds(schema._compiled).walk(written[:-1])


def array_of(items: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}


def field_of(kind: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def long(value: int) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, "long", value)
    return written.getvalue()


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "null"}, EMPTY, {"type": "fixed", "name": "F", "size": 0},
     {"type": "record", "name": "Nulls", "fields": [{"name": f"n{i}", "type": "null"} for i in range(50)]},
     {"type": "record", "name": "Two", "fields": [{"name": "e", "type": EMPTY}, {"name": "f", "type": "Nothing"}]}],
    ids=["null", "null as an object", "no fields", "fixed", "nulls", "records"],
)  # fmt: skip
@pytest.mark.parametrize("blocks", [(2**62,), (-(2**62),), (60_000, 60_000)], ids=["one", "negative", "two"])
def test_items_without_bytes_are_bounded(items: Any, blocks: tuple[int, ...]) -> None:
    data = b"".join(long(count) + (long(0) if count < 0 else b"") for count in blocks) + b"\0"
    schema = AvroSchema(None, array_of(items))
    with pytest.raises(ValueError, match=r"R\.a.*values would take no bytes"):
        schema.decode(data)
    with pytest.raises(ValueError, match="values would take no bytes"):
        AvroSchema(None, EMPTY | {"name": "R"}).decode_as_written(data, schema.schema_info())


def test_items_without_bytes_are_read_up_to_the_bound() -> None:
    schema = AvroSchema(None, array_of("null"))
    value = {"a": [None] * MAX_EMPTY}
    assert schema.decode(schema.encode(value)) == value
    with pytest.raises(ValueError, match="values would take no bytes"):
        schema.encode({"a": [None] * (MAX_EMPTY + 1000)})


def test_a_small_definition_does_not_stand_for_a_million_values() -> None:
    doubled: Any = {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "null"}]}
    for number in range(1, 40):
        fields = [{"name": "a", "type": doubled}, {"name": "b", "type": f"R{number - 1}"}]
        doubled = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(ValueError, match="values would take no bytes"):
        AvroSchema(None, doubled).decode(b"")
    with pytest.raises(ValueError, match="values would take no bytes"):
        AvroSchema(None, field_of(["null", doubled])).decode(b"\x02")


def test_a_record_that_contains_itself_outright_is_refused() -> None:
    first = {"type": "record", "name": "A", "fields": [
        {"name": "b", "type": {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}}]}  # fmt: skip
    for definition in (first, {"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}):
        with pytest.raises(ValueError, match="contains itself"):
            AvroSchema(None, definition)
        writer = SchemaInfo(SchemaType.AVRO, json.dumps(definition).encode())
        with pytest.raises(ValueError, match="contains itself"):
            AvroSchema(None, EMPTY | {"name": "A"}).decode_as_written(b"", writer)


def test_a_definition_of_many_levels_is_refused() -> None:
    deep: Any = "int"
    for _ in range(5_000):
        deep = {"type": "array", "items": deep}
    with pytest.raises(ValueError, match="levels"):
        AvroSchema(None, field_of(deep))
    writer = SchemaInfo(SchemaType.AVRO, b'{"type":"array","items":' * 5_000 + b'"int"' + b"}" * 5_000)
    with pytest.raises(ValueError, match="levels"):
        AutoConsumeSchema().decode_as_written(b"", writer)


@pytest.mark.parametrize("size", [-1, "q", None, 1.5])
def test_a_fixed_type_needs_a_size(size: Any) -> None:
    with pytest.raises((ValueError, fastavro.schema.SchemaParseException), match=r"size"):
        AvroSchema(None, field_of({"type": "fixed", "name": "F", "size": size}))


@pytest.mark.parametrize("levels", [600, 5_000, 300_000])
def test_what_could_not_be_read_again_is_not_written(levels: int) -> None:
    value: Any = None
    for _ in range(levels):
        value = {"next": value}
    with pytest.raises(ValueError, match="levels"):
        AvroSchema(None, CHAIN).encode(value)


def test_values_that_contain_themselves_are_refused() -> None:
    value: dict[str, Any] = {}
    value["next"] = value
    with pytest.raises(ValueError, match="contains itself"):
        AvroSchema(None, CHAIN).encode(value)
    many: dict[str, Any] = {"e": "A", "f": b"abc", "again": None}
    many["below"] = {"a": [many] * 3, "b": [many] * 3}
    with pytest.raises(ValueError, match="contains itself"):
        AvroSchema(None, TREE).encode(many)

    class Holder(pulsar_on_kafka.schema.Record):
        held = pulsar_on_kafka.schema.Map(pulsar_on_kafka.schema.Map(pulsar_on_kafka.schema.String()))

    held: dict[str, Any] = {}
    holder = Holder(held=held)
    held["again"] = held
    with pytest.raises(ValueError, match="Holder"):
        AvroSchema(Holder).encode(holder)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [("int", b"", "R.a: expected int of 1 bytes at byte 0"), ("double", b"abc", "R.a: expected double of 8 bytes"),
     ("bytes", long(2**40), "bytes of 1,099,511,627,776 bytes"), ("bytes", long(-5) + b"abcdef", "below 0: -5"),
     ("string", long(10) + b"x", "a text of 10 bytes"), ("string", long(1) + b"\xff", "no UTF-8"),
     ({"type": "fixed", "name": "F", "size": 1 << 40}, b"", "fixed of 1,099,511,627,776 bytes"),
     ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, long(7), "symbol of an enum from 0 to 1 .*, found 7"),
     (["null", "int"], long(2), "branch of a union from 0 to 1 before byte 1, found 2"),
     ({"type": "array", "items": "int"}, long(2**62) + b"\x01\x01", r"R.a\[2\]: expected int"),
     ({"type": "map", "values": "null"}, long(2**62) + b"\x00", r"R.a.*the length of a text"),
     ({"type": "int", "logicalType": "date"}, long(2**31 - 1), "cannot be: OverflowError")],
)  # fmt: skip
def test_damage_is_named(kind: Any, data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AvroSchema(None, field_of(kind)).decode(data)


def test_decimals_are_bounded() -> None:
    decimal = {"logicalType": "decimal", "precision": 100_000_000, "scale": 2}
    schema = AvroSchema(None, field_of({"type": "bytes", **decimal}))
    longest = {"a": Decimal(f"{'7' * 2_000}.25")}
    assert schema.decode(schema.encode(longest)) == longest
    with pytest.raises(ValueError, match=r"R.a: a decimal of 1,000,000 bytes; expected at most 1,000"):
        schema.decode(long(1_000_000) + b"\x7f" * 1_000_000)
    assert len(AvroSchema(None, field_of("bytes")).decode(long(10_000) + bytes(10_000))["a"]) == 10_000
    with pytest.raises(ValueError, match="F, a decimal, has 1001 bytes of at most 1,000"):
        AvroSchema(None, field_of({"type": "fixed", "name": "F", "size": 1001, **decimal, "precision": 9}))


def test_usual_definitions_are_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    class Part(pulsar_on_kafka.schema.Record):
        n = pulsar_on_kafka.schema.Integer()
        nothing = pulsar_on_kafka.schema.Null(required=True)

    class Whole(pulsar_on_kafka.schema.Record):
        parts = pulsar_on_kafka.schema.Array(Part())
        named = pulsar_on_kafka.schema.Map(Part())
        one = Part()
        absent = pulsar_on_kafka.schema.Null()

    schema = AvroSchema(Whole)
    data = schema.encode(Whole(parts=[Part(n=1)] * 2000))
    monkeypatch.setattr(PayloadBounds, "walk", None)
    assert len(schema.decode(data).parts) == 2000
