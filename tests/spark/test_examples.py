"""The demo's step that Spark counts; the examples of a notebook and of streams, in the session of the other tests."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from tests.programs import run_example
from tests.steps import SHARED, Unique, receive

EXAMPLES = Path(__file__).parents[2] / "examples"
SQLITE = JarSet("sqlite-jdbc-3.53.4.0", "SQLite's JDBC driver", 15, alone=("org.xerial:sqlite-jdbc:3.53.4.0",))
SOME = 100
"""Of a batch."""


def test_what_the_demo_leaves_is_counted(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from flights.spark_view import SparkView, remaining

    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    producer = client.create_producer(topic)
    for number in range(30):
        carrier = "UA" if number % 3 else "AA"
        producer.send(json.dumps({"id": number, "carrier": carrier}).encode(), partition_key=carrier)
    for message in receive(consumer, 30):
        if json.loads(message.data())["id"] not in (3, 4, 5):
            consumer.acknowledge(message)
    consumer.close()
    found = remaining(spark, service_url, topic, "s")
    assert found == SparkView([(3, "AA"), (4, "UA"), (5, "UA")], {"AA": 1, "UA": 2})


def _example(name: str) -> Any:
    """The example as a module of its own."""
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / "spark" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _topic(client: pulsar.Client, admin: AdminClient, topic: str, subscription: str) -> None:
    """300 messages, of which another consumer has dealt with the first ten."""
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, subscription, from_earliest=True)
    producer = client.create_producer(topic)
    for number in range(300):
        producer.send(json.dumps({"cents": number}).encode(), partition_key=f"customer {number % 3}")
    consumer = client.subscribe(topic, subscription, consumer_type=SHARED)
    for message in receive(consumer, 300):
        if json.loads(message.data())["cents"] < 10:
            consumer.acknowledge(message)
    consumer.close()


@pytest.mark.long
def test_a_notebook_looks_at_what_is_left_and_writes_some_off(
    spark: SparkSession, service_url: str, unique: Unique, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["notebook.py", service_url, unique()])
    _example("notebook")
    said = capsys.readouterr().out
    assert "|customer 2|    30|136500|" in said
    assert said.endswith("6 orders are written off, 44 are left\n")


@pytest.mark.long
def test_parquet_is_loaded_once_in_spite_of_a_batch_that_runs_again(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, lake = unique(), tmp_path / "lake"
    _topic(client, admin, topic, "lake")
    example = _example("parquet_once")
    example.commit = _dies  # after a batch's files are written
    with pytest.raises(Exception, match="killed"):
        example.load(spark, service_url, topic, lake, most=SOME)
    assert list((lake / "data").glob("*/*.parquet"))
    example = _example("parquet_once")
    example.load(spark, service_url, topic, lake, most=SOME)
    found = example.table(spark, lake).selectExpr("int(get_json_object(string(value), '$.cents')) as cents").collect()
    assert sorted(row["cents"] for row in found) == list(range(10, 300))
    assert admin.subscription_stats(topic, "lake").backlog == 0


@pytest.mark.soak
def test_a_database_is_loaded_once_in_spite_of_a_batch_that_runs_again(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, database = unique(), tmp_path / "orders.db"
    _topic(client, admin, topic, "database")
    (driver,) = (cached(SQLITE) / "libs").iterdir()
    spark.sql(f"add jar '{driver}'")
    example = _example("jdbc")
    take_over = example.take_over

    def dies(database: Path) -> None:
        take_over(database)
        _dies()

    example.take_over = dies
    with pytest.raises(Exception, match="killed"):
        example.load(spark, service_url, topic, database, most=SOME)
    _example("jdbc").load(spark, service_url, topic, database, most=SOME)
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute("select count(*), sum(cents), count(distinct customer) from orders").fetchone()
    assert found == (290, sum(range(10, 300)), 3)
    assert admin.subscription_stats(topic, "database").backlog == 0


@pytest.mark.long
def test_what_a_stream_refuses_is_loaded_when_it_can_be(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, lake = unique(), tmp_path / "lake"
    _topic(client, admin, topic, "loader")
    load = _example("refusals").load
    load(spark, service_url, topic, lake, ["customer 0", "customer 1"])

    def loaded() -> list[int]:
        cents = "int(get_json_object(string(value), '$.cents')) as cents"
        return sorted(row["cents"] for row in spark.read.parquet(str(lake)).selectExpr(cents).collect())

    assert loaded() == [number for number in range(10, 300) if number % 3 != 2]
    assert admin.subscription_stats(topic, "loader").backlog == 97
    load(spark, service_url, topic, lake, ["customer 0", "customer 1", "customer 2"])
    assert loaded() == list(range(10, 300))
    assert admin.subscription_stats(topic, "loader").backlog == 0


def _dies(*_: object) -> None:
    raise RuntimeError("killed")


@pytest.mark.soak
@pytest.mark.spark
def test_delays_are_summed_up_once_in_spite_of_a_kill(bootstrap: str, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    picture = tmp_path / "delays.png"
    said = run_example(
        "spark_delays.py", "--flights", "20000", "--png", str(picture), timeout_s=500, bootstrap=bootstrap
    )
    assert "killed with -9 in batch 2" in said
    assert "Exactly once" in said
    assert picture.stat().st_size > 10_000
