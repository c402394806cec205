"""A process that has as many librdkafka handles as it may refuses a new subscription or reader, and serves others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.node.metrics.collector import MetricsCollector
from pulsar_on_kafka.exceptions import TooManyLookupRequestException
from pulsar_on_kafka.kafka import handles
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import EARLIEST, Unique, receive
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def two_left(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Leaves room for two more subscriptions or readers, and for producers and housekeeping."""
    return lambda: monkeypatch.setattr(handles, "MAX_HANDLES", handles.count() + handles.RESERVE + 2)


def subscribed(wire: Wire, topic: str, number: int) -> tuple[Type | None, object]:
    wire.say(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=number, request_id=number)
    return wire.hear()


def test_a_gateway_at_the_bound(wire: Wire, two_left: Callable[[], None], unique: Unique) -> None:
    wire.connect()
    topics = [unique(str(number)) for number in range(3)]
    assert wire.ask(Type.PRODUCER, topic=topics[0], producer_id=1, request_id=7).producer_ready
    assert subscribed(wire, topics[2], 10)[0] is Type.SUCCESS
    wire.ask(Type.CLOSE_CONSUMER, consumer_id=10, request_id=11)
    two_left()
    assert [subscribed(wire, topic, at)[0] for at, topic in enumerate(topics)] == [Type.SUCCESS] * 2 + [Type.ERROR]
    for refused in (
        wire.ask(Type.SUBSCRIBE, topic=topics[2], subscription="s", subType=1, consumer_id=5, request_id=5),
        wire.ask(
            Type.SUBSCRIBE, topic=topics[0], subscription="r", subType=0, consumer_id=6, request_id=6, durable=False,
            start_message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1},
        ),
    ):  # fmt: skip
        assert refused.error == ServerError.TOO_MANY_REQUESTS
        assert "handles of librdkafka" in refused.message
    wire.send(1, 0, b"1")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.say(Type.FLOW, consumer_id=0, messagePermits=1)
    assert wire.hear()[0] is Type.MESSAGE
    wire.ask(Type.CLOSE_CONSUMER, consumer_id=1, request_id=8)
    assert subscribed(wire, topics[2], 9)[0] is Type.SUCCESS
    for number in (0, 9):
        wire.ask(Type.CLOSE_CONSUMER, consumer_id=number, request_id=number)


def test_the_sdk_at_the_bound(
    client: pulsar.Client, admin: AdminClient, two_left: Callable[[], None], unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    client.subscribe(topic, "before").close()
    two_left()
    consumers = [client.subscribe(topic, str(number), initial_position=EARLIEST) for number in range(2)]
    with pytest.raises(TooManyLookupRequestException, match=r"handles of librdkafka.*use more processes"):
        client.subscribe(topic, "third")
    with pytest.raises(TooManyLookupRequestException, match="handles of librdkafka"):
        client.create_reader(topic, pulsar.MessageId.earliest)
    producer.send(b"1")
    assert [receive(consumer, 1)[0].data() for consumer in consumers] == [b"1"] * 2
    admin.create_topic(unique("another"))
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    assert registry.get_sample_value("pok_librdkafka_handles_max") == handles.MAX_HANDLES
    assert registry.get_sample_value("pok_librdkafka_handles") == handles.count()
    consumers[0].close()
    until(lambda: client.create_reader(topic, pulsar.MessageId.earliest).close() is None, "room for a reader")
