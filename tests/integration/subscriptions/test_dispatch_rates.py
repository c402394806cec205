"""Dispatch rates of topics and subscriptions hold consumers back, and only theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.metrics import MetricsCollector
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

_MESSAGES = 20
_MINUTE = {"subscription_dispatch_throttling_rate_in_msg": 1, "subscription_dispatch_rate_period_in_second": 3600}
"""One message in an hour."""
_OF_TOPIC = {"dispatch_throttling_rate_in_msg": 1, "dispatch_rate_period_in_second": 3600}
TYPES = [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared, pulsar.ConsumerType.Failover]


def _sent(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(_MESSAGES):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number}")
    producer.flush()
    producer.close()


def _all(consumer: pulsar.Consumer, count: int = _MESSAGES) -> list[int]:
    found = []
    for _ in range(count):
        message = consumer.receive(timeout_millis=120_000)
        consumer.acknowledge(message)
        found.append(int(message.data()))
    return sorted(found)


def _is_held_back(consumer: pulsar.Consumer) -> bool:
    """Nothing is in its inbox, and nothing comes there."""
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=500)
    return True


@pytest.mark.parametrize("kind", TYPES)
def test_a_held_back_subscription_holds_no_other_one_and_flows_without_the_policy(
    client: pulsar.Client, admin: AdminClient, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic, free = unique(), unique()
    for name in (topic, free):
        admin.create_topic(name)
        admin.create_subscription(name, "s", from_earliest=True)
    admin.set_policies(topic, _MINUTE)
    _sent(client, topic)
    _sent(client, free)
    held = client.subscribe(topic, "s", consumer_type=kind)
    first = held.receive(timeout_millis=120_000)
    held.acknowledge(first)
    other = client.subscribe(free, "s", consumer_type=kind)
    assert _all(other) == list(range(_MESSAGES))
    assert _is_held_back(held)
    assert _metrics(topic)["pok_dispatch_throttled_total"] == 1.0
    admin.remove_policy(topic, *_MINUTE)
    assert _all(held, _MESSAGES - 1) == sorted(set(range(_MESSAGES)) - {int(first.data())})


def test_the_rate_of_a_topic_is_that_of_all_its_subscriptions(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic)
    for name in ("a", "b"):
        admin.create_subscription(topic, name, from_earliest=True)
    _sent(client, topic)
    admin.set_policies(topic, _OF_TOPIC)
    first = client.subscribe(topic, "a")
    first.acknowledge(first.receive(timeout_millis=120_000))
    second = client.subscribe(topic, "b")
    assert _is_held_back(second)
    admin.set_policy(topic, "dispatch_throttling_rate_in_msg", -1)
    assert len(_all(second)) == _MESSAGES
    assert len(_all(first, _MESSAGES - 1)) == _MESSAGES - 1


def test_a_policy_of_the_namespace_counts_for_leased_messages(
    client: pulsar.Client, process: Callable[..., pulsar.Client], admin: AdminClient, unique: Unique
) -> None:
    namespace = f"public/{unique()}"
    admin.create_namespace(namespace)
    topic, other = f"{namespace}/orders", process()
    admin.create_topic(topic)
    admin.set_policies(namespace, _MINUTE)
    consumers = [
        made.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=5)
        for made in (client, other)
    ]
    _sent(client, topic)
    received = until(lambda: _received(consumers), "the one message that the rate allows")
    assert received == 1
    assert all(_is_held_back(consumer) for consumer in consumers)
    admin.remove_policy(namespace, *_MINUTE)

    def more() -> bool:
        nonlocal received
        received += _received(consumers)
        return received == _MESSAGES

    until(more, lambda: f"all messages, {received} came")


def _metrics(topic: str) -> dict[str, float]:
    """The metrics of the topic in this process."""
    samples = (sample for family in MetricsCollector().collect() for sample in family.samples)
    return {each.name: each.value for each in samples if each.labels.get("topic", "").endswith(topic)}


def _received(consumers: list[pulsar.Consumer]) -> int:
    found = 0
    for consumer in consumers:
        try:
            consumer.acknowledge(consumer.receive(timeout_millis=20))
            found += 1
        except pulsar.Timeout:
            continue
    return found
