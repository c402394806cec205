"""Sends in transactions, read back with plain Kafka clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from tests.integration.transaction_support import PATIENCE_S, Seen, data_of, markers_of, on_record, read_all
from tests.kafka_records import headers_of
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

State = pulsar.TransactionState


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    yield made
    made.close()


class Topic:
    """A topic, and what plain Kafka clients see in it."""

    def __init__(self, admin: AdminClient, bootstrap: str, name: str, partitions: int = 0) -> None:
        self.name = name
        self._bootstrap = bootstrap
        if partitions:
            admin.create_partitioned_topic(name, partitions)
        else:
            admin.create_topic(name)
        self.kafka_topic = admin.topic_stats(name).kafka_topic

    def seen(self, partition: int = 0) -> list[Seen]:
        return data_of(self._bootstrap, self.kafka_topic, partition)

    def markers(self, partition: int = 0) -> dict[TxnId, set[bool]]:
        return markers_of(self._bootstrap, self.kafka_topic, partition)

    def messages(self, partition: int = 0) -> list[tuple[bytes | None, TxnId | None]]:
        return [(seen.value, seen.txn) for seen in self.seen(partition) if seen.ended is None]


@pytest.fixture
def topics(admin: AdminClient, bootstrap: str, unique: Unique) -> Callable[..., Topic]:
    return lambda partitions=0: Topic(admin, bootstrap, unique(), partitions)


def test_a_commit_over_topics_and_partitions(client: pulsar.Client, topics: Callable[..., Topic]) -> None:
    single, spread = topics(), topics(3)
    one = client.create_producer(single.name)
    two = client.create_producer(spread.name, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    txn = client.new_transaction()
    assert (txn.state, txn.txn_id.coordinator < 16) == (State.OPEN, True)
    one.send(b"outside")
    first = one.send(b"a", txn=txn, properties={"k": "v"})
    assert (first.entry_id(), first.batch_index()) == (1, -1)
    done: list[tuple[pulsar.Result, Any]] = []
    for number in range(6):
        two.send_async(b"%d" % number, lambda result, at: done.append((result, at)), txn=txn)
    txn.commit()  # waits for them
    assert [result for result, _ in done] == [pulsar.Result.Ok] * 6
    assert txn.state is State.COMMITTED
    assert single.messages() == [(b"outside", None), (b"a", txn.txn_id)]
    found = [spread.messages(partition) for partition in range(3)]
    assert sorted(value or b"" for each in found for value, _ in each) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    for partition in range(3):
        assert spread.markers(partition) == ({txn.txn_id: {True}} if found[partition] else {})
    with pytest.raises(pulsar.InvalidTxnStatusError):
        txn.commit()
    with pytest.raises(pulsar.InvalidTxnStatusError):
        one.send(b"late", txn=txn)
    assert len(single.messages()) == 2


def test_with_commits_or_aborts(client: pulsar.Client, topics: Callable[..., Topic]) -> None:
    topic = topics()
    producer = client.create_producer(topic.name)
    with client.new_transaction() as kept:
        producer.send(b"a", txn=kept)
    dropped = client.new_transaction()

    def fail() -> None:
        with dropped:
            producer.send(b"b", txn=dropped)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with client.new_transaction() as ended:
        producer.send(b"c", txn=ended)
        ended.abort()
    assert (kept.state, dropped.state, ended.state) == (State.COMMITTED, State.ABORTED, State.ABORTED)
    assert topic.markers() == {kept.txn_id: {True}, dropped.txn_id: {False}, ended.txn_id: {False}}


@pytest.mark.parametrize("batching", [False, True])
def test_a_failed_send_makes_commit_abort(client: pulsar.Client, topics: Callable[..., Topic], batching: bool) -> None:
    topic = topics()
    producer = client.create_producer(topic.name, batching_enabled=batching)
    txn = client.new_transaction()
    producer.send(b"a", txn=txn)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(b"x" * (6 * 1024 * 1024), txn=txn)
    with pytest.raises(pulsar.InvalidTxnStatusError, match="bytes of payload"):
        txn.commit()
    assert txn.state is State.ABORTED
    assert topic.markers() == {txn.txn_id: {False}}


def test_wrong_arguments_leave_it_open(client: pulsar.Client, topics: Callable[..., Topic], service_url: str) -> None:
    topic = topics()
    producer = client.create_producer(topic.name)
    txn = client.new_transaction()
    with pytest.raises(ValueError, match="properties"):
        producer.send(b"a", properties="no", txn=txn)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="txn"):
        producer.send(b"a", txn="no")  # type: ignore[arg-type]
    producer.send(b"b", txn=txn)
    txn.commit()
    assert topic.markers() == {txn.txn_id: {True}}
    for timeout_ms in (0, -1, 86_400_001):
        with pytest.raises(pulsar.InvalidConfiguration):
            client.new_transaction(timeout_ms)
    other = pulsar.Client(service_url)
    with pytest.raises(pulsar.InvalidConfiguration, match="not enabled"):
        other.new_transaction()
    other.close()


def test_many_open_at_once(client: pulsar.Client, topics: Callable[..., Topic]) -> None:
    topic = topics(2)
    producer = client.create_producer(topic.name, block_if_queue_full=True)
    open_ones = [client.new_transaction(300_000) for _ in range(60)]
    threads = [
        threading.Thread(target=lambda part=part: [producer.send(b"x", txn=txn) for txn in part])
        for part in (open_ones[:20], open_ones[20:40], open_ones[40:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected: dict[TxnId, set[bool]] = {}
    for number, txn in enumerate(reversed(open_ones)):
        expected[txn.txn_id] = {number % 3 > 0}
        if number % 3:
            txn.commit()
        else:
            txn.abort()
    assert topic.markers(0) | topic.markers(1) == expected


def test_chunks_sequence_ids_and_exclusive_producers(
    client: pulsar.Client, topics: Callable[..., Topic], bootstrap: str
) -> None:
    topic = topics()
    chunking = client.create_producer(
        topic.name, chunking_enabled=True, access_mode=pulsar.ProducerAccessMode.Exclusive
    )
    with client.new_transaction() as txn:
        chunking.send(b"x" * (6 * 1024 * 1024), txn=txn)
        chunking.send(b"small", txn=txn, sequence_id=40)
        callbacks: list[pulsar.Result] = []
        chunking.send_async(b"next", lambda result, _: callbacks.append(result), txn=txn)
    assert callbacks == [pulsar.Result.Ok]
    records = read_all(bootstrap, topic.kafka_topic)
    named = [dict(headers_of(record)) for record in records]
    assert [b"%d:%d" % txn.txn_id == headers["__pulsar.txn"] for headers in named] == [True] * 5
    assert ["__pulsar.chunk" in headers for headers in named] == [True, True, False, False, False]
    assert topic.markers() == {txn.txn_id: {True}}


def test_a_callback_of_a_send_may_send_in_a_transaction(client: pulsar.Client, topics: Callable[..., Topic]) -> None:
    here, there = topics(), topics()
    first, second = client.create_producer(here.name), client.create_producer(there.name)
    txn = client.new_transaction()
    answered = threading.Event()

    def then(_result: pulsar.Result, _at: Any) -> None:
        second.send_async(b"b", lambda _r, _a: answered.set(), txn=txn)

    first.send_async(b"a", then)
    assert answered.wait(PATIENCE_S)
    txn.commit()
    assert there.messages() == [(b"b", txn.txn_id)]


def test_what_is_left_open_by_a_closed_client_ends(
    client: pulsar.Client, topics: Callable[..., Topic], service_url: str, bootstrap: str
) -> None:
    topic = topics()
    gone = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    producer = gone.create_producer(topic.name)
    txn = gone.new_transaction(8_000)
    producer.send(b"a", txn=txn)
    gone.close()
    client.new_transaction().abort()  # somebody serves
    until(lambda: topic.markers() == {txn.txn_id: {False}}, "the abort's marker")
    until(
        lambda: (found := on_record(bootstrap, txn.txn_id)) is None or found.finished, "the transaction to be finished"
    )


def test_asyncio(topics: Callable[..., Topic], service_url: str) -> None:
    topic = topics()

    async def program() -> tuple[TxnId, TxnId, TxnId]:
        client = pulsar_on_kafka.asyncio.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
        producer = await client.create_producer(topic.name, block_if_queue_full=True, max_pending_messages=5)
        async with await client.new_transaction() as kept:
            await asyncio.gather(*[producer.send(b"%d" % number, txn=kept) for number in range(10)])
        whole = await client.new_transaction()  # has all that was asked for before its commit was, as Java's has
        await asyncio.gather(*[producer.send(b"%d" % number, txn=whole) for number in range(10, 200)], whole.commit())
        dropped = await client.new_transaction()

        async def fail() -> None:
            async with dropped:
                await producer.send(b"no", txn=dropped)
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        with pytest.raises(pulsar_on_kafka.asyncio.PulsarException) as refused:
            await producer.send(b"late", txn=kept)
        assert refused.value.error() is pulsar.Result.InvalidTxnStatusError
        assert (kept.state, dropped.state) == (State.COMMITTED, State.ABORTED)
        await client.close()
        return kept.txn_id, whole.txn_id, dropped.txn_id

    kept, whole, dropped = asyncio.run(program())
    assert topic.messages() == [
        *[(b"%d" % number, kept if number < 10 else whole) for number in range(200)],
        (b"no", dropped),
    ]
    assert topic.markers() == {kept: {True}, whole: {True}, dropped: {False}}
