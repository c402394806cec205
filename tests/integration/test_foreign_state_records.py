"""What any client that may write to the state topics puts there: others go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

import layer as pulsar
from mapping.state_topics import PRODUCERS, SUBSCRIPTIONS, TOPICS, StateTopic
from mapping.topic_name import TopicName
from tests.integration.sdk_support import PATIENCE_MS

pytestmark = pytest.mark.kafka

Unique = Callable[..., str]


def place_of(state: StateTopic, topic: str) -> tuple[str, int]:
    return state.kafka_name, state.partition_for(str(TopicName.parse(topic)))


def use(service_url: str, topic: str) -> None:
    """A new process's first steps on a topic."""
    client = pulsar.Client(service_url, stand_in=False)
    client.create_producer(topic).send(b"x")
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(PATIENCE_MS).data() == b"x"
    client.close()


def test_a_key_that_is_none_keeps_nobody_away(
    client: pulsar.Client, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    client.create_producer(unique("first")).close()  # the state topics are there
    client.subscribe(unique("first"), "s").close()
    raw = Producer({"bootstrap.servers": bootstrap})
    places = [place_of(state, topic) for state in (TOPICS, SUBSCRIPTIONS, PRODUCERS)]
    for kafka_topic, partition in places:
        raw.produce(kafka_topic, b"x", b"garbage", partition)
    assert raw.flush(20) == 0
    use(service_url, topic)
    for kafka_topic, partition in places:
        raw.produce(kafka_topic, None, b"garbage", partition)
    assert raw.flush(20) == 0


def test_an_open_transaction_of_kafka_hides_nothing(
    client: pulsar.Client, service_url: str, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    client.create_producer(unique("first")).close()
    holding = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("holds")})
    holding.init_transactions(20)
    holding.begin_transaction()
    for state in (TOPICS, PRODUCERS):
        kafka_topic, partition = place_of(state, topic)
        holding.produce(kafka_topic, None, b"[]", partition)
    assert holding.flush(20) == 0
    try:
        use(service_url, topic)
    finally:
        holding.abort_transaction(20)
