"""Ordered redelivery: later messages of a key wait for a refused one. Pulsar has nothing like it (PIP-493)."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.subscriptions.test_leases import join, known_to_owner
from tests.steps import (
    EARLIEST,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    PATIENCE_MS,
    SHARED,
    Process,
    Unique,
    nothing_comes,
    payloads,
    receive,
)
from tests.waiting import until

pytestmark = pytest.mark.kafka

SOON: Any = {"negative_ack_redelivery_delay_ms": 300}
NEVER: Any = {"negative_ack_redelivery_delay_ms": 3_600_000}


def send_keys(client: pulsar.Client, topic: str, names: str, **options: Any) -> None:
    """A message for each name as `a0`; its key is the letter."""
    producer = client.create_producer(topic, **options)
    for name in names.split():
        producer.send_async(name.encode(), None, partition_key=name[0])
    producer.flush()
    producer.close()


def by_key(names: list[str]) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for name in names:
        found[name[0]].append(name)
    return found


def subscribe(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType = KEY_SHARED, **options: Any
) -> pulsar.Consumer:
    options = {"ordered_redelivery": True, **options}
    return client.subscribe(topic, "s", kind, initial_position=EARLIEST, **options)


def test_later_messages_of_a_refused_key_wait_and_other_keys_go_on(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = subscribe(client, topic, **SOON)
    send_keys(client, topic, "a0 a1 a2 b0 a3 b1 b2")
    until(lambda: len(consumer._endpoint.queue) == 7, "all to be in the inbox")
    order = list[str]()
    refused = 0
    while len(order) < 7:
        message = consumer.receive(PATIENCE_MS)
        name = message.data().decode()
        if name == "a1" and refused < 3:
            refused += 1
            assert message.redelivery_count() == refused - 1
            consumer.negative_acknowledge(message)
        else:
            order.append(name)
            consumer.acknowledge(message)
    assert by_key(order) == {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2"]}
    assert order.index("b2") < order.index("a1")
    consumer.close()


def test_what_waits_is_only_delivered_after_the_acknowledgement(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = subscribe(client, topic, negative_ack_redelivery_delay_ms=0)
    send_keys(client, topic, "a0 a1")
    consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    again = consumer.receive(PATIENCE_MS)
    assert again.data() == b"a0"
    assert nothing_comes(consumer)
    (stats,) = admin.waiting_keys(topic, "s")
    assert (stats.partition, stats.keys, stats.messages, stats.oldest) == (0, 1, 1, 0)
    assert stats.waiting_s > 0
    consumer.acknowledge(again)
    assert consumer.receive(PATIENCE_MS).data() == b"a1"
    assert admin.waiting_keys(topic, "s") == []
    consumer.close()


def test_a_refused_batch_comes_again_as_a_whole(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = subscribe(client, topic, **SOON)
    send_keys(
        client, topic, "a0 a1 a2", batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=60_000,
    )  # fmt: skip
    send_keys(client, topic, "a3 b0")
    a0, a1 = receive(consumer, 2)
    consumer.acknowledge(a0)
    consumer.negative_acknowledge(a1)
    order = [consumer.receive(PATIENCE_MS) for _ in range(3)]
    assert payloads(order) == ["b0", "a1", "a2"]
    assert nothing_comes(consumer)
    for message in order:
        consumer.acknowledge(message)
    assert payloads(receive(consumer, 1)) == ["a3"]
    consumer.close()


def test_a_key_goes_on_after_its_dead_letter(client: pulsar.Client, unique: Unique) -> None:
    topic, letters = unique(), unique()
    dead = client.subscribe(letters, "dead", initial_position=EARLIEST)
    consumer = subscribe(
        client,
        topic,
        negative_ack_redelivery_delay_ms=0,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, letters),
    )
    send_keys(client, topic, "a0 a1")
    for _ in range(3):
        message = consumer.receive(PATIENCE_MS)
        assert message.data() == b"a0"
        consumer.negative_acknowledge(message)
    assert consumer.receive(PATIENCE_MS).data() == b"a1"
    assert dead.receive(PATIENCE_MS).data() == b"a0"
    consumer.close()


def test_an_administrator_lets_a_key_go_on(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = subscribe(client, topic, **NEVER)
    send_keys(client, topic, "a0 a1")
    consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    assert nothing_comes(consumer)
    admin.skip(topic, "s", 1)
    assert consumer.receive(PATIENCE_MS).data() == b"a1"
    consumer.close()


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_everything_behind_waits_where_one_consumer_gets_it_all(
    client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    consumer = subscribe(client, topic, kind, **SOON)
    send_keys(client, topic, "a0 b0 c0")
    until(lambda: len(consumer._endpoint.queue) == 3, "all to be in the inbox")
    consumer.acknowledge(consumer.receive(PATIENCE_MS))
    consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    again = consumer.receive(PATIENCE_MS)
    assert again.data() == b"b0"
    assert nothing_comes(consumer)
    consumer.acknowledge_cumulative(again)
    assert consumer.receive(PATIENCE_MS).data() == b"c0"
    consumer.close()


@pytest.mark.parametrize("kind", [KEY_SHARED, FAILOVER])
def test_messages_of_another_process_wait_too(process: Process, unique: Unique, kind: pulsar.ConsumerType) -> None:
    """The second consumer gets all messages by leases."""
    topic = unique()
    options = {"ordered_redelivery": True, **SOON}
    owner = join(process, topic, kind, priority_level=1, **options)
    consumer = join(process, topic, kind, **options)
    until(lambda: known_to_owner([owner, consumer]) >= 1 + (kind is KEY_SHARED), "the owner to know every consumer")
    both, order = [owner, consumer], list[str]()
    refused = 0
    send_keys(process(), topic, "a0 a1 b0 c0 a2 b1 c1 d0 a3")
    while len(order) < 9:
        for each in both:
            try:
                message = each.receive(50)
            except pulsar.Timeout:
                continue
            name = message.data().decode()
            if name in ("a1", "d0") and message.redelivery_count() < 2 and refused < 4:
                refused += 1
                each.negative_acknowledge(message)
            else:
                order.append(name)
                each.acknowledge(message)
    assert by_key(order) == {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1"], "c": ["c0", "c1"], "d": ["d0"]}
    if kind is FAILOVER:
        assert order == ["a0", "a1", "b0", "c0", "a2", "b1", "c1", "d0", "a3"]
    consumer.close()
    owner.close()


def test_all_consumers_follow_the_subscription(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    first = subscribe(client, topic)
    assert admin.subscription_properties(topic, "s") == {"ordered_redelivery": "true"}
    second = subscribe(client, topic, ordered_redelivery=None)
    assert second._endpoint.ordered_redelivery
    with pytest.raises(pulsar.InvalidConfiguration, match="has ordered_redelivery true, a consumer requests false"):
        subscribe(client, topic, ordered_redelivery=False)
    first.close()
    second.close()
    third = subscribe(client, topic, ordered_redelivery=None)
    assert third._endpoint.ordered_redelivery
    third.close()


def test_policies_of_namespaces_and_topics_count(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    client.create_producer(topic).close()
    admin.set_policy(topic, "ordered_redelivery", True)
    consumer = subscribe(client, topic, ordered_redelivery=None)
    assert consumer._endpoint.ordered_redelivery
    shared = client.subscribe(topic, "other", SHARED)
    assert not shared._endpoint.ordered_redelivery
    shared.close()
    consumer.close()


def test_options_that_exclude_each_other(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    with pytest.raises(pulsar.InvalidConfiguration, match="not Shared"):
        subscribe(client, topic, SHARED)
    out_of_order = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.AutoSplit, True)
    with pytest.raises(pulsar.InvalidConfiguration, match="allow_out_of_order_delivery"):
        subscribe(client, topic, key_shared_policy=out_of_order)
    with pytest.raises(ValueError, match="ordered_redelivery"):
        subscribe(client, topic, ordered_redelivery="yes")
