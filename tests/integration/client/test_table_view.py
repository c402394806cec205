"""Table views, compacted subscriptions, and what is stored with a subscription. Seen on Pulsar 4.0.7."""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import Unique, nothing_comes, payloads, receive
from tests.waiting import until


def fill(client: pulsar.Client, topic: str, *pairs: tuple[str | None, bytes | None]) -> pulsar.Producer:
    producer = client.create_producer(topic)
    for key, value in pairs:
        producer.send(value, partition_key=key)
    return producer


def test_a_view_is_complete_and_follows(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = fill(client, topic, ("a", b"1"), ("b", b"1"), ("a", b"2"), (None, b"no key"), ("c", b"1"))
    view = client.create_table_view(topic)
    assert (len(view), view.get("a"), view.get("b"), view.get("d"), view.get("")) == (3, b"2", b"1", None, None)
    heard: list[tuple[str, Any]] = []
    view.for_each_and_listen(lambda key, value: heard.append((key, value)))
    assert sorted(heard) == [("a", b"2"), ("b", b"1"), ("c", b"1")]
    producer.send(b"3", partition_key="a")
    producer.send(b"", partition_key="b")
    producer.send(None, partition_key="c")
    producer.send(b"no key")
    producer.send(b"9", partition_key="z")
    until(lambda: len(heard) == 7, "the changes")
    assert heard[3:] == [("a", b"3"), ("b", b""), ("c", b""), ("z", b"9")]
    now: dict[str, Any] = {}
    view.for_each(now.__setitem__)
    assert now == {"a": b"3", "z": b"9"}
    with pytest.raises(TypeError):
        view.get(5)  # type: ignore[arg-type]
    assert str(view) == f"TableView(topic={topic})"


def test_a_listener_that_fails_keeps_nobody_from_hearing(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    view = client.create_table_view(topic)

    def fail(key: str, value: Any) -> None:
        raise RuntimeError(key)

    heard: list[str] = []
    view.for_each_and_listen(fail)
    view.for_each_and_listen(lambda key, value: heard.append(key))
    fill(client, topic, ("a", b"1"), ("b", b"1"))
    until(lambda: heard == ["a", "b"], "both changes")


def test_a_closed_view_keeps_what_it_has(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    producer = client.create_producer(topic, schema=pulsar.schema.StringSchema())
    producer.send("text", partition_key="a")
    view = client.create_table_view(topic, "mine", pulsar.schema.StringSchema())
    assert str(view) == f"TableView(topic={topic}, subscription=mine)"
    view.close()
    producer.send("later", partition_key="a")
    assert view.get("a") == "text"
    with pytest.raises(pulsar.exceptions.ConsumerNotInitialized):
        view.close()


def test_a_compacted_subscription(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    producer = fill(client, topic, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"), (None, b"no key"), ("c", b"c1"))
    admin.compact(topic)
    producer.send(b"a3", partition_key="a")
    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover):
        consumer = client.subscribe(
            topic, kind.name, kind, is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
        )
        messages = receive(consumer, 4)
        assert payloads(messages) == ["b1", "a2", "c1", "a3"]
        assert nothing_comes(consumer)
        for message in messages:
            consumer.acknowledge(message)
        consumer.close()
        assert admin.subscription_stats(topic, kind.name).backlog == 0
    with pytest.raises(pulsar.exceptions.InvalidConfiguration, match="is_read_compacted"):
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared, is_read_compacted=True)


def test_what_is_said_of_a_subscription_is_stored(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", properties={"team": "billing"}, replicate_subscription_state_enabled=True)
    until(consumer.is_connected, "the consumer")
    consumer.close()
    client.subscribe(topic, "s")
    stats = admin.subscription_stats(topic, "s")
    assert (stats.properties, stats.replicated) == ({"team": "billing"}, True)
    with pytest.raises(TypeError, match="properties"):
        client.subscribe(topic, "s", properties={"team": 5})  # type: ignore[dict-item]
