"""Writers of keyed records and Kafka topics that are compacted, bound ones and ours that an operator changed.

Kafka keeps the newest record of each key there. So each stored record must be one whole message under its partition
key, whoever writes it; everything else is refused in words that name the policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient as KafkaAdminClient
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.cross_cluster.target_topic import Target
from pulsar_on_kafka.cli.doctor.cluster import Status
from pulsar_on_kafka.cli.doctor.data_topics import check_data_topics
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, encode_fields
from tests.integration.gateway.wire import Wire, begun
from tests.steps import EARLIEST, SHARED, Process, Unique, receive
from tests.waiting import until

pytestmark = pytest.mark.kafka


def in_batch(key: bytes, payload: bytes) -> bytes:
    """One message of a batch, as Pulsar's clients write it."""
    metadata = encode_fields([(2, key), (3, len(payload))])
    return len(metadata).to_bytes(4, "big") + metadata + payload


POLICY = r"cleanup\.policy=compact"
Compacted: TypeAlias = Callable[[], str]


@pytest.fixture(params=["bound", "created"])
def compacted(request: pytest.FixtureRequest, admin: AdminClient, bootstrap: str, unique: Unique) -> Compacted:
    """Makes a compacted topic: a Kafka topic that is bound, or one of ours whose policy an operator changed."""
    kafka = KafkaAdminClient({"bootstrap.servers": bootstrap})

    def made() -> str:
        name = unique()
        if request.param == "bound":
            config: dict[str, Any] = {"cleanup.policy": "compact,delete"}
            kafka.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
            until(lambda: name in kafka.list_topics().topics, "the Kafka topic")
            assert "cleanup.policy=compact" in admin.bind_topic(name, name)
        else:
            admin.create_topic(name)
            change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, kafka_name(admin, name), incremental_configs=[change])
            kafka.incremental_alter_configs([resource])[resource].result(30)
        return name

    return made


def kafka_name(admin: AdminClient, topic: str) -> str:
    found = admin.node.topics.find(TopicName.parse(topic), Deadline.after(30))
    assert found is not None
    return found.kafka_topic


@pytest.fixture
def stored(admin: AdminClient, bootstrap: str) -> Callable[[str], list[tuple[bytes, bytes]]]:
    """The keys and values of a topic's records, each of which is one whole message."""

    def read(topic: str) -> list[tuple[bytes, bytes]]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
        where = TopicPartition(kafka_name(admin, topic), 0, 0)
        end = consumer.get_watermark_offsets(where, timeout=30)[1]
        consumer.assign([where])
        found: list[Any] = []
        until(lambda: found.extend(consumer.consume(100, 0.5)) or len(found) >= end, "all records")
        consumer.close()
        for record in found:
            headers = decode_headers(record.headers() or [], lambda _: None)
            assert record.key() is not None
            assert headers.txn is None
            assert headers.chunk is None
            assert headers.batch is None or headers.batch.messages == 1
        return [(record.key(), record.value()) for record in found]

    return read


Stored: TypeAlias = Callable[[str], list[tuple[bytes, bytes]]]


def test_producers_of_the_sdk(process: Process, compacted: Compacted, stored: Stored) -> None:
    topic, client = compacted(), process(enable_transaction=True)
    with pytest.raises(pulsar.NotAllowedError, match=f"{POLICY}.*chunking_enabled"):
        client.create_producer(topic, chunking_enabled=True)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=300)
    for key in ("a", "b", "a"):
        producer.send_async(key.encode(), None, partition_key=key)
    txn = client.new_transaction(20_000)
    with pytest.raises(pulsar.NotAllowedError, match=f"{POLICY}.*aborted transaction"):
        producer.send(b"x", partition_key="a", txn=txn)
    txn.abort()
    for ordering_key in (None, "o"):
        with pytest.raises(pulsar.NotAllowedError, match=f"{POLICY}.*partition key"):
            producer.send(b"x", ordering_key=ordering_key)
    producer.send(b"c", partition_key="c", properties={"p": "1"})
    assert stored(topic) == [(b"a", b"a"), (b"b", b"b"), (b"a", b"a"), (b"c", b"c")]
    assert producer.send_counts().pending == 0


def test_clients_of_a_gateway(wire: Wire, compacted: Compacted, stored: Stored) -> None:
    topic = compacted()
    wire.connect()
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1).producer_ready

    def answer(payload: bytes, sequence_id: int, more: dict[str, Any] | None = None, **fields: Any) -> Any:
        metadata = PulsarMetadata(
            producer_name="w", sequence_id=sequence_id, publish_time_ms=time.time_ns() // 1_000_000, **fields
        )
        wire.send_as(metadata, 1, payload, **(more or {}))
        return wire.hear()[1]

    batch = b"".join(in_batch(each, each) for each in (b"a", b"b", b"c"))
    assert answer(batch, 0, messages=3, partition_key=b"a").DESCRIPTOR.name == "SendReceipt"
    refused = [
        answer(b"x", 3, partition_key=b"a", uuid="u", chunks=2, chunk_id=0, chunked_bytes=2),
        answer(b"x", 4),
        answer(b"x", 5, ordering_key=b"o"),
        answer(batch, 6, messages=3, partition_key=b"a", encryption=[(13, b"\x0a\x01k\x12\x01v")]),
        answer(b"x", 9, begun(wire), partition_key=b"a"),
    ]
    for said in refused:
        assert said.error == ServerError.NOT_ALLOWED
        assert "cleanup.policy=compact" in said.message
    answer(b"d", 10, partition_key=b"d")
    assert stored(topic) == [(b"a", b"a"), (b"b", b"b"), (b"c", b"c"), (b"d", b"d")]


def test_letters(client: pulsar.Client, compacted: Compacted, stored: Stored, unique: Unique) -> None:
    topic, dead, retried = unique(), compacted(), compacted()
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead)
    consumer = client.subscribe(topic, "s", SHARED, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=10)
    client.create_producer(topic).send(b"1", partition_key="k")
    for _ in range(2):
        consumer.negative_acknowledge(receive(consumer, 1)[0])
    until(lambda: stored(dead) == [(b"k", b"1")], "the dead letter")
    consumer.close()
    options: Any = {
        "retry_enable": True,
        "dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(5, dead, retry_letter_topic=retried),
    }
    consumer = client.subscribe(topic, "t", SHARED, initial_position=EARLIEST, **options)
    consumer.reconsume_later(receive(consumer, 1)[0], 60_000)
    assert stored(retried) == [(b"k", b"1")]


def test_redriven_letters(client: pulsar.Client, admin: AdminClient, compacted: Compacted, unique: Unique) -> None:
    topic, letters = compacted(), unique()
    client.create_producer(letters).send(
        b"1", partition_key="k", properties={"REAL_TOPIC": str(TopicName.parse(topic))}
    )
    with pytest.raises(pulsar.NotAllowedError, match=POLICY):
        admin.redrive_dead_letters(letters)


def test_copies_from_other_clusters(admin: AdminClient, compacted: Compacted) -> None:
    found = admin.node.topics.find(TopicName.parse(compacted()), Deadline.after(30))
    assert found is not None
    with pytest.raises(errors.Refused, match=f"{POLICY}.*copies"):
        Target(admin.node, found, "west", 1, "none").take_over(0, 1, Deadline.after(30))


def test_the_doctor_names_them(admin: AdminClient, compacted: Compacted, request: pytest.FixtureRequest) -> None:
    topic = compacted()
    found = [each for each in check_data_topics(admin.node.settings, admin.node.admin) if f"/{topic}:" in each.found]
    assert [each.status for each in found] == [Status.WARN if "bound" in request.node.name else Status.FAIL]
    assert "cleanup.policy" in found[0].found
