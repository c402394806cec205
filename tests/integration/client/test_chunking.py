"""Chunked messages: sent as several records, received, acknowledged and delivered again as one.

The topics here have Kafka's own default of `max.message.bytes`, so that a message of 2.5 MB has three chunks.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaTool
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import pulsar_on_kafka as pulsar
import pulsar_on_kafka.asyncio
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from tests.integration.client.test_encryption import key_pair
from tests.kafka_records import headers_of
from tests.programs import a_program
from tests.steps import EARLIEST, PATIENCE_MS, Unique, nothing_comes, payloads, receive, send
from tests.waiting import never, until

pytestmark = pytest.mark.kafka

Topics = Callable[..., str]
SHARED, EXCLUSIVE = pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive
KINDS = [EXCLUSIVE, SHARED, pulsar.ConsumerType.Failover, pulsar.ConsumerType.KeyShared]
LARGE = bytes(range(256)) * 10_000
"""Three chunks."""
MEMBER_BATCH = 1000
"""Records that a member reads at a time."""


@pytest.fixture
def topics(client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique) -> Topics:
    """Makes a topic whose records have at most a megabyte."""
    tool = KafkaTool({"bootstrap.servers": bootstrap})

    def make(label: str = "topic", partitions: int = 0) -> str:
        topic = unique(label)
        if partitions:
            admin.create_partitioned_topic(topic, partitions)
        client.create_producer(topic).close()
        limit = ConfigEntry("max.message.bytes", "1048588", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, admin.topic_stats(topic).kafka_topic, incremental_configs=[limit])
        for done in tool.incremental_alter_configs([resource]).values():
            done.result(20)
        return topic

    return make


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics()


@pytest.fixture
def plain(bootstrap: str) -> Iterator[Producer]:
    made = Producer({"bootstrap.servers": bootstrap})
    yield made
    assert made.flush(20) == 0


Write = Callable[..., None]


@pytest.fixture
def write(admin: AdminClient, plain: Producer, topic: str) -> Write:
    """Writes single chunks, such as `a0` and `a1`; a message has three, and what is written is their names."""
    name = admin.topic_stats(topic).kafka_topic

    def chunks(*named: str) -> None:
        for each in named:
            header = f"{each[1]}:3:6:uuid-{each[0]}".encode()
            plain.produce(name, each.encode(), headers=[("__pulsar.chunk", header)])
        assert plain.flush(20) == 0

    return chunks


def chunking(client: pulsar.Client, topic: str, **options: Any) -> pulsar.Producer:
    return client.create_producer(topic, chunking_enabled=True, **options)


def backlog(admin: AdminClient, topic: str, subscription: str = "s") -> int:
    return admin.subscription_stats(topic, subscription).backlog


# One message ----------------------------------------------------------------------------------------------------------


def test_a_large_message_is_several_records_and_one_message(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = chunking(client, topic, producer_name="press")
    small = producer.send(b"small", partition_key="k")
    sent = producer.send(LARGE, properties={"a": "b"}, partition_key="k", event_timestamp=5)
    assert producer.last_sequence_id() == 1
    assert (producer.send_counts().sent, producer.send_counts().failed) == (2, 0)
    first, message = receive(consumer, 2)
    assert first.data() == b"small"
    assert message.data() == LARGE == message.value()
    assert (message.properties(), message.partition_key(), message.event_timestamp()) == ({"a": "b"}, "k", 5)
    assert (message.producer_name(), message.redelivery_count()) == ("press", 0)
    ledger = small.ledger_id()
    for message_id in (sent, message.message_id(), pulsar.MessageId.deserialize(sent.serialize())):
        assert (message_id.entry_id(), message_id.batch_index(), message_id.partition()) == (3, -1, -1)
        assert str(message_id) == f"({ledger},1,-1,-1);({ledger},3,-1,-1)"
        assert message_id.serialize() == sent.serialize()
    assert sent == message.message_id()
    consumer.acknowledge(first)
    consumer.acknowledge(message, wait=True)
    consumer.close()
    assert backlog(admin, topic) == 0

    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "enable.auto.commit": False})
    reader.assign([TopicPartition(admin.topic_stats(topic).kafka_topic, 0, 1)])
    records = reader.consume(3, 15)
    handles.release(reader)
    reader.close()
    headers = [decode_headers(headers_of(record)) for record in records]
    assert b"".join(record.value() or b"" for record in records) == LARGE
    assert [(h.chunk.chunk_id, h.chunk.chunks, h.chunk.total_bytes) for h in headers if h.chunk] == [
        (number, 3, len(LARGE)) for number in range(3)
    ]
    assert len({h.chunk.uuid for h in headers if h.chunk}) == 1
    assert {(h.sequence_id, h.producer_name, h.properties["a"]) for h in headers} == {(1, "press", "b")}
    assert {record.key() for record in records} == {b"k"}
    assert len({record.timestamp() for record in records}) == 1


@pytest.mark.parametrize("kind", [SHARED, pulsar.ConsumerType.KeyShared], ids=lambda kind: kind.name)
def test_a_refused_message_comes_again_whole(
    client: pulsar.Client, admin: AdminClient, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100)
    chunking(client, topic).send(LARGE, partition_key="k")
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    (again,) = receive(consumer, 1)
    assert again.data() == LARGE
    assert again.redelivery_count() == 1
    consumer.redeliver_unacknowledged_messages()
    (again,) = receive(consumer, 1)
    assert again.data() == LARGE
    consumer.acknowledge(again)
    consumer.close()
    assert backlog(admin, topic) == 0


def test_each_chunk_is_an_unacknowledged_message(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    chunking(client, topic).send(LARGE)
    (message,) = receive(consumer, 1)
    assert consumer.endpoint.unacked == 3  # as Pulsar's brokers count
    consumer.acknowledge(message)
    until(lambda: consumer.endpoint.unacked == 0, "the acknowledgement to be counted")


# Chunks of several messages, or of none -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "most"), list(zip(KINDS, (0, 1, 10, 1), strict=True)))
def test_interleaved_chunks(
    client: pulsar.Client, admin: AdminClient, topic: str, write: Write, kind: pulsar.ConsumerType, most: int
) -> None:
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST, max_pending_chunked_message=most)
    write("a0", "b0", "b1", "a1", "c0", "a2", "c1", "b2", "c2")
    messages = receive(consumer, 3)
    assert sorted(payloads(messages)) == ["a0a1a2", "b0b1b2", "c0c1c2"]
    if kind is not pulsar.ConsumerType.KeyShared:  # without keys their order is nobody's promise there
        assert payloads(messages) == ["a0a1a2", "b0b1b2", "c0c1c2"]
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    assert backlog(admin, topic) == 0


def test_the_oldest_is_given_up_when_too_many_are_incomplete(
    client: pulsar.Client, admin: AdminClient, topic: str, write: Write
) -> None:
    consumer = client.subscribe(
        topic, "s", initial_position=EARLIEST, max_pending_chunked_message=1,
        auto_ack_oldest_chunked_message_on_queue_full=True,
    )  # fmt: skip
    write("a0", "a1", "b0", "b1", "a2", "b2", "c0", "c1", "c2")
    messages = receive(consumer, 2)
    assert payloads(messages) == ["b0b1b2", "c0c1c2"]
    for message in messages:
        consumer.acknowledge(message)
    assert nothing_comes(consumer)
    consumer.close()
    assert backlog(admin, topic) == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_never_complete_holds_nobody_up(
    client: pulsar.Client, admin: AdminClient, topic: str, write: Write, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(
        topic, "s", kind, initial_position=EARLIEST, expire_time_of_incomplete_chunked_message_ms=1500
    )
    write("a0", "a1", "b0", "b1", "b2", "c1", "c2")
    (message,) = receive(consumer, 1)
    assert payloads([message]) == ["b0b1b2"]
    consumer.acknowledge(message)
    until(lambda: backlog(admin, topic) == 0, "what is incomplete to expire")
    assert nothing_comes(consumer)
    send(client, topic, 1)
    assert payloads(receive(consumer, 1)) == ["0"]


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.name)
def test_an_application_slower_than_the_expiry_loses_nothing(
    client: pulsar.Client, admin: AdminClient, topic: str, write: Write, plain: Producer, kind: pulsar.ConsumerType
) -> None:
    client.subscribe(topic, "s", kind, initial_position=EARLIEST).close()
    write("a0")
    kafka_topic = admin.topic_stats(topic).kafka_topic
    for _ in range(3 * MEMBER_BATCH):
        plain.produce(kafka_topic, b"small")
    write("a1", "a2")
    consumer = client.subscribe(
        topic, "s", kind, receiver_queue_size=10, expire_time_of_incomplete_chunked_message_ms=1
    )
    messages = receive(consumer, 1)
    never(lambda: backlog(admin, topic) < 3 * MEMBER_BATCH + 3, "chunks that a pause acknowledges")
    messages += receive(consumer, 3 * MEMBER_BATCH)
    assert payloads(messages)[-1] == "a0a1a2"


def test_a_cumulative_acknowledgement_is_not_for_a_message_that_ends_behind_it(
    client: pulsar.Client, admin: AdminClient, topic: str, write: Write
) -> None:
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    write("a0", "b0", "a1", "b1", "a2", "b2")
    first, second = receive(consumer, 2)
    assert payloads([first, second]) == ["a0a1a2", "b0b1b2"]
    consumer.acknowledge_cumulative(first)
    consumer.close()
    assert backlog(admin, topic) == 3
    consumer = client.subscribe(topic, "s")
    (again,) = receive(consumer, 1)
    assert payloads([again]) == ["b0b1b2"]
    consumer.acknowledge_cumulative(again)
    consumer.close()
    assert backlog(admin, topic) == 0


def test_chunks_with_another_total_are_no_message(
    client: pulsar.Client, admin: AdminClient, plain: Producer, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    name = admin.topic_stats(topic).kafka_topic
    for number in range(2):
        plain.produce(name, b"abc", headers=[("__pulsar.chunk", f"{number}:2:7:u".encode())])
    plain.produce(name, b"next")
    plain.flush(20)
    assert payloads(receive(consumer, 1)) == ["next"]
    until(lambda: backlog(admin, topic) == 1, "the broken message to be acknowledged")


@pytest.mark.kills
def test_a_producer_killed_between_chunks(
    client: pulsar.Client, admin: AdminClient, service_url: str, topic: str
) -> None:
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, expire_time_of_incomplete_chunked_message_ms=3000
    )
    process = a_program(
        """
        client = pulsar.Client(sys.argv[1])
        producer = client.create_producer(sys.argv[2], producer_name="press", chunking_enabled=True)
        producer.send(b"before")
        outlet = producer.sender.outlet
        produce = outlet.produce_admitted
        sent = []

        def die_after_two(*arguments):
            if len(sent) == 2:
                while len(outlet.kafka._handle):
                    outlet.kafka.poll_inline(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            sent.append(1)
            produce(*arguments)

        outlet.produce_admitted = die_after_two
        producer.send(bytes(range(256)) * 10_000)
        """,
        service_url,
        topic,
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    assert admin.topic_stats(topic).entries == 3
    successor = chunking(client, topic, producer_name="press")
    successor.send(LARGE)
    before, whole = receive(consumer, 2)
    assert (before.data(), whole.data()) == (b"before", LARGE)
    consumer.acknowledge(before)
    consumer.acknowledge(whole)
    until(lambda: backlog(admin, topic) == 0, "the half message to expire")


@pytest.mark.kills
@pytest.mark.parametrize("policy", ["None", 'pulsar.ConsumerDeadLetterPolicy(2, None, "i")'])
def test_a_consumer_killed_with_a_chunked_message_in_its_hands(
    client: pulsar.Client, admin: AdminClient, service_url: str, topic: str, policy: str
) -> None:
    client.subscribe(topic, "s", SHARED, initial_position=EARLIEST).close()
    producer = chunking(client, topic)
    for payload in (LARGE, b"1", LARGE[1:], b"2"):
        producer.send(payload)
    process = a_program(
        f"""
        client = pulsar.Client(sys.argv[1])
        consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.Shared, dead_letter_policy={policy})
        messages = [consumer.receive(15000) for _ in range(4)]
        consumer.acknowledge(messages[0], wait=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        service_url,
        topic,
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err
    kept = pulsar.ConsumerDeadLetterPolicy(2, None, "i") if policy != "None" else None
    consumer = client.subscribe(topic, "s", SHARED, dead_letter_policy=kept)
    found = []
    for _ in range(3):
        (message,) = receive(consumer, 1)
        found.append(message.data())
        consumer.acknowledge(message)
    assert sorted(found) == sorted([b"1", LARGE[1:], b"2"])
    assert nothing_comes(consumer)
    until(lambda: backlog(admin, topic) == 0, "everything to be acknowledged")


# Places ---------------------------------------------------------------------------------------------------------------


def test_a_reader_of_interleaved_and_incomplete_chunks(client: pulsar.Client, topic: str, write: Write) -> None:
    order = [f"{name}{number}" for number in range(2) for name in "abcdefghijklmnop"]
    write(*order, *(f"{name}2" for name in "abcdefghijklmno"))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = payloads(reader.read_next(PATIENCE_MS) for _ in range(15))
    assert found == [f"{name}0{name}1{name}2" for name in "abcdefghijklmno"]
    assert not reader.has_message_available()
    write("p2")
    assert reader.read_next(PATIENCE_MS).data() == b"p0p1p2"


def test_table_views_and_compacted_reading(
    client: pulsar.Client, admin: AdminClient, topic: str, plain: Producer
) -> None:
    producer = chunking(client, topic)
    producer.send(b"old", partition_key="k")
    producer.send(LARGE, partition_key="k")
    producer.send(LARGE[1:], partition_key="l")
    producer.send(b"new", partition_key="l")
    producer.send(LARGE[2:], partition_key="m")
    # A half one supersedes nothing.
    plain.produce(admin.topic_stats(topic).kafka_topic, b"x", key=b"m", headers=[("__pulsar.chunk", b"0:2:2:half")])
    plain.flush(20)
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in "klm"} == {"k": LARGE, "l": b"new", "m": LARGE[2:]}
    admin.compact(topic)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, is_read_compacted=True)
    messages = receive(consumer, 3)
    assert [message.data() for message in messages] == [LARGE, b"new", LARGE[2:]]
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    assert [reader.read_next(PATIENCE_MS).data() for _ in range(3)] == [LARGE, b"new", LARGE[2:]]


# Letters, delays, encryption ------------------------------------------------------------------------------------------


def test_the_whole_message_is_the_dead_letter(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, None, "inspector"),
    )  # fmt: skip
    sent = chunking(client, topic).send(LARGE * 4, partition_key="k")
    for count in range(2):
        (message,) = receive(consumer, 1)
        assert (message.data() == LARGE * 4, message.redelivery_count()) == (True, count)
        consumer.negative_acknowledge(message)
    inspector = client.subscribe(f"{topic}-s-DLQ", "inspector")
    (letter,) = receive(inspector, 1)
    assert letter.data() == LARGE * 4
    assert letter.partition_key() == "k"
    assert letter.properties()["ORIGIN_MESSAGE_ID"] == str(sent)
    assert letter.message_id().first_chunk() is not None  # 10 MB are above the 5 MiB of that topic
    until(lambda: backlog(admin, topic) == 0, "the dead letter to be acknowledged")


def test_a_retry_letter(client: pulsar.Client, topics: Topics) -> None:
    topic = topics()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, retry_enable=True)
    payload = LARGE * 4
    chunking(client, topic).send(payload)
    (message,) = receive(consumer, 1)
    consumer.reconsume_later(message, 200)
    (again,) = receive(consumer, 1)
    assert again.data() == payload
    assert again.properties()["RECONSUMETIMES"] == "1"


def test_each_chunk_is_encrypted(
    client: pulsar.Client, admin: AdminClient, topic: str, bootstrap: str, tmp_path: Path
) -> None:
    keys = key_pair(tmp_path, "ours")
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST, crypto_key_reader=keys)
    chunking(client, topic, encryption_key="k1", crypto_key_reader=keys).send(LARGE)
    (message,) = receive(consumer, 1)
    assert message.data() == LARGE
    context = message.encryption_context()
    assert context is not None
    assert not context.is_decryption_failed()
    assert not any(
        piece in value
        for value in _values(bootstrap, admin.topic_stats(topic).kafka_topic)
        for piece in (LARGE[:64], LARGE[100:164])
    )
    action = pulsar.ConsumerCryptoFailureAction
    raw = client.subscribe(topic, "consume", initial_position=EARLIEST, crypto_failure_action=action.CONSUME)
    (message,) = receive(raw, 1)
    context = message.encryption_context()
    assert context is not None
    assert context.is_decryption_failed()
    assert len(message.data()) == len(LARGE) + 3 * 16
    fails = client.subscribe(topic, "fail", initial_position=EARLIEST)
    assert nothing_comes(fails)
    fails.close()
    assert backlog(admin, topic, "fail") == 3
    discards = client.subscribe(topic, "discard", initial_position=EARLIEST, crypto_failure_action=action.DISCARD)
    assert nothing_comes(discards)
    until(lambda: backlog(admin, topic, "discard") == 0, "the message to be discarded")


def _values(bootstrap: str, kafka_topic: str) -> list[bytes]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "look", "enable.auto.commit": False})
    reader.assign([TopicPartition(kafka_topic, 0, 0)])
    records = reader.consume(3, 15)
    handles.release(reader)
    reader.close()
    assert len(records) == 3
    return [record.value() or b"" for record in records]


# Producers ------------------------------------------------------------------------------------------------------------


def test_each_chunk_takes_a_place_in_the_queue(client: pulsar.Client, topic: str) -> None:
    producer = chunking(client, topic, max_pending_messages=2)
    with pytest.raises(pulsar.ProducerQueueIsFull, match="3 chunks"):
        producer.send(LARGE)
    blocking = chunking(client, topic, max_pending_messages=2, block_if_queue_full=True)
    with pytest.raises(pulsar.ProducerQueueIsFull, match="3 chunks"):
        blocking.send(LARGE)
    told = []
    producer.send_async(LARGE, lambda result, message_id: told.append((result, message_id.entry_id())))
    assert told == [(pulsar.Result.ProducerQueueIsFull, -1)]
    assert producer.send(b"small").entry_id() == 0  # nothing was sent, and nothing is left taken
    producer.send(b"small")


def test_a_full_queue_waits_for_room_or_says_so(client: pulsar.Client, topic: str) -> None:
    blocking = chunking(client, topic, max_pending_messages=4, block_if_queue_full=True)
    results: list[Any] = []
    done = threading.Event()

    def answered(result: pulsar.Result, message_id: Any) -> None:
        results.append((result, message_id.first_chunk() is not None))
        if len(results) == 40:
            done.set()

    def send_some() -> None:
        for _ in range(20):
            blocking.send_async(LARGE, answered)

    threads = [threading.Thread(target=send_some) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert done.wait(30)
    assert results == [(pulsar.Result.Ok, True)] * 40
    assert blocking.send_counts().sent == 40
    assert blocking.send_counts().pending == 0
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert all(message.data() == LARGE for message in receive(consumer, 40))

    impatient = chunking(client, topic, max_pending_messages=4)
    outcomes: list[pulsar.Result] = []
    for _ in range(20):
        impatient.send_async(LARGE, lambda result, _: outcomes.append(result))
    impatient.flush()
    assert set(outcomes) <= {pulsar.Result.Ok, pulsar.Result.ProducerQueueIsFull}
    assert outcomes.count(pulsar.Result.Ok) == impatient.send_counts().sent > 0
    assert impatient.send_counts().failed == 0


def test_what_is_too_big(client: pulsar.Client, topic: str) -> None:
    producer = chunking(client, topic)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(LARGE, properties={"p": "x" * 1_100_000})
    assert producer.send(LARGE, properties={"p": "x" * 500_000}).entry_id() == 4  # 0.5 MB are left for a chunk
    plain = client.create_producer(topic)
    with pytest.raises(pulsar.MessageTooBig):
        plain.send(bytes(5 * 1024 * 1024 + 1))


def test_an_exclusive_producer(client: pulsar.Client, topic: str) -> None:
    producer = chunking(client, topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    sent = producer.send(LARGE)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    (message,) = receive(consumer, 1)
    assert message.data() == LARGE
    assert message.message_id() == sent
