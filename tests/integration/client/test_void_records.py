"""Void records: who reads from behind what makes them void, what becomes of that on record, compacted reading."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer as KafkaProducer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.producers.fence_view import HeartbeatsAndFences, KnownFences
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS
from tests.programs import a_program
from tests.steps import Unique, nothing_comes, payloads, receive
from tests.waiting import until

MODE = pulsar.ProducerAccessMode
EARLIEST = pulsar.MessageId.earliest

_DIES_BEFORE_ITS_RECEIPT = """
    import threading
    from pulsar_on_kafka.broker.metadata.producers.fence_log import FenceRecords
    FenceRecords.found = lambda *arguments: threading.Event().wait()
    client = pulsar.Client(sys.argv[1])
    producer = client.create_producer(sys.argv[2], access_mode=pulsar.ProducerAccessMode.Exclusive)
    producer.send_async(b"first of its epoch", lambda result, message_id: print("receipt", flush=True))
    print("sent", flush=True)
    threading.Event().wait()
"""


def a_paused_producer_writes(
    service_url: str, topic: str, text: bytes, *, epoch: int, name: str = "paused", sequence_id: int = 0
) -> None:
    """What a producer of a former epoch had in its socket's buffer."""
    kafka = KafkaProducer({"bootstrap.servers": service_url.removeprefix("kafka://")})
    header = (PRODUCER, f"{sequence_id}:{epoch}:{name}".encode())
    kafka.produce(kafka_topic(TopicName.parse(topic)), text, partition=0, headers=[header])
    assert kafka.flush(20) == 0


def send_one(client: pulsar.Client, topic: str, text: bytes) -> NativeMessageId:
    producer = client.create_producer(topic)
    try:
        return producer.send(text)
    finally:
        producer.close()


def on_record(client: pulsar.Client, topic: str) -> KnownFences:
    node = client._session.node()
    name = str(TopicName.parse(topic))
    view = LogView(node.log, PRODUCERS, PRODUCERS.partition_for(name), HeartbeatsAndFences, node.clock)
    return view.query(lambda state: state.fences.get(name, KnownFences()), Deadline.after(20))


def read_all(reader: pulsar.Reader) -> list[str]:
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(15_000).data().decode())
    return found


@pytest.mark.kills
def test_the_first_record_of_a_producer_that_died_before_its_receipt_is_found(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    send_one(client, topic, b"before")
    early = client.create_reader(topic, EARLIEST)
    with a_program(_DIES_BEFORE_ITS_RECEIPT, service_url, topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "sent"
        assert [early.read_next(15_000).data() for _ in range(2)] == [b"before", b"first of its epoch"]
        process.kill()
        process.wait()
    assert not on_record(client, topic).fences.get(0)
    a_paused_producer_writes(service_url, topic, b"void", epoch=0)
    marker = send_one(client, topic, b"after")
    assert early.read_next(15_000).data() == b"after"
    behind = client.create_reader(topic, pulsar.MessageId(0, marker.ledger_id(), 1, -1))
    assert read_all(behind) == ["after"]
    assert list(on_record(client, topic).first(*life(client, topic)).values()) == [1], "the reader noted it"
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Latest)
    a_paused_producer_writes(service_url, topic, b"void", epoch=0)
    send_one(client, topic, b"last")
    assert payloads(receive(consumer, 1)) == ["last"]


def life(client: pulsar.Client, topic: str) -> tuple[int, int]:
    found = client._session.node().topics.find(TopicName.parse(topic), Deadline.after(20))
    assert found is not None
    return found.layout.incarnation, 0


_HOLDS_A_NAME = """
    client = pulsar.Client(sys.argv[1])
    producer = client.create_producer(sys.argv[2], producer_name="p")
    for number in range(2):
        producer.send(b"%d" % number, partition_key=str(number))
    print("sent", flush=True)
    sys.stdin.read()
"""


def a_name_with_a_dead_holder(client: pulsar.Client, admin: AdminClient, service_url: str, topic: str) -> int:
    """Its messages are "0" and "1"; gives its epoch."""
    admin.create_topic(topic)
    admin.set_policy(topic, "deduplication", True)
    with a_program(_HOLDS_A_NAME, service_url, topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "sent"
        claims = client._session.node().producers.claims_of(str(TopicName.parse(topic)), Deadline.after(20))
        process.kill()
        process.wait()
    return claims.claims["p"].epoch


@pytest.mark.kills
def test_a_late_record_of_a_dead_holder_of_a_name_is_void_to_every_reader(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    epoch = a_name_with_a_dead_holder(client, admin, service_url, topic)
    shared = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
    early = client.create_reader(topic, EARLIEST)
    producer = client.create_producer(topic, producer_name="p")
    assert producer.last_sequence_id() == 1
    second = producer.send(b"2", sequence_id=2, partition_key="2")
    for sequence_id in (2, 7):
        a_paused_producer_writes(service_url, topic, b"late", epoch=epoch, name="p", sequence_id=sequence_id)
    a_paused_producer_writes(service_url, topic, b"other", epoch=epoch, name="other")
    producer.send(b"3", sequence_id=7, partition_key="3")
    wanted = ["0", "1", "2", "other", "3"]
    received = receive(shared, 5)
    assert payloads(received) == wanted
    assert nothing_comes(shared)
    for message in received:
        shared.acknowledge(message)
    assert read_all(early) == wanted
    assert read_all(client.create_reader(topic, EARLIEST)) == wanted
    assert read_all(client.create_reader(topic, second)) == wanted[3:], "it begins behind the marker"
    assert read_all(client.create_reader(topic, EARLIEST, is_read_compacted=True)) == wanted
    table = client.create_table_view(topic)
    assert [table.get(str(number)) for number in range(len(table))] == [b"0", b"1", b"2", b"3"]
    until(lambda: admin.subscription_stats(topic, "s").backlog == 0, "what is void to count as acknowledged")
    producer.close()
    producer = client.create_producer(topic, producer_name="p")
    assert producer.last_sequence_id() == 7
    latest = client.subscribe(topic, "l", initial_position=pulsar.InitialPosition.Latest)
    a_paused_producer_writes(service_url, topic, b"late", epoch=epoch, name="p", sequence_id=9)
    producer.send(b"9", sequence_id=9)
    assert payloads(receive(latest, 1)) == ["9"]


def test_what_is_passed_over_by_a_seek_is_known_nevertheless(
    client: pulsar.Client, service_url: str, unique: Unique
) -> None:
    topic = unique()
    send_one(client, topic, b"0")
    consumer = client.subscribe(topic, "s", receiver_queue_size=1, initial_position=pulsar.InitialPosition.Earliest)
    reader = client.create_reader(topic, EARLIEST, receiver_queue_size=1)
    assert (receive(consumer, 1)[0].data(), reader.read_next(15_000).data()) == (b"0", b"0")
    producer = client.create_producer(topic, block_if_queue_full=True)
    for _ in range(6000):  # more than what is read ahead of a consumer and a reader that take nothing
        producer.send_async(b"x" * 5000, None)
    producer.flush()
    producer.close()
    producer = client.create_producer(topic, access_mode=MODE.Exclusive)
    last = producer.send(b"1")
    producer.close()
    a_paused_producer_writes(service_url, topic, b"void", epoch=0)
    send_one(client, topic, b"2")
    consumer.seek(last)
    assert payloads(receive(consumer, 1)) == ["2"]
    assert nothing_comes(consumer)
    reader.seek(last)
    assert read_all(reader) == ["2"]


def test_what_is_on_record_of_exclusive_producers_is_cleaned(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique
) -> None:
    topic = unique()
    for number in range(4):
        producer = client.create_producer(topic, access_mode=MODE.Exclusive)
        producer.send(str(number).encode())
        producer.close()
    assert len(on_record(client, topic).first(*life(client, topic))) == 4
    assert not on_record(client, topic).bounds, "closed in good order"
    node = client._session.node()
    found = node.topics.find(TopicName.parse(topic), Deadline.after(20))
    assert found is not None
    node.admin.delete_records(found.kafka_topic, {0: 3}, Deadline.after(20))
    producer = client.create_producer(topic, access_mode=MODE.Exclusive)
    until(lambda: len(on_record(client, topic).first(*life(client, topic))) == 1, "the cleaning below the log start")
    producer.send(b"4")
    a_paused_producer_writes(service_url, topic, b"void", epoch=3)
    assert read_all(client.create_reader(topic, EARLIEST)) == ["3", "4"]


@pytest.mark.parametrize("batching", [False, True])
def test_void_records_are_nobodys_newest_message(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, batching: bool
) -> None:
    topic = unique()
    producer = client.create_producer(topic, access_mode=MODE.Exclusive, batching_enabled=batching)
    for key, value in (("a", b"a1"), ("b", b"b1"), ("a", b"a2"), ("c", b"c1")):
        producer.send_async(value, lambda result, message_id: None, partition_key=key)
    producer.flush()
    kafka = KafkaProducer({"bootstrap.servers": service_url.removeprefix("kafka://")})
    kafka.produce(kafka_topic(TopicName.parse(topic)), b"void", b"a", headers=[(PRODUCER, b"0:0:paused")])
    assert kafka.flush(20) == 0
    admin.compact(topic)
    kafka.produce(kafka_topic(TopicName.parse(topic)), b"void", b"a", headers=[(PRODUCER, b"0:0:paused")])
    assert kafka.flush(20) == 0
    assert read_all(client.create_reader(topic, EARLIEST, is_read_compacted=True)) == ["b1", "a2", "c1"]
    consumer = client.subscribe(topic, "s", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest)
    messages = receive(consumer, 3)
    assert payloads(messages) == ["b1", "a2", "c1"]
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 0
