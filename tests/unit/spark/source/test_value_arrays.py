"""Payloads become Arrow arrays without Spark: types, nulls, what cannot be read, and the words of errors.

`tests/spark/test_value_arrays.py` compares the values with those of the JVM.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import FAILFAST, PERMISSIVE
from pulsar_on_kafka_spark.source.arrow_columns import arrow_type
from pulsar_on_kafka_spark.source.value_arrays import ValueArrays
from pulsar_on_kafka_spark.values.plain_values import PLAIN_TYPES
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas

TOPIC = "persistent://public/default/orders"
V0, V1 = SchemaVersion(0), SchemaVersion(1)
UNIX = "1970-01-01T00:00:00"


def schemas_of(kind: SchemaType, definition: Any = None) -> TopicSchemas:
    data = b"" if definition is None else json.dumps(definition).encode()
    return TopicSchemas(TOPIC, SchemaInfo(kind, data, kind.name), V0)


def record(*fields: tuple[str, Any], **defaults: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": name, "type": kind, **({"default": defaults[name]} if name in defaults else {})}
            for name, kind in fields
        ],
    }


def place(index: int) -> str:
    return f"{TOPIC}, partition 3, offset {100 + index}"


def values(schemas: TopicSchemas, payloads: Sequence[bytes | None], mode: str = PERMISSIVE) -> list[Any]:
    """Rows: the value itself, or a dict of fields. Each array has the type of its field."""
    arrays = ValueArrays(schemas, mode)
    found = arrays.arrays(payloads, None, None, place)
    assert [array.type for array in found] == [arrow_type(field.dataType) for field in arrays.fields]
    if [field.name for field in arrays.fields] == ["value"]:
        return list(found[0].to_pylist())
    names = [field.name for field in arrays.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*(array.to_pylist() for array in found), strict=True)]


def test_text_and_bytes() -> None:
    assert values(schemas_of(SchemaType.BYTES), [b"\xff", b"", None]) == [b"\xff", b"", None]
    assert values(schemas_of(SchemaType.STRING), ["ä".encode(), b"", None]) == ["ä", "", None]
    assert values(schemas_of(SchemaType.STRING), [b"\xff", b"a", b"\xed\xa0\x80"]) == [None, "a", None]


@pytest.mark.parametrize(
    ("kind", "form", "good", "bad"),
    [
        (SchemaType.BOOLEAN, ">b", {0: False, 1: True, 2: True}, ()),
        (SchemaType.INT8, ">b", {-128: -128, 127: 127}, ()),
        (SchemaType.INT64, ">q", {-(2**63): -(2**63), 5: 5}, ()),
        (SchemaType.DOUBLE, ">d", {0.1: 0.1}, ()),
        (SchemaType.LOCAL_DATE, ">q", {}, (2**31, -(2**31) - 1)),
        (SchemaType.LOCAL_TIME, ">q", {0: 0, 86_399_999_999_999: 86_399_999_999_999}, (-1, 86_400_000_000_000)),
        (SchemaType.TIMESTAMP, ">q", {}, (8_640_000_000_000_001, -(2**63))),
    ],
    ids=lambda value: value.name if isinstance(value, SchemaType) else "",
)
def test_plain_values(kind: SchemaType, form: str, good: dict[Any, Any], bad: Sequence[int]) -> None:
    payloads = [struct.pack(form, each) for each in (*good, *bad)]
    assert values(schemas_of(kind), payloads) == [*good.values(), *(None for _ in bad)]


def test_nanoseconds_are_cut_to_microseconds() -> None:
    schemas = schemas_of(SchemaType.INSTANT)
    (found,) = ValueArrays(schemas, FAILFAST).arrays([struct.pack(">qi", -1, 1999)], None, None, place)
    assert found.type == pa.timestamp("us", tz="UTC")
    assert found.cast(pa.int64()).to_pylist() == [-999_999]


def test_each_plain_type_has_one_length() -> None:
    for kind in PLAIN_TYPES:
        assert values(schemas_of(kind), [b"", b"\x00" * 3, b"\x00" * 17, None]) == [None] * 4
        with pytest.raises(NotReadable, match=rf"offset 101 cannot be decoded: its bytes are no {kind.name} value"):
            ValueArrays(schemas_of(kind), FAILFAST).arrays([None, b"\x00" * 17], None, None, place)


ORDER = record(
    ("item", ["null", "string"]), ("count", "int"), ("place", "string"), ("data", ["null", "bytes"]),
    ("tags", ["null", {"type": "array", "items": ["null", "string"]}]),
    place="here", count=7,
)  # fmt: skip


def test_json() -> None:
    schemas = schemas_of(SchemaType.JSON, ORDER)
    empty = dict.fromkeys(("item", "count", "place", "data", "tags"))
    found = values(
        schemas,
        [b'{"item": "a", "count": 1, "data": "\xc3\xa4", "tags": ["x", null], "more": 1}', b'{"place": null}', None],
    )
    assert found == [
        {"item": "a", "count": 1, "place": "here", "data": "ä".encode(), "tags": ["x", None]},
        {**empty, "count": 7, "place": "here"},
        empty,
    ]


def test_json_is_read_as_leniently_as_in_the_jvm() -> None:
    schemas = schemas_of(SchemaType.JSON, record(("item", ["null", "string"]), ("price", ["null", "double"])))
    texts = {
        '{"item": 1}': ("1", None),
        '{"item": 1e10, "price": 3}': ("1.0E10", 3.0),
        '{"item": {"a": [1, "b", true, null]}}': ('{"a":[1,"b",true,null]}', None),
        "{'item': 'it\\'s \"x\"'}": ('it\'s "x"', None),
        '{"item": "\\ud800"}': ("?", None),
        '{"item": "a"} and more': ("a", None),
        '{"price": -INF}': (None, float("-inf")),
        '{"price": 9007199254740993}': (None, 9007199254740992.0),
    }
    found = values(schemas, [text.encode() for text in texts])
    assert [(row["item"], row["price"]) for row in found] == list(texts.values())
    assert values(schemas, [b'{"item": "\xff"}']) == [{"item": "\ufffd", "price": None}]


@pytest.mark.parametrize(
    "text",
    ["", " ", "null", "[]", "1", "{", '{"item": "a",}', '{"count": 1.0}', '{"count": true}', '{"count": "1"}',
     '{"count": 2147483648}', '{"tags": {}}', '{"tags": "a"}', '{item: "a"}', "[" * 100_000],
    ids=range(15),
)  # fmt: skip
def test_json_that_is_no_value(text: str) -> None:
    schemas = schemas_of(SchemaType.JSON, ORDER)
    good = b'{"item": "a"}'
    assert values(schemas, [good, text.encode(), good])[1] == dict.fromkeys(("item", "count", "place", "data", "tags"))
    expected = (
        rf"^the message at {TOPIC}, partition 3, offset 101 cannot be decoded: its bytes are no JSON value of schema "
        r"version 0 \(mode PERMISSIVE gives nulls instead\)$"
    )
    with pytest.raises(NotReadable, match=expected):
        ValueArrays(schemas, FAILFAST).arrays([good, text.encode(), text.encode()], None, None, place)


def test_no_payloads() -> None:
    for schemas in (schemas_of(SchemaType.BYTES), schemas_of(SchemaType.INT8), schemas_of(SchemaType.JSON, ORDER)):
        assert values(schemas, []) == []


def test_it_travels_to_executors() -> None:
    arrays = ValueArrays(schemas_of(SchemaType.JSON, ORDER), PERMISSIVE)
    there = pickle.loads(pickle.dumps(arrays))  # noqa: S301 - ours
    assert StructType(there.fields) == StructType(arrays.fields)
    assert there.arrays([b'{"item": "a"}', b""], None, None, place)[0].to_pylist() == ["a", None]


def test_refusals() -> None:
    with pytest.raises(InvalidReadOption, match="mode is 'DROPMALFORMED', expected FAILFAST or PERMISSIVE"):
        ValueArrays(schemas_of(SchemaType.STRING), "DROPMALFORMED")
    with pytest.raises(NotReadable, match=r"JSON schema of topic .*orders cannot be read: .*; schema='bytes' gives"):
        ValueArrays(TopicSchemas(TOPIC, SchemaInfo(SchemaType.JSON, b"{")), FAILFAST)
    with pytest.raises(NotReadable, match="union of several types"):
        ValueArrays(schemas_of(SchemaType.JSON, record(("either", ["int", "string"]))), FAILFAST)
    with pytest.raises(NotReadable, match="the default 'x' of field count is none of its type"):
        ValueArrays(schemas_of(SchemaType.JSON, record(("count", "int"), count="x")), FAILFAST)
    with pytest.raises(NotReadable, match="no field numbers"):
        ValueArrays(schemas_of(SchemaType.PROTOBUF), FAILFAST)
    differ = schemas_of(SchemaType.JSON, record(("item", "int"), ("Item", "int")))
    with pytest.raises(NotReadable, match="the fields item and Item of the value differ in case alone"):
        ValueArrays(differ, FAILFAST)
    assert len(ValueArrays(differ, FAILFAST, case_sensitive=True).fields) == 2
