"""ProtobufNativeSchema beside the official one: the same definition, and each reads the other's messages."""

from __future__ import annotations

import base64
import json
from typing import Any

import pulsar.schema
import pytest
from google.protobuf import any_pb2, api_pb2, descriptor_pb2, duration_pb2, struct_pb2, type_pb2, wrappers_pb2
from google.protobuf.message import DecodeError, EncodeError

from pulsar_on_kafka.schema import AutoConsumeSchema, ProtobufNativeSchema, ProtobufSchema
from pulsar_on_kafka.schema.protobuf import message_class
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType

CLASSES = [
    any_pb2.Any, api_pb2.Api, api_pb2.Method, descriptor_pb2.FileDescriptorProto,
    descriptor_pb2.DescriptorProto.ExtensionRange, duration_pb2.Duration, struct_pb2.Struct, type_pb2.Type,
    wrappers_pb2.StringValue,
]  # fmt: skip


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.DESCRIPTOR.full_name)
def test_the_definition_is_the_same_bytes(cls: Any) -> None:
    info, official = ProtobufNativeSchema(cls).schema_info(), pulsar.schema.ProtobufNativeSchema(cls).schema_info()
    assert info == SchemaInfo(SchemaType.PROTOBUF_NATIVE, official.schema().encode(), official.name())
    native: Any = info
    assert (native.schema_type().name, native.name(), native.schema()) == (
        official.schema_type().name, official.name(), official.schema(),
    )  # fmt: skip
    assert str(ProtobufNativeSchema(cls)) == str(pulsar.schema.ProtobufNativeSchema(cls))


def test_each_reads_the_others_messages() -> None:
    ours, theirs = ProtobufNativeSchema(struct_pb2.Struct), pulsar.schema.ProtobufNativeSchema(struct_pb2.Struct)
    value = struct_pb2.Struct()
    value.update({"a": 1, "b": ["x", None], "c": {"d": True}})
    assert theirs.decode(ours.encode(value)) == value == ours.decode(theirs.encode(value))


@pytest.mark.parametrize("wrong", [None, 5, str, struct_pb2.Struct()], ids=["none", "int", "class", "message"])
def test_only_a_generated_class_will_do(wrong: Any) -> None:
    with pytest.raises(TypeError, match="protoc generated"):
        ProtobufNativeSchema(wrong)


def test_a_message_of_another_class_is_refused() -> None:
    with pytest.raises(TypeError, match="Struct"):
        ProtobufNativeSchema(struct_pb2.Struct).encode(duration_pb2.Duration())


def test_what_is_no_message_is_refused() -> None:
    schema = ProtobufNativeSchema(descriptor_pb2.UninterpretedOption.NamePart)
    with pytest.raises(EncodeError):
        schema.encode(descriptor_pb2.UninterpretedOption.NamePart())
    with pytest.raises(DecodeError):
        schema.decode(b"\xff")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.DESCRIPTOR.full_name)
def test_a_schema_alone_gives_a_class(cls: Any) -> None:
    info = ProtobufNativeSchema(cls).schema_info()
    made = message_class(info)
    assert made.DESCRIPTOR.full_name == cls.DESCRIPTOR.full_name
    assert message_class(info) is made
    assert json.loads(ProtobufNativeSchema(made).schema_info().schema) == json.loads(info.schema)


def _with(**parts: str) -> bytes:
    return json.dumps(json.loads(ProtobufNativeSchema(api_pb2.Api).schema_info().schema) | parts).encode()


@pytest.mark.parametrize(
    "definition",
    [b"", b"{", b"[]", b"{}", b"5", _with(rootMessageTypeName="a.B"), _with(fileDescriptorSet="%"),
     _with(fileDescriptorSet=base64.b64encode(b"\xff\xff").decode()), _with(fileDescriptorSet=""),
     json.dumps({"fileDescriptorSet": 5, "rootMessageTypeName": 5}).encode()],
    ids=repr,
)  # fmt: skip
def test_a_schema_that_is_none(definition: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        message_class(SchemaInfo(SchemaType.PROTOBUF_NATIVE, definition, "N"))


def test_a_schema_of_another_type() -> None:
    with pytest.raises(TypeError, match="AVRO"):
        message_class(SchemaInfo(SchemaType.AVRO, b"{}"))


@pytest.mark.parametrize("cls", [ProtobufNativeSchema, ProtobufSchema])
def test_a_subclass_may_encode_and_decode_in_its_own_way(cls: Any) -> None:
    class Framed(cls):
        def encode(self, obj: Any) -> bytes:
            return b"<" + bytes(super().encode(obj))

        def decode(self, data: bytes) -> Any:
            return super().decode(data[1:])

    schema, value = Framed(wrappers_pb2.StringValue), wrappers_pb2.StringValue(value="x")
    assert schema.encode(value) == b"<" + cls(wrappers_pb2.StringValue).encode(value)
    assert schema.decode(schema.encode(value)) == value
    with pytest.raises(TypeError, match="StringValue"):
        schema.encode(struct_pb2.Struct())


def test_a_message_of_many_levels_is_refused() -> None:
    schema = ProtobufNativeSchema(struct_pb2.ListValue)
    data = b""
    for _ in range(2_000):
        inner = b"\x32" + _varint(len(data)) + data  # Value.list_value
        data = b"\x0a" + _varint(len(inner)) + inner  # ListValue.values
    with pytest.raises(DecodeError):
        schema.decode(data)
    with pytest.raises(DecodeError):
        AutoConsumeSchema().decode_as_written(data, schema.schema_info())


def test_a_length_beyond_the_payload_is_refused() -> None:
    schema = ProtobufNativeSchema(wrappers_pb2.BytesValue)
    with pytest.raises(DecodeError):
        schema.decode(b"\x0a" + _varint(2**31 - 1) + b"x")


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])
