"""Definitions of schemas, and what differs between two."""

from __future__ import annotations

import json

from pulsar_on_kafka.console.schema_texts import MAX_CHARS, NumberedSchema, definition_text, schema_texts
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType


def avro(*fields: str) -> SchemaInfo:
    record = {
        "type": "record", "name": "Order",
        "fields": [{"name": name, "type": "string"} for name in fields],
    }  # fmt: skip
    return SchemaInfo(SchemaType.AVRO, json.dumps(record).encode())


def test_a_definition_has_a_field_a_line_and_bytes_are_base64() -> None:
    assert '\n      "name": "item",\n' in definition_text(avro("item"))
    assert definition_text(SchemaInfo(SchemaType.PROTOBUF_NATIVE, b"\xff\x00")) == "base64:/wA="
    assert definition_text(SchemaInfo(SchemaType.STRING, b"")) == ""
    assert definition_text(SchemaInfo(SchemaType.JSON, b"{\x1b[0m")) == "{\\x1b[0m"


def test_added_and_removed_lines_and_what_each_strategy_decides() -> None:
    found = schema_texts(NumberedSchema(1, avro("item", "price")), NumberedSchema(0, avro("item", "size")))
    changed = [(line.kind, line.text.strip()) for line in found.lines if line.kind in ("added", "removed")]
    assert changed == [("removed", '"name": "size",'), ("added", '"name": "price",')]
    backward, forward = found.verdicts
    assert (backward.strategy, forward.strategy) == ("BACKWARD", "FORWARD")
    assert any("price" in reason for reason in backward.reasons)
    assert any("size" in reason for reason in forward.reasons)


def test_a_change_of_type_or_properties_is_a_difference() -> None:
    old, new = SchemaInfo(SchemaType.STRING, b""), SchemaInfo(SchemaType.BYTES, b"", properties={"by": "hand"})
    found = schema_texts(NumberedSchema(1, new), NumberedSchema(0, old))
    assert [(line.kind, line.text) for line in found.lines if line.kind != "place"] == [
        ("removed", "type STRING"), ("added", "type BYTES"), ("added", "property by: hand"),
    ]  # fmt: skip
    assert all(each.reasons for each in found.verdicts)


def test_equal_ones_do_not_differ() -> None:
    found = schema_texts(NumberedSchema(1, avro("item")), NumberedSchema(0, avro("item")))
    assert (found.lines, [each.reasons for each in found.verdicts]) == ((), [(), ()])


def test_what_is_too_long_is_cut_and_not_compared() -> None:
    long = SchemaInfo(SchemaType.JSON, json.dumps({"title": "x" * MAX_CHARS}).encode())
    found = schema_texts(NumberedSchema(1, long), NumberedSchema(0, avro("item")))
    assert (len(found.definition), found.cut, found.too_long, found.lines) == (MAX_CHARS, True, True, ())
