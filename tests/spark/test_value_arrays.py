"""Arrow arrays made without a JVM have the types and values that the JVM decodes, for random schemas and payloads."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.options.read_options import PERMISSIVE
from pulsar_on_kafka_spark.source.value_arrays import ValueArrays
from pulsar_on_kafka_spark.values.plain_values import PLAIN_TYPES
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas
from pulsar_on_kafka_spark.values.value_decoding import RawColumns, decoded
from tests.seeds import in_three

TOPIC = "persistent://public/default/orders"
ROWS = 60


class Messages(NamedTuple):
    """Messages of one topic."""

    schemas: TopicSchemas
    payloads: list[bytes | None]
    versions: list[int | None]
    keys: list[bytes | None]


def of_jvm(spark: SparkSession, topics: Sequence[Messages]) -> list[tuple[StructType, Any]]:
    """The types and the struct array of each topic's values, all of one job."""
    columns = ", ".join(f"p{n} binary, k{n} binary, v{n} bigint" for n in range(len(topics)))
    rows = [
        (TOPIC, 3, row, *(cell for one in topics for cell in (one.payloads[row], one.keys[row], one.versions[row])))
        for row in range(ROWS)
    ]
    frame = spark.createDataFrame(rows, f"__topic string, __partition int, __offset bigint, {columns}")
    types = []
    for n, one in enumerate(topics):
        raw = RawColumns(value=f"p{n}", key=f"k{n}", version=f"v{n}")
        others = [name for name in frame.columns if name != raw.value]
        found = decoded(frame, one.schemas, mode=PERMISSIVE, raw=raw)
        fields = [name for name in found.columns if name not in others]
        types.append(found.select(*(f"`{name}`" for name in fields)).schema)
        frame = found.select(F.struct(*(f"`{name}`" for name in fields)).alias(f"f{n}"), *others)
    table = frame.orderBy("__offset").select(*(f"f{n}" for n in range(len(topics)))).toArrow()
    return list(zip(types, (column.combine_chunks() for column in table.columns), strict=True))


def check(spark: SparkSession, topics: Sequence[Messages]) -> None:
    for one, (types, expected) in zip(topics, of_jvm(spark, topics), strict=True):
        arrays = ValueArrays(one.schemas, PERMISSIVE)
        definition = one.schemas.reader.schema.decode(errors="replace")
        assert [(f.name, f.dataType) for f in arrays.fields] == [(f.name, f.dataType) for f in types], definition
        found = arrays.arrays(one.payloads, one.versions, one.keys, str)
        for at, field in enumerate(types):
            theirs = expected.field(at)
            assert found[at].type == theirs.type, definition
            rows = zip(shown(found[at]), shown(theirs), one.payloads, strict=True)
            for own, wanted, payload in rows:
                assert own == wanted, f"{one.schemas.reader.type.name} {field.name}: {payload!r} of {definition}"


def shown(array: Any) -> list[str]:
    """Each value as text. Times are numbers, since Python's have fewer years. Maps have no order."""
    return [repr(ordered(value)) for value in array.cast(without_times(array.type)).to_pylist()]


def without_times(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, without_times(f.type), f.nullable) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(without_times(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(without_times(kind.value_type)))
    return kind


def ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: ordered(item) for name, item in value.items()}
    if isinstance(value, list):
        items = [ordered(item) for item in value]
        return sorted(items, key=repr) if items and all(isinstance(item, tuple) for item in items) else items
    if isinstance(value, tuple):
        return tuple(ordered(item) for item in value)
    return value


# Random topics --------------------------------------------------------------------------------------------------------


def messages(draw: random.Random, schemas: TopicSchemas, make: Callable[[], bytes]) -> Messages:
    """Some payloads are null, empty or cut short."""
    payloads: list[bytes | None] = []
    for _ in range(ROWS):
        payload = make()
        fate = draw.random()
        payloads.append(
            None if fate < 0.05 else payload[: draw.randrange(len(payload) + 1)] if fate < 0.15 else payload
        )
    return Messages(schemas, payloads, [None] * ROWS, [None] * ROWS)


SIZES = {SchemaType.BOOLEAN: 1, SchemaType.INT8: 1, SchemaType.INT16: 2, SchemaType.INT32: 4, SchemaType.FLOAT: 4}
SIZES |= {SchemaType.INSTANT: 12, SchemaType.LOCAL_DATE_TIME: 16}


def plain_payload(draw: random.Random, kind: SchemaType) -> bytes:
    size = SIZES.get(kind, 8)
    if kind is SchemaType.DOUBLE:
        return struct.pack(">d", draw.choice([0.0, -0.0, 1e300, float("inf"), draw.random()]))
    if kind is SchemaType.FLOAT:
        return struct.pack(">f", draw.choice([0.0, -0.0, 3e38, float("-inf"), draw.random()]))
    if size < 8:
        return draw.randbytes(size)
    number = draw.choice([0, -1, 1, draw.randrange(-(2 ** draw.randrange(8, 63)), 2 ** draw.randrange(8, 63))])
    data = struct.pack(">q", number)
    if kind is SchemaType.INSTANT:
        return data + struct.pack(">i", draw.choice([0, 999, -999, 999_999_999, draw.randrange(-(2**31), 2**31)]))
    if kind is SchemaType.LOCAL_DATE_TIME:
        return data + struct.pack(">q", draw.choice([0, -1, 86_399_999_999_999, draw.randrange(2**47)]))
    return data


def plain_topic(draw: random.Random, kind: SchemaType) -> Messages:
    return messages(draw, TopicSchemas(TOPIC, SchemaInfo(kind, b"")), lambda: plain_payload(draw, kind))


def text_topic(draw: random.Random) -> Messages:
    schemas = TopicSchemas(TOPIC, SchemaInfo(SchemaType.STRING, b""))
    return messages(draw, schemas, lambda: draw.choice(["", "a", "ä€", "\U0001f600"]).encode() + draw.randbytes(1))


NAMES = "abcdefgh"
LEAVES = ("boolean", "int", "long", "float", "double", "string", "bytes")


def json_type(draw: random.Random, level: int) -> Any:
    kinds = [*LEAVES, "enum", *(("array", "map", "record") if level < 3 else ())]
    match draw.choice(kinds):
        case "enum":
            kind: Any = {"type": "enum", "name": f"E{draw.randrange(10**9)}", "symbols": ["A", "B"]}
        case "array":
            kind = {"type": "array", "items": json_type(draw, level + 1)}
        case "map":
            kind = {"type": "map", "values": json_type(draw, level + 1)}
        case "record":
            kind = json_record(draw, level + 1)
        case leaf:
            kind = leaf
    return ["null", kind] if draw.random() < 0.5 else kind


def json_record(draw: random.Random, level: int = 0) -> dict[str, Any]:
    fields = []
    for name in draw.sample(NAMES, draw.randrange(1, 5)):
        field = {"name": name, "type": json_type(draw, level)}
        defaults = {"int": 5, "string": "x", "double": 1.5, "boolean": True, "bytes": "ab"}
        if isinstance(field["type"], str) and field["type"] in defaults and draw.random() < 0.5:
            field["default"] = defaults[field["type"]]
        fields.append(field)
    return {"type": "record", "name": f"R{draw.randrange(10**9)}", "fields": fields}


ODD = [
    "null", "1", "-1", "1.0", "1.5", "1e3", "2147483648", "9223372036854775808", "true", '"1"', '""', '"a\\u00e9"',
    '"\\ud800"', "NaN", "-INF", '"NaN"', "[]", "{}", "[1]", '{"a": 1.50}', "'it'", "0.1", "1e300", "-0", "01", "+1",
    "tru",
]  # fmt: skip


def json_text(draw: random.Random, kind: Any) -> str:
    """The text of a value; one in thirty is odd or wrong."""
    if draw.random() < 0.03:
        return draw.choice(ODD)
    if isinstance(kind, list):
        return "null" if draw.random() < 0.3 else json_text(draw, kind[1])
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "record":
        parts = [
            f"{json.dumps(field['name'])}: {json_text(draw, field['type'])}"
            for field in kind["fields"]
            if draw.random() < 0.9
        ]
        draw.shuffle(parts)
        return "{" + draw.choice([", ", ","]).join(parts) + "}"
    if name == "array":
        return "[" + ",".join(json_text(draw, kind["items"]) for _ in range(draw.randrange(4))) + "]"
    if name == "map":
        names = draw.sample(NAMES, draw.randrange(4))
        return "{" + ",".join(f'"{each}":{json_text(draw, kind["values"])}' for each in names) + "}"
    texts = {
        "boolean": ["true", "false"],
        "int": ["0", "-5", str(draw.randrange(-(2**31), 2**31))],
        "long": ["0", str(draw.randrange(-(2**63), 2**63))],
        "float": ["0.5", "3", repr(draw.random())],
        "double": ["1e-5", "7", repr(draw.random() * 1e6)],
    }
    return draw.choice(texts.get(name, ['""', '"text"', '"\\"\\u20ac\\n"', '"ä"']))


def json_topic(draw: random.Random) -> Messages:
    definition = json_record(draw)
    schemas = TopicSchemas(TOPIC, SchemaInfo(SchemaType.JSON, json.dumps(definition).encode()))
    return messages(draw, schemas, lambda: json_text(draw, definition).encode())


# Comparisons ----------------------------------------------------------------------------------------------------------


def test_plain_types(spark: SparkSession) -> None:
    draw = random.Random(7)
    check(
        spark,
        [text_topic(draw), *(plain_topic(draw, kind) for kind in sorted(PLAIN_TYPES, key=lambda kind: kind.name))],
    )


@pytest.mark.parametrize("seeds", in_three(1, range(40)), ids=str)
def test_json(spark: SparkSession, seeds: Sequence[int]) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        check(spark, [json_topic(draw) for _ in range(8)])
