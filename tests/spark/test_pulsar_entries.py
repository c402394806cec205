"""What the official clients batched and compressed: Spark's rows are what the SDK's reader and consumers get."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam
import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.spark import acknowledge, read_pulsar
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import key_text
from pulsar_on_kafka_mapping.records.record_headers import BATCH, COMPRESSION
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.reading.raw_records import RAW, in_columns
from pulsar_on_kafka_spark.reading.sealed_messages import SEALED
from tests.foreign_records import odd_batch
from tests.pulsar_entries import Case, cases, private_key
from tests.pulsar_entries.stored import differences, records_of, write
from tests.spark.streams import Stream, receive_all
from tests.spark.test_subscriptions import EVERYTHING as COLUMNS
from tests.spark.test_subscriptions import plan_of, rows_of, shown
from tests.steps import EARLIEST, PATIENCE_MS, SHARED, Unique, receive
from tests.waiting import until

CASES = cases()
MIB = 1024 * 1024
EVERYTHING = Case(
    "everything",
    [entry for each in CASES for entry in each.entries],
    [told for each in CASES for told in each.messages],
)


def named(*names: str) -> Case:
    found = [next(each for each in CASES if each.name == name) for name in names]
    entries, messages = [e for each in found for e in each.entries], [m for each in found for m in each.messages]
    return Case(", ".join(names), entries, messages)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    private = tmp_path_factory.mktemp("keys") / "private.pem"
    private.write_bytes(private_key())
    return pulsar.CryptoKeyReader("/nowhere/public.pem", str(private))


Put = Callable[..., str]


@pytest.fixture
def put(admin: AdminClient, unique: Unique, bootstrap: str) -> Put:
    """A new topic with these records, which a gateway would have announced."""

    def made(
        *several: Sequence[EntryRecord], announced: bool = True, schema: SchemaInfo | None = None, topic: str = ""
    ) -> str:
        topic = topic or unique()
        admin.create_topic(topic)
        if schema is not None:
            assert admin.create_schema(topic, schema) == 0
        opened = admin.node.topics.open(TopicName.parse(topic), Deadline.after(60))
        admin.node.producers.more_than_plain(opened, Deadline.after(60), chunks=announced, raw=announced)
        for records in several:
            write(bootstrap, f"public.default.{topic}", records)
        return topic

    return made


def now_of(case: Case, txn: TxnId | None = None) -> list[EntryRecord]:
    return records_of(case, txn, now_ms=int(time.time() * 1000))


def read(client: pulsar.Client, topic: str, **options: Any) -> list[pulsar.Message]:
    """By the SDK's reader."""
    found = []
    reader = client.create_reader(topic, pulsar.MessageId.earliest, **options)
    while reader.has_message_available():
        found.append(reader.read_next(PATIENCE_MS))
    reader.close()
    return found


@pytest.mark.long
def test_rows_are_what_a_reader_gets(
    spark: SparkSession, client: pulsar.Client, service_url: str, put: Put, keys: pulsar.CryptoKeyReader
) -> None:
    """Every codec, alone, in batches and chunks, encrypted, with keys, properties and nulls."""
    topic = put(now_of(EVERYTHING))
    expected = read(client, topic, crypto_key_reader=keys)
    assert not differences(expected, EVERYTHING)
    frame = read_pulsar(
        spark, service_url=service_url, topic=topic, columns="all", schema="bytes", cryptoKeyReader=keys
    )
    assert rows_of(frame) == shown(expected)
    plan = plan_of(frame).partition("== Initial Plan ==")[0]
    assert plan.count("BatchEvalPython") == 1, "of records and of what chunks were put together to, in one pass"
    told = {
        (message.offset, message.message_id().batch_index()): (
            message.ordering_key(), message.producer_name(), message.has_null_value(), message.record_key(),
        )
        for message in expected
    }  # fmt: skip
    for row in frame.collect():
        at = row["__offset"], -1 if row["__batchIndex"] is None else row["__batchIndex"]
        ordering_key, producer, is_null, key = told.pop(at)
        assert key_text(None if row["__orderingKey"] is None else bytes(row["__orderingKey"])) == ordering_key
        assert (row["__producerName"], row["value"] is None) == (producer, is_null)
        assert (None if row["__key"] is None else bytes(row["__key"])) == (None if key is None else bytes(key))
    assert not told


@pytest.mark.soak
def test_what_nobody_announced_is_refused_unless_it_is_asked_for(
    spark: SparkSession, client: pulsar.Client, service_url: str, put: Put
) -> None:
    case = named("java: LZ4 batch", "python: ZSTD single", "java: SNAPPY chunks")
    topic = put(now_of(case), announced=False)
    options = {"service_url": service_url, "topic": topic}
    with pytest.raises(PySparkException, match=r"has format 2, this version reads 1; .* read with pulsarEntries=true"):
        read_pulsar(spark, **options).collect()
    frame = read_pulsar(spark, pulsarEntries=True, chunkedMessages=True, columns=COLUMNS, **options)
    assert rows_of(frame) == shown(read(client, topic))


@pytest.mark.soak
def test_what_is_encrypted_is_refused_or_left_out_without_its_key(
    spark: SparkSession, client: pulsar.Client, service_url: str, put: Put
) -> None:
    topic = put(now_of(named("java: LZ4 single", "python: ZSTD batch encrypted", "java: ZLib chunks encrypted")))
    options = {"service_url": service_url, "topic": topic, "columns": COLUMNS}
    with pytest.raises(PySparkException, match="is encrypted and cannot be opened: cryptoKeyReader or cryptoPrivate"):
        read_pulsar(spark, **options).collect()
    left = read(client, topic, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.DISCARD)
    assert rows_of(read_pulsar(spark, cryptoFailureAction="DISCARD", **options)) == shown(left)
    as_it_is = read(client, topic, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME)
    assert rows_of(read_pulsar(spark, cryptoFailureAction="CONSUME", **options)) == shown(as_it_is)


@pytest.mark.soak
def test_what_cannot_be_read_is_left_out_as_readers_do(
    spark: SparkSession, client: pulsar.Client, service_url: str, put: Put
) -> None:
    good = now_of(named("java: LZ4 single", "java: LZ4 batch"))
    broken = [record._replace(value=(record.value or b"")[:-3]) for record in good]
    topic = put(good[:1], broken, good[1:])
    expected = read(client, topic)
    assert 15 <= len(expected) < 30
    found = read_pulsar(spark, service_url=service_url, topic=topic, columns=COLUMNS)
    assert rows_of(found) == shown(expected)


def test_odd_messages_of_a_batch_cost_no_neighbour(
    spark: SparkSession, client: pulsar.Client, service_url: str, put: Put
) -> None:
    odd = odd_batch()
    headers = [(name.decode(), value) for name, value in odd.headers]
    topic = put([EntryRecord(odd.key, odd.value, headers, int(time.time() * 1000))])
    rows = rows_of(read_pulsar(spark, service_url=service_url, topic=topic, columns=COLUMNS))
    assert len(rows) == 4
    assert rows == shown(read(client, topic))


@pytest.mark.long
def test_a_subscription_and_its_stream_give_what_its_next_consumer_would_get(
    spark: SparkSession,
    transactional: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    bootstrap: str,
    put: Put,
    tmp_path: Path,
) -> None:
    """Single messages of batches are acknowledged, and a transaction was aborted, another one committed."""
    in_transaction = named("java: ZSTD batch in a transaction")
    topic = put()
    consumer = transactional.subscribe(topic, "s", SHARED, initial_position=EARLIEST, batch_index_ack_enabled=True)
    kafka_topic = f"public.default.{topic}"
    case = named("java: SNAPPY batch", "python: LZ4 single", "python: ZLib batch", "java: ZSTD chunks")
    write(bootstrap, kafka_topic, now_of(case))
    producer = transactional.create_producer(topic)
    for ends in ("abort", "commit"):
        txn = transactional.new_transaction()
        producer.send(ends.encode(), txn=txn)
        write(bootstrap, kafka_topic, now_of(in_transaction, TxnId(*txn.txn_id)))
        getattr(txn, ends)()
    found = receive(consumer, len(case.messages) + 1 + len(in_transaction.messages))
    for message in found[::2]:
        consumer.acknowledge(message)
    consumer.flush()
    consumer.close()
    options = {"service_url": service_url, "topic": topic, "subscription": "s", "columns": COLUMNS}
    rows = rows_of(read_pulsar(spark, **options))
    assert rows == shown(found[1::2])
    again = transactional.subscribe(topic, "s", SHARED, batch_index_ack_enabled=True)
    assert shown(receive_all(again, len(found[1::2]))) == rows
    again.close()
    named_rows = read_pulsar(spark, **options).limit(1)
    assert acknowledge(named_rows, service_url=service_url, topic=topic, subscription="s") == 1
    left = rows_of(read_pulsar(spark, **options))
    assert len(left) == len(rows) - 1
    streamed = []
    Stream(spark, service_url, topic, tmp_path, columns=COLUMNS).run(lambda df, _: streamed.append(rows_of(df)))
    assert streamed == [left]
    assert admin.subscription_stats(topic, "s").backlog == 0


@pytest.mark.parametrize(
    "name", ["java: AVRO batch", "java: KEY_VALUE SEPARATED AVRO batch", "python: JsonSchema batch"]
)
def test_values_have_the_columns_of_their_schema(spark: SparkSession, service_url: str, put: Put, name: str) -> None:
    case = next(each for each in CASES if each.name == name)
    assert case.schema is not None
    more = {name: value for name, value in case.schema.items() if name not in ("type", "definition")}
    definition = base64.b64decode(case.schema["definition"])
    topic = put(now_of(case), schema=SchemaInfo.declared(SchemaType[case.schema["type"]], definition, "Order", more))
    rows = read_pulsar(spark, service_url=service_url, topic=topic, columns="value,__batchIndex").collect()
    found = [row.asDict(recursive=True) for row in sorted(rows, key=lambda row: row["__batchIndex"])]
    for row, told in zip(found, case.messages, strict=True):
        del row["__batchIndex"]
        value = told["value"]
        assert row == (value if isinstance(value, dict) else {"key": value[0], "value": value[1]})


@pytest.mark.long
def test_an_executor_decompresses_some_mib_at_a_time(spark: SparkSession) -> None:
    """Spark hands Python a hundred rows at a time, and takes what becomes of all of them."""
    packed = bytes(cramjam.zstd.compress(bytes(8 * MIB)))
    headers = [(BATCH, b"3:1"), (COMPRESSION, b"ZSTD:%d" % (8 * MIB))]
    table = f"value binary, headers array<struct<key: string, value: binary>>, {SEALED} boolean"
    rows = spark.createDataFrame([(packed, headers, False)] * 60, table).coalesce(1)
    sizes = in_columns(rows).selectExpr("length(value) as size", RAW).groupBy("size", RAW).count()
    at_once = [0]

    def peak() -> int:
        """The most bytes that a Python of Spark's has had."""
        found = [0]
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                if "python" in each.name():
                    text = Path(f"/proc/{each.pid}/status").read_text(encoding="ascii")
                    found += [int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmHWM")]
        return max(found)

    def watched() -> bool:
        at_once[0] = max(at_once[0], peak())
        return counted.done()

    with ThreadPoolExecutor(1) as thread:
        counted = thread.submit(sizes.collect)
        until(watched, "the rows to be counted")
    assert [tuple(row) for row in counted.result()] == [(8 * MIB, "3", 60)]
    assert 64 * MIB < at_once[0] < 400 * MIB, "all together are 480 MiB, and as much again for the way to the JVM"
