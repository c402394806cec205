"""Examples that load tables exactly once by the data source, also with kill -9 of the driver."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded.jar_cache import JarSet, cached
from pulsar_on_kafka.schema import Integer, JsonSchema, Record
from tests.spark.streams import produce
from tests.spark.table_program import spark_example
from tests.steps import Unique
from tests.waiting import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
SOME = 40
"""Entries of a batch."""
DELTA = JarSet(
    "delta-4.2.0", "Delta's sink", 9, alone=("io.delta:delta-spark_2.13:4.2.0", "io.delta:delta-storage:4.2.0")
)


class Order(Record):
    order = Integer(required=True)
    at = Integer(required=True)


class Lake:
    """Topics `orders` and `payments` of two partitions, and one example's table and checkpoint."""

    def __init__(self, admin: AdminClient, url: str, name: str, directory: Path) -> None:
        self.client = pulsar.Client(url)
        self.admin = admin
        self.url = url
        self.topics = [f"{name}-orders", f"{name}-payments"]
        self.directory = directory
        self.sent = 0
        for topic in self.topics:
            admin.create_partitioned_topic(topic, 2)
            admin.create_subscription(topic, "lake", from_earliest=True)

    def orders(self, count: int) -> None:
        """Orders, and payments of the even ones."""
        first, self.sent = self.sent, self.sent + count
        for topic, step in zip(self.topics, (1, 2), strict=True):
            producer = self.client.create_producer(topic, schema=JsonSchema(Order), block_if_queue_full=True)
            for number in range(first + first % step, self.sent, step):
                producer.send_async(Order(order=number, at=1_767_225_600 + number), None, partition_key=str(number))
            producer.flush()
            producer.close()

    def backlog(self) -> int:
        return sum(self.admin.subscription_stats(topic, "lake").backlog for topic in self.topics)

    def arguments(self, example: str) -> list[str]:
        topics = self.topics if example in ("join_once", "state_once") else self.topics[:1]
        return [self.url, *topics, str(self.directory)]

    def run(self, spark: SparkSession, example: str, most: int = SOME) -> Any:
        *arguments, lake = self.arguments(example)
        return spark_example(example).load(spark, *arguments, Path(lake), most=most)

    def rows(self, spark: SparkSession, column: str) -> Counter[int]:
        """A table that nothing was written to is empty."""
        if not any(self.directory.glob("table/**/*.parquet")):
            return Counter()
        table = spark.read.parquet(str(self.directory / "table"))
        return Counter(int(row[0]) for row in table.selectExpr(column).collect())

    def program(self, example: str, jars: list[str]) -> subprocess.Popen[bytes]:
        given = {"example": example, "arguments": self.arguments(example), "jars": jars, "most": SOME}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.table_program", json.dumps(given)], start_new_session=True
        )

    def kill_within(self, drawn: random.Random, example: str, batches: int, jars: list[str]) -> bool:
        """Kills the driver after so many further batches began, at any moment; False: it had ended before."""
        offsets = self.directory / "checkpoint" / "offsets"
        before = len(list(offsets.glob("[0-9]*")))
        with self.program(example, jars) as program:
            until(
                lambda: program.poll() is not None or len(list(offsets.glob("[0-9]*"))) >= before + batches,
                "batches to begin",
                within_s=300,
            )
            threading.Event().wait(drawn.random() * 2)  # anywhere within the batch
            alive = program.poll() is None
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
        return alive


@pytest.fixture
def lake(admin: AdminClient, service_url: str, unique: Unique, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(admin, service_url, unique(), tmp_path / "lake")
    yield made
    made.client.close()


def once(numbers: range) -> Counter[int]:
    return Counter(numbers)


ORDER = "`order`"
COLUMNS = {"table_once": ORDER, "join_once": "order_id", "state_once": "int(key)", "dead_letters": ORDER}


def expected(lake: Lake, example: str) -> Counter[int]:
    return once(range(0, lake.sent, 2 if example in ("join_once", "state_once") else 1))


@pytest.mark.soak
@pytest.mark.parametrize("example", ["join_once", "state_once"])
def test_two_topics_meet_once(spark: SparkSession, lake: Lake, example: str) -> None:
    lake.orders(60)
    lake.run(spark, example)
    lake.orders(11)
    lake.run(spark, example)
    assert lake.rows(spark, COLUMNS[example]) == expected(lake, example)
    assert lake.backlog() == 0


@pytest.mark.soak
def test_what_does_not_decode_becomes_letters(spark: SparkSession, lake: Lake) -> None:
    lake.orders(30)
    produce(lake.client, lake.topics[0], range(30, 37))  # a number is no order
    assert lake.run(spark, "dead_letters") == 7
    assert lake.rows(spark, ORDER) == once(range(30))
    assert lake.admin.subscription_stats(lake.topics[0], "lake").backlog == 0
    (letters,) = lake.admin.dead_letter_topics(topic=lake.topics[0])
    assert letters.left == 7


def test_partitions_are_added_and_the_subscription_is_sought(spark: SparkSession, lake: Lake) -> None:
    lake.orders(50)
    lake.run(spark, "table_once")
    lake.admin.update_partitions(lake.topics[0], 4)
    lake.orders(50)
    lake.run(spark, "table_once")
    assert lake.rows(spark, ORDER) == once(range(100))
    lake.admin.reset_cursor(lake.topics[0], "lake", message_id=pulsar.MessageId.earliest)
    lake.run(spark, "table_once")
    assert lake.rows(spark, ORDER) == once(range(100)) + once(range(100))  # all of it again, each once
    assert lake.admin.subscription_stats(lake.topics[0], "lake").backlog == 0


@pytest.mark.kills
def test_a_table_is_loaded_once_in_spite_of_a_kill(spark: SparkSession, lake: Lake) -> None:
    lake.orders(200)
    assert lake.kill_within(random.Random(7), "table_once", 2, [])
    table = lake.rows(spark, ORDER)
    assert lake.admin.subscription_stats(lake.topics[0], "lake").backlog >= 200 - len(table)
    lake.run(spark, "table_once")
    assert lake.rows(spark, ORDER) == once(range(200))
    assert lake.admin.subscription_stats(lake.topics[0], "lake").backlog == 0


@pytest.mark.soak
@pytest.mark.parametrize("example", [*COLUMNS, "delta"])
def test_tables_are_loaded_once_in_spite_of_kills_at_random(spark: SparkSession, lake: Lake, example: str) -> None:
    """A fifth of POK_CHAOS_SECONDS for each."""
    seconds = float(os.environ.get("POK_CHAOS_SECONDS", "300")) / 5
    seed = int(os.environ.get("POK_CHAOS_SEED", random.randrange(10**6)))
    drawn, deadline = random.Random(seed), Deadline.after(seconds)
    jars = [str(jar) for jar in (cached(DELTA) / "libs").iterdir()] if example == "delta" else []
    name = "table_once" if example == "delta" else example
    killed = bad = 0
    while not deadline.passed():
        lake.orders(drawn.randint(100, 300))
        if name == "dead_letters":
            produce(lake.client, lake.topics[0], range(5))
            bad += 5
        if drawn.random() < 0.3:
            lake.admin.update_partitions(lake.topics[0], lake.admin.topic_stats(lake.topics[0]).partitions + 1)
        killed += lake.kill_within(drawn, name, drawn.randint(1, 4), jars)
        if example == "table_once":
            lacking = lake.sent - len(lake.rows(spark, ORDER))
            assert lake.admin.subscription_stats(lake.topics[0], "lake").backlog >= lacking
    if jars:
        with lake.program(name, jars) as program:
            assert program.wait(300) == 0
        files = delta_files(lake.directory / "table")
        frame = spark.read.parquet(*files).selectExpr(ORDER)
        assert Counter(int(row[0]) for row in frame.collect()) == expected(lake, name)
    else:
        lake.run(spark, name)
        assert lake.rows(spark, COLUMNS[name]) == expected(lake, name)
    used = lake.topics if name in ("join_once", "state_once") else lake.topics[:1]
    assert [lake.admin.subscription_stats(topic, "lake").backlog for topic in used] == [0] * len(used)
    letters = lake.admin.dead_letter_topics(topic=lake.topics[0])
    assert sum(each.left for each in letters) >= bad
    print(f"{example}: seed {seed}, {killed} drivers killed, {lake.sent} orders, {bad} bad, {letters}")


def delta_files(table: Path) -> list[str]:
    """The files that the table's log names, without Delta's jars."""
    actions = [
        json.loads(line)
        for commit in sorted((table / "_delta_log").glob("*.json"))
        for line in commit.read_text(encoding="utf-8").splitlines()
    ]
    return [str(table / each["add"]["path"]) for each in actions if "add" in each]
