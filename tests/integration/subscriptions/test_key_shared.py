"""Key_Shared: every key to one consumer, in order, whoever comes and goes. As seen on Pulsar 4.0.7."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.subscriptions.partition import key_order
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KNOWN
from tests.steps import KEY_SHARED, Unique, receive_rest
from tests.waiting import until

STICKY = pulsar.KeySharedMode.Sticky


def subscribe(client: pulsar.Client, topic: str, name: str = "a", **options: Any) -> pulsar.Consumer:
    return client.subscribe(
        topic, "s", KEY_SHARED, consumer_name=name, initial_position=pulsar.InitialPosition.Earliest, **options
    )


def send(client: pulsar.Client, topic: str, count: int, keys: int, start: int = 0) -> None:
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(start, start + count):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % keys}")
    producer.flush()
    producer.close()


def sticky(*ranges: tuple[int, int], out_of_order: bool = False) -> pulsar.ConsumerKeySharedPolicy:
    return pulsar.ConsumerKeySharedPolicy(STICKY, out_of_order, list(ranges))


def test_a_refused_first_consumer_leaves_nothing_behind(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    with pytest.raises(pulsar.ConsumerAssignError):
        subscribe(client, topic, key_shared_policy=sticky((500, 400)))
    assert not [thread for thread in threading.enumerate() if topic in thread.name]
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared)


def test_a_consumer_that_takes_nothing_stops_only_its_keys(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a = subscribe(client, topic, "a", receiver_queue_size=1)
    b = subscribe(client, topic, "b", receiver_queue_size=1)
    send(client, topic, 600, keys=50)
    found = receive_rest(b)
    assert len(found) > 100
    assert len(found) + len(receive_rest(a)) == 600


@pytest.mark.parametrize(
    ("batching", "known"),
    [
        pytest.param(False, KNOWN, id="single", marks=pytest.mark.long),
        pytest.param(True, KNOWN, id="batches", marks=pytest.mark.soak),
        pytest.param(False, 5_000, id="by ranges", marks=pytest.mark.long),
    ],
)
def test_a_consumer_that_hangs_does_not_stop_the_others(
    client: pulsar.Client, unique: Unique, batching: bool, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pulsar stops for all keys when 20,000 messages wait for those who hang. Here they are read again later."""
    monkeypatch.setattr(key_order, "KNOWN", known)
    topic, count = unique(), 60_000
    hanging = subscribe(client, topic, "hanging", receiver_queue_size=10)
    working = subscribe(client, topic, "working")
    producer = client.create_producer(
        topic, block_if_queue_full=True, batching_enabled=batching, batching_type=pulsar.BatchingType.KeyBased
    )
    for number in range(count):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 100}")
    producer.flush()
    seen: list[int] = []
    late: list[int] = []

    def take(consumer: pulsar.Consumer, numbers: list[int], least: int = 0) -> None:
        for message in receive_rest(consumer, least=least):
            numbers.append(int(message.data()))
            consumer.acknowledge(message)

    def everything() -> bool:
        take(hanging, late)
        take(working, seen)
        return len(seen) + len(late) >= count

    take(working, seen, least=22_001)
    assert min(len(seen), count - len(seen)) > 22_000  # so more waited than Pulsar's limit
    until(everything, "every message")
    assert sorted(seen + late) == list(range(count))
    for got in (seen, late):
        keys: dict[int, list[int]] = defaultdict(list)
        for number in got:
            keys[number % 100].append(number)
        assert all(numbers == sorted(numbers) for numbers in keys.values())


def test_order_survives_a_coming_and_going(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    """Two partitions, consumers that come, go, acknowledge and refuse: per key nothing overtakes, nothing is lost."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    chance = random.Random(5)
    total, keys = 3000, 40
    consumers = {"c0": subscribe(client, topic, "c0", negative_ack_redelivery_delay_ms=50)}
    send(client, topic, total, keys)
    held: dict[str, dict[int, int]] = {"c0": {}}  # by consumer: number and key of what it has in hand
    late: list[tuple[pulsar.Consumer, pulsar.Message]] = []
    seen: set[int] = set()
    done: set[int] = set()
    made = 1
    while len(done) < total:
        if chance.random() < 0.02 and len(consumers) < 4:
            name = f"c{made}"
            made += 1
            held[name] = {}
            consumers[name] = subscribe(
                client, topic, name, receiver_queue_size=50, negative_ack_redelivery_delay_ms=50
            )
        elif chance.random() < 0.02 and len(consumers) > 1:
            name = chance.choice(sorted(consumers))
            consumers.pop(name).close()
            del held[name]
        name = chance.choice(sorted(consumers))
        consumer, mine = consumers[name], held[name]
        for _ in range(chance.randint(1, 30)):
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                break
            number, key = int(message.data()), int(message.data()) % keys
            assert number not in done
            assert not any(key in others.values() for other, others in held.items() if other != name), "two consumers"
            assert set(range(key, number, keys)) <= seen, "overtook its key"
            seen.add(number)
            if chance.random() < 0.05:
                consumer.negative_acknowledge(message)
            elif chance.random() < 0.2:
                mine[number] = key
                late.append((consumer, message))
            else:
                consumer.acknowledge(message)
                done.add(number)
        while late and (len(late) > 20 or len(seen) == total):
            holder, message = late.pop(0)
            if held.get(holder.consumer_name(), {}).pop(int(message.data()), None) is not None:
                holder.acknowledge(message)
                done.add(int(message.data()))
    assert done == set(range(total))
    assert all(not receive_rest(consumer, 300) for consumer in consumers.values())
