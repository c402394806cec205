"""Payloads in a DataFrame -> columns: each type beside the SDK's own decoding, evolution, and what cannot be read."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from functools import reduce
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pulsar_on_kafka.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    BytesSchema,
    Double,
    Float,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    Long,
    Map,
    Record,
    Schema,
    String,
    StringSchema,
)
from pulsar_on_kafka.schema.generic import plain_reader
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import PERMISSIVE
from pulsar_on_kafka_spark.values.topic_schemas import TopicSchemas
from pulsar_on_kafka_spark.values.value_decoding import decoded, needs_version
from tests.seeds import first_of

RAW = "value binary, __recordKey binary, __topic string, __partition int, __offset bigint, __schemaVersion bigint"
TOPIC = "persistent://public/default/orders"
V0, V1, V2 = (SchemaVersion(number) for number in range(3))


class Address(Record):
    street = String()
    number = Integer(required=True)


class Everything(Record):
    text = String()
    whole = Integer()
    wide = Long()
    small = Float()
    big = Double()
    flag = Boolean()
    data = Bytes()
    address = Address()
    tags = Array(String())
    counts = Map(Long())
    named = String(default="nobody", required_default=True)


def everything(number: int) -> Everything:
    return Everything(
        text=f"t{number} äöü", whole=-number, wide=2**62 + number, small=number / 4, big=number * 1.1,
        flag=number % 2 == 0,
        data=b"bytes%d" % number, address=Address(street="Ring", number=number), tags=["a", str(number)],
        counts={"x": number},
    )  # fmt: skip


def messages(
    spark: SparkSession,
    payloads: Sequence[bytes | None],
    versions: Sequence[int | None] | None = None,
    keys: Sequence[bytes | None] | None = None,
) -> DataFrame:
    rows = [
        (
            None if payload is None else bytearray(payload),
            None if keys is None or keys[at] is None else bytearray(keys[at] or b""),
            TOPIC,
            3,
            100 + at,
            None if versions is None else versions[at],
        )
        for at, payload in enumerate(payloads)
    ]
    return spark.createDataFrame(rows, RAW)


def one_schema(schema: Schema) -> TopicSchemas:
    info = schema.schema_info()
    return TopicSchemas(TOPIC, info, V0, {V0: info})


def values(frame: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    """The named columns as Python's own values, in the order of offsets."""
    rows = frame.orderBy("__offset").select(*names).collect()
    return [tuple(plain(row[name]) for name in names) for row in rows]


def plain(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: plain(part) for name, part in value.asDict().items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def as_python(value: Any) -> Any:
    """What the SDK gives, in the same form."""
    if isinstance(value, Record):
        return {name: as_python(getattr(value, name)) for name in type(value)._fields}
    if isinstance(value, list):
        return [as_python(item) for item in value]
    if isinstance(value, dict):
        return {key: as_python(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("schema", [AvroSchema(Everything), JsonSchema(Everything)], ids=["avro", "json"])
def test_records_have_the_values_that_the_sdk_gives(spark: SparkSession, schema: Schema) -> None:
    payloads = [schema.encode(everything(number)) for number in range(20)]
    found = decoded(messages(spark, payloads), one_schema(schema))
    names = list(Everything._fields)
    assert found.columns == [*names, "__recordKey", "__topic", "__partition", "__offset", "__schemaVersion"]
    expected = [as_python(schema.decode(payload or b"")) for payload in payloads]
    assert [dict(zip(names, row, strict=True)) for row in values(found, *names)] == expected


def test_a_null_payload_gives_nulls(spark: SparkSession) -> None:
    for schema in (AvroSchema(Address), JsonSchema(Address)):
        found = decoded(messages(spark, [None]), one_schema(schema))
        assert values(found, "street", "number") == [(None, None)]


def test_text_and_bytes(spark: SparkSession) -> None:
    assert values(decoded(messages(spark, ["ä".encode(), b"", None]), one_schema(StringSchema())), "value") == [
        ("ä",), ("",), (None,),
    ]  # fmt: skip
    assert values(decoded(messages(spark, [b"\xff", b""]), one_schema(BytesSchema())), "value") == [(b"\xff",), (b"",)]


INTEGERS = {
    SchemaType.INT8: ("b", 1),
    SchemaType.INT16: ("h", 2),
    SchemaType.INT32: ("i", 4),
    SchemaType.INT64: ("q", 8),
}


def plain_values(spark: SparkSession, payloads: Mapping[SchemaType, Sequence[bytes]], shown: str) -> Any:
    """`shown` of each value, by type; one job for all."""
    frames = [
        decoded(messages(spark, each), TopicSchemas(TOPIC, SchemaInfo(kind, b""))).selectExpr(
            f"'{kind.name}' as kind", "__offset", f"{shown} as shown"
        )
        for kind, each in payloads.items()
    ]
    found: dict[SchemaType, list[Any]] = {kind: [] for kind in payloads}
    for row in reduce(DataFrame.union, frames).orderBy("__offset").collect():
        found[SchemaType[row["kind"]]].append(row["shown"])
    return found


def test_integers(spark: SparkSession) -> None:
    numbers: dict[SchemaType, list[int]] = {}
    for kind, (_, size) in INTEGERS.items():
        limit = 1 << (8 * size - 1)
        numbers[kind] = [0, 1, -1, limit - 1, -limit, *(random.randrange(-limit, limit) for _ in range(30))]
    payloads = {kind: [struct.pack(f">{INTEGERS[kind][0]}", n) for n in each] for kind, each in numbers.items()}
    assert plain_values(spark, payloads, "cast(value as bigint)") == numbers


def test_floating_point(spark: SparkSession) -> None:
    numbers = (0.0, -1.5, 1e-30, 3.25e30, float("inf"), 0.1)
    letters = {SchemaType.FLOAT: "f", SchemaType.DOUBLE: "d"}
    payloads = {kind: [struct.pack(f">{letter}", n) for n in numbers] for kind, letter in letters.items()}
    expected = {kind: [plain_reader(kind)(payload) for payload in each] for kind, each in payloads.items()}
    assert plain_values(spark, payloads, "cast(value as double)") == expected


def test_booleans(spark: SparkSession) -> None:
    found = decoded(
        messages(spark, [b"\x00", b"\x01", b"\x02"]), TopicSchemas(TOPIC, SchemaInfo(SchemaType.BOOLEAN, b""))
    )
    assert values(found, "value") == [(False,), (True,), (True,)]


MILLIS = [0, 1, -1, 1_700_000_000_123, -2_000_000_000_001]


def test_moments(spark: SparkSession) -> None:
    kinds = (SchemaType.DATE, SchemaType.TIME, SchemaType.TIMESTAMP)
    payloads = [struct.pack(">q", millis) for millis in MILLIS]
    assert plain_values(spark, dict.fromkeys(kinds, payloads), "unix_millis(value)") == dict.fromkeys(kinds, MILLIS)


def test_instants_days_and_times_without_a_zone(spark: SparkSession) -> None:
    instants = [
        struct.pack(">qi", seconds, nanos)
        for seconds, nanos in ((0, 0), (1_700_000_000, 123_456_789), (-1, 999_999_000))
    ]
    found = decoded(messages(spark, instants), TopicSchemas(TOPIC, SchemaInfo(SchemaType.INSTANT, b"")))
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    expected = [((plain_reader(SchemaType.INSTANT)(each) - epoch) // timedelta(microseconds=1),) for each in instants]
    assert values(found.selectExpr("unix_micros(value) as value", "__offset"), "value") == expected
    days = [struct.pack(">q", day) for day in (0, 19_000, -365)]
    found = decoded(messages(spark, days), TopicSchemas(TOPIC, SchemaInfo(SchemaType.LOCAL_DATE, b"")))
    assert values(found, "value") == [(date(1970, 1, 1) + timedelta(days=day),) for day in (0, 19_000, -365)]
    wall = [
        struct.pack(">qq", day, nanos)
        for day, nanos in ((0, 0), (19_000, 86_399_999_999_999), (-365, 3_600_000_001_000))
    ]
    found = decoded(messages(spark, wall), TopicSchemas(TOPIC, SchemaInfo(SchemaType.LOCAL_DATE_TIME, b"")))
    assert values(found, "value") == [(plain_reader(SchemaType.LOCAL_DATE_TIME)(each),) for each in wall]
    noon = struct.pack(">q", 43_200 * 10**9)
    found = decoded(messages(spark, [noon]), TopicSchemas(TOPIC, SchemaInfo(SchemaType.LOCAL_TIME, b"")))
    assert values(found, "value") == [(43_200 * 10**9,)]


@pytest.mark.parametrize(
    "kind",
    [
        SchemaType.TIMESTAMP,
        SchemaType.INSTANT,
        SchemaType.LOCAL_DATE,
        SchemaType.LOCAL_TIME,
        SchemaType.LOCAL_DATE_TIME,
    ],
    ids=lambda kind: kind.name,
)
def test_a_time_that_spark_cannot_say_is_an_error_that_names_the_message(spark: SparkSession, kind: SchemaType) -> None:
    sizes = {SchemaType.INSTANT: 12, SchemaType.LOCAL_DATE_TIME: 16}
    payload = b"\x7f" + b"\xff" * (sizes.get(kind, 8) - 1)
    with pytest.raises(PySparkException, match=f"offset 100 cannot be decoded.*no {kind.name} value"):
        decoded(messages(spark, [payload]), TopicSchemas(TOPIC, SchemaInfo(kind, b""))).collect()


def test_a_plain_value_of_a_wrong_length_is_an_error(spark: SparkSession) -> None:
    found = decoded(messages(spark, [b"\x01\x02"]), TopicSchemas(TOPIC, SchemaInfo(SchemaType.INT32, b"")))
    with pytest.raises(PySparkException, match=r"orders, partition 3, offset 100 cannot be decoded.*no INT32 value"):
        found.collect()


# Evolution ------------------------------------------------------------------------------------------------------------


def avro(*fields: dict[str, Any], name: str = "Order") -> AvroSchema:
    return AvroSchema(None, {"type": "record", "name": name, "fields": list(fields)})


ITEM = {"name": "item", "type": "string"}
AMOUNT = {"name": "amount", "type": "int"}
WIDE_AMOUNT = {"name": "amount", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
PLACE = {"name": "place", "type": "string", "default": "here"}


def three_versions() -> tuple[list[AvroSchema], TopicSchemas]:
    written = [avro(ITEM, AMOUNT), avro(ITEM, AMOUNT, NOTE, name="OrderOfOld"), avro(ITEM, WIDE_AMOUNT, PLACE)]
    writers = dict(zip((V0, V1, V2), (schema.schema_info() for schema in written), strict=True))
    return written, TopicSchemas(TOPIC, writers[V2], V2, writers)


def test_each_message_is_read_by_the_version_that_it_names(spark: SparkSession) -> None:
    written, schemas = three_versions()
    assert needs_version(schemas)
    data: list[dict[str, Any]] = [{"item": "a", "amount": 1}, {"item": "b", "amount": 2, "note": "n"}]
    data += [{"item": "c", "amount": 2**40, "place": "there"}, {"item": "d", "amount": 4, "place": "x"}]
    by = [0, 1, 2, 2]
    payloads = [written[version].encode(one) for version, one in zip(by, data, strict=True)]
    versions = [*by[:3], None]
    found = decoded(messages(spark, payloads, versions), schemas)
    reader = written[2]
    expected = [
        reader.decode_as_written(payload or b"", schemas.writers[SchemaVersion(version)])
        for payload, version in zip(payloads, by, strict=True)
    ]
    names = ["item", "amount", "place"]
    assert [dict(zip(names, row, strict=True)) for row in values(found, *names)] == expected


def test_an_older_version_may_be_the_reader(spark: SparkSession) -> None:
    written, schemas = three_versions()
    payload = written[1].encode({"item": "b", "amount": 2, "note": "n"})
    of_old = TopicSchemas(TOPIC, schemas.writers[V0], V0, schemas.writers)
    found = decoded(messages(spark, [payload], [1]), of_old)
    assert values(found, "item", "amount") == [("b", 2)]


def test_one_version_needs_no_headers(spark: SparkSession) -> None:
    schema = avro(ITEM, AMOUNT).schema_info()
    assert not needs_version(TopicSchemas(TOPIC, schema, V0, {V0: schema, V1: schema}))
    assert not needs_version(TopicSchemas(TOPIC, JsonSchema(Address).schema_info(), V1))


def test_a_version_that_nobody_knows_is_an_error_that_names_it(spark: SparkSession) -> None:
    written, schemas = three_versions()
    payload = written[0].encode({"item": "a", "amount": 1})
    found = decoded(messages(spark, [payload], [9]), schemas)
    with pytest.raises(PySparkException, match=r"partition 3, offset 100 cannot be decoded.*of schema version 9"):
        found.collect()


@pytest.mark.parametrize("schema", first_of(1, [AvroSchema(Address), JsonSchema(Address)]), ids=["avro", "json"])
def test_what_cannot_be_read_is_an_error_or_nulls(spark: SparkSession, schema: Schema) -> None:
    good = schema.encode(Address(street="Ring", number=7)) or b""
    for bad in (b"", b"\xff\xff\xff", good[: len(good) // 2]):
        frame = messages(spark, [good, bad])
        with pytest.raises(PySparkException, match=r"partition 3, offset 101 cannot be decoded.*schema version 0"):
            decoded(frame, one_schema(schema)).collect()
        found = decoded(frame, one_schema(schema), mode=PERMISSIVE)
        assert values(found, "street", "number") == [("Ring", 7), (None, None)]


def test_a_record_of_nulls_is_no_failure(spark: SparkSession) -> None:
    schema = avro(NOTE)
    found = decoded(messages(spark, [schema.encode({"note": None})]), one_schema(schema))
    assert values(found, "note") == [(None,)]


# Key and value --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType), ids=lambda encoding: encoding.name)
def test_key_values(spark: SparkSession, encoding: KeyValueEncodingType) -> None:
    schema = KeyValueSchema(StringSchema(), AvroSchema(Address), encoding)
    pairs = [KeyValue(f"k{n}", Address(street="s" * n, number=n)) for n in range(5)]
    pairs += [KeyValue(None, Address(street="x", number=1)), KeyValue("k", None), KeyValue("", Address(number=3))]
    payloads = [schema.encode(pair) for pair in pairs]
    separated = encoding is KeyValueEncodingType.SEPARATED
    keys = [schema.encode_key(pair) for pair in pairs] if separated else None
    found = decoded(messages(spark, payloads, keys=keys), one_schema(schema))
    expected = [(pair.key, as_python(pair.value)) for pair in pairs]
    assert values(found, "key", "value") == expected


@pytest.mark.long
def test_key_values_that_are_cut_short(spark: SparkSession) -> None:
    schema = KeyValueSchema(StringSchema(), StringSchema())
    whole = schema.encode(KeyValue("key", "value")) or b""
    for cut in (b"", whole[:3], whole[:6], whole[:9], whole[:-1], b"\x7f\xff\xff\xff" + whole[4:], b"\xff\xff\xff\xfe"):
        with pytest.raises(PySparkException, match="no KEY_VALUE value"):
            decoded(messages(spark, [cut]), one_schema(schema)).collect()


def test_key_values_change_their_encoding_and_schemas(spark: SparkSession) -> None:
    old = KeyValueSchema(StringSchema(), avro(ITEM), KeyValueEncodingType.INLINE)
    new = KeyValueSchema(StringSchema(), avro(ITEM, PLACE), KeyValueEncodingType.SEPARATED)
    schemas = TopicSchemas(TOPIC, new.schema_info(), V1, {V0: old.schema_info(), V1: new.schema_info()})
    pairs = [KeyValue("k0", {"item": "a"}), KeyValue("k1", {"item": "b", "place": "there"})]
    found = decoded(
        messages(
            spark,
            [old.encode(pairs[0]), new.encode(pairs[1])],
            [0, 1],
            [b"not this", new.encode_key(pairs[1])],
        ),
        schemas,
    )
    assert values(found, "key", "value") == [
        ("k0", {"item": "a", "place": "here"}), ("k1", {"item": "b", "place": "there"}),
    ]  # fmt: skip


# Refusals, and where it runs ------------------------------------------------------------------------------------------


def test_no_python_runs_for_any_row(spark: SparkSession) -> None:
    written, schemas = three_versions()
    payload = written[0].encode({"item": "a", "amount": 1})
    raw = messages(spark, [payload], [0])
    for found in (
        decoded(raw, schemas),
        decoded(raw, one_schema(JsonSchema(Everything))),
        decoded(raw, one_schema(KeyValueSchema(StringSchema(), AvroSchema(Address)))),
        decoded(raw, TopicSchemas(TOPIC, SchemaInfo(SchemaType.DOUBLE, b""))),
    ):
        plan = found._jdf.queryExecution().executedPlan().toString()
        assert "Python" not in plan
        assert "Arrow" not in plan
        assert "MapPartitions" not in plan


def test_a_payload_is_parsed_once(spark: SparkSession) -> None:
    found = decoded(messages(spark, [b""]), one_schema(AvroSchema(Everything)))
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_avro(") == 1
    found = decoded(messages(spark, [b""]), one_schema(JsonSchema(Everything)))
    assert found._jdf.queryExecution().executedPlan().toString().count("from_json(") == 1


def test_refusals(spark: SparkSession) -> None:
    raw = messages(spark, [b""])
    with pytest.raises(InvalidReadOption, match="mode is 'DROPMALFORMED', expected FAILFAST or PERMISSIVE"):
        decoded(raw, one_schema(StringSchema()), mode="DROPMALFORMED")
    with pytest.raises(NotReadable, match=r"JSON schema of topic .*orders cannot be read"):
        decoded(raw, TopicSchemas(TOPIC, SchemaInfo(SchemaType.JSON, b"{")))
    union = {"type": "record", "name": "R", "fields": [{"name": "either", "type": ["int", "string"]}]}
    with pytest.raises(NotReadable, match="union of several types"):
        decoded(raw, TopicSchemas(TOPIC, SchemaInfo(SchemaType.JSON, json.dumps(union).encode())))
    with pytest.raises(InvalidReadOption, match=r"fields with the names of other columns \(__offset"):
        decoded(raw, one_schema(avro({"name": "__offset", "type": "int"})))
