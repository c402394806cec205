"""Limits of unacknowledged messages, as policies and as an option of a consumer."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, ConsumerStats
from tests.integration.command_line import CommandLine
from tests.steps import EARLIEST, KEY_SHARED, SHARED, Process, Unique, nothing_comes, payloads, receive, send_fast
from tests.waiting import until

pytestmark = pytest.mark.kafka

ON_CONSUMER, ON_SUBSCRIPTION = "max_unacked_messages_on_consumer", "max_unacked_messages_on_subscription"


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_a_consumer_gets_no_more_than_the_policy_allows(
    admin: AdminClient, client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType, service_url: str
) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(topic, ON_CONSUMER, 5)
    send_fast(client, topic, 12)
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST)
    first = receive(consumer, 5)
    assert nothing_comes(consumer)
    (it,) = admin.subscription_consumers(topic, "s")
    assert (it.unacked, it.subscription_blocked_s) == (5, -1)
    assert it.blocked_s >= 0
    shown = CommandLine(service_url, "subscriptions")("stats", topic, "-s", "s").stdout
    assert f"consumer {consumer.consumer_name()} is blocked by 5 unacknowledged messages, for " in shown
    for message in first:
        consumer.acknowledge(message)
    second = receive(consumer, 5)
    assert payloads(second) == [str(number) for number in range(5, 10)]
    admin.set_policy(topic, ON_CONSUMER, 0)  # it follows at once
    assert payloads(receive(consumer, 2)) == ["10", "11"]
    (it,) = admin.subscription_consumers(topic, "s")
    assert it.blocked_s == -1


def test_the_consumers_of_a_subscription_get_redeliveries_only_at_its_limit(
    admin: AdminClient, client: pulsar.Client, process: Process, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(topic, ON_SUBSCRIPTION, 8)
    send_fast(client, topic, 20)
    consumers = [
        of.subscribe(topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100)
        for of in (client, process())
    ]
    got: list[tuple[pulsar.Consumer, pulsar.Message]] = []

    def blocked() -> list[ConsumerStats]:
        for consumer in consumers:
            try:
                got.append((consumer, consumer.receive(100)))
            except pulsar.Timeout:
                continue
        return [each for each in admin.subscription_consumers(topic, "s") if each.subscription_blocked_s >= 0]

    until(lambda: blocked() and len(got) == 8, lambda: f"the subscription to be blocked: {len(got)} messages")
    consumer, message = got[0]
    consumer.negative_acknowledge(message)
    until(lambda: (blocked(), len(got) > 8)[1], "the redelivery")
    assert got[-1][1].data() == message.data()
    admin.set_policy(topic, ON_SUBSCRIPTION, 0)
    until(lambda: (blocked(), len({each.data() for _, each in got}) == 20)[1], "all messages")


def test_a_consumer_may_have_a_limit_of_its_own(admin: AdminClient, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(topic, ON_CONSUMER, 3)
    send_fast(client, topic, 10)
    free = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, max_unacked_messages_on_consumer=0)
    assert len(receive(free, 10)) == 10
    with pytest.raises(pulsar.InvalidConfiguration, match="is for Shared and KeyShared, not Exclusive"):
        client.subscribe(topic, "other", max_unacked_messages_on_consumer=7)
    with pytest.raises(pulsar.InvalidConfiguration, match="max_unacked_messages_on_consumer"):
        client.subscribe(topic, "other", SHARED, max_unacked_messages_on_consumer=-1)


def test_every_second_message_of_a_large_number_is_acknowledged_without_a_limit(
    admin: AdminClient, client: pulsar.Client, process: Process, unique: Unique
) -> None:
    """A small form of the sources' example, of a million messages."""
    topic, count = unique(), 8_000
    admin.create_topic(topic)
    admin.set_policy(topic, ON_CONSUMER, 500)
    admin.set_policy(topic, ON_SUBSCRIPTION, 500)
    admin.set_policies(topic, {ON_CONSUMER: 0, ON_SUBSCRIPTION: 0})
    send_fast(client, topic, count)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    messages = receive(consumer, count)
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.close()
    (cursor,) = admin.subscription_cursors(topic, "s")
    assert (cursor.mark_delete, cursor.backlog, cursor.holes) == (0, count // 2, count // 2 - 1)
    again = process().subscribe(topic, "s", SHARED)
    assert payloads(receive(again, count // 2)) == [str(number) for number in range(1, count, 2)]
