"""Arrow arrays made without a JVM have the types and values that the JVM decodes, for random schemas and payloads."""

from __future__ import annotations

import io
import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.options.read_options import FAILFAST, PERMISSIVE
from pulsar_on_kafka_spark.source.avro_columns import readable_definition
from pulsar_on_kafka_spark.source.value_arrays import ValueArrays
from pulsar_on_kafka_spark.values.plain_values import PLAIN_TYPES
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas
from pulsar_on_kafka_spark.values.value_decoding import RawColumns, decoded
from tests.seeds import in_three

TOPIC = "persistent://public/default/orders"
ROWS = 60
RAW = "value binary, __topic string, __partition int, __offset bigint, __schemaVersion bigint"


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
                assert own == wanted, (
                    f"{own} is not {wanted}: {one.schemas.reader.type.name} {field.name}: {payload!r} of {one.schemas}"
                )


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


def json_info(definition: Any) -> SchemaInfo:
    return SchemaInfo(SchemaType.JSON, json.dumps(definition).encode())


def json_topic(draw: random.Random) -> Messages:
    definition = json_record(draw)
    return messages(draw, TopicSchemas(TOPIC, json_info(definition)), lambda: json_text(draw, definition).encode())


LOGICAL = [
    {"type": "int", "logicalType": "date"},
    *({"type": "long", "logicalType": f"{zone}timestamp-millis"} for zone in ("", "local-")),
    *({"type": "long", "logicalType": f"{zone}timestamp-micros"} for zone in ("", "local-")),
    {"type": "int", "logicalType": "time-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9},
]  # fmt: skip


class AvroTopic:
    """Definitions of one topic, values of them, and later versions of them."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.names = 0
        self.leaves: dict[str, Callable[[], Any]] = {
            "null": lambda: None,
            "boolean": lambda: draw.random() < 0.5,
            "int": lambda: draw.choice([0, -1, draw.randrange(-(2**31), 2**31)]),
            "long": lambda: draw.choice([0, -1, draw.randrange(-(2**63), 2**63), draw.randrange(2**40)]),
            "float": lambda: draw.choice([0.0, float("inf"), draw.randrange(1000) / 8]),
            "double": lambda: draw.choice([0.0, -0.5, float("-inf"), draw.random()]),
            "string": lambda: draw.choice(["", "text", "ä€\U0001f600"]),
            "bytes": lambda: draw.randbytes(draw.randrange(6)),
        }

    def name(self) -> str:
        self.names += 1
        return f"T{self.names}"

    def type(self, level: int) -> Any:
        draw = self.draw
        match draw.choice(
            [
                *LEAVES,
                *(["null"] if level == 0 else []),  # Spark's toArrow() breaks arrays with nulls inside
                "enum",
                "fixed",
                *["logical"] * 3,
                *(("array", "map", "record", "union") if level < 3 else ()),
            ]
        ):
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
            case "fixed":
                size = draw.choice([0, 3, 5])
                decimal = {"logicalType": "decimal", "precision": 6, "scale": 2} if draw.random() < 0.5 else {}
                return {"type": "fixed", "name": self.name(), "size": size, **decimal}
            case "logical":
                kind: Any = draw.choice(LOGICAL)
            case "array":
                kind = {"type": "array", "items": self.type(level + 1)}
            case "map":
                kind = {"type": "map", "values": self.type(level + 1)}
            case "record":
                kind = self.record(level + 1)
            case "union":
                return self.union(level)
            case kind:
                pass
        return draw.choice([["null", kind], [kind, "null"]]) if kind != "null" and draw.random() < 0.4 else kind

    def union(self, level: int) -> Any:
        draw = self.draw
        if draw.random() < 0.3:
            return draw.choice([["int", "long"], ["double", "float"], ["null", "long", "int"], ["string"]])
        branches: list[Any] = draw.sample(
            ["boolean", "int", "double", draw.choice(["string", "bytes"])], draw.randrange(3)
        )
        branches += [self.record(level + 1) for _ in range(draw.randrange(3))]
        branches += draw.choice([[], [{"type": "array", "items": "int"}]])
        branches += draw.choice([[], [{"type": "enum", "name": self.name(), "symbols": ["X"]}]])
        branches += draw.choice([[], ["null"]])
        draw.shuffle(branches)
        return branches if branches not in ([], ["null"]) else ["long", "null"]

    def record(self, level: int = 0) -> dict[str, Any]:
        names = self.draw.sample(NAMES, self.draw.randrange(1, 5))
        return {
            "type": "record",
            "name": self.name(),
            "fields": [{"name": name, "type": self.type(level)} for name in names],
        }

    def value(self, kind: Any) -> Any:
        draw = self.draw
        if isinstance(kind, list):
            branch = draw.choice(kind)
            value = self.value(branch)
            return (branch["name"], value) if isinstance(branch, dict) and branch["type"] == "record" else value
        name = kind["type"] if isinstance(kind, dict) else kind
        if name in self.leaves:
            return self.leaves[name]()
        match name:
            case "fixed":
                return draw.randbytes(kind["size"])
            case "enum":
                return draw.choice(kind["symbols"])
            case "array":
                return [self.value(kind["items"]) for _ in range(draw.randrange(4))]
            case "map":
                return {each: self.value(kind["values"]) for each in draw.sample(NAMES, draw.randrange(4))}
            case _:
                return {field["name"]: self.value(field["type"]) for field in kind["fields"]}

    def later(self, kind: Any) -> Any:
        """A definition that reads values of `kind`."""
        draw = self.draw
        if isinstance(kind, list):
            return [self.later(branch) if isinstance(branch, dict) else branch for branch in kind]
        wider: dict[str, list[Any]] = {
            "int": ["long", "double", ["null", "int"]],
            "long": ["double", ["long", "null"]],
            "float": ["double"],
        }
        if isinstance(kind, str):
            return draw.choice([kind, *wider.get(kind, [])])
        match kind["type"]:
            case "array":
                return {**kind, "items": self.later(kind["items"])}
            case "map":
                return {**kind, "values": self.later(kind["values"])}
            case "record":
                kept = [field for field in kind["fields"] if draw.random() < 0.8] or kind["fields"]
                fields = [{**field, "type": self.later(field["type"])} for field in kept]
                fields += [field | {"name": self.name()} for field in self.new_fields() if draw.random() < 0.3]
                draw.shuffle(fields)
                return {**kind, "fields": fields}
            case _:
                return kind

    def new_fields(self) -> list[dict[str, Any]]:
        inner = {"type": "record", "name": self.name(), "fields": [{"name": "x", "type": "bytes", "default": "\u00e4"}]}
        return [
            {"type": "int", "default": 5},
            {"type": "bytes", "default": "\u00ff\u0001"},
            {"type": ["null", "string"], "default": None},
            {"type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1000},
            {"type": {"type": "array", "items": "bytes"}, "default": ["\u00e4"]},
            {"type": {"type": "map", "values": "int"}, "default": {"a": 1}},
            {"type": inner, "default": {"x": "\u00e4"}},
            {"type": ["string", "int"], "default": "x"},
            {"type": "double", "default": 1},
            {"type": {"type": "enum", "name": self.name(), "symbols": ["P", "Q"]}, "default": "Q"},
        ]  # fmt: skip


def avro_info(definition: Any) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, json.dumps(definition).encode())


def avro_payload(topic: AvroTopic, definition: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, readable_definition(definition), topic.value(definition))
    return buffer.getvalue()


def avro_topic(draw: random.Random) -> Messages:
    """Messages of two or three versions; some name none, or one that nobody knows."""
    topic = AvroTopic(draw)
    versions = [topic.record()]
    for _ in range(draw.randrange(3)):
        versions.append(topic.later(versions[-1]))
    writers = {SchemaVersion(number): avro_info(definition) for number, definition in enumerate(versions)}
    reader = SchemaVersion(len(versions) - 1)
    numbers = [draw.randrange(len(versions)) for _ in range(ROWS)]
    made = iter(numbers)
    found = messages(
        draw,
        TopicSchemas(TOPIC, writers[reader], reader, writers),
        lambda: avro_payload(topic, versions[next(made)]),
    )
    named = [None if number == reader.number and draw.random() < 0.2 else number for number in numbers]
    return found._replace(versions=[9 if draw.random() < 0.02 else number for number in named])


def key_value_topic(draw: random.Random) -> Messages:
    """Versions with the key in the payload and with the record's key, of AVRO, JSON, text or a number."""
    topic = AvroTopic(draw)
    avro, texts = topic.record(), json_record(draw)
    parts: dict[SchemaType, tuple[SchemaInfo, Callable[[], bytes]]] = {
        SchemaType.AVRO: (avro_info(avro), lambda: avro_payload(topic, avro)),
        SchemaType.JSON: (json_info(texts), lambda: json_text(draw, texts).encode()),
        SchemaType.STRING: (SchemaInfo(SchemaType.STRING, b""), lambda: b"text"),
        SchemaType.INT32: (SchemaInfo(SchemaType.INT32, b""), lambda: draw.randbytes(4)),
    }  # fmt: skip
    (key, make_key), (value, make_value) = (parts[draw.choice(list(parts))] for _ in range(2))

    def info(encoding: str) -> SchemaInfo:
        types = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
        data = b"".join(struct.pack(">i", len(part.schema)) + part.schema for part in (key, value))
        return SchemaInfo(SchemaType.KEY_VALUE, data, "KeyValue", {**types, "kv.encoding.type": encoding})

    encodings = draw.sample(["INLINE", "SEPARATED"], 2)[: draw.randrange(1, 3)]
    writers = {SchemaVersion(number): info(encoding) for number, encoding in enumerate(encodings)}
    numbers = [draw.randrange(len(encodings)) for _ in range(ROWS)]
    made = iter(numbers)

    def framed(part: bytes) -> bytes:
        return struct.pack(">i", -1) if draw.random() < 0.1 else struct.pack(">i", len(part)) + part

    def payload() -> bytes:
        return make_value() if encodings[next(made)] == "SEPARATED" else framed(make_key()) + framed(make_value())

    reader = SchemaVersion(0)
    found = messages(draw, TopicSchemas(TOPIC, writers[reader], reader, writers), payload)
    keys = [None if draw.random() < 0.1 else make_key() for _ in range(ROWS)]
    return found._replace(versions=list(numbers), keys=keys)


# Comparisons ----------------------------------------------------------------------------------------------------------


def test_plain_types(spark: SparkSession) -> None:
    draw = random.Random(7)
    check(
        spark,
        [text_topic(draw), *(plain_topic(draw, kind) for kind in sorted(PLAIN_TYPES, key=lambda kind: kind.name))],
    )


@pytest.mark.parametrize("seeds", in_three(1, range(13)), ids=str)
def test_json(spark: SparkSession, seeds: Sequence[int]) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        check(spark, [json_topic(draw) for _ in range(6)])


@pytest.mark.parametrize("seeds", in_three(1, range(13)), ids=str)
def test_avro(spark: SparkSession, seeds: Sequence[int]) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        check(spark, [avro_topic(draw) for _ in range(6)])


@pytest.mark.parametrize("seeds", in_three(1, range(13)), ids=str)
def test_key_values(spark: SparkSession, seeds: Sequence[int]) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        check(spark, [key_value_topic(draw) for _ in range(3)])


def test_errors_have_the_same_words(spark: SparkSession) -> None:
    old, new = ({"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]} for name in "ab")
    writers = {SchemaVersion(0): avro_info(old), SchemaVersion(1): avro_info(new)}
    schemas = TopicSchemas(TOPIC, writers[SchemaVersion(1)], SchemaVersion(1), writers)
    with pytest.raises(NotReadable) as own:
        ValueArrays(schemas, FAILFAST).arrays([b""], [0], None, lambda _: f"{TOPIC}, partition 3, offset 100")
    frame = spark.createDataFrame([(b"", TOPIC, 3, 100, 0)], RAW)
    with pytest.raises(PySparkException, match=re.escape(str(own.value))):
        decoded(frame, schemas).collect()
