"""Values read by a registry's entry alone; primitives as Pulsar's Java client 4.0.7 printed them."""

from __future__ import annotations

import base64
from datetime import date, datetime, time, timezone
from typing import Any

import pytest
from google.protobuf import api_pb2, struct_pb2, type_pb2, wrappers_pb2

from pulsar_on_kafka.exceptions import InvalidMessage, NotSupported
from pulsar_on_kafka.schema import (
    AutoConsumeSchema,
    AutoProduceBytesSchema,
    AvroSchema,
    BytesSchema,
    CustomEnum,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    ProtobufSchema,
    Record,
    Schema,
    StringSchema,
)
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from tests.unit.schema.protobuf_messages import made
from tests.unit.schema.record_pairs import Color

AUTO = AutoConsumeSchema()


class Inner(Record):
    n = Integer()


class Car(Record):
    wheels = Integer()
    color = CustomEnum(Color)
    part = Inner()


CAR = Car(wheels=4, color=Color.RED, part=Inner(n=1))


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (StringSchema(), "é", "é"),
        (BytesSchema(), b"\xff", b"\xff"),
        (AvroSchema(Car), CAR, {"wheels": 4, "color": "RED", "part": {"n": 1}}),
        (JsonSchema(Car), CAR, {"wheels": 4, "color": 1, "part": {"n": 1}}),
        (KeyValueSchema(AvroSchema(Inner), StringSchema()), KeyValue(Inner(n=2), None), ({"n": 2}, None)),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_type_has_its_plain_value(schema: Schema, value: Any, expected: Any) -> None:
    data = schema.encode(value)
    assert data is not None
    assert AUTO.decode_as_written(data, schema.schema_info()) == expected


def test_a_native_protobuf_message_is_one_of_a_class_made_for_it() -> None:
    value = struct_pb2.Struct()
    value.update({"a": 1})
    schema = ProtobufNativeSchema(struct_pb2.Struct)
    found = AUTO.decode_as_written(schema.encode(value), schema.schema_info())
    assert (found.DESCRIPTOR.full_name, found.SerializeToString()) == ("google.protobuf.Struct", schema.encode(value))


@pytest.mark.parametrize(
    ("kind", "java", "value"),
    [(SchemaType.BOOLEAN, "AQ==", True), (SchemaType.INT8, "/g==", -2), (SchemaType.INT16, "//4=", -2),
     (SchemaType.INT32, "AAAABQ==", 5), (SchemaType.INT64, "//////////4=", -2), (SchemaType.FLOAT, "P8AAAA==", 1.5),
     (SchemaType.DOUBLE, "P/gAAAAAAAA=", 1.5)],
)  # fmt: skip
def test_numbers_are_javas(kind: SchemaType, java: str, value: Any) -> None:
    writer = SchemaInfo(kind, b"")
    assert AUTO.decode_as_written(base64.b64decode(java), writer) == value
    with pytest.raises(ValueError, match=kind.name):
        AUTO.decode_as_written(base64.b64decode(java) + b"\x00", writer)


LATE = (2**63 - 1).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("kind", "java", "value"),
    [(SchemaType.DATE, "00000199f3c922c5", datetime(2025, 10, 17, 20, 7, 49, 189_000, timezone.utc)),
     (SchemaType.TIME, "ffffffffffffffff", datetime(1969, 12, 31, 23, 59, 59, 999_000, timezone.utc)),
     (SchemaType.TIMESTAMP, "0000000000000000", datetime(1970, 1, 1, tzinfo=timezone.utc)),
     (SchemaType.INSTANT, "ffffffffffffffff3b9ac9ff", datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc)),
     (SchemaType.INSTANT, "000000000000000a000003e8", datetime(1970, 1, 1, 0, 0, 10, 1, timezone.utc)),
     (SchemaType.LOCAL_DATE, "ffffffffffffffff", date(1969, 12, 31)),
     (SchemaType.LOCAL_DATE, "0000000000004cb2", date(2023, 10, 4)),
     (SchemaType.LOCAL_DATE, "fffffffffff506c6", date.min),
     (SchemaType.LOCAL_TIME, "00004e94914effff", time(23, 59, 59, 999_999)),
     (SchemaType.LOCAL_DATE_TIME, "000000000000000100000000000f4240", datetime(1970, 1, 2, 0, 0, 0, 1_000)),
     (SchemaType.LOCAL_DATE_TIME, "00000000002cc0a000000362ef51ba08", datetime(9999, 12, 31, 1, 2, 3, 456_789))],
)  # fmt: skip
def test_dates_and_times_are_javas(kind: SchemaType, java: str, value: Any) -> None:
    writer = SchemaInfo(kind, b"")
    found = AUTO.decode_as_written(bytes.fromhex(java), writer)
    assert (found, type(found)) == (value, type(value))
    with pytest.raises(ValueError, match=kind.name):
        AUTO.decode_as_written(bytes.fromhex(java)[:-1], writer)
    if kind is not SchemaType.LOCAL_DATE_TIME:
        with pytest.raises(ValueError, match=f"9223372036854775807.* is no {kind.name}"):
            AUTO.decode_as_written(LATE + bytes(len(java) // 2 - 8), writer)
    else:
        with pytest.raises(ValueError, match="no LOCAL_DATE_TIME"):
            AUTO.decode_as_written(bytes(8) + LATE, writer)


def test_a_protobuf_message_without_a_class_is_a_dict_of_its_fields() -> None:
    cls = made("made.up.Defaults")
    inner = cls(asked="in", asked_message=cls(asked="x"))
    value = cls(asked="a", asked_message=inner, u32=7, flag=False, level=1, many=[inner, inner])
    info = ProtobufSchema(cls).schema_info()
    found = AUTO.decode_as_written(value.SerializePartialToString(), info)
    assert list(found) == [field.name for field in cls.DESCRIPTOR.fields]
    assert found["asked"] == "a"
    assert [found["asked_message"], *found["many"]] == [inner.SerializePartialToString()] * 3
    assert (found["u32"], found["flag"], found["level"]) == (7, False, 1)
    # not there: the defaults of the definition
    assert (found["text"], found["raw"], found["s32"], found["d4"]) == (value.text, b"", -7, 12345678.5)
    assert found["u64"] == value.u64 == 2**64 - 1
    assert found["first"] is None


def test_protobuf_fields_are_what_the_class_reads() -> None:
    method = api_pb2.Method(
        name="n", request_streaming=True, options=[type_pb2.Option(name="o")], syntax="SYNTAX_PROTO3"
    )
    found = AUTO.decode_as_written(method.SerializeToString(), ProtobufSchema(api_pb2.Method).schema_info())
    assert found == {
        "name": "n", "request_type_url": "", "request_streaming": True, "response_type_url": "",
        "response_streaming": False, "options": [type_pb2.Option(name="o").SerializeToString()], "syntax": 1,
        "edition": "",
    }  # fmt: skip
    packed = AUTO.decode_as_written(b"\x08\xff\x01", ProtobufSchema(wrappers_pb2.Int64Value).schema_info())
    assert packed == {"value": 255}


@pytest.mark.parametrize(
    "noted",
    ["{", "{}", "[5]", "[{}]", '[{"name":"a","number":0,"type":"INT32","label":"LABEL_OPTIONAL"}]',
     '[{"name":"a","number":1,"type":"GROUP","label":"LABEL_OPTIONAL"}]',
     '[{"name":"a","number":1,"type":"WORD","label":"LABEL_OPTIONAL"}]',
     '[{"name":5,"number":1,"type":"INT32","label":"LABEL_OPTIONAL"}]',
     '[{"name":"a","number":1,"type":[],"label":"LABEL_OPTIONAL"}]'],
)  # fmt: skip
def test_protobuf_fields_that_cannot_be(noted: str) -> None:
    with pytest.raises(ValueError, match=r"PARSING_INFO|JSON|Expecting"):
        AUTO.decode_as_written(b"", SchemaInfo(SchemaType.PROTOBUF, b"{}", "P", {"__PARSING_INFO__": noted}))


def test_what_protobuf_cannot_read_says_so() -> None:
    with pytest.raises(NotSupported, match="__PARSING_INFO__"):
        AUTO.decode_as_written(b"", SchemaInfo(SchemaType.PROTOBUF, b"{}"))
    with pytest.raises(ValueError, match="no message of the PROTOBUF schema"):
        AUTO.decode_as_written(b"\xff", ProtobufSchema(api_pb2.Method).schema_info())


def test_a_separated_key_needs_both() -> None:
    schema = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncodingType.SEPARATED)
    with pytest.raises(ValueError, match="decode_separated"):
        AUTO.decode_as_written(b"v", schema.schema_info())
    with pytest.raises(ValueError, match="BOTH"):
        AUTO.decode_as_written(b"v", SchemaInfo(SchemaType.KEY_VALUE, b"\0" * 8, "", {"kv.encoding.type": "BOTH"}))


def test_without_a_writer_there_is_nothing_to_read_by() -> None:
    assert AUTO.schema_info().type is SchemaType.AUTO_CONSUME
    with pytest.raises(ValueError, match="writer"):
        AUTO.decode(b"x")
    with pytest.raises(TypeError, match="only reads"):
        AUTO.encode("x")


def test_bytes_go_as_they_are_when_the_schema_can_read_them() -> None:
    data = AvroSchema(Car).encode(CAR)
    by_schema, by_topic = AutoProduceBytesSchema(AvroSchema(Car)), AutoProduceBytesSchema()
    assert by_schema.schema_info() == AvroSchema(Car).schema_info()
    assert by_topic.schema_info().type is SchemaType.AUTO_PUBLISH
    assert by_schema.encode(data) == by_topic.encode(data) == by_topic.checked(data, by_schema.schema_info()) == data
    with pytest.raises(InvalidMessage, match="AVRO"):
        by_schema.encode(data[:-1])
    with pytest.raises(InvalidMessage, match="INT32"):
        by_topic.checked(b"\x01", SchemaInfo(SchemaType.INT32, b""))
    with pytest.raises(InvalidMessage, match="JSON"):
        by_topic.checked(b"{", SchemaInfo(SchemaType.JSON, b"{}"))
    for wrong in ("text", None, CAR):
        with pytest.raises(TypeError, match="bytes"):
            by_schema.encode(wrong)


def test_auto_produce_takes_a_schema() -> None:
    wrong: Any = "AVRO"
    with pytest.raises(TypeError, match="AVRO"):
        AutoProduceBytesSchema(wrong)
