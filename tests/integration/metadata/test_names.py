"""Names with every odd character: made, written, read, acknowledged, opened again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import EARLIEST, payloads, receive, receive_rest, send

NAMES = [
    "plain",
    "with.dots.and..more",
    "with_underscores__",
    "a.b_c",
    "a_b.c",
    "-dashes--",
    "-x2e-",
    "-x2D-x2e--x-",
    "with spaces  and more",
    "ünïcödé",
    "漢字 и кириллица",
    "😀 emoji",
    "UPPER and lower",
    "colon:equals=plus+percent%20",
    "quote'\"double\\back",
    "tab-less <html>&amp;",
    "x" * 200,
    "ü" * 150,
    "a.b_" * 60,
]


@pytest.fixture(scope="module")
def clients(kafka_broker: object) -> Iterator[tuple[pulsar.Client, AdminClient]]:
    bootstrap: str = kafka_broker.bootstrap  # type: ignore[attr-defined]
    client = pulsar.Client(f"kafka://{bootstrap}")
    with AdminClient(f"kafka://{bootstrap}") as admin:
        yield client, admin
    client.close()


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:12])
def test_a_topic_and_a_subscription_of_this_name_live(clients: tuple[pulsar.Client, AdminClient], name: str) -> None:
    client, admin = clients
    topic = f"{name}{secrets.token_hex(3)}"
    _live_through(client, admin, topic, name)
    assert admin.list_subscriptions(topic) == [name]
    admin.unsubscribe(topic, name)
    assert admin.list_subscriptions(topic) == []
    assert f"persistent://public/default/{topic}" in admin.list_topics()
    admin.delete_topic(topic, force=True)
    assert f"persistent://public/default/{topic}" not in admin.list_topics()


@pytest.mark.parametrize("name", ["with/slash", "y" * 1000], ids=lambda name: name[:12])
def test_a_subscription_of_this_name_lives(clients: tuple[pulsar.Client, AdminClient], name: str) -> None:
    client, admin = clients
    topic = f"sub-{secrets.token_hex(6)}"
    _live_through(client, admin, topic, name)
    assert admin.list_subscriptions(topic) == [name]
    admin.unsubscribe(topic, name)
    assert admin.list_subscriptions(topic) == []


def test_names_that_kafka_takes_for_the_same_are_two_topics(clients: tuple[pulsar.Client, AdminClient]) -> None:
    """Kafka refuses two topics that differ in '.' and '_' only."""
    client, _ = clients
    end = secrets.token_hex(4)
    for number, topic in enumerate((f"a.b_{end}", f"a_b.{end}", f"a-x2e-b_{end}", f"a_b_{end}", f"a.b.{end}")):
        send(client, topic, 1, start=number)
        consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
        assert payloads(receive(consumer, 1)) == [str(number)]
        assert receive_rest(consumer, 100) == []


@pytest.mark.parametrize("name", ["a/b", "a\x00b", "a\nb", ""])
def test_what_no_topic_can_be_called(clients: tuple[pulsar.Client, AdminClient], name: str) -> None:
    with pytest.raises(pulsar.InvalidTopicName):
        clients[0].create_producer(name)


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "", "z" * 3001])
def test_what_no_subscription_can_be_called(clients: tuple[pulsar.Client, AdminClient], name: str) -> None:
    with pytest.raises((pulsar.InvalidConfiguration, ValueError)):
        clients[0].subscribe("any", name)


def _live_through(client: pulsar.Client, admin: AdminClient, topic: str, subscription: str) -> None:
    consumer = client.subscribe(topic, subscription, initial_position=EARLIEST)
    ids = send(client, topic, 3)
    messages = receive(consumer, 3)
    assert payloads(messages) == ["0", "1", "2"]
    assert [message.message_id() for message in messages] == ids
    assert consumer.topic() == f"persistent://public/default/{topic}"
    assert consumer.subscription_name() == subscription
    consumer.acknowledge(messages[1])
    consumer.close()
    assert admin.subscription_stats(topic, subscription).backlog == 2
    again = client.subscribe(topic, subscription)
    assert payloads(receive(again, 2)) == ["0", "2"]
    again.close()
