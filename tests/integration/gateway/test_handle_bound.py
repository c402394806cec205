"""A process that has as many librdkafka handles as it may refuses a new reader, and serves others and subscriptions."""

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


def reads(wire: Wire, topic: str, number: int) -> tuple[Type | None, object]:
    wire.say(
        Type.SUBSCRIBE, topic=topic, subscription=f"r{number}", subType=0, consumer_id=number, request_id=number,
        durable=False, start_message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1},
    )  # fmt: skip
    return wire.hear()


def test_a_gateway_at_the_bound(wire: Wire, two_left: Callable[[], None], unique: Unique) -> None:
    wire.connect()
    topic = unique()
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=7).producer_ready
    wire.say(Type.SUBSCRIBE, topic=topic, subscription="before", subType=1, consumer_id=4, request_id=4)
    assert wire.hear()[0] is Type.SUCCESS
    assert reads(wire, topic, 10)[0] is Type.SUCCESS
    for number in (4, 10):
        wire.ask(Type.CLOSE_CONSUMER, consumer_id=number, request_id=number + 10)
    two_left()
    assert [reads(wire, topic, number)[0] for number in range(2)] == [Type.SUCCESS] * 2
    kind, refused = reads(wire, topic, 2)
    assert kind is Type.ERROR
    assert refused.error == ServerError.TOO_MANY_REQUESTS  # type: ignore[attr-defined]
    assert "handles of librdkafka" in refused.message  # type: ignore[attr-defined]
    wire.say(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=5, request_id=5)
    assert wire.hear()[0] is Type.SUCCESS
    wire.send(1, 0, b"1")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.say(Type.FLOW, consumer_id=5, messagePermits=1)
    assert wire.hear()[0] is Type.MESSAGE
    wire.ask(Type.CLOSE_CONSUMER, consumer_id=1, request_id=8)
    assert reads(wire, topic, 9)[0] is Type.SUCCESS
    for number in (0, 5, 9):
        wire.ask(Type.CLOSE_CONSUMER, consumer_id=number, request_id=number)


def test_the_sdk_at_the_bound(
    client: pulsar.Client, admin: AdminClient, two_left: Callable[[], None], unique: Unique
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    client.create_reader(topic, pulsar.MessageId.earliest).close()
    two_left()
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for _ in range(2)]
    with pytest.raises(TooManyLookupRequestException, match=r"handles of librdkafka.*use more processes"):
        client.create_reader(topic, pulsar.MessageId.earliest)
    consumers = [client.subscribe(topic, str(number), initial_position=EARLIEST) for number in range(4)]
    producer.send(b"1")
    assert [receive(consumer, 1)[0].data() for consumer in consumers] == [b"1"] * 4
    assert [reader.read_next(60_000).data() for reader in readers] == [b"1"] * 2
    admin.create_topic(unique("another"))
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    assert registry.get_sample_value("pok_librdkafka_handles_max") == handles.MAX_HANDLES
    assert registry.get_sample_value("pok_librdkafka_handles") == handles.count()
    readers[0].close()
    until(lambda: client.create_reader(topic, pulsar.MessageId.earliest).close() is None, "room for a reader")
