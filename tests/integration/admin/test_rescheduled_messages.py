"""Delayed messages that get another delivery time, each once and only where they were waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, rescheduling
from tests.integration.admin.test_cancelled_messages import a_topic, check_rest, delayed_until_seen
from tests.integration.command_line import CommandLine
from tests.steps import KEY_SHARED, SHARED, SILENCE_MS, Unique, nothing_comes, payloads, receive, receive_rest
from tests.waiting import until

pytestmark = pytest.mark.kafka

HOUR = timedelta(hours=1)


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    yield made
    made.close()


@pytest.fixture
def admin(admin_elsewhere: AdminClient) -> AdminClient:
    return admin_elsewhere


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    return a_topic(admin, unique(), partitions=2)


def on_time(consumer: pulsar.Consumer, expected: list[str], due_ms: int) -> None:
    found = receive_rest(consumer, SILENCE_MS, least=len(expected))
    assert time.time_ns() // 1_000_000 >= due_ms
    assert sorted(payloads(found)) == expected


def test_each_is_delivered_once_at_the_new_time_and_only_where_it_was_pending(
    client: pulsar.Client, admin: AdminClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescheduling, "MESSAGES_PER_TRANSACTION", 3)
    producer = client.create_producer(topic)
    ids = [
        producer.send(
            str(number).encode(),
            {"n": str(number % 2)},
            partition_key=f"k{number}",
            deliver_after=HOUR,
            event_timestamp=7,
        )
        for number in range(10)
    ]
    producer.send(b"not delayed", {"n": "1"}, partition_key="k")
    consumer = client.subscribe(topic, "a", KEY_SHARED)
    assert payloads(receive(consumer, 1)) == ["not delayed"]
    assert admin.cancel_messages(topic, message_ids=ids[1:2], subscription="b") == {"b": 1}
    due_ms = time.time_ns() // 1_000_000 + 3_000
    assert admin.reschedule_messages(topic, deliver_at=due_ms, properties={"n": "1"}) == 5
    copies = [each for each in admin.find_messages(topic, properties={"n": "1"}) if each.deliver_at_ms == due_ms]
    assert {each.key: each.subscriptions for each in copies} == {
        "k1": ("a",), "k3": ("a", "b"), "k5": ("a", "b"), "k7": ("a", "b"), "k9": ("a", "b"),
    }  # fmt: skip
    found = receive(consumer, 5)
    assert time.time_ns() // 1_000_000 >= due_ms
    assert sorted(payloads(found)) == ["1", "3", "5", "7", "9"]
    assert {(m.properties()["n"], m.event_timestamp()) for m in found} == {("1", 7)}
    assert {m.data().decode(): m.message_id().partition() for m in found} == {
        str(number): ids[number].partition() for number in (1, 3, 5, 7, 9)
    }
    assert nothing_comes(consumer)
    check_rest(client, topic, "b", ["3", "5", "7", "9", "not delayed"])


def test_one_subscription_and_at_once(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send(str(number).encode(), partition_key=str(number), deliver_after=HOUR)
    assert admin.reschedule_messages(topic, deliver_at=0, subscription="a", delayed=True) == 4
    check_rest(client, topic, "a", ["0", "1", "2", "3"])
    assert {each.subscriptions for each in admin.find_messages(topic, delayed=True)} == {("b",)}
    check_rest(client, topic, "b", [])
    assert admin.reschedule_messages(topic, deliver_after=timedelta(0), subscription="b", delayed=True) == 4
    check_rest(client, topic, "b", ["0", "1", "2", "3"])


def test_with_a_transaction(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    place = f"{topic}-partition-1"
    producer = client.create_producer(place)
    ids = [producer.send(str(number).encode(), deliver_after=HOUR) for number in range(3)]
    consumer = client.subscribe(place, "a", SHARED)
    delayed_until_seen(consumer, 3)
    dropped = client.new_transaction()
    assert admin.reschedule_messages(place, deliver_at=0, message_ids=ids, transaction=dropped) == 3
    dropped.abort()
    with client.new_transaction() as kept:
        assert admin.reschedule_messages(place, deliver_at=0, message_ids=ids[:2], transaction=kept) == 2
        assert nothing_comes(consumer)
    assert sorted(payloads(receive(consumer, 2))) == ["0", "1"]
    until(lambda: [m.message_id for m in admin.find_messages(place, delayed=True)] == ids[2:], "the third one alone")
    assert nothing_comes(consumer)


def test_what_is_refused(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    for wrong in ({}, {"deliver_at": 1, "deliver_after": HOUR}, {"deliver_at": -1}):
        with pytest.raises(pulsar.InvalidConfiguration, match="deliver_at"):
            admin.reschedule_messages(topic, delayed=True, **wrong)
    with pytest.raises(pulsar.InvalidConfiguration, match="no message is named"):
        admin.reschedule_messages(topic, deliver_at=1)
    with pytest.raises(TypeError, match="deliver_after"):
        admin.reschedule_messages(topic, deliver_after=5, delayed=True)  # type: ignore[arg-type]
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(b"x" * 11_000_000, deliver_after=HOUR)
    with pytest.raises(pulsar.NotAllowedError, match="is in 3 chunks: it can be cancelled, not rescheduled"):
        admin.reschedule_messages(topic, deliver_at=1, delayed=True)
    assert len(list(admin.find_messages(topic, delayed=True))) == 1


def test_pok_messages_reschedule(client: pulsar.Client, topic: str, service_url: str) -> None:
    pok = CommandLine(service_url, "messages")
    client.create_producer(topic).send(b"x", partition_key="k", deliver_after=HOUR)
    done = pok("reschedule", topic, "--key", "k", "--at", "2096-10-02T07:06:40Z", "--yes")
    assert done.stderr == f"pok will reschedule messages of {topic} on all subscriptions to 2096-10-02T07:06:40.000Z\n"
    assert done.stdout == "1 message rescheduled\n"
    assert pok.json("find", topic, "--delayed")["deliver_at_ms"] == 4_000_000_000_000
    assert pok.json("reschedule", topic, "--delayed", "--after", "0s", "--yes") == {"rescheduled": 1}
    assert pok("find", topic, "--delayed").stdout == ""
    assert "either --at or --after" in pok("reschedule", topic, "--delayed", exits=2).stderr
    assert "use --after" in pok("reschedule", topic, "--delayed", "--at", "1h", exits=2).stderr
    check_rest(client, topic, "a", ["x"])
