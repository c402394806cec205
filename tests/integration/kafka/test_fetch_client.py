"""Watched partitions on a real broker: every record once and in order, whatever happens to readers and topics."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.embedded import BrokerOptions, EmbeddedBroker
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, Gone, KafkaPartition, OutOfRange
from pulsar_on_kafka.kafka.reading.fetch_client import FetchClient, WatchedPartition
from pulsar_on_kafka.kafka.reading.fetch_session import MAX_PARTITIONS, FetchSession
from pulsar_on_kafka.kafka.reading.fetch_sessions import Fetched, FetchEvent, FetchSessions
from pulsar_on_kafka.kafka.reading.record_batches import decode
from pulsar_on_kafka.kafka.wire.brokers import ConnectionLane, KafkaBrokers
from pulsar_on_kafka.kafka.wire.client import WireClient
from pulsar_on_kafka.kafka.wire.cluster_messages import topic_id_bytes
from pulsar_on_kafka.kafka.wire.fetch_messages import EpochEnd, FetchRequest, PartitionToFetch
from tests.brokers import available
from tests.steps import Missing, Unique
from tests.waiting import never, patience, until

pytestmark = pytest.mark.kafka

WINDOW_BYTES = 1_000_000
WAIT_S = 60.0
RESPONSE_BYTES = 1_100_000
"""The largest response for one partition, for records of a few kilobytes."""


class Reader:
    """Reads a watched partition in the test's thread, as a subscription's member does."""

    def __init__(
        self,
        client: FetchClient,
        where: KafkaPartition,
        position: int = 0,
        window_bytes: int = WINDOW_BYTES,
        topic_id: bytes | None = None,
    ) -> None:
        self._events: queue.SimpleQueue[FetchEvent] = queue.SimpleQueue()
        self.values: list[bytes] = []
        self.position = position
        self.failures: list[Failed] = []
        self.ends: list[int] = []
        self.taken_bytes = 0
        self.watched: WatchedPartition = client.watch(where, position, window_bytes, self._take, topic_id=topic_id)

    def _take(self, event: FetchEvent) -> None:
        if isinstance(event, Fetched):
            self.taken_bytes += len(event.data)
        self._events.put(event)

    def seek(self, position: int) -> None:
        self.values.clear()
        self.ends.clear()
        self.position = position
        self.watched.seek(position)

    def read(self) -> list[bytes]:
        """All values so far. Fails on a record that is missing, or comes twice."""
        with suppress(queue.Empty):
            while True:
                self._read(self._events.get_nowait())
        return self.values

    def _read(self, event: FetchEvent) -> None:
        is_current = event.generation == self.watched.generation
        if isinstance(event, Fetched):
            if is_current:
                assert event.position == self.position
                for each in decode(event.where, event.data, event.position):
                    for record in each.records:
                        assert record.offset() == self.position
                        self.position = record.offset() + 1
                        self.values.append(record.value() or b"")
                    self.position = each.position
            self.watched.hand_out(len(event.data))
        elif is_current and isinstance(event.event, EndOfLog):
            self.ends.append(event.event.offset)
        elif is_current:
            assert isinstance(event.event, Failed)
            self.failures.append(event.event)


@pytest.fixture
def wire(bootstrap: str) -> Iterator[WireClient]:
    made = WireClient({"bootstrap.servers": bootstrap, "client.id": "test"})
    yield made
    made.close(patience())


@pytest.fixture
def client(wire: WireClient) -> Iterator[FetchClient]:
    made = FetchClient(wire)
    yield made
    made.close(patience())


@pytest.fixture
def kafka(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})


Create = Callable[..., list[KafkaPartition]]


@pytest.fixture
def create(kafka: AdminClient, unique: Unique) -> Create:
    def create(topics: int = 1, partitions: int = 1) -> list[KafkaPartition]:
        names = [unique() for _ in range(topics)]
        for made in kafka.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
            made.result(WAIT_S)
        return [KafkaPartition(name, each) for name in names for each in range(partitions)]

    return create


def write(producer: Producer, where: KafkaPartition, values: Iterable[bytes]) -> None:
    for value in values:
        while True:
            try:
                producer.produce(where.topic, value, partition=where.partition)
                break
            except BufferError:
                producer.poll(0.1)
    flush(producer)


def flush(producer: Producer) -> None:
    until(lambda: producer.flush(1.0) == 0, "the records to be stored", progress=lambda: len(producer))


def numbered(begin: int, end: int, size: int = 0) -> list[bytes]:
    return [b"%d" % each + b" " * size for each in range(begin, end)]


def test_a_thousand_partitions_in_many_topics_get_each_record_in_order(
    client: FetchClient, create: Create, producer: Producer
) -> None:
    partitions = create(topics=40, partitions=25)
    readers = {where: Reader(client, where) for where in partitions}
    expected: dict[KafkaPartition, list[bytes]] = {where: [] for where in partitions}
    for turn in range(3):
        for where in partitions:
            values = [f"{where} {turn} {each}".encode() for each in range(2)]
            expected[where] += values
            for value in values:
                producer.produce(where.topic, value, partition=where.partition)
            producer.poll(0)
        flush(producer)
    until(lambda: {where: each.read() for where, each in readers.items()} == expected, "all records")
    assert all(reader.watched.known_end == 6 for reader in readers.values())
    assert all(reader.ends[-1] == 6 for reader in readers.values())
    assert client.open_connections <= 10
    until(lambda: client.held_bytes == 0, "all bytes to be handed out")
    for reader in readers.values():
        reader.watched.forget()


def test_a_seek_leads_to_its_offset_only(client: FetchClient, create: Create, producer: Producer) -> None:
    (where,) = create()
    write(producer, where, numbered(0, 500, 1_000))
    reader = Reader(client, where, window_bytes=100_000)
    for position in (400, 10, 490, 0, 250):
        until(lambda: reader.read(), "a record")
        reader.seek(position)
    until(lambda: reader.read() == numbered(250, 500, 1_000), "the records from the last offset on")
    until(lambda: client.held_bytes == 0, "all bytes to be handed out")


def test_a_paused_partition_gets_nothing_until_it_is_resumed(
    client: FetchClient, create: Create, producer: Producer
) -> None:
    (where,) = create()
    reader = Reader(client, where, window_bytes=0)
    write(producer, where, numbered(0, 3))
    never(reader.read, "a record")
    reader.watched.set_window(WINDOW_BYTES)
    until(lambda: reader.read() == numbered(0, 3), "the records")
    reader.watched.set_window(0)
    assert reader.watched.watermarks(WAIT_S) == (0, 3)  # a turn of the loop later
    write(producer, where, numbered(3, 6))
    until(lambda: reader.watched.watermarks(WAIT_S) == (0, 6), "the records to be there")
    paused = [*reader.read()]
    never(lambda: reader.read() != paused, "another response")
    reader.watched.set_window(WINDOW_BYTES)
    until(lambda: reader.read() == numbered(0, 6), "the other records")


def test_a_reader_that_hands_nothing_out_holds_its_window_and_one_response(
    client: FetchClient, create: Create, producer: Producer
) -> None:
    (where,) = create()
    values = numbered(0, 5_000, 1_000)
    write(producer, where, values)
    reader = Reader(client, where, window_bytes=300_000)
    until(lambda: client.held_bytes >= 300_000, "a full window")
    never(lambda: client.held_bytes > 300_000 + RESPONSE_BYTES, "more than one response")
    assert reader.taken_bytes == client.held_bytes
    until(lambda: reader.read() == values, "all records")


def test_the_budget_bounds_what_all_readers_hold(wire: WireClient, create: Create, producer: Producer) -> None:
    client, budget_bytes = FetchClient(wire, budget_bytes=2_000_000), 2_000_000
    partitions, values = create(partitions=8), numbered(0, 1_000, 1_000)
    for where in partitions:
        write(producer, where, values)
    readers = [Reader(client, where, window_bytes=10 * budget_bytes) for where in partitions]
    until(lambda: client.is_budget_reached, "the budget to be reached")
    never(lambda: client.held_bytes > budget_bytes + RESPONSE_BYTES, "more than the budget")
    until(lambda: sum(reader.read() == values for reader in readers) == len(readers), "all records")
    until(lambda: not client.is_budget_reached, "room in the budget")
    client.close(patience())


def test_two_readers_of_one_partition_are_independent(client: FetchClient, create: Create, producer: Producer) -> None:
    (where,) = create()
    first, second = Reader(client, where), Reader(client, where)
    write(producer, where, numbered(0, 10))
    until(lambda: first.read() == second.read() == numbered(0, 10), "all records, twice")
    first.seek(8)
    first.watched.set_window(0)
    second.seek(5)
    until(lambda: second.read() == numbered(5, 10), "the records of the one that is not paused")
    second.watched.forget()
    first.watched.set_window(WINDOW_BYTES)
    write(producer, where, numbered(10, 12))
    until(lambda: first.read() == numbered(8, 12), "the records of the one that is left")
    assert second.read() == numbered(5, 10)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_decoded(client: FetchClient, create: Create, bootstrap: str, compression: str) -> None:
    (where,) = create()
    write(Producer({"bootstrap.servers": bootstrap, "compression.type": compression}), where, numbered(0, 300, 300))
    reader = Reader(client, where)
    until(lambda: reader.read() == numbered(0, 300, 300), "all records")


def test_records_that_are_deleted_are_out_of_range_and_a_seek_continues(
    client: FetchClient, create: Create, producer: Producer, kafka: AdminClient
) -> None:
    (where,) = create()
    write(producer, where, numbered(0, 10))
    kafka.delete_records([TopicPartition(*where, 6)])
    until(lambda: Reader(client, where, window_bytes=0).watched.watermarks(WAIT_S) == (6, 10), "the records to be gone")
    reader = Reader(client, where, position=2)
    until(lambda: reader.read() or reader.failures, "an event")
    (failed,) = reader.failures
    assert isinstance(failed, OutOfRange)
    assert failed.offset == 2
    reader.seek(6)
    until(lambda: reader.read() == numbered(6, 10), "the records that are left")
    reader.seek(11)
    until(lambda: reader.read() == [] and len(reader.failures) == 2, "an event")
    reader.seek(10)
    write(producer, where, numbered(10, 12))
    until(lambda: reader.read() == numbered(10, 12), "new records")


def test_a_topic_that_is_deleted_ends_its_readers_and_a_new_one_is_read(
    client: FetchClient, create: Create, producer: Producer, kafka: AdminClient
) -> None:
    where, other = create(partitions=2)
    (third,) = create()
    write(producer, where, numbered(0, 3))
    readers = [Reader(client, where), Reader(client, other), Reader(client, third)]
    until(lambda: readers[0].read() == numbered(0, 3) and all(each.ends or each.read() for each in readers), "the ends")
    kafka.delete_topics([where.topic])[where.topic].result(WAIT_S)
    for reader in readers[:2]:
        until(lambda reader=reader: reader.read() is not None and reader.failures, "the end of the topic")  # type: ignore[misc]
        assert [type(each) for each in reader.failures] == [Gone]
        reader.seek(0)
        until(lambda reader=reader: len(reader.read() or reader.failures) == 2, "the same event")  # type: ignore[misc]
    with pytest.raises(errors.NoSuchTopic):
        readers[0].watched.watermarks(WAIT_S)

    def create_again() -> bool:
        with suppress(Exception):  # the former topic is being deleted
            kafka.create_topics([NewTopic(where.topic, 1, 1)])[where.topic].result(WAIT_S)
            return True
        return False

    until(create_again, "the topic to be created again")
    again = Reader(client, where)
    write(producer, where, numbered(7, 9))
    write(producer, third, numbered(0, 3))
    until(lambda: again.read() == numbered(7, 9), "the records of the new topic")
    until(lambda: readers[2].read() == numbered(0, 3), "the records of the topic beside it")


def test_a_topic_that_is_created_anew_at_once_ends_its_readers(
    client: FetchClient, create: Create, producer: Producer, kafka: AdminClient
) -> None:
    (where,) = create()
    reader = Reader(client, where)
    write(producer, where, numbered(0, 3))
    until(lambda: reader.read() == numbered(0, 3), "the records")
    reader.watched.set_window(0)
    kafka.delete_topics([where.topic])[where.topic].result(WAIT_S)

    def create_again() -> bool:
        with suppress(Exception):  # the former topic is being deleted
            kafka.create_topics([NewTopic(where.topic, 1, 1)])[where.topic].result(WAIT_S)
            return True
        return False

    until(create_again, "the topic to be created again")
    write(producer, where, numbered(10, 20))
    reader.watched.set_window(WINDOW_BYTES)
    until(lambda: reader.read() is not None and reader.failures, "an event")
    assert [type(each) for each in reader.failures] == [Gone]
    assert reader.read() == numbered(0, 3)


def test_a_watch_reads_the_topic_of_its_id_alone(
    client: FetchClient, create: Create, producer: Producer, kafka: AdminClient
) -> None:
    (where,) = create()
    write(producer, where, numbered(0, 3))
    described = kafka.describe_topics(TopicCollection([where.topic]))[where.topic].result(WAIT_S)
    topic_id = topic_id_bytes(str(described.topic_id))
    assert topic_id is not None
    reader = Reader(client, where, topic_id=topic_id)
    other = Reader(client, where, topic_id=topic_id[::-1])
    until(lambda: reader.read() == numbered(0, 3), "the records")
    until(lambda: other.read() is not None and other.failures, "an event")
    assert [type(each) for each in other.failures] == [Gone]
    assert not other.values


def test_watermarks_name_what_is_missing(client: FetchClient, create: Create, unique: Unique) -> None:
    (where,) = create()
    reader = Reader(client, where, window_bytes=0)
    assert reader.watched.watermarks(WAIT_S) == (0, 0)
    for missing in (KafkaPartition(unique(), 0), KafkaPartition(where.topic, 5)):
        with pytest.raises(errors.NoSuchTopic, match=f"requesting the end of {missing}"):
            Reader(client, missing).watched.watermarks(WAIT_S)


def test_a_reader_that_fails_does_not_end_the_others(
    client: FetchClient, create: Create, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    (where,) = create()
    write(producer, where, numbered(0, 3))

    def fail(event: FetchEvent) -> None:
        raise ValueError(f"a fault at {event.generation}")

    client.watch(where, 0, WINDOW_BYTES, fail)
    reader = Reader(client, where)
    until(lambda: reader.read() == numbered(0, 3), "the records")
    until(lambda: f"{where}: the reader failed to take Fetched" in caplog.text, "a message")
    until(lambda: client.held_bytes == 0, "all bytes to be handed out")


def test_a_closed_client_refuses_new_readers(wire: WireClient, create: Create) -> None:
    (where,) = create()
    client = FetchClient(wire)
    reader = Reader(client, where)
    until(lambda: reader.read() == [] and reader.ends, "the end of the log")
    client.close(patience())
    client.close(patience())
    with pytest.raises(errors.Closed):
        Reader(client, where)
    reader.watched.hand_out(1)
    reader.watched.forget()
    assert client.open_connections == 0


# A broker of this module's own -----------------------------------------------------------------------------------


@pytest.mark.kills
def test_readers_continue_when_sessions_or_the_broker_are_lost(
    missing: Missing, tmp_path: Path, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: dict[FetchSession, list[float]] = {}
    ask, fail = FetchSessions.requests, FetchSessions.failed

    def requests(machine: FetchSessions, now_s: float) -> list[tuple[FetchSession, FetchRequest]]:
        found = ask(machine, now_s)
        for session, _ in found:
            sessions.setdefault(session, [])
        return found

    def failed(machine: FetchSessions, session: FetchSession, now_s: float) -> None:
        sessions[session].append(now_s)
        fail(machine, session, now_s)

    monkeypatch.setattr(FetchSessions, "requests", requests)
    monkeypatch.setattr(FetchSessions, "failed", failed)
    slots = {"max.incremental.fetch.session.cache.slots": "8"}
    options = BrokerOptions(heap_mb=512, log_file=tmp_path / "broker.log", extra=slots)
    with available(missing, EmbeddedBroker(options)) as broker, ExitStack() as stack:
        wire = WireClient({"bootstrap.servers": broker.bootstrap, "client.id": "test"})
        stack.callback(wire.close, patience())
        client = FetchClient(wire)
        topic = unique()
        kafka = AdminClient({"bootstrap.servers": broker.bootstrap})
        kafka.create_topics([NewTopic(topic, 3 * MAX_PARTITIONS, 1)])[topic].result(WAIT_S)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        readers = [Reader(client, KafkaPartition(topic, each)) for each in range(3 * MAX_PARTITIONS)]

        def more(count: int) -> None:
            for reader in readers:
                producer.produce(topic, b"%d" % (count - 1), partition=reader.watched.where.partition)
            flush(producer)
            until(lambda: all(len(reader.read()) >= count for reader in readers), f"record {count} of each partition")
            assert all(reader.values == numbered(0, count) for reader in readers)

        more(1)

        async def end_sessions(brokers: KafkaBrokers) -> int:
            last = [each.last_request() for each in sessions]
            (node_id,) = {each.node_id for each in sessions}
            connection = await brokers.connection(node_id, ConnectionLane.QUERIES)
            for request in filter(None, last):
                assert (await connection.send(request, "test", WAIT_S)).error_code == 0
            return len([*filter(None, last)])

        assert wire.call(end_sessions, patience(), "the test") > 0
        more(2)
        broker.pause()
        broker.resume()
        more(3)
        broker.kill()
        until(lambda: max(map(len, sessions.values())) >= 4, "four attempts of a session")
        broker.start()
        more(4)
        for times in sessions.values():
            assert all(later - before >= 0.1 for before, later in pairwise(times))

        async def diverging(brokers: KafkaBrokers) -> EpochEnd | None:
            """What the broker says to a reader that read offset 4 in epoch 0, in which the log has 3 records."""
            (found,) = (await brokers.refresh_topics((topic,), WAIT_S)).values()
            leader = found.partitions[0]
            connection = await brokers.connection(leader.leader_id, ConnectionLane.QUERIES)
            wanted = PartitionToFetch(leader.partition_index, 4, 1000, leader.leader_epoch, 0)
            request = FetchRequest(0, 1, 1000, ((found.topic_id, (wanted,)),))
            ((_, (partition,)),) = (await connection.send(request, "test", WAIT_S)).topics
            return partition.diverging_epoch

        assert wire.call(diverging, patience(), "the test") == EpochEnd(0, 3)
        client.close(patience())
