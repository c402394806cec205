"""Jobs in transactions: all or nothing, tasks and micro-batches that run twice, jobs that take too long."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidTxnStatus
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction, TransactionClient
from pulsar_on_kafka.spark import InvalidWriteOption, NotWritten, pulsar_batches, write_pulsar
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.writing.batch_journal import BatchJournal, MicroBatch
from pulsar_on_kafka_spark.writing.writer import JobAttempts
from tests.spark.test_writing import read
from tests.steps import Unique
from tests.waiting import until

_MINUTE_MS = 60_000


def numbers(spark: SparkSession, start: int, end: int, partitions: int = 2) -> DataFrame:
    return spark.range(start, end, 1, partitions).selectExpr("cast(id as string) as value")


def texts(client: pulsar.Client, topic: str) -> list[int]:
    return sorted(int(message.data()) for message in read(client, topic))


def soon() -> Deadline:
    return Deadline.after(60)


def test_a_job_becomes_visible_as_a_whole(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    write_pulsar(numbers(spark, 0, 500), service_url=service_url, topic=topic, schema="bytes", transaction=True)
    assert texts(client, topic) == list(range(500))
    write_pulsar(numbers(spark, 0, 0), service_url=service_url, topic=topic, schema="bytes", transaction=True)
    assert len(texts(client, topic)) == 500


def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    write_pulsar(numbers(spark, 0, 10), service_url=service_url, topic=topic, schema="bytes", transaction=True)
    bad = numbers(spark, 10, 2000, 1).withColumn(
        "value", F.when(F.col("value") == "1999", F.raise_error(F.lit("this row fails"))).otherwise(F.col("value"))
    )
    with pytest.raises((PySparkException, Py4JJavaError), match="this row fails"):
        write_pulsar(bad, service_url=service_url, topic=topic, schema="bytes", transaction=True)
    write_pulsar(numbers(spark, 2000, 2010), service_url=service_url, topic=topic, schema="bytes")
    assert texts(client, topic) == [*range(10), *range(2000, 2010)]


def test_a_job_that_takes_longer_than_its_transaction_leaves_nothing(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = unique()
    slow = numbers(spark, 0, 2000, 1).selectExpr(
        "concat(value, substring(coalesce(reflect('java.lang.Thread', 'sleep', 5L), ''), 1, 0)) as value"
    )

    def write() -> None:
        with pytest.raises((PySparkException, Py4JJavaError, NotWritten), match="timed out"):
            write_pulsar(
                slow, service_url=service_url, topic=topic, schema="bytes", transaction=True, transactionTimeout=1500
            )

    write()
    begin = TransactionClient.begin

    def begin_too_slowly(self: TransactionClient, timeout_ms: int, deadline: Deadline) -> ClientTransaction:
        txn = begin(self, timeout_ms, deadline)
        until(lambda: not txn.has_time(), "the transaction's time to be over")
        return txn

    monkeypatch.setattr(TransactionClient, "begin", begin_too_slowly)
    write()  # its time is over before the job begins
    write_pulsar(numbers(spark, 7, 8), service_url=service_url, topic=topic, schema="bytes")
    assert texts(client, topic) == [7]


@pytest.mark.long
def test_a_task_that_is_run_again_writes_nothing_twice(
    spark: SparkSession,
    client: pulsar.Client,
    service_url: str,
    unique: Unique,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The session runs a failed task again, as every cluster does."""

    def run(topic: str, transaction: bool) -> None:
        mark = str(tmp_path / topic)

        @F.udf("string", useArrow=False)  # with Arrow the rows before it would not have left their task, either
        def once(value: str) -> str:
            if value == "1500" and not Path(mark).exists():
                Path(mark).touch()
                raise RuntimeError("the first attempt fails")
            return value

        rows = numbers(spark, 0, 2000).select(once(F.col("value")).alias("value"))
        write_pulsar(rows, service_url=service_url, topic=topic, schema="bytes", transaction=transaction)

    plain, together = unique("plain"), unique("together")
    run(plain, False)
    assert len(texts(client, plain)) > 2000  # the need for all this
    run(together, True)
    assert "attempt=1 of a write was undone: 1 failed tasks" in caplog.text
    assert texts(client, together) == list(range(2000))


@pytest.mark.long
def test_a_topic_that_grows_during_the_job(
    spark: SparkSession,
    client: pulsar.Client,
    admin: AdminClient,
    service_url: str,
    unique: Unique,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows go to partitions where the transaction is on record alone; keys choose among as many as there are then."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    watched, doubt = JobAttempts.watched, JobAttempts.doubt
    open_ones: list[int] = []
    growths = [8, 6]

    @contextmanager
    def growing(self: JobAttempts) -> Iterator[None]:
        if growths:
            admin.update_partitions(topic, growths.pop())
        with watched(self):
            yield

    def looked_at(self: JobAttempts) -> str:
        open_ones.append(len(read(client, topic)))
        return doubt(self)

    monkeypatch.setattr(JobAttempts, "watched", growing)
    monkeypatch.setattr(JobAttempts, "doubt", looked_at)
    rows, to = numbers(spark, 0, 2000, 6), {"service_url": service_url, "topic": topic, "schema": "bytes"}
    with pytest.raises(NotWritten, match="the topic has 6 partitions, it had 2"):
        write_pulsar(rows, **to, transaction=True, transactionAttempts=1)
    assert open_ones == [0]
    assert read(client, topic) == []
    write_pulsar(rows, **to, transaction=True)
    assert open_ones == [0, 0, 0]
    found = read(client, topic)
    assert sorted(int(message.data()) for message in found) == list(range(2000))
    assert {message.message_id().partition() for message in found} == set(range(8))


# Micro-batches --------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_repeated_is_written_once(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic, query = unique(), unique("q")[-40:]
    write = pulsar_batches(service_url=service_url, topic=topic, schema="bytes", transaction=True, queryName=query)
    for batch in (0, 0, 1, 1, 0, 2, 2):
        write(numbers(spark, 10 * batch, 10 * batch + 10), batch)
    assert texts(client, topic) == list(range(30))
    (journal,) = read(client, f"{query}-spark-batches")
    assert journal.data() == b'{"stream": "", "batch": 2}'


def test_a_driver_that_was_taken_for_dead_cannot_commit_its_batch(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic, query = unique(), unique("q")[-40:]
    write = pulsar_batches(service_url=service_url, topic=topic, schema="bytes", transaction=True, queryName=query)
    write(numbers(spark, 0, 10), 0)
    former = BatchJournal(admin.node, TopicName.parse(topic), query, soon())
    its_transaction = admin.node.transactions.client(soon()).begin(_MINUTE_MS, soon())
    assert former.enter(its_transaction, MicroBatch("", 1), soon()) is not None  # and here it pauses
    write(numbers(spark, 10, 20), 1)
    with pytest.raises(InvalidTxnStatus):
        its_transaction.commit(soon())
    its_next = admin.node.transactions.client(soon()).begin(_MINUTE_MS, soon())
    assert former.enter(its_next, MicroBatch("", 1), soon()) is None
    its_next.abort(soon())
    assert former.written("", soon()) == 1
    assert texts(client, topic) == list(range(20))


def test_a_batch_whose_transaction_was_aborted_is_written(
    spark: SparkSession, client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic, query = unique(), unique("q")[-40:]
    journal = BatchJournal(admin.node, TopicName.parse(topic), query, soon())
    begun = admin.node.transactions.client(soon()).begin(_MINUTE_MS, soon())
    assert journal.enter(begun, MicroBatch("", 5), soon()) is not None
    begun.abort(soon())
    assert journal.written("", soon()) is None
    write = pulsar_batches(service_url=service_url, topic=topic, schema="bytes", transaction=True, queryName=query)
    write(numbers(spark, 0, 5), 5)
    assert texts(client, topic) == list(range(5))


@pytest.mark.long
def test_a_stream_that_loses_its_last_commit_writes_nothing_twice(
    spark: SparkSession, client: pulsar.Client, service_url: str, unique: Unique, tmp_path: Path
) -> None:
    topic, query = unique(), unique("q")[-40:]
    inputs, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    inputs.mkdir()

    def run() -> None:
        stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(inputs))
        write = pulsar_batches(service_url=service_url, topic=topic, schema="bytes", transaction=True, queryName=query)
        started: Any = (
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()

    for number in range(3):
        (inputs / f"{number}.txt").write_text("".join(f"{number * 10 + row}\n" for row in range(10)))
    run()
    assert texts(client, topic) == list(range(30))
    (checkpoint / "commits" / "2").unlink()  # as when the driver dies after the batch and before Spark notes it
    (checkpoint / "commits" / ".2.crc").unlink(missing_ok=True)
    (inputs / "3.txt").write_text("30\n31\n")
    run()
    assert texts(client, topic) == list(range(32))
    # Another checkpoint is another stream: its numbers start over, and its batches count.
    shutil.rmtree(checkpoint)
    run()
    assert len(texts(client, topic)) == 64


def test_transactions_and_speculation_do_not_go_together(
    spark: SparkSession, service_url: str, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf: Any = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(InvalidWriteOption, match=r"does not go with spark\.speculation"):
        write_pulsar(numbers(spark, 0, 1), service_url=service_url, topic=unique(), transaction=True)
