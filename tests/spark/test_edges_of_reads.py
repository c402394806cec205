"""Reads meet edges: huge holes, many aborts, schemas of batch entries, TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker, EmbeddedBrokerError, SecureListeners
from pulsar_on_kafka.schema import AvroSchema, Integer, Record, String
from pulsar_on_kafka.spark import acknowledge, read_pulsar
from pulsar_on_kafka_spark.planning.offset_ranges import MAX_RANGES
from pulsar_on_kafka_spark.reading import message_frame as frame
from tests.certificates import Authority
from tests.integration.secure_support import PASSWORDS, SecureCluster
from tests.spark.streams import produce
from tests.spark.test_subscriptions import plan_of
from tests.steps import Missing, Unique

BLOCK = 65_536


class Order(Record):
    item = String()
    amount = Integer()


@pytest.mark.long
def test_large_holes_are_not_fetched(
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, upto = unique(), 5 * BLOCK + 100
    admin.create_topic(topic)
    admin.create_subscription(topic, "s", from_earliest=True)
    produce(client, topic, range(upto))
    options = {"service_url": service_url, "topic": topic, "subscription": "s"}
    everything = read_pulsar(spark, columns="__partition,__offset", **options)
    holes = f"__offset between 10 and {2 * BLOCK + 5} or __offset between {3 * BLOCK - 1} and {4 * BLOCK}"
    acknowledge(everything.where(holes), **options)
    monkeypatch.setattr(frame, "_MAY_BE_WORTH", BLOCK)
    found = read_pulsar(spark, includeHeaders=False, **options).selectExpr("cast(cast(value as string) as int) value")
    assert 1 < plan_of(found).count("kafka") <= MAX_RANGES
    left = [*range(10), *range(2 * BLOCK + 6, 3 * BLOCK - 1), *range(4 * BLOCK + 1, upto)]
    count, total = found.selectExpr("count(*)", "sum(value)").collect()[0]
    assert (count, total) == (len(left), sum(left))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_twenty_thousand_aborts(spark: SparkSession, service_url: str, unique: Unique) -> None:
    topic = unique()
    client = pulsar.Client(service_url, enable_transaction=True)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(20_000):
        txn = client.new_transaction(600_000)
        producer.send_async(b"aborted", None, txn=txn)
        txn.abort()
        if number % 100 == 0:
            producer.send(str(number).encode())
    found = read_pulsar(spark, service_url=service_url, topic=topic)
    assert "headers" in plan_of(found)
    assert [int(bytes(row["value"])) for row in found.collect()] == list(range(0, 20_000, 100))
    client.close()


def test_values_of_batch_entries_are_decoded(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(
        topic, schema=AvroSchema(Order), batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    for number in range(5):
        producer.send_async(Order(item=f"item {number}", amount=number), None, partition_key=f"k{number % 2}")
    producer.flush()
    found = read_pulsar(spark, service_url=service_url, topic=topic)
    assert found.columns[:2] == ["item", "amount"]
    rows = [(row["item"], row["amount"], bytes(row["__key"])) for row in found.orderBy("amount").collect()]
    assert rows == [(f"item {number}", number, f"k{number % 2}".encode()) for number in range(5)]


@pytest.mark.long
def test_executors_read_over_tls_with_a_login(spark: SparkSession, missing: Missing, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    listeners = SecureListeners(authority.issue("broker", address="127.0.0.1").both, authority.file, PASSWORDS)
    try:
        broker = EmbeddedBroker(BrokerOptions(heap_mb=512, security=listeners))
        broker.start()
    except EmbeddedBrokerError as error:
        missing("kafka", f"no broker: {error}")
    try:
        client = pulsar.Client(f"kafka://{broker.bootstrap}")
        client.create_producer("orders").send(b"secret")
        client.close()
        everything = [(operation, "topic", "*") for operation in ("Read", "Write", "Create")]
        SecureCluster(broker, authority).grant("alice", [("Read", "group", "*"), *everything])
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        login = f'{module} required username="alice" password="{PASSWORDS["alice"]}";'
        found = read_pulsar(
            spark,
            topic="orders",
            **{
                "service.url": f"kafka+ssl://{broker.bootstrap_of('SASL')}",
                "driver.security.protocol": "SASL_SSL",
                "driver.sasl.mechanism": "PLAIN",
                "driver.sasl.username": "alice",
                "driver.sasl.password": PASSWORDS["alice"],
                "driver.ssl.ca.location": str(authority.file),
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": login,
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": str(authority.file),
            },
        )
        assert [bytes(row["value"]) for row in found.collect()] == [b"secret"]
    finally:
        broker.stop()
