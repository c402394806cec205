"""Schemas that Confluent's registry has a type for, and their headers."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.broker.schema_registry.confluent_forms import (
    ProtobufDefinition,
    RecordPart,
    confluent_parts,
    guid_of,
    schema_id_headers,
)
from pulsar_on_kafka.broker.schema_registry.model import SchemaPolicies
from pulsar_on_kafka.schema import KeyValueEncodingType, KeyValueSchema, ProtobufNativeSchema, Schema, StringSchema
from pulsar_on_kafka_mapping.ids.confluent_ids import header_value
from pulsar_on_kafka_mapping.records.record_headers import KEY_SCHEMA_ID, VALUE_SCHEMA_ID
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType
from tests.memory_log import MemoryStateLog
from tests.registries import TOPIC, avro, process, soon
from tests.unit.schema.protobuf_messages import made

STRING: Any = made("string")


def test_equal_definitions_of_one_type_share_a_guid() -> None:
    assert guid_of(avro("a")) == guid_of(SchemaInfo(SchemaType.AVRO, avro("a").schema, "other", {"x": "y"}))
    assert guid_of(avro("a")) != guid_of(avro("a", kind=SchemaType.JSON))
    assert guid_of(avro("a")) != guid_of(avro("b"))
    assert schema_id_headers(avro("a")) == [(VALUE_SCHEMA_ID, header_value(guid_of(avro("a"))))]


def test_separated_keys_have_a_header_and_inlined_ones_make_none() -> None:
    def pair(key: Schema, value: Schema, encoding: KeyValueEncodingType) -> SchemaInfo:
        return KeyValueSchema(key, value, encoding).schema_info()

    proto = ProtobufNativeSchema(STRING)
    both = pair(proto, StringSchema(), KeyValueEncodingType.SEPARATED)
    assert [name for name, _ in schema_id_headers(both)] == [KEY_SCHEMA_ID]
    assert confluent_parts(both)[RecordPart.KEY].schema == proto.schema_info().schema
    assert schema_id_headers(pair(proto, proto, KeyValueEncodingType.INLINE)) == []
    assert schema_id_headers(StringSchema().schema_info()) == []
    assert schema_id_headers(SchemaInfo(SchemaType.KEY_VALUE, b"\x00", "", {"kv.encoding.type": "SEPARATED"})) == []


@pytest.mark.parametrize(
    ("message", "path"),
    [(STRING, [0]), (STRING.Inner, [0, 0]), (STRING.Inner.Deep, [0, 0, 0]), (made("p.Outer"), [0])],
)
def test_the_path_of_a_message_in_its_file(message: Any, path: list[int]) -> None:
    info = ProtobufNativeSchema(message).schema_info()
    assert ProtobufDefinition.of(info).message_path() == path
    assert schema_id_headers(info) == [(VALUE_SCHEMA_ID, header_value(guid_of(info), path))]


def test_the_catalog_has_deleted_versions_until_they_are_removed() -> None:
    registry = process(MemoryStateLog())
    for fields in (("a",), ("a", "b")):
        registry.for_producer(TOPIC, avro(*fields), soon())
    registry.delete(TOPIC, soon())
    registry.for_producer(TOPIC, avro("c"), soon())
    found = [(each.entry.version.number, each.is_live) for each in registry.catalog(soon())]
    assert found == [(0, False), (1, False), (3, True)]
    registry.delete(TOPIC, soon(), forced=True)
    assert list(registry.catalog(soon())) == []


def test_headers_are_made_where_the_policy_requires_them() -> None:
    registry = process(MemoryStateLog(), SchemaPolicies(confluent_ids=True))
    version = registry.for_producer(TOPIC, avro("a"), soon())
    assert version is not None
    assert registry.requires_confluent_ids(TOPIC, soon())
    assert not registry.requires_confluent_ids(TOPIC, soon(), SchemaPolicies())
    assert list(registry.confluent_headers(TOPIC, version, soon())) == schema_id_headers(avro("a"))
    registry.delete(TOPIC, soon(), forced=True)
    assert process(MemoryStateLog()).confluent_headers(TOPIC, version, soon()) == ()
