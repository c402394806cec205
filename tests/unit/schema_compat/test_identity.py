"""Definitions that are one schema, by Avro's `Schema.equals`, and texts that are no schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_on_kafka.schema_compat import CompatibilityStrategy as Strategy
from pulsar_on_kafka.schema_compat import (
    SchemaInfo,
    SchemaType,
    UnreadableSchema,
    check_compatibility,
    check_readable,
    same_schema,
)

FIELD = {"name": "a", "type": "int"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)} | more


def avro(definition: Any, kind: SchemaType = SchemaType.AVRO) -> SchemaInfo:
    return SchemaInfo(kind, json.dumps(definition, indent=1).encode())


def field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": "f", "type": kind} | more


SAME = {
    "documentation": (record(FIELD), record(FIELD | {"doc": "a number"}, doc="an R")),
    "order of members": (record(FIELD), {"fields": [FIELD], "name": "R", "type": "record"}),
    "aliases": (record(FIELD), record(FIELD | {"aliases": ["b"]}, aliases=["Q"])),
    "namespace or full name": (record(namespace="a.b"), record(name="a.b.R")),
    "a name in its namespace": (
        record(field(ENUM), {"name": "g", "type": "E"}, namespace="n"),
        record(field(ENUM | {"namespace": "n"}), {"name": "g", "type": "n.E"}, namespace="n"),
    ),
    "a primitive in an object": ("int", {"type": "int"}),
    "the usual order": (record(FIELD), record(FIELD | {"order": "ascending"})),
    "an enum's default": (ENUM, ENUM | {"default": "A"}),
    "recursion": (
        record(field(["null", "R"]), namespace="n"),
        record(field(["null", "n.R"]), namespace="n", doc="list"),
    ),
    "members of a default": (
        record(field({"type": "map", "values": "int"}, default={"x": 1, "y": 2})),
        record(field({"type": "map", "values": "int"}, default={"y": 2, "x": 1})),
    ),
}
OTHER = {
    "name": (record(), record(name="S")),
    "namespace": (record(), record(namespace="n")),
    "kind of record": (record(), record(type="error")),
    "type": (record(FIELD), record(FIELD | {"type": "long"})),
    "order of fields": (record(FIELD, field("int")), record(field("int"), FIELD)),
    "default": (record(field("int", default=0)), record(field("int", default=1))),
    "no default": (record(field(["null", "int"], default=None)), record(field(["null", "int"]))),
    "one and true": (record(field("int", default=1)), record(field("int", default=True))),
    "sort order": (record(FIELD), record(FIELD | {"order": "ignore"})),
    "order of branches": (["int", "null"], ["null", "int"]),
    "symbols": (ENUM, ENUM | {"symbols": ["B", "A"]}),
    "logical type": ({"type": "long"}, {"type": "long", "logicalType": "timestamp-millis"}),
    "property of a field": (record(FIELD), record(FIELD | {"pii": True})),
    "property of a schema": (record(FIELD), record(FIELD, owner="sales")),
    "size": ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}),
    "items": ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
    "nesting": (record(field(record(name="S")), FIELD), record(field(record(FIELD, name="S")))),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.PROTOBUF])
def test_the_same(one: Any, other: Any, kind: SchemaType) -> None:
    assert same_schema(avro(one, kind), avro(other, kind))
    assert same_schema(avro(other, kind), avro(one, kind))


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_another(one: Any, other: Any) -> None:
    assert same_schema(avro(one), avro(one))
    assert not same_schema(avro(one), avro(other))
    assert not same_schema(avro(other), avro(one))


def test_types_tell_schemas_apart_names_and_properties_do_not() -> None:
    assert not same_schema(avro(record()), avro(record(), SchemaType.JSON))
    assert not same_schema(SchemaInfo(SchemaType.STRING, b""), SchemaInfo(SchemaType.BYTES, b""))
    named = SchemaInfo(SchemaType.STRING, b"", "a name", {"a": "property"})
    assert same_schema(SchemaInfo(SchemaType.STRING, b""), named)


def test_json_in_avros_form_is_compared_after_parsing_documents_by_their_bytes() -> None:
    assert same_schema(avro(record(FIELD), SchemaType.JSON), avro(record(FIELD, doc="x"), SchemaType.JSON))
    one, other = (SchemaInfo(SchemaType.JSON, text) for text in (b'{"type": "object"}', b'{"type":"object"}'))
    assert same_schema(one, one)
    assert not same_schema(one, other)


def test_the_types_of_the_parts_tell_key_value_schemas_apart() -> None:
    empty = b"\0" * 8
    types = {"key.schema.type": "STRING", "value.schema.type": "INT32"}
    one = SchemaInfo(SchemaType.KEY_VALUE, empty, properties=types)
    assert same_schema(one, SchemaInfo(SchemaType.KEY_VALUE, empty, properties=types | {"kv.encoding.type": "INLINE"}))
    assert not same_schema(
        one, SchemaInfo(SchemaType.KEY_VALUE, empty, properties=types | {"key.schema.type": "INT32"})
    )


def test_what_cannot_be_read_is_the_same_as_its_own_bytes_alone() -> None:
    broken, readable = SchemaInfo(SchemaType.AVRO, b"{"), avro(record())
    assert same_schema(broken, broken)
    assert not same_schema(broken, readable)
    assert not same_schema(readable, broken)


def test_depth_costs_no_recursion() -> None:
    def deep(levels: int, doc: bytes) -> SchemaInfo:
        opening = b"".join(
            b'{"type":"record","name":"R%d",%s"fields":[{"name":"f","type":' % (level, doc) for level in range(levels)
        )
        return SchemaInfo(SchemaType.AVRO, opening + b'"int"' + b"}]}" * levels)

    assert same_schema(deep(2_000, b""), deep(2_000, b'"doc":"d",'))
    assert not same_schema(deep(2_000, b""), deep(1_999, b""))


@pytest.mark.parametrize(
    "info",
    [
        SchemaInfo(SchemaType.AVRO, b""),
        SchemaInfo(SchemaType.PROTOBUF, b"syntax"),
        SchemaInfo(SchemaType.JSON, b"17"),
        SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"{}"),
        SchemaInfo(SchemaType.KEY_VALUE, b""),
        SchemaInfo(SchemaType.KEY_VALUE, b"\0\0\0\1{\0\0\0\0", properties={"key.schema.type": "AVRO"}),
        SchemaInfo(SchemaType.AUTO_CONSUME, b""),
    ],
)
def test_what_is_no_schema(info: SchemaInfo) -> None:
    with pytest.raises(UnreadableSchema):
        check_readable(info)


@pytest.mark.parametrize(
    "info",
    [
        avro(record()),
        avro(record(), SchemaType.JSON),
        SchemaInfo(SchemaType.JSON, b'{"type": "object"}'),
        SchemaInfo(SchemaType.JSON, b'{"type": "object", "id": "urn:jsonschema:R"}'),
        SchemaInfo(SchemaType.STRING, b"null"),
        SchemaInfo(SchemaType.KEY_VALUE, b"\0" * 8),
    ],
)
def test_what_is_one(info: SchemaInfo) -> None:
    check_readable(info)


@pytest.mark.parametrize("strategy", [Strategy.BACKWARD, Strategy.BACKWARD_TRANSITIVE, Strategy.UNDEFINED])
def test_reasons_name_versions_from_the_first_one_on(strategy: Strategy) -> None:
    existing = [avro(record()), avro(record())]
    (first, *_) = check_compatibility(avro(record(FIELD)), existing, strategy, first_version=7).incompatibilities
    assert first.version == 8
    assert strategy is Strategy.UNDEFINED or first.message.startswith("version 8")
