"""Values by the version that wrote them, on registries over a log in memory."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.client.receiving import incoming_schema
from pulsar_on_kafka.client.receiving.incoming_schema import IncomingValues, KeptMessage, incoming_values
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.schema import (
    AutoConsumeSchema,
    AvroSchema,
    BytesSchema,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    Record,
    Schema,
    StringSchema,
)
from tests.memory_log import MemoryStateLog
from tests.registries import TOPIC, process, soon

ONE: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
TWO: dict[str, Any] = {**ONE, "fields": [*ONE["fields"], {"name": "b", "type": "string", "default": "none"}]}
OLD, NEW = AvroSchema(None, ONE), AvroSchema(None, TWO)
SEPARATED = KeyValueEncodingType.SEPARATED


class Point(Record):
    x = Integer()


@pytest.fixture
def schemas() -> SchemaRegistry:
    made = process(MemoryStateLog())
    for schema in (OLD, NEW):
        made.upload(TOPIC, schema.schema_info(), soon())
    return made


def values(schemas: SchemaRegistry, schema: Schema) -> IncomingValues:
    found = incoming_values(schema, TOPIC, schemas, 10)
    assert found is not None
    return found


def message(version: int | None, payload: bytes | None, key: bytes | None = None) -> KeptMessage:
    return KeptMessage(None if version is None else version.to_bytes(8, "big"), key, payload)


def test_bytes_and_text_need_nothing(schemas: SchemaRegistry) -> None:
    for schema in (BytesSchema(), StringSchema()):
        assert incoming_values(schema, TOPIC, schemas, 10) is None


def test_each_version_is_read_as_it_was_written(schemas: SchemaRegistry) -> None:
    found = values(schemas, NEW)
    assert found.value(message(0, OLD.encode({"a": 1}))) == {"a": 1, "b": "none"}
    assert found.value(message(1, NEW.encode({"a": 1, "b": "x"}))) == {"a": 1, "b": "x"}
    assert found.value(message(None, NEW.encode({"a": 1, "b": "y"}))) == {"a": 1, "b": "y"}
    assert found.value(message(0, None)) is None


def test_a_version_is_asked_for_once(schemas: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    schema = schemas.schema

    def counted(*args: Any) -> Any:
        asked.append(args[1])
        return schema(*args)

    monkeypatch.setattr(schemas, "schema", counted)
    found = values(schemas, NEW)
    for _ in range(5):
        found.value(message(0, OLD.encode({"a": 1})))
    assert len(asked) == 1


def test_what_reads_every_version_alike_asks_for_none(schemas: SchemaRegistry) -> None:
    found = values(schemas, JsonSchema(Point))
    assert found.value(message(99, b'{"x": 1}')).x == 1
    assert found.value(message(99, None)) is None


def test_a_version_that_there_is_not_concerns_its_messages_only(schemas: SchemaRegistry) -> None:
    found = values(schemas, NEW)
    for missing in (message(7, b""), KeptMessage(b"short", None, b"")):
        with pytest.raises(InvalidMessage, match=r"version 7|short"):
            found.value(missing)
    assert found.value(message(0, OLD.encode({"a": 1})))["a"] == 1


def test_a_version_that_comes_later_is_found(schemas: SchemaRegistry) -> None:
    found = values(schemas, NEW)
    with pytest.raises(InvalidMessage):
        found.value(message(2, b""))
    three = AvroSchema(None, {**TWO, "fields": [*TWO["fields"], {"name": "c", "type": "int", "default": 0}]})
    schemas.upload(TOPIC, three.schema_info(), soon())
    assert found.value(message(2, three.encode({"a": 1, "b": "x", "c": 2}))) == {"a": 1, "b": "x"}


def test_ways_of_reading_are_bounded(schemas: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_schema, "VERSIONS", 1)
    found = values(schemas, NEW)
    for _ in range(3):
        assert found.value(message(0, OLD.encode({"a": 1})))["b"] == "none"
        assert found.value(message(1, NEW.encode({"a": 1, "b": "x"})))["b"] == "x"
    assert found._reader.cache_info().currsize == 1  # type: ignore[attr-defined]


def test_auto_consume_goes_by_the_writer_alone(schemas: SchemaRegistry) -> None:
    found = values(schemas, AutoConsumeSchema())
    assert found.value(message(0, OLD.encode({"a": 1}))) == {"a": 1}
    assert found.value(message(None, b"bytes")) == b"bytes"
    assert found.value(message(None, None)) is None


def test_keys_are_where_the_writer_put_them() -> None:
    schemas = process(MemoryStateLog())
    inline = KeyValueSchema(StringSchema(), StringSchema())
    separated = KeyValueSchema(StringSchema(), StringSchema(), SEPARATED)
    versions = [schemas.upload(TOPIC, schema.schema_info(), soon()).number for schema in (inline, separated)]
    pair = KeyValue("k", "v")
    inside, outside = inline.encode(pair), separated.encode(pair)
    for reader in (inline, separated, AutoConsumeSchema()):
        found = values(schemas, reader)
        assert found.value(message(versions[0], inside)) == pair
        assert found.value(message(versions[1], outside, b"k")) == pair
        assert found.value(message(versions[1], None, b"k")) == KeyValue("k", None)
        assert found.value(message(versions[1], None, None)) is None
