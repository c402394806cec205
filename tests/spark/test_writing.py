"""DataFrames -> messages, read back by the SDK: schemas, keys, headers, and what is refused beforehand."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timezone
from functools import reduce
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as KafkaTool
from confluent_kafka.admin import NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.schema import (
    AutoConsumeSchema,
    AvroSchema,
    BytesSchema,
    Integer,
    JsonSchema,
    KeyValueEncodingType,
    KeyValueSchema,
    Long,
    Record,
    Schema,
    String,
    StringSchema,
)
from pulsar_on_kafka.spark import InvalidWriteOption, write_pulsar
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.values.value_encoding import encoded
from tests.integration.schema_support import latest_version, registered
from tests.steps import Unique


class Order(Record):
    item = String()
    amount = Long()


class Changed(Record):
    item = Integer(required=True)
    amount = String(required=True)


def read(client: pulsar.Client, topic: str, schema: Schema | None = None) -> list[pulsar.Message]:
    """All messages that a new reader gets."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema or BytesSchema())
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(30_000))
    reader.close()
    return found


def orders(spark: SparkSession, count: int) -> Any:
    return spark.range(count).select(
        F.concat(F.lit("item"), F.col("id").cast("string")).alias("item"), F.col("id").alias("amount")
    )


@pytest.mark.parametrize("make", [AvroSchema, JsonSchema], ids=["avro", "json"])
def test_records_of_a_schema(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, make: Any
) -> None:
    topic = unique()
    write_pulsar(orders(spark, 50), service_url=service_url, topic=topic, schema=make(Order))
    assert latest_version(admin, topic) == 0
    found = read(client, topic, make(Order))
    assert sorted((m.value().item, m.value().amount) for m in found) == sorted((f"item{n}", n) for n in range(50))
    assert {m.schema_version() for m in found} == {(0).to_bytes(8, "big").decode("latin-1")}
    # What the topic has is the default.
    write_pulsar(orders(spark, 3), service_url=service_url, topic=topic)
    assert len(read(client, topic, make(Order))) == 53
    assert latest_version(admin, topic) == 0


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_schema_made_of_the_columns(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, kind: str
) -> None:
    topic = unique()
    rows = spark.sql(
        "select 'a' as name, 7 as whole, cast(null as double) as real, named_struct('x', 1L, 'y', 'why') as part, "
        "array('p', 'q') as many"
    )
    write_pulsar(rows, service_url=service_url, topic=topic, schema=kind)
    (info,) = registered(admin, topic)
    assert info.type.name == kind.upper()
    definition = json.loads(info.schema)
    assert [field["name"] for field in definition["fields"]] == ["name", "whole", "real", "part", "many"]
    assert {"name": "real", "type": ["null", "double"], "default": None} in definition["fields"]
    (message,) = read(client, topic, AutoConsumeSchema())
    assert message.value() == {
        "name": "a", "whole": 7, "real": None, "part": {"x": 1, "y": "why"}, "many": ["p", "q"],
    }  # fmt: skip
    wider = spark.sql(
        "select 'b' as name, 8 as whole, nullif(1.5D, 0D) as real, named_struct('x', 2L, 'y', 'z') as part, "
        "array('p') as many, 'new' as added"
    )
    write_pulsar(
        wider.withColumn("added", F.expr("nullif(added, '')")), service_url=service_url, topic=topic, schema=kind
    )
    assert latest_version(admin, topic) == 1


PLAIN: list[tuple[SchemaType, str, Any]] = [
    (SchemaType.STRING, "'ä'", "ä"),
    (SchemaType.INT32, "-5", -5),
    (SchemaType.INT8, "cast(-128 as tinyint)", -128),
    (SchemaType.INT64, "9000000000000000000L", 9 * 10**18),
    (SchemaType.DOUBLE, "1.1D", 1.1),
    (SchemaType.FLOAT, "cast(0.25 as float)", 0.25),
    (SchemaType.BOOLEAN, "true", True),
    (
        SchemaType.TIMESTAMP,
        "timestamp_millis(1700000000123L)",
        datetime(2023, 11, 14, 22, 13, 20, 123000, timezone.utc),
    ),
    (SchemaType.INSTANT, "timestamp_micros(-1500000L)", datetime(1969, 12, 31, 23, 59, 58, 500000, timezone.utc)),
    (SchemaType.LOCAL_DATE, "date'1969-12-31'", datetime(1969, 12, 31).date()),
    (SchemaType.LOCAL_DATE_TIME, "timestamp_ntz'1969-12-31 23:00:00.000001'", datetime(1969, 12, 31, 23, 0, 0, 1)),
]


def test_plain_values(spark: SparkSession) -> None:
    """What is written of each type, read as the SDK reads it; one job for all."""
    infos = {kind: SchemaInfo(kind, b"", kind.name) for kind, _, _ in PLAIN}
    frames = []
    for kind, sql, _ in PLAIN:
        value = spark.sql(f"select {sql} as value")
        frames.append(value.select(F.lit(kind.name), encoded(value, infos[kind], frozenset()).payload))
    found = {SchemaType[name]: bytes(payload) for name, payload in reduce(DataFrame.union, frames).collect()}
    read_back = {kind: AutoConsumeSchema().decode_as_written(found[kind], infos[kind]) for kind in infos}
    assert read_back == {kind: expected for kind, _, expected in PLAIN}


@pytest.mark.parametrize(
    ("kind", "sql", "expected"),
    [one for one in PLAIN if one[0] in (SchemaType.INT64, SchemaType.LOCAL_DATE_TIME)],
    ids=lambda value: value.name if isinstance(value, SchemaType) else "",
)
def test_plain_values_on_a_topic(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
    kind: SchemaType,
    sql: str,
    expected: Any,
) -> None:
    topic = unique()
    info = SchemaInfo(kind, b"", kind.name)
    write_pulsar(spark.sql(f"select {sql} as value"), service_url=service_url, topic=topic, schema=info)
    (message,) = read(client, topic, AutoConsumeSchema())
    assert message.value() == expected


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType), ids=lambda encoding: encoding.name)
def test_key_values(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique, encoding: KeyValueEncodingType
) -> None:
    topic = unique()
    schema = KeyValueSchema(StringSchema(), AvroSchema(Order), encoding)
    rows = spark.sql("select 'k' as key, named_struct('amount', 5, 'item', 'i') as value union all select null, null")
    write_pulsar(rows, service_url=service_url, topic=topic, schema=schema)
    found = [message.value() for message in read(client, topic, schema)]
    shown = sorted((None if one is None else (one.key, one.value and one.value.amount) for one in found), key=str)
    nothing = (None, None) if encoding is KeyValueEncodingType.INLINE else None
    assert shown == sorted([("k", 5), nothing], key=str)


def test_bytes_and_text_without_a_schema(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    write_pulsar(spark.sql("select X'FF00' as value"), service_url=service_url, topic=topic)
    write_pulsar(spark.sql("select 'text' as value"), service_url=service_url, topic=topic, schema="bytes")
    assert [message.data() for message in read(client, topic)] == [b"\xff\x00", b"text"]
    assert latest_version(admin, topic) is None


def test_all_that_a_message_says(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    rows = spark.sql(
        "select 'v' as value, 'k' as k, 'o' as o, timestamp_millis(1234L) as at, "
        "map('a', '1', '__pulsar.b', '2', 'none', cast(null as string)) as props, 17L as seq"
    )
    write_pulsar(
        rows, service_url=service_url, topic=topic, schema=StringSchema(), key_column="k", orderingKeyColumn="o",
        eventTimeColumn="at", propertiesColumn="props", producerName="spark-job", sequenceIdColumn="seq",
    )  # fmt: skip
    (message,) = read(client, topic)
    assert message.data() == b"v"
    assert message.partition_key() == "k"
    assert message.ordering_key() == "o"
    assert message.event_timestamp() == 1234
    assert message.properties() == {"a": "1", "__pulsar.b": "2", "none": ""}
    assert message.producer_name() == "spark-job"


def test_an_ordering_key_alone(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    topic = unique()
    rows = spark.sql(
        "select 'v' as value, 'o' as o, '' as k, cast(null as timestamp) as at union all select 'w', '', 'k', null"
    )
    write_pulsar(
        rows,
        service_url=service_url,
        topic=topic,
        schema="bytes",
        orderingKeyColumn="o",
        keyColumn="k",
        eventTimeColumn="at",
    )
    shown = {m.data(): (m.partition_key(), m.ordering_key(), m.event_timestamp()) for m in read(client, topic)}
    assert shown == {b"v": ("", "o", 0), b"w": ("k", "", 0)}


def test_columns_of_a_read_are_taken_as_they_are_called(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    rows = spark.sql(
        "select 'v' as value, X'6B' as __key, timestamp_millis(5L) as __eventTime, "
        "map('a', 'b') as __messageProperties, "
        "'elsewhere' as __topic, current_timestamp() as __publishTime, 3 as __partition"
    )
    write_pulsar(rows, service_url=service_url, topic=topic)
    (message,) = read(client, topic)
    assert (message.partition_key(), message.event_timestamp(), message.properties()) == ("k", 5, {"a": "b"})


def test_keys_go_where_the_sdk_sends_them(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 5)
    rows = spark.range(200).selectExpr("concat('key-', id) as value")
    write_pulsar(rows, service_url=service_url, topic=topic, schema="bytes", keyColumn="value")
    assert admin.topic_stats(topic).hashing_schemes == ("Crc32Hash",)
    producer = client.create_producer(topic)
    for number in range(200):
        producer.send(b"sdk", partition_key=f"key-{number}")
    by_key: dict[str, list[int]] = defaultdict(list)
    for message in read(client, topic):
        by_key[message.partition_key()].append(message.message_id().partition())
    assert len(by_key) == 200
    assert all(len(places) == 2 and places[0] == places[1] for places in by_key.values())
    without = spark.range(100).selectExpr("'spread' as value")
    write_pulsar(without, service_url=service_url, topic=f"{topic}-partition-3", schema="bytes")
    places = [m.message_id().partition() for m in read(client, topic) if m.data() == b"spread"]
    assert places == [3] * 100


def test_rows_go_to_partitions_that_the_topic_has(
    spark: SparkSession, client: pulsar.Client, bootstrap: str, service_url: str, unique: Unique
) -> None:
    """Also where a tool of Kafka's gave more to the Kafka topic of one that is not partitioned."""
    topic = unique()
    client.create_producer(topic).close()
    tool = KafkaTool({"bootstrap.servers": bootstrap})
    (grown,) = tool.create_partitions([NewPartitions(kafka_topic(TopicName.parse(topic)), 4)]).values()
    grown.result(30)
    rows = spark.range(2000).selectExpr("rpad(cast(id as string), 100, ' ') as value")
    write_pulsar(rows, service_url=service_url, topic=topic, schema="bytes")
    assert sorted(int(message.data()) for message in read(client, topic)) == list(range(2000))


@pytest.mark.long
def test_deliver_at(spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique) -> None:
    def now_ms() -> int:
        return int(datetime.now(timezone.utc).timestamp() * 1000)

    for delay_ms in (1_500, 6_000, 24_000):
        topic = unique()
        consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
        at_ms = now_ms() + delay_ms
        rows = spark.sql(f"select 'later' as value, {at_ms}L as at union all select 'now', null")
        write_pulsar(rows, service_url=service_url, topic=topic, schema="bytes", deliverAtColumn="at")
        if now_ms() < at_ms:
            break  # else writing took so long that both may come in any order
    assert consumer.receive(60_000).data() == b"now"
    assert consumer.receive(60_000).data() == b"later"
    assert now_ms() >= at_ms


def test_an_incompatible_schema_writes_nothing(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    write_pulsar(orders(spark, 1), service_url=service_url, topic=topic, schema=AvroSchema(Order))
    rows = spark.sql("select 1 as item, 'x' as amount")
    with pytest.raises(pulsar.IncompatibleSchema):
        write_pulsar(rows, service_url=service_url, topic=topic, schema=AvroSchema(Changed))
    assert len(read(client, topic)) == 1


def test_no_python_touches_a_row(spark: SparkSession, service_url: str, unique: Unique) -> None:
    """What is given to Spark's sink is an expression from one end to the other."""
    from pulsar_on_kafka_spark.options.write_options import parse_write_options
    from pulsar_on_kafka_spark.writing.record_columns import MessageColumns, sink_columns

    rows = orders(spark, 1)
    options = parse_write_options({"service.url": service_url, "topic": "t", "keyColumn": "item"})
    columns = MessageColumns(rows, options)
    payload = encoded(rows, AvroSchema(Order).schema_info(), columns.may_be_of_the_value())
    found = sink_columns(rows, columns, payload, 3, None, (), ("p", 0), None)
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan
    assert found.columns == ["key", "value", "partition", "headers"]


def test_columns_that_do_not_fit_are_refused(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    to: dict[str, Any] = {"service_url": service_url, "topic": topic}
    refusals: dict[str, tuple[DataFrame, dict[str, Any]]] = {
        "no fields for the columns strange": (
            spark.sql("select 'i' as item, 1L as strange"),
            {"schema": AvroSchema(Order)},
        ),
        "column amount is string, the schema has bigint": (
            spark.sql("select 'i' as item, '1' as amount"),
            {"schema": AvroSchema(Order)},
        ),
        "no column amount, for which the schema has no default": (
            spark.sql("select 1 as item"),
            {"schema": AvroSchema(Changed)},
        ),
        "there is no column nowhere": (spark.sql("select 'v' as value"), {"keyColumn": "nowhere"}),
        "column value is int, expected string or binary": (spark.sql("select 1 as value"), {"keyColumn": "value"}),
        "in value, and there is no value": (spark.sql("select 1 as v"), {"schema": "bytes"}),
        "expected text": (spark.sql("select 1 as value"), {"schema": StringSchema()}),
    }
    for said, (rows, options) in refusals.items():
        with pytest.raises(InvalidWriteOption, match=said):
            write_pulsar(rows, **to, **options)
    assert read(client, topic) == []


def test_a_compacted_kafka_topic_takes_rows_with_keys_alone(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    name, kafka = unique(), KafkaTool({"bootstrap.servers": bootstrap})
    kafka.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})])[name].result(30)
    admin.bind_topic(name, name)
    to: dict[str, Any] = {"topic": name, "serviceUrl": f"kafka://{bootstrap}"}
    rows, policy = spark.sql("select 'v' as value, 'k' as k"), r"cleanup\.policy=compact"
    with pytest.raises(pulsar.NotAllowedError, match=f"{policy}.*partition key"):
        write_pulsar(spark.sql("select 'v' as value"), **to)
    with pytest.raises(pulsar.NotAllowedError, match=f"{policy}.*partition key"):
        write_pulsar(rows, **to, orderingKeyColumn="k")
    with pytest.raises(pulsar.NotAllowedError, match=f"{policy}.*aborted transaction"):
        write_pulsar(rows, **to, keyColumn="k", transaction=True)
    with pytest.raises(Exception, match=f"{policy}.*partition key"):
        write_pulsar(spark.sql("select 'v' as value, cast(null as string) as k"), **to, keyColumn="k")
    assert read(client, name) == []
    write_pulsar(rows, **to, keyColumn="k")
    assert [(message.partition_key(), message.data()) for message in read(client, name)] == [("k", b"v")]
