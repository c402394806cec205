"""Streams on a real broker: each message once, acknowledged for good, whatever ends in between."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.spark import read_pulsar
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.base.query_errors import MAX_BYTES
from pulsar_on_kafka_spark.streaming import stream
from pulsar_on_kafka_spark.streaming.stream import BatchContext
from pulsar_on_kafka_spark.streaming.stream_planner import TopicPlanner
from tests.spark.streams import Stream, produce, rest
from tests.steps import SHARED
from tests.waiting import until


@pytest.fixture
def over(spark: SparkSession, service_url: str, topic: str, tmp_path: Path) -> Stream:
    return Stream(spark, service_url, topic, tmp_path)


def _nothing_left(admin: AdminClient, topic: str) -> bool:
    return admin.subscription_stats(topic, "s").backlog == 0


def _has_ended(query: StreamingQuery) -> bool:
    return not query.isActive


def _same(found: Callable[[], object], expected: object) -> bool:
    return found() == expected


def once(*parts: range) -> Counter[int]:
    return Counter(number for part in parts for number in part)


def test_available_now_keeps_to_the_limit_and_ends_at_the_end(
    over: Stream, client: pulsar.Client, topic: str, admin: AdminClient
) -> None:
    produce(client, topic, range(500))
    query = over.run(maxOffsetsPerTrigger=200)
    assert [len(values) for values in over.sink.batches().values()] == [200, 200, 100]
    assert over.sink.values() == once(range(500))
    assert rest(client, topic, 0) == []
    kept = {path.name for path in (Path(over.checkpoint) / "pulsar").iterdir() if not path.name.startswith(".")}
    assert kept == {"2.plan", "2.outcome"}  # of one batch
    assert json.loads((Path(over.checkpoint) / "pulsar" / "2.plan").read_text())["v"] == 1
    progress: Any = query.recentProgress
    assert sum(each["numInputRows"] for each in progress) == 500
    assert progress[-1]["sources"][0]["metrics"]["delivered"] == "500"
    produce(client, topic, range(500, 600))
    over.run()
    assert over.sink.values() == once(range(600))
    assert admin.subscription_stats(topic, "s").backlog == 0


def test_a_terminated_topic_is_read_to_its_end(
    over: Stream, spark: SparkSession, client: pulsar.Client, topic: str, service_url: str, admin: AdminClient
) -> None:
    produce(client, topic, range(20))
    admin.terminate_topic(topic)
    over.run()
    assert over.sink.values() == once(range(20))
    over.run()
    assert over.sink.values() == once(range(20))
    batch = read_pulsar(spark, service_url=service_url, topic=topic)
    assert sorted(int(bytes(row["value"])) for row in batch.select("value").collect()) == list(range(20))


def test_a_batch_waits_for_its_minimum_unless_the_end_is_fixed(
    over: Stream, client: pulsar.Client, topic: str, admin: AdminClient
) -> None:
    over.options |= {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    query = over.start()
    try:
        producer = client.create_producer(topic)
        for number in range(41):
            producer.send(str(number).encode())
        until(lambda: over.sink.values().total() > 31, "every batch that has its minimum")
    finally:
        query.stop()
    sizes = [len(values) for values in over.sink.batches().values()]
    assert all(size >= 10 for size in sizes[1:]), sizes
    produce(client, topic, range(41, 45))
    over.run()
    assert over.sink.values() == once(range(45))
    assert admin.subscription_stats(topic, "s").backlog == 0


@pytest.mark.long
def test_bytes_limit_a_batch(over: Stream, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(100):
        producer.send(str(number).zfill(1000).encode())
    over.run(maxBytesPerTrigger=25_000)
    assert over.sink.values() == once(range(100))
    assert all(20 <= len(values) <= 30 for values in over.sink.batches().values())


def test_once_takes_everything_whatever_the_limits(over: Stream, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(100))
    over.options["maxOffsetsPerTrigger"] = 10
    over.start(once=True).awaitTermination()
    assert list(over.sink.batches().values()) == [list(range(100))]


def test_a_running_stream_goes_on_with_what_comes(
    over: Stream, client: pulsar.Client, topic: str, admin: AdminClient
) -> None:
    query = over.start(processing_time="100 milliseconds")
    try:
        for start in (0, 50, 100):
            produce(client, topic, range(start, start + 50))
            expected = once(range(start + 50))
            until(partial(_same, over.sink.values, expected), "the stream to go on")
        until(partial(_nothing_left, admin, topic), "the last batch to be acknowledged")
    finally:
        query.stop()
    assert rest(client, topic, 0) == []
    assert query.exception() is None


def test_acknowledgements_of_others_stay_and_are_not_delivered(over: Stream, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(100))
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    mine = [consumer.receive(20_000) for _ in range(100)]
    for message in mine:
        if int(message.data()) % 3 == 0:
            consumer.acknowledge(message)
    over.run()  # the consumer is still there, and is asked to save
    left = Counter(number for number in range(100) if number % 3)
    assert over.sink.values() == left
    consumer.close()
    assert rest(client, topic, 0) == []


def test_a_live_consumer_goes_on_beside_a_stream(over: Stream, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=5)
    produce(client, topic, range(200))
    first = consumer.receive(20_000)
    over.run()
    assert consumer.is_connected()
    consumer.negative_acknowledge(first)
    produce(client, topic, range(200, 210))
    got = {int(consumer.receive(20_000).data()) for _ in range(10)}
    while not set(range(200, 210)) <= got:
        got.add(int(consumer.receive(20_000).data()))
    consumer.close()
    assert over.sink.values() == once(range(200))
    assert rest(client, topic, 10) == list(range(200, 210))


@pytest.mark.long
def test_what_fn_refuses_comes_again_with_the_next_start(over: Stream, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(60))

    def refusing(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        context.negative_acknowledge(df.where("cast(cast(value as string) as int) % 10 = 0"))
        ids = [bytes(row["__messageId"]) for row in df.where("cast(value as string) = '7'").collect()]
        context.negative_acknowledge(ids)
        over.sink.write(
            df.where("cast(cast(value as string) as int) % 10 <> 0 and cast(value as string) <> '7'"), batch_id
        )

    over.run(refusing)
    refused = [0, 7, 10, 20, 30, 40, 50]
    assert over.sink.values() == once(range(60)) - Counter(refused)
    assert rest(client, topic, len(refused)) == refused
    produce(client, topic, range(60, 70))
    over.run()
    assert over.sink.values() == once(range(70))
    assert rest(client, topic, 0) == []


@pytest.mark.long
def test_what_fn_refuses_comes_again_in_a_later_batch(
    over: Stream, client: pulsar.Client, topic: str, admin: AdminClient
) -> None:
    produce(client, topic, range(20))
    seen: list[tuple[int, list[int]]] = []

    def refusing(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        values = sorted(int(bytes(row["value"])) for row in df.collect())
        seen.append((batch_id, values))
        if len(seen) == 1:
            context.negative_acknowledge(df.where("cast(cast(value as string) as int) < 5"))

    over.options["negativeAckRedeliveryDelayMs"] = 0
    query = over.start(refusing, processing_time="100 milliseconds")
    try:
        until(lambda: len(seen) > 1, "what was refused")
        until(partial(_nothing_left, admin, topic), "it to be acknowledged")
    finally:
        query.stop()
    assert seen[0][1] == list(range(20))
    assert seen[1][1] == list(range(5))
    assert rest(client, topic, 0) == []


@pytest.mark.long
def test_messages_of_a_batch_are_refused_one_by_one(over: Stream, client: pulsar.Client, topic: str) -> None:
    options = {"batching_enabled": True, "batching_max_messages": 8, "batching_max_publish_delay_ms": 60_000}
    produce(client, topic, range(64), **options)

    def refusing(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        context.negative_acknowledge(df.where("cast(cast(value as string) as int) in (3, 4, 40)"))
        over.sink.write(df.where("not cast(cast(value as string) as int) in (3, 4, 40)"), batch_id)

    over.run(refusing)
    assert rest(client, topic, 3) == [3, 4, 40]
    over.run()
    assert over.sink.values() == once(range(64))
    assert rest(client, topic, 0) == []


def test_a_batch_that_failed_comes_again_as_it_was(over: Stream, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(40))
    seen: list[list[int]] = []

    def failing(df: DataFrame, batch_id: int) -> None:
        seen.append(sorted(int(bytes(row["value"])) for row in df.collect()))
        raise RuntimeError("no luck")

    with pytest.raises(StreamingQueryException, match="no luck"):
        over.run(failing)
    assert rest(client, topic, 40) == list(range(40))
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    for message in [consumer.receive(20_000) for _ in range(40)]:
        if int(message.data()) < 10:
            consumer.acknowledge(message)
    consumer.flush()
    consumer.close()
    produce(client, topic, range(40, 50))
    over.run()
    # The sink may have the first ten already, from before they were acknowledged elsewhere.
    assert over.sink.batches() == {0: seen[0], 1: list(range(40, 50))}
    assert rest(client, topic, 0) == []


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(RuntimeError("no luck\n" + "and more\n" * 60_000), id="long text"),
        pytest.param(SystemExit("no luck"), id="SystemExit"),
    ],
)
def test_a_query_tells_how_it_died(
    over: Stream, client: pulsar.Client, topic: str, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    produce(client, topic, range(1))
    for of_planner in (False, True):
        if of_planner:
            monkeypatch.setattr(TopicPlanner, "next_end", fail)
        query = over.start(fail)
        until(partial(_has_ended, query), "the query to end")
        told = str(query.exception())
        assert f"{type(failure).__name__}: no luck" in told
        assert len(told) < 2 * MAX_BYTES


def test_a_query_that_is_stopped_tells_of_a_long_java_error(over: Stream, client: pulsar.Client, topic: str) -> None:
    """Spark's search for interruptions in such a text let the query's thread die with a StackOverflowError."""
    produce(client, topic, range(1))
    inside = threading.Event()

    def fail(df: DataFrame, batch_id: int) -> None:
        inside.set()
        java: Any = query
        until(lambda: str(java._jsq.streamingQuery().state().get()) == "TERMINATED", "the query to be stopped")
        raise RuntimeError("py4j.protocol.Py4JJavaError: An error occurred while calling o1.f.\n" + "\tat F\n" * 5_000)

    query = over.start(fail)
    assert inside.wait(60)
    query.stop()
    assert "RuntimeError: Py4JJavaError: An error occurred while calling o1.f." in str(query.exception())


@pytest.mark.long
def test_acknowledgements_are_made_up_for_without_another_delivery(
    over: Stream, client: pulsar.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(client, topic, range(40))

    def failing(*_: object) -> None:
        raise NotReadable("no luck")

    def refusing(df: DataFrame, batch_id: int, context: BatchContext) -> None:
        context.negative_acknowledge(df.where("cast(value as string) in ('3', '30')"))
        over.sink.write(df.where("cast(value as string) not in ('3', '30')"), batch_id)

    with monkeypatch.context() as patched:
        patched.setattr(stream, "acknowledge_entries", failing)
        with pytest.raises(StreamingQueryException, match="without delivering it again"):
            over.run(refusing)
    assert over.sink.values() == once(range(40)) - Counter((3, 30))
    assert rest(client, topic, 40) == list(range(40))
    over.run()
    assert over.sink.values() == once(range(40)), "what was refused then comes in this run"
    assert [len(values) for values in over.sink.batches().values()] == [38, 2]
    assert rest(client, topic, 0) == []


def test_open_transactions_hold_a_stream_up_and_aborted_ones_never_come(
    over: Stream, service_url: str, topic: str
) -> None:
    with_transactions = pulsar.Client(service_url, enable_transaction=True)
    try:
        producer = with_transactions.create_producer(f"{topic}-partition-0")
        producer.send(b"0")
        aborted, committed = with_transactions.new_transaction(), with_transactions.new_transaction()
        producer.send(b"100", txn=aborted)
        producer.send(b"1")
        producer.send(b"2", txn=committed)
        producer.send(b"3")
        over.run()
        assert over.sink.values() == once(range(1))
        aborted.abort()
        over.run()
        assert over.sink.values() == once(range(2))
        committed.commit()
        over.run()
        assert over.sink.values() == once(range(4))
        assert rest(with_transactions, topic, 0) == []
    finally:
        with_transactions.close()


@pytest.mark.long
def test_what_a_transaction_took_comes_when_it_gives_it_back(over: Stream, service_url: str, topic: str) -> None:
    client = pulsar.Client(service_url, enable_transaction=True)
    try:
        produce(client, topic, range(10))
        consumer = client.subscribe(topic, "s", consumer_type=SHARED)
        messages = [consumer.receive(20_000) for _ in range(10)]
        txn = client.new_transaction()
        for message in messages:
            if int(message.data()) < 4:
                consumer.acknowledge(message, txn=txn)
        over.run()
        assert over.sink.values() == once(range(4, 10))
        txn.abort()
        consumer.close()
        over.run()
        assert over.sink.values() == once(range(10))
        assert rest(client, topic, 0) == []
    finally:
        client.close()


@pytest.mark.long
def test_a_seek_moves_the_stream(over: Stream, client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    produce(client, topic, range(30))
    over.run()
    admin.reset_cursor(topic, "s", timestamp_ms=1)
    produce(client, topic, range(30, 40))
    over.run()
    assert over.sink.values() == once(range(30), range(40))
    produce(client, topic, range(40, 50))
    admin.clear_backlog(topic, "s")
    over.run()
    assert over.sink.values() == once(range(30), range(40))


@pytest.mark.long
def test_partitions_that_are_added_are_read_from_their_beginning(
    over: Stream, client: pulsar.Client, admin: AdminClient, service_url: str, topic: str
) -> None:
    produce(client, topic, range(10))
    over.run()
    admin.update_partitions(topic, 4)
    late = pulsar.Client(service_url, kafka_config={"client.rack": "late"})  # it knows of the new partitions
    produce(late, topic, range(10, 50))
    late.close()
    over.run()
    assert over.sink.values() == once(range(50))


def test_a_topic_that_was_made_again_is_another_one(
    over: Stream, client: pulsar.Client, admin: AdminClient, topic: str
) -> None:
    produce(client, topic, range(10))
    over.run()
    admin.delete_topic(topic, force=True)
    with pytest.raises(NotReadable, match="does not exist"):
        over.run()
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s", from_earliest=True)
    with pytest.raises(StreamingQueryException, match="start with another checkpoint"):
        over.run()


@pytest.mark.long
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(3, id="fewer", marks=pytest.mark.soak),  # Spark waits minutes for offsets that do not come
        pytest.param(10, id="as many"),
        pytest.param(17, id="more"),
    ],
)
def test_a_topic_that_is_made_again_during_a_batch_ends_its_query(
    over: Stream, client: pulsar.Client, admin: AdminClient, topic: str, messages: int
) -> None:
    """Nothing of the new topic is acknowledged by the offsets of the former one, and the batch is not on record."""

    def make_again(df: DataFrame, batch_id: int) -> None:
        _make_again(client, admin, topic, messages)
        over.sink.write(df, batch_id)

    produce(client, topic, range(10))
    with pytest.raises(StreamingQueryException, match=r"topic .* was deleted and made again"):
        over.run(make_again)
    assert admin.subscription_stats(topic, "s").backlog == messages
    with pytest.raises(StreamingQueryException, match="start with another checkpoint"):
        over.run()
    assert rest(client, topic, messages) == [*range(100, 100 + messages)]


@pytest.mark.long
def test_a_topic_that_is_made_again_behind_a_batch_keeps_what_the_batch_would_acknowledge(
    over: Stream, client: pulsar.Client, admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that `fn` has dealt with is acknowledged by the next start, which finds another topic."""
    produce(client, topic, range(10))
    with monkeypatch.context() as broken:
        broken.setattr(stream, "acknowledge_entries", _fail)
        with pytest.raises(StreamingQueryException, match="acknowledgements fail"):
            over.run()
    _make_again(client, admin, topic, 17)
    with pytest.raises(StreamingQueryException, match="was deleted and made again"):
        over.run()
    assert admin.subscription_stats(topic, "s").backlog == 17


def _make_again(client: pulsar.Client, admin: AdminClient, topic: str, messages: int) -> None:
    admin.delete_topic(topic, force=True)
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s", from_earliest=True)
    produce(client, topic, range(100, 100 + messages))


def _fail(*_: object) -> None:
    raise NotReadable("acknowledgements fail")


def test_a_subscription_that_was_made_again_is_another_one(
    over: Stream, client: pulsar.Client, admin: AdminClient, topic: str
) -> None:
    produce(client, topic, range(10))
    over.run()
    admin.unsubscribe(topic, "s")
    admin.create_subscription(topic, "s", from_earliest=True)
    with pytest.raises(StreamingQueryException, match=r"subscription s of .* was deleted and made again"):
        over.run()


def test_nothing_is_acknowledged_where_that_is_not_wanted(over: Stream, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(10))
    over.run(acknowledge=False)
    produce(client, topic, range(10, 20))
    over.run()
    assert over.sink.values() == once(range(20))
    assert rest(client, topic, 20) == list(range(20))


def test_two_streams_share_a_process(
    over: Stream, client: pulsar.Client, admin: AdminClient, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    admin.create_subscription(topic, "other", from_earliest=True)
    produce(client, topic, range(50))
    other = Stream(spark, str(over.options["service_url"]), topic, tmp_path / "other", subscription="other")
    queries = [over.start(available_now=True), other.start(available_now=True)]
    for query in queries:
        query.awaitTermination()
    assert over.sink.values() == other.sink.values() == once(range(50))


def test_a_query_that_stops_in_a_batch_ends_with_it(over: Stream, client: pulsar.Client, topic: str) -> None:
    produce(client, topic, range(10))
    inside, go_on = threading.Event(), threading.Event()

    def slow(df: DataFrame, batch_id: int) -> None:
        inside.set()
        go_on.wait(30)
        over.sink.write(df, batch_id)

    query = over.start(slow)
    assert inside.wait(30)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    go_on.set()
    stopping.join(60)
    assert not stopping.is_alive()
    over.run()
    assert over.sink.values() == once(range(10))
    assert rest(client, topic, 0) == []
