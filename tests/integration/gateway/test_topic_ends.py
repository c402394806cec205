"""A gateway's clients on a terminated topic: producers are refused, and consumers receive what there is and the end."""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique, send

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

_EARLIEST = 1
_CUMULATIVE = 1


def subscribed(wire: Wire, topic: str, **options: Any) -> None:
    wire.connect()
    fields = {"subscription": "s", "subType": 1, "consumer_id": 1, "request_id": 1, "initialPosition": _EARLIEST}
    wire.say(Type.SUBSCRIBE, topic=topic, **{**fields, **options})
    assert wire.hear()[0] is Type.SUCCESS
    wire.say(Type.FLOW, consumer_id=1, messagePermits=100)


def received(wire: Wire, count: int) -> list[Any]:
    """The ids of so many messages."""
    found = []
    for _ in range(count):
        kind, said = wire.hear()
        assert kind is Type.MESSAGE
        found.append(said.message_id)
    return found


def acknowledge(wire: Wire, ids: list[Any], ack_type: int = 0) -> None:
    fields = [{"ledgerId": each.ledgerId, "entryId": each.entryId} for each in ids]
    wire.say(Type.ACK, consumer_id=1, ack_type=ack_type, message_id=fields)


def test_a_consumer_gets_the_end_when_all_is_acknowledged(
    wire: Wire, gateway: Gateway, client: sdk.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    send(client, topic, 3)
    subscribed(wire, topic)
    ids = received(wire, 3)
    admin.terminate_topic(topic)
    acknowledge(wire, ids)
    kind, said = wire.hear()
    assert (kind, said.consumer_id) == (Type.REACHED_END_OF_TOPIC, 1)
    with Wire(gateway) as second:  # a further consumer of the subscription gets it, too
        subscribed(second, topic)
        assert second.hear()[0] is Type.REACHED_END_OF_TOPIC


def test_a_reader_gets_the_end(wire: Wire, client: sdk.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    send(client, topic, 2)
    admin.terminate_topic(topic)
    earliest = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}
    subscribed(wire, topic, subscription="reader", subType=0, durable=False, start_message_id=earliest)
    acknowledge(wire, received(wire, 2)[-1:], _CUMULATIVE)
    assert wire.hear()[0] is Type.REACHED_END_OF_TOPIC


def test_a_producer_is_closed_and_not_opened_again(wire: Wire, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1).producer_name
    wire.send(1, 0, b"before")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    admin.terminate_topic(topic)
    assert wire.hear()[0] is Type.CLOSE_PRODUCER
    refused = wire.ask(Type.PRODUCER, topic=topic, producer_id=2, request_id=2)
    assert refused.error == ServerError.TOPIC_TERMINATED


def test_the_official_client_gets_its_exception(gateway: Gateway, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(gateway.address(), logger=quiet, operation_timeout_seconds=30)
    try:
        client.create_producer(topic).send(b"before")
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        admin.terminate_topic(topic)
        with pytest.raises(pulsar.TopicTerminated):
            client.create_producer(topic)
        assert consumer.receive(60_000).data() == b"before"
    finally:
        client.close()
