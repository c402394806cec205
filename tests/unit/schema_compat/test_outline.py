"""Schemas line by line, and the lines that an incompatibility speaks of."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from google.protobuf import struct_pb2, type_pb2
from hypothesis import given

from pulsar_on_kafka.schema import ProtobufNativeSchema
from pulsar_on_kafka.schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType, check_compatibility
from pulsar_on_kafka_schema_compat.base.schema_model import UnreadableSchema
from pulsar_on_kafka_schema_compat.outline import WHOLE, OutlineChange, changes, outline
from tests.property.avro_schemas import pairs

STRATEGIES = (CompatibilityStrategy.BACKWARD, CompatibilityStrategy.FORWARD)


def avro(definition: Any, kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
    return SchemaInfo(kind, json.dumps(definition).encode())


def record(name: str, **fields: Any) -> dict[str, Any]:
    declared = [{"name": field, **(kind if "type" in kind else {"type": kind})} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": declared}


ITEM = {"type": "record", "name": "Item", "fields": [{"name": "price", "type": "double"}]}
ORDER = {"type": "record", "name": "shop.Order", "fields": [
    {"name": "total", "type": ["null", "long"], "default": None},
    {"name": "items", "type": {"type": "array", "items": ITEM}},
    {"name": "again", "type": {"type": "map", "values": "Item"}, "aliases": ["more"]},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    {"name": "sum", "type": {"type": "fixed", "name": "Sum", "size": 8}},
    {"name": "next", "type": ["null", "Order"]},
]}  # fmt: skip


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF])
def test_an_avro_definition_has_a_line_for_each_field(kind: SchemaType) -> None:
    assert outline(avro(ORDER, kind)).lines == {
        "total": "null | long = null", "items": "array of record shop.Item",
        "again": "map of record shop.Item, also more", "state": "enum shop.State (NEW, PAID)",
        "sum": "fixed shop.Sum of 8 bytes", "next": "null | record shop.Order", "Item.price": "double",
    }  # fmt: skip


def test_types_of_one_simple_name_have_their_full_names() -> None:
    inner = [{**ITEM, "namespace": space} for space in ("a", "b")]
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(inner)]
    assert list(outline(avro({"type": "record", "name": "R", "fields": fields})).lines) == [
        "f0", "f1", "a.Item.price", "b.Item.price"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("definition", "line"),
    [("long", "long"), ({"type": "record", "name": "E", "fields": []}, "record E"), (["null", "int"], "null | int")],
)
def test_a_definition_without_fields_is_one_line(definition: Any, line: str) -> None:
    assert outline(avro(definition)).lines == {WHOLE: line}
    assert outline(SchemaInfo(SchemaType.INT32, b"")).lines == {WHOLE: "INT32"}


def test_only_what_differs_is_a_change() -> None:
    old, new = (outline(avro(one)) for one in ({**ORDER, "doc": "x"}, {**ORDER, "fields": ORDER["fields"][:1]}))
    gone = [name for name in old.lines if name != "total"]
    assert changes(old, new) == [OutlineChange(name, old.lines[name], None) for name in gone]
    assert changes(new, old) == [OutlineChange(name, None, old.lines[name]) for name in gone]
    assert changes(old, old) == []


@pytest.mark.parametrize(
    ("path", "line"),
    [("/", WHOLE), ("/fields/0/type", "total"), ("/fields/1/type/items/fields/0/type", "Item.price"),
     ("/fields/2/type/values/fields/0", "Item.price"), ("/fields/3/type/symbols", "state"),
     ("/fields/5/type/1/fields/0/type/1", "total"), ("/fields/4/type/size", "sum")],
)  # fmt: skip
def test_pointers_of_avro_lead_to_their_fields(path: str, line: str) -> None:
    assert outline(avro(ORDER)).line_of(path) == line


@given(pairs())
def test_every_place_that_forbids_a_change_of_avro_has_a_line(pair: Any) -> None:
    old, new = (avro(definition) for definition in pair)
    for strategy, reader in zip(STRATEGIES, (new, old), strict=True):
        for one in check_compatibility(new, [old], strategy).incompatibilities:
            found = outline(reader)
            assert found.line_of(one.path) in {*found.lines, WHOLE}


def test_a_protobuf_definition_has_a_line_for_each_field() -> None:
    lines = outline(ProtobufNativeSchema(struct_pb2.Struct).schema_info()).lines
    assert lines["fields"] == "map<string, message google.protobuf.Value> = 1"
    assert lines["google.protobuf.Value.bool_value"] == "bool = 4, in oneof kind"
    assert lines["google.protobuf.ListValue.values"] == "repeated message google.protobuf.Value = 1"
    assert lines["enum NullValue"] == "open: NULL_VALUE = 0"


def test_paths_of_protobuf_lead_to_their_fields() -> None:
    found = outline(ProtobufNativeSchema(type_pb2.Type).schema_info())
    paths = {"Type": WHOLE, "Type.name": "name", "Type.fields.kind": "google.protobuf.Field.kind",
             "Type.fields.kind.Kind": "google.protobuf.Field.kind"}  # fmt: skip
    assert {path: found.line_of(path) for path in paths} == paths


def test_a_document_has_a_line_for_each_member() -> None:
    document = {"type": "object", "properties": {"a/b": {"enum": [1, 2]}, "c": {"oneOf": [{"type": "null"}, {}]}},
                "maximum": 0.5}  # fmt: skip
    assert outline(avro(document, SchemaType.JSON)).lines == {
        "#/type": '"object"', "#/properties/a~1b/enum": "[1, 2]", "#/properties/c/oneOf/0/type": '"null"',
        "#/properties/c/oneOf/1": "{}", "#/maximum": "0.5",
    }  # fmt: skip


def test_key_and_value_have_their_own_lines() -> None:
    text = json.dumps(ITEM).encode()
    data = struct.pack(">i", len(text)) + text + struct.pack(">i", 0)
    types = {"key.schema.type": "AVRO", "value.schema.type": "STRING"}
    found = outline(SchemaInfo(SchemaType.KEY_VALUE, data, properties=types))
    assert found.lines == {"key:price": "double", f"value:{WHOLE}": "STRING"}
    assert found.line_of("key:/fields/0/type") == "key:price"


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE, SchemaType.KEY_VALUE])
def test_what_is_no_schema_says_so(kind: SchemaType) -> None:
    with pytest.raises(UnreadableSchema):
        outline(SchemaInfo(kind, b"{"))


def test_deep_definitions_are_no_matter() -> None:
    deep: Any = "int"
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    assert outline(avro(record("R", f={"type": deep}))).lines["f"].endswith("array of ...")
