"""Topics of a process that send through several Kafka producers keep their order, receipts and deduplication."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.errors import ConnectFailed
from pulsar_on_kafka.broker.node import producer_pool
from pulsar_on_kafka.broker.publishing.outlet import AnyOutlet
from pulsar_on_kafka.broker.publishing.sender import Sender
from pulsar_on_kafka.kafka.producer import KafkaProducer
from tests.steps import Process, Unique, receive
from tests.waiting import patience

pytestmark = pytest.mark.kafka

_TOPICS = 20
_EACH = 50


@pytest.fixture
def client(process: Process, monkeypatch: pytest.MonkeyPatch) -> pulsar.Client:
    monkeypatch.setattr(producer_pool, "MAX_TOPICS_OF_FIRST", 3)
    return process()


def _outlet(producer: pulsar.Producer) -> AnyOutlet:
    return cast("Sender", producer.sender).outlet


def _kafka_producer(producer: pulsar.Producer) -> KafkaProducer:
    return _outlet(producer).kafka


def _send_alternately(producers: list[pulsar.Producer], numbers: range) -> dict[str, list[Any]]:
    """Sends each number to every topic before the next one; returns the message ids in the order of the receipts."""
    receipts: dict[str, list[Any]] = {producer.topic(): [] for producer in producers}
    all_answered, left = threading.Event(), len(producers) * len(numbers)

    def answered(topic: str, result: Any, message_id: Any) -> None:
        nonlocal left
        assert result == pulsar.Result.Ok, f"{topic}: {result}"
        receipts[topic].append(message_id)
        left -= 1
        if not left:
            all_answered.set()

    counting = threading.Lock()

    def callback_of(topic: str) -> Any:
        def callback(result: Any, message_id: Any) -> None:
            with counting:
                answered(topic, result, message_id)

        return callback

    for number in numbers:
        for producer in producers:
            producer.send_async(b"%d" % number, callback_of(producer.topic()))
    for producer in producers:
        producer.flush()
    assert all_answered.wait(120)
    return receipts


@pytest.mark.parametrize("batching", [False, True])
def test_each_topic_keeps_its_order(client: pulsar.Client, unique: Unique, batching: bool) -> None:
    names = [unique() for _ in range(_TOPICS)]
    consumers = [client.subscribe(name, "s") for name in names]
    producers = [client.create_producer(name, batching_enabled=batching) for name in names]
    kafka = {producer.topic(): _kafka_producer(producer) for producer in producers}
    assert 4 <= len(set(kafka.values())) <= 1 + producer_pool.FURTHER_PRODUCERS
    receipts = _send_alternately(producers, range(_EACH))
    for consumer, producer in zip(consumers, producers, strict=True):
        found = receive(consumer, _EACH)
        assert [int(message.data()) for message in found] == list(range(_EACH))
        assert [message.message_id() for message in found] == receipts[producer.topic()]
    beside = [client.create_producer(name, batching_enabled=batching) for name in names]
    assert {producer.topic(): _kafka_producer(producer) for producer in beside} == kafka


def test_each_given_up_kafka_producer_is_replaced(client: pulsar.Client, unique: Unique) -> None:
    names = [unique() for _ in range(8)]
    topics = [_outlet(client.create_producer(name)).kafka_topic for name in names]
    node = client._session.node()

    def opened() -> list[KafkaProducer]:
        return [node.producer("none", 0, "mine", topic=topic) for topic in topics]

    former = opened()
    assert len(set(former)) >= 3
    assert opened() == former
    node.give_up_producers("mine", ConnectFailed("the test gives them up"))
    assert all(kafka.fatal is not None for kafka in former)
    now = opened()
    assert [now.index(kafka) for kafka in now] == [former.index(kafka) for kafka in former]
    assert set(now).isdisjoint(former)
    for kafka, topic in zip(now, topics, strict=True):
        assert kafka.append(topic, 0, None, b"after", patience()) == 0


def test_topics_deduplicate_in_each_kafka_producer(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    names = [unique() for _ in range(_TOPICS)]
    for name in names:
        admin.create_topic(name)
        admin.set_policy(name, "deduplication", True)
    consumers = [client.subscribe(name, "s") for name in names]
    for _ in range(2):
        producers = [client.create_producer(name, f"writer-of-{name}") for name in names]
        for producer in producers:
            for number in range(1, 6):
                producer.send(b"%d" % number, sequence_id=number)
        for producer in producers:
            producer.close()
    for name, consumer in zip(names, consumers, strict=True):
        client.create_producer(name).send(b"6")
        assert [int(message.data()) for message in receive(consumer, 6)] == [1, 2, 3, 4, 5, 6]
