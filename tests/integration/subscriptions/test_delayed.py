"""Messages that are delivered later. As seen on Pulsar 4.0.7, but never early."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.subscriptions.member import fetching as reading
from tests.clocks import WRONG_CLOCKS
from tests.steps import EARLIEST, Unique, payloads, receive, receive_rest
from tests.waiting import until

SHARED, KEY_SHARED = pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def topic(unique: Unique) -> str:
    return unique()


def subscribe(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType = SHARED, **options: Any) -> pulsar.Consumer:
    return client.subscribe(topic, "s", kind, initial_position=EARLIEST, **options)


def arrivals(consumer: pulsar.Consumer, count: int, start_ms: int) -> dict[str, int]:
    found = {}
    for _ in range(count):
        message = consumer.receive(15_000)
        found[message.data().decode()] = now_ms() - start_ms
        assert message.redelivery_count() == 0
        consumer.acknowledge(message)
    return found


@WRONG_CLOCKS
@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_shared_consumers_get_messages_when_they_are_due(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = subscribe(client, topic, kind)
    producer = client.create_producer(topic)
    producer.send(b"first")
    consumer.acknowledge(receive(consumer, 1)[0])
    start_ms = now_ms()
    producer.send(b"late", deliver_after=timedelta(seconds=2), partition_key="k")
    producer.send(b"mid", deliver_at=start_ms + 1000, partition_key="k")
    producer.send(b"now", partition_key="k")
    producer.send(b"past", deliver_at=1000, partition_key="k")
    found = arrivals(consumer, 4, start_ms)
    assert list(found) == ["now", "past", "mid", "late"]
    assert 1000 <= found["mid"] < 1900
    assert 2000 <= found["late"] < 2900


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_exclusive_and_failover_deliver_at_once(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    consumer = subscribe(client, topic, kind)
    producer = client.create_producer(topic)
    producer.send(b"late", deliver_after=timedelta(seconds=60))
    producer.send(b"now")
    assert payloads(receive(consumer, 2)) == ["late", "now"]


def test_what_a_sender_may_say(client: pulsar.Client, topic: str) -> None:
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    with pytest.raises(TypeError, match="deliver_at"):
        producer.send(b"x", deliver_at=-5)
    for wrong in ({"deliver_at": 1.5}, {"deliver_after": 5}):
        with pytest.raises(ValueError, match="deliver_"):
            producer.send(b"x", **wrong)
    producer.send(b"0", deliver_at=0)
    producer.send(b"1", deliver_after=timedelta(seconds=-5))
    producer.send(b"2", deliver_after=timedelta(0))
    assert payloads(receive(consumer, 3)) == ["0", "1", "2"]
    start_ms = now_ms()
    producer.send(b"3", deliver_at=5, deliver_after=timedelta(seconds=1))
    assert arrivals(consumer, 1, start_ms)["3"] >= 1000


def test_mark_delete_waits_and_acknowledged_ones_never_come_again(client: pulsar.Client, topic: str) -> None:
    """Set aside, acknowledged by id, restarted before and after the time has come."""
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    due_ms = now_ms() + 3000
    ids = [producer.send(str(number).encode(), deliver_at=due_ms) for number in range(4)]
    producer.send(b"now")
    consumer.acknowledge(receive(consumer, 1)[0])
    consumer.acknowledge(ids[1])
    consumer.flush()
    consumer.close()
    consumer = subscribe(client, topic)
    assert payloads(receive_rest(consumer, 300)) == []
    found = arrivals(consumer, 3, due_ms)
    assert sorted(found) == ["0", "2", "3"]
    assert min(found.values()) >= 0
    consumer.close()
    consumer = subscribe(client, topic)
    assert payloads(receive_rest(consumer, 300)) == []
    assert until(lambda: consumer._member.stats(consumer._deadline())[0].mark_delete == 4, "mark-delete to move")


def test_a_seek_sets_aside_anew(client: pulsar.Client, topic: str) -> None:
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    start_ms = now_ms()
    producer.send(b"late", deliver_at=start_ms + 1500)
    producer.send(b"now")
    assert payloads(receive(consumer, 1)) == ["now"]
    consumer.seek(pulsar.MessageId.earliest)
    found = arrivals(consumer, 2, start_ms)
    assert list(found) == ["now", "late"]
    assert found["late"] >= 1500
    assert payloads(receive_rest(consumer, 300)) == []


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_many_with_random_times(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    consumers = [subscribe(client, topic, kind, receiver_queue_size=200) for _ in range(2)]
    producer = client.create_producer(topic, block_if_queue_full=True)
    start_ms = now_ms()
    due = {number: start_ms + (number * 7919) % 2500 for number in range(5000)}
    for number, due_ms in due.items():
        producer.send_async(str(number).encode(), None, deliver_at=due_ms, partition_key=f"k{number % 50}")
    producer.flush()
    seen: dict[int, int] = {}
    lock = threading.Lock()

    def work(consumer: pulsar.Consumer) -> None:
        while len(seen) < len(due):
            try:
                message = consumer.receive(500)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            with lock:
                assert int(message.data()) not in seen
                seen[int(message.data())] = now_ms()

    threads = [threading.Thread(target=work, args=(consumer,)) for consumer in consumers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(seen) == len(due)
    assert all(at >= due[number] for number, at in seen.items()), "early"


def test_reading_pauses_while_too_many_are_set_aside(
    client: pulsar.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_DELAYED", 100)
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic, block_if_queue_full=True)
    due_ms = now_ms() + 6000  # a loaded machine sets a hundred aside before
    for number in range(3000):
        producer.send_async(str(number).encode(), None, deliver_at=due_ms)
    producer.flush()
    producer.send(b"behind")
    until(
        lambda: any(each.delayed >= 100 for each in consumer._member.stats(consumer._deadline())),
        "messages to be set aside",
    )
    assert len(arrivals(consumer, 3001, due_ms)) == 3001
