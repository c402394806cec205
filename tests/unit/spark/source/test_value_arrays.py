"""Payloads become Arrow arrays without Spark: types, nulls, what cannot be read, and the words of errors.

`tests/spark/test_value_arrays.py` compares the values with those of the JVM.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import fastavro
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
     '{"count": 2147483648}', '{"tags": {}}', '{"tags": "a"}', '{item: "a"}', "[" * 100_000,
     '{"item": ' + "[" * 1000 + "]" * 1000 + "}"],
    ids=range(16),
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


def avro_of(definition: Any, *values: Any) -> list[bytes]:
    found = []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, definition, value)
        found.append(buffer.getvalue())
    return found


def test_avro_has_the_types_of_spark() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    kinds = {
        "date": ({"type": "int", "logicalType": "date"}, "date"),
        "moment": ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        "wall": ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        "clock": ({"type": "long", "logicalType": "time-micros"}, "bigint"),
        "price": (decimal, "decimal(5,2)"),
        "invalid": ({**decimal, "scale": 6}, "binary"),
        "id": ({"type": "string", "logicalType": "uuid"}, "string"),
        "one": (["null", "long", "int"], "bigint"),
        "real": (["float", "double"], "double"),
        "many": (["null", "string", {"type": "array", "items": "int"}], "struct<member0:string,member1:array<int>>"),
        "only": (["null"], "void"),
    }
    schemas = schemas_of(SchemaType.AVRO, record(*((name, kind) for name, (kind, _) in kinds.items())))
    fields = ValueArrays(schemas, FAILFAST).fields
    assert {field.name: field.dataType.simpleString() for field in fields} == {
        n: spark for n, (_, spark) in kinds.items()
    }
    assert all(field.nullable for field in fields)


def test_avro_times_beyond_pythons_years_are_read() -> None:
    schemas = schemas_of(SchemaType.AVRO, record(("at", {"type": "long", "logicalType": "timestamp-micros"})))
    payloads = avro_of(record(("at", "long")), {"at": 2**62})
    (found,) = ValueArrays(schemas, FAILFAST).arrays(payloads, None, None, place)
    assert found.cast(pa.int64()).to_pylist() == [2**62]
    millis = schemas_of(SchemaType.AVRO, record(("at", {"type": "long", "logicalType": "timestamp-millis"})))
    with pytest.raises(NotReadable, match="offset 100 cannot be decoded"):
        ValueArrays(millis, FAILFAST).arrays(payloads, None, None, place)


def three_versions() -> TopicSchemas:
    """The last one is the reader, the first one needs Avro's resolution, the second one only a default."""
    definitions = [
        record(("item", "string"), ("count", "int")),
        record(("item", "string"), ("count", "long"), ("old", "string")),
        record(("item", "string"), ("count", "long"), ("data", "bytes"), data="\u00e4"),
    ]
    infos = [SchemaInfo(SchemaType.AVRO, json.dumps(each).encode()) for each in definitions]
    writers = {SchemaVersion(number): info for number, info in enumerate(infos)}
    return TopicSchemas(TOPIC, infos[2], SchemaVersion(2), writers)


def test_avro_messages_are_read_by_the_version_that_they_name() -> None:
    schemas = three_versions()
    arrays = ValueArrays(schemas, PERMISSIVE)
    assert (arrays.needs_version, arrays.needs_key) == (True, False)
    definitions = [json.loads(info.schema) for info in schemas.writers.values()]
    values = [
        {"item": "a", "count": 1},
        {"item": "b", "count": 2**40, "old": "x" * 9},
        {"item": "c", "count": 3, "data": b"c"},
    ]
    whole = [avro_of(definition, value)[0] for definition, value in zip(definitions, values, strict=True)]
    payloads = [*whole, whole[2], whole[0], whole[0][:-1], whole[1][:-1], None]
    versions = [0, 1, 2, None, 9, 0, 1, 9]
    found = arrays.arrays(payloads, versions, None, place)
    assert [array.to_pylist() for array in found] == [
        ["a", "b", "c", "c", None, None, None, None],
        [1, 2**40, 3, 3, None, None, None, None],
        [b"\xe4", b"\xe4", b"c", b"c", None, None, None, None],
    ]
    strict = ValueArrays(schemas, FAILFAST)
    with pytest.raises(
        NotReadable, match=r"offset 104 cannot be decoded: its bytes are no AVRO value of schema version 9"
    ):
        strict.arrays(payloads, versions, None, place)
    with pytest.raises(NotReadable, match=r"offset 100 .* of the schema \(it names no version\) \(mode"):
        strict.arrays([b""], [None], None, place)


def test_members_of_a_union() -> None:
    union = ["null", "int", "string", record(("x", "int"))]
    definition = record(("a", union), ("b", ["null", "boolean"]))
    definition["name"] = "Outer"
    data = [{"a": 5, "b": True}, {"a": "t", "b": None}, {"a": {"x": 1}, "b": None}, {"a": None, "b": None}]
    found = values(schemas_of(SchemaType.AVRO, definition), avro_of(definition, *data), FAILFAST)
    none = dict.fromkeys(("member0", "member1", "member2"))
    assert [row["a"] for row in found] == [
        {**none, "member0": 5}, {**none, "member1": "t"}, {**none, "member2": {"x": 1}}, None,
    ]  # fmt: skip


def key_value(encoding: str) -> SchemaInfo:
    value = json.dumps(record(("item", "string"))).encode()
    data = struct.pack(">i", 0) + struct.pack(">i", len(value)) + value
    types = {"key.schema.type": "STRING", "value.schema.type": "JSON", "kv.encoding.type": encoding}
    return SchemaInfo(SchemaType.KEY_VALUE, data, "KeyValue", types)


def test_key_values() -> None:
    writers = {V0: key_value("INLINE"), V1: key_value("SEPARATED")}
    arrays = ValueArrays(TopicSchemas(TOPIC, writers[V1], V1, writers), PERMISSIVE)
    assert (arrays.needs_version, arrays.needs_key) == (True, True)
    inline = b"\x00\x00\x00\x01k\x00\x00\x00\x0e" + b'{"item": "in"}'
    payloads = [inline, b'{"item": "sep"}', None, b"{", b"\xff\xff\xff\xff" * 2, inline[:-1]]
    versions = [0, 1, 1, 1, 0, 0]
    keys = [b"other", b"s", b"s", b"s", None, None]
    key, value = arrays.arrays(payloads, versions, keys, place)
    assert key.to_pylist() == ["k", "s", "s", None, None, None]
    assert value.to_pylist() == [{"item": "in"}, {"item": "sep"}, None, None, None, None]
    strict = ValueArrays(TopicSchemas(TOPIC, writers[V0], V0, {V0: writers[V0]}), FAILFAST)
    assert not strict.needs_version
    with pytest.raises(
        NotReadable, match=r"offset 101 cannot be decoded: its bytes are no KEY_VALUE value of schema ver"
    ):
        strict.arrays([inline, inline[:7]], None, [None, None], place)


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
    pair = schemas_of(SchemaType.AVRO, record(("a", ["int", "long", "string"])))
    with pytest.raises(NotReadable, match="a union of int and long beside other types"):
        ValueArrays(pair, FAILFAST)
    within = record(("next", ["null", "Order"]))
    with pytest.raises(NotReadable, match="field next is of the record Order, which is the value itself"):
        ValueArrays(schemas_of(SchemaType.AVRO, within), FAILFAST)
    for wrong in ({"type": "record", "name": "R"}, record(("a", "whatever"))):
        with pytest.raises(NotReadable, match=r"the AVRO schema of topic .* cannot be read"):
            ValueArrays(schemas_of(SchemaType.AVRO, wrong), FAILFAST)
    differ = schemas_of(SchemaType.JSON, record(("item", "int"), ("Item", "int")))
    with pytest.raises(NotReadable, match=r"fields item and Item of the value differ .*use read_pulsar"):
        ValueArrays(differ, FAILFAST)
