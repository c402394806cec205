"""Any client that may write to the state topics puts records there, and others go on."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cli.main import app
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    AcknowledgeUpTo,
    CursorLife,
    Request,
    Seek,
    encode_request,
)
from pulsar_on_kafka_mapping.state.cursors.lease_records import TakeOver
from pulsar_on_kafka_mapping.state.cursors.lease_records import encode as encode_lease
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey, TopicKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES, PRODUCERS, SUBSCRIPTIONS, TOPICS, StateTopic
from tests.steps import PATIENCE_MS, Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


def place_of(state: StateTopic, topic: str) -> tuple[str, int]:
    return Instance().state_topic(state), state.partition_for(str(TopicName.parse(topic)))


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


def test_forged_requests_acknowledge_nothing_that_is_not_written_yet(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    producer.send(b"before")
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    assert consumer.receive(PATIENCE_MS).data() == b"before"
    deadline = Deadline.after(20)
    found = admin.node.topics.open(TopicName.parse(topic), deadline)
    subscription = admin.node.subscriptions.find(found, "s", deadline)
    assert subscription is not None
    life = CursorLife(found.kafka_topic_id, found.layout.incarnation, subscription.incarnation)
    name = str(TopicName.parse(topic))
    records = [
        encode_request(Request(b"12345678", life, AcknowledgeUpTo(2**62))),
        encode_request(Request(b"23456789", life, Seek(2**62))),
        encode_lease(TakeOver(life, b"0123456789abcdef", 2**40)),
    ]
    raw = Producer({"bootstrap.servers": bootstrap})
    for value in records:
        raw.produce(
            Instance().state_topic(DELIVERIES),
            value,
            encode_key(DeliveryKey(name, 0, "s")),
            DELIVERIES.partition_for(name),
        )
    assert raw.flush(20) == 0
    # What was in the log when the owner heard of it is acknowledged, what comes then is delivered.
    until(lambda: admin.subscription_stats(topic, "s").backlog == 0, "the backlog to be worked off")
    for number in range(3):
        producer.send(b"%d" % number)
        message = consumer.receive(PATIENCE_MS)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    consumer.close()


def test_the_doctor_names_what_cannot_be_read_and_takes_it_away(
    client: pulsar.Client, service_url: str, bootstrap: str, unique: Unique
) -> None:
    client.create_producer(unique()).close()
    mine = unique("of-mine").encode()
    value_key = encode_key(TopicKey(f"persistent://public/default/{unique('spoilt')}", 1, "00" * 16))
    raw = Producer({"bootstrap.servers": bootstrap})
    for key in (mine, value_key):
        raw.produce(Instance().state_topic(TOPICS), b"?", key, 0)
    assert raw.flush(20) == 0

    def doctor(*more: str) -> str:
        return CliRunner().invoke(app, ["--url", service_url, "doctor", "--state", *more]).stdout

    said = doctor()
    assert f"{mine!r}" in said
    assert "cannot be read" in said
    assert "pok doctor --state --tombstone" in said
    assert "tombstone written" in doctor("--tombstone", "--yes")
    said = doctor()
    assert f"{mine!r}" not in said
    assert re.search(r"ok +state formats +.*topics 1 \([0-9,]+\)", said), said
