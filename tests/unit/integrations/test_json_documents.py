"""JSON Schema documents of definitions in Avro's form."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from pulsar_on_kafka.integrations.schema_registry.json_documents import MAX_DEPTH, json_document
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType, UnreadableSchema, check_readable


def document(definition: object) -> Any:
    text = json_document(SchemaInfo(SchemaType.JSON, json.dumps(definition).encode()))
    assert json_document(SchemaInfo(SchemaType.JSON, json.dumps(definition).encode())) == text
    check_readable(SchemaInfo(SchemaType.JSON, text.encode()))
    found = json.loads(text)
    jsonschema.Draft7Validator.check_schema(found)
    return found


def record(*fields: dict[str, Any], name: str = "Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [*fields], **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def admits(definition: object, *values: Any) -> list[bool]:
    validator = jsonschema.Draft7Validator(document(definition))
    return [validator.is_valid(value) for value in values]


def test_a_record() -> None:
    found = document(record(field("id", "long"), field("note", ["null", "string"]), field("n", "int", default=3)))
    assert found == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["null", "string"]},
            "n": {"type": "integer", "default": 3},
        },
        "required": ["id"],
    }


def test_containers_and_unions() -> None:
    definition = record(
        field("tags", {"type": "array", "items": "string"}),
        field("by_name", {"type": "map", "values": ["null", record(field("x", "double"), name="Point")]}),
    )
    good = {"tags": ["a"], "by_name": {"p": {"x": 1.5}, "q": None}}
    assert admits(definition, good, {**good, "tags": [1]}, {**good, "by_name": {"p": {"x": "1"}}}) == [
        True, False, False,
    ]  # fmt: skip


def test_a_record_within_itself() -> None:
    definition = record(field("value", "int"), field("next", ["null", "Node"], default=None), name="Node")
    good, bad = {"value": 1, "next": {"value": 2, "next": None}}, {"value": 1, "next": {"value": "2"}}
    assert admits(definition, good, bad) == [True, False]


def test_names_are_looked_up_in_their_namespace() -> None:
    point = record(field("x", "int"), name="Point")
    definition = record(field("a", point), field("b", "Point"), field("c", "shop.Point"), namespace="shop")
    one = {"x": 1}
    assert admits(definition, {"a": one, "b": one, "c": one}, {"a": one, "b": one, "c": {"x": "1"}}) == [True, False]


def test_forms_that_the_definition_does_not_tell_admit_more() -> None:
    definition = record(
        field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        field("again", ["null", "Kind"]),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    )
    assert admits(definition, {"kind": "A", "again": None, "price": 1.5}, {"kind": 1, "again": 2, "price": "AQ=="}) == [
        True,
        True,
    ]


def test_what_is_a_document_stays_and_nonsense_is_refused() -> None:
    own = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert document(own) == own
    with pytest.raises(UnreadableSchema):
        json_document(SchemaInfo(SchemaType.JSON, b"3"))


def test_a_definition_deeper_than_the_limit_admits_everything_there() -> None:
    inner: Any = "int"
    for _ in range(MAX_DEPTH + 10):
        inner = {"type": "array", "items": inner}
    validator = jsonschema.Draft7Validator(document(record(field("a", inner))))
    assert validator.is_valid({"a": []})
