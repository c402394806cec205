"""Protobuf messages become Arrow arrays with the types of Spark's Protobuf functions, which tests do not have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from pulsar_on_kafka.schema import ProtobufNativeSchema
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.options.read_options import FAILFAST, PERMISSIVE
from pulsar_on_kafka_spark.source.arrow_columns import arrow_type
from pulsar_on_kafka_spark.source.value_arrays import ValueArrays
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas

TOPIC = "persistent://public/default/orders"
SCALARS = ("double", "float", "int64", "uint64", "int32", "fixed32", "bool", "string", "bytes", "sint32")
SPARK = {
    "double": "double", "float": "float", "int64": "bigint", "uint64": "bigint", "int32": "int", "fixed32": "int",
    "bool": "boolean", "string": "string", "bytes": "binary", "sint32": "int",
}  # fmt: skip
LABEL = FieldDescriptorProto.LABEL_OPTIONAL
REPEATED = FieldDescriptorProto.LABEL_REPEATED


def add(message: DescriptorProto, name: str, kind: str, label: Any = LABEL, **more: Any) -> None:
    number = len(message.field) + 1
    kind_number = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    message.field.add(name=name, number=number, type=kind_number, label=label, **more)


def order_class(syntax: str = "proto3") -> Any:
    """A message with a field of each kind."""
    file = FileDescriptorProto(name=f"{syntax}.proto", package="shop", syntax=syntax)
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    time = file.message_type.add(name="Timestamp")
    for name, kind in (("seconds", "int64"), ("nanos", "int32")):
        add(time, name, kind)
    span = file.message_type.add(name="Duration")
    span.CopyFrom(time)
    span.name = "Duration"
    file.message_type.add(name="Nothing")
    order = file.message_type.add(name="Order")
    for kind in SCALARS:
        add(order, f"a_{kind}", kind)
    add(order, "state", "enum", type_name=".shop.State")
    add(order, "tags", "string", REPEATED)
    add(order, "at", "message", type_name=".shop.Timestamp")
    add(order, "took", "message", type_name=".shop.Duration")
    add(order, "nothing", "message", type_name=".shop.Nothing")
    item = order.nested_type.add(name="Item")
    add(item, "name", "string")
    add(order, "items", "message", REPEATED, type_name=".shop.Order.Item")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", "string")
    add(entry, "value", "message", type_name=".shop.Order.Item")
    add(order, "counts", "message", REPEATED, type_name=".shop.Order.CountsEntry")
    if syntax == "proto2":
        add(order, "with_default", "int32", default_value="7")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def arrays_of(cls: Any, mode: str = PERMISSIVE) -> ValueArrays:
    return ValueArrays(TopicSchemas(TOPIC, ProtobufNativeSchema(cls).schema_info()), mode)


def rows(arrays: ValueArrays, *payloads: bytes | None) -> list[dict[str, Any]]:
    found = arrays.arrays(payloads, None, None, str)
    assert [array.type for array in found] == [arrow_type(field.dataType) for field in arrays.fields]
    names = [field.name for field in arrays.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*(array.to_pylist() for array in found), strict=True)]


def test_types() -> None:
    found = {field.name: field.dataType.simpleString() for field in arrays_of(order_class()).fields}
    assert found == {
        **{f"a_{kind}": SPARK[kind] for kind in SCALARS},
        "state": "string",
        "tags": "array<string>",
        "at": "timestamp",
        "took": "interval day to second",
        "items": "array<struct<name:string>>",
        "counts": "map<string,struct<name:string>>",
    }


def test_values() -> None:
    cls = order_class()
    order = cls(
        a_double=0.5, a_int64=-5, a_uint64=2**64 - 1, a_fixed32=2**31, a_string="ä", a_bytes=b"\xff", state=1,
        tags=["x", "y"], items=[{"name": "chair"}, {}],
    )  # fmt: skip
    order.counts["one"].name = "1"
    order.at.seconds, order.at.nanos = -1, 1999
    order.took.seconds = 90
    arrays = arrays_of(cls)
    full, empty, null, broken = rows(arrays, order.SerializeToString(), b"", None, b"\xff")
    assert (full["a_int64"], full["a_uint64"], full["a_fixed32"], full["a_bytes"]) == (-5, -1, -(2**31), b"\xff")
    assert (full["state"], full["tags"], full["counts"]) == ("PAID", ["x", "y"], [("one", {"name": "1"})])
    assert (full["items"], full["took"]) == ([{"name": "chair"}, {"name": ""}], timedelta(seconds=90))
    assert full["at"].timestamp() == pytest.approx(-0.999999, abs=1e-7)
    assert (empty["a_int64"], empty["a_string"], empty["state"], empty["tags"]) == (0, "", "NEW", [])
    assert (empty["at"], empty["counts"]) == (None, [])
    assert set(null.values()) == set(broken.values()) == {None}


def test_missing_fields_of_proto2_are_null_or_have_their_default() -> None:
    (row,) = rows(arrays_of(order_class("proto2")), b"")
    assert (row["a_int64"], row["a_string"], row["tags"], row["with_default"]) == (None, None, [], 7)


def test_a_number_that_the_enum_has_not_is_named_as_in_java() -> None:
    cls = order_class()
    (row,) = rows(arrays_of(cls), cls(state=9).SerializeToString())
    assert row["state"] == "UNKNOWN_ENUM_VALUE_State_9"


def test_a_time_beyond_spark_is_an_error() -> None:
    cls = order_class()
    far, good = cls(), cls(a_int64=1)
    far.at.seconds = 2**62
    payloads = [good.SerializeToString(), far.SerializeToString()]
    assert [row["a_int64"] for row in rows(arrays_of(cls), *payloads)] == [1, None]
    with pytest.raises(NotReadable, match="the message at 1 cannot be decoded: its bytes are no PROTOBUF_NATIVE value"):
        arrays_of(cls, FAILFAST).arrays(payloads, None, None, str)


def test_a_message_that_contains_itself_has_no_columns() -> None:
    with pytest.raises(NotReadable, match=r"the message google\.protobuf\.DescriptorProto contains itself"):
        arrays_of(DescriptorProto)
