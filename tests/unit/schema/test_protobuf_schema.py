"""ProtobufSchema: its Avro definitions are those that Java's client of Pulsar 4.0.7 made of the same descriptors.

`java_protobuf_definitions.json` is what `ProtobufData.get().getSchema(descriptor)` printed, with Avro 1.11.4.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import duration_pb2, struct_pb2
from google.protobuf.message import DecodeError

from pulsar_on_kafka.schema import ProtobufSchema
from pulsar_on_kafka.schema_compat import check_compatibility
from pulsar_on_kafka_schema_compat.base.schema_model import CompatibilityStrategy, SchemaType
from tests.unit.schema.protobuf_messages import made

JAVAS: dict[str, str] = json.loads(Path(__file__).with_name("java_protobuf_definitions.json").read_text("utf-8"))


def message(full_name: str) -> Any:
    return struct_pb2.Struct if full_name.startswith("google.") else made(full_name)


@pytest.mark.parametrize("full_name", JAVAS)
def test_the_definition_is_javas(full_name: str) -> None:
    info = ProtobufSchema(message(full_name)).schema_info()
    assert info.schema.decode() == JAVAS[full_name]
    assert info.type is SchemaType.PROTOBUF


@pytest.mark.parametrize("full_name", JAVAS)
def test_the_definition_may_follow_itself(full_name: str) -> None:
    info = ProtobufSchema(message(full_name)).schema_info()
    assert check_compatibility(info, [info], CompatibilityStrategy.FULL).is_compatible


def test_the_properties_are_javas() -> None:
    properties = dict(ProtobufSchema(made("string")).schema_info().properties)
    assert json.loads(properties.pop("__PARSING_INFO__"))[2] == {
        "number": 3, "name": "again", "type": "MESSAGE", "label": "LABEL_REPEATED", "definition": None,
    }  # fmt: skip
    assert properties == {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
    found = ProtobufSchema(struct_pb2.Struct).schema_info().properties["__PARSING_INFO__"]
    assert found == '[{"number":1,"name":"fields","type":"MESSAGE","label":"LABEL_REPEATED","definition":null}]'


def test_messages_are_protobufs_own() -> None:
    schema = ProtobufSchema(struct_pb2.Struct)
    value = struct_pb2.Struct()
    value.update({"a": [1, None, "x"]})
    assert schema.encode(value) == value.SerializeToString()
    assert schema.decode(schema.encode(value)) == value
    assert str(schema) == "ProtobufSchema(Struct)"
    with pytest.raises(TypeError, match="Struct"):
        schema.encode(duration_pb2.Duration())
    with pytest.raises(DecodeError):
        schema.decode(b"\xff")


def test_bytes_have_their_defaults_as_avro_writes_bytes() -> None:
    definition = json.loads(ProtobufSchema(made("Raw")).schema_info().schema)
    assert definition["fields"] == [{"name": "raw", "type": "bytes", "default": "a\xff"}]


@pytest.mark.parametrize(
    ("name", "field"), [("Grouped", "Grouped.g"), ("Endless", "Endless.d"), ("NoNumber", "NoNumber.f")]
)
def test_what_avro_cannot_say_is_refused(name: str, field: str) -> None:
    with pytest.raises(TypeError, match=field):
        ProtobufSchema(made(name))


@pytest.mark.parametrize("wrong", [None, 5, str, struct_pb2.Struct()], ids=["none", "int", "class", "message"])
def test_only_a_generated_class_will_do(wrong: Any) -> None:
    with pytest.raises(TypeError, match="protoc generated"):
        ProtobufSchema(wrong)
