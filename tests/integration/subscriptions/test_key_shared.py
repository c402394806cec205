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
from tests.steps import KEY_SHARED, Unique, counted, payloads, receive, receive_rest
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


def test_who_may_join(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    subscribe(client, topic, key_shared_policy=sticky((0, 100)))
    for ranges in ((100, 200), (0, 0), (500, 400)):
        with pytest.raises(pulsar.ConsumerAssignError):
            subscribe(client, topic, key_shared_policy=sticky(ranges))
    for policy in (None, sticky((300, 400), out_of_order=True)):
        with pytest.raises(pulsar.ConsumerBusy):
            subscribe(client, topic, key_shared_policy=policy)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    subscribe(client, topic, key_shared_policy=sticky((101, 200)))


def test_a_refused_first_consumer_leaves_nothing_behind(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    with pytest.raises(pulsar.ConsumerAssignError):
        subscribe(client, topic, key_shared_policy=sticky((500, 400)))
    assert not [thread for thread in threading.enumerate() if topic in thread.name]
    client.subscribe(topic, "s", pulsar.ConsumerType.Shared)


def test_a_key_goes_to_one_consumer(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a, b = subscribe(client, topic, "a"), subscribe(client, topic, "b")
    send(client, topic, 200, keys=20)
    found = [receive_rest(a), receive_rest(b)]
    keys = [{message.partition_key() for message in messages} for messages in found]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 20
    assert all(keys)
    for messages in found:
        by_key: dict[str, list[int]] = defaultdict(list)
        for message in messages:
            by_key[message.partition_key()].append(int(message.data()))
        assert all(numbers == sorted(numbers) and len(numbers) == 10 for numbers in by_key.values())
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        a.acknowledge_cumulative(found[0][0])


def test_the_ordering_key_counts_before_the_partition_key(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a, b = subscribe(client, topic, "a"), subscribe(client, topic, "b")
    producer = client.create_producer(topic)
    for number in range(60):
        producer.send(b"x", partition_key="the same", ordering_key=f"o{number % 30}")
        producer.send(b"x", ordering_key=f"o{number % 30}")
    found = [receive_rest(a), receive_rest(b)]
    keys = [{message.ordering_key() for message in messages} for messages in found]
    assert all(keys)
    assert not keys[0] & keys[1]
    assert sum(map(len, found)) == 120


def test_messages_without_a_key_are_spread(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a, b = subscribe(client, topic, "a"), subscribe(client, topic, "b")
    producer = client.create_producer(topic)
    for _ in range(100):
        producer.send(b"x")
    counts = [len(receive_rest(a)), len(receive_rest(b))]
    assert sum(counts) == 100
    assert min(counts) > 20


def test_a_negative_ack_comes_before_what_was_not_out(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = subscribe(client, topic, receiver_queue_size=1, negative_ack_redelivery_delay_ms=300)
    send(client, topic, 6, keys=1)
    first = receive(consumer, 1)[0]
    consumer.negative_acknowledge(first)
    second = receive(consumer, 1)[0]
    until(lambda: consumer._inbox.queue, "the third message")
    threading.Event().wait(0.6)  # the delay of the negative ack passes while the inbox is full
    assert counted([first, second]) == [("0", 0), ("1", 0)]
    assert counted(receive_rest(consumer, least=5)) == [("2", 0), ("0", 1), ("3", 0), ("4", 0), ("5", 0)]


def test_a_new_consumer_gets_a_key_when_the_former_one_is_done_with_it(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a = subscribe(client, topic, "a", receiver_queue_size=2)
    send(client, topic, 40, keys=10)
    held = receive(a, 10)
    b = subscribe(client, topic, "b")
    assert {int(message.data()) % 10 for message in receive_rest(b)} & {int(m.data()) % 10 for m in held} == set()
    held += receive(a, 2)  # what its inbox had when b came
    for message in held:
        a.acknowledge(message)
    moved, kept = receive_rest(b), receive_rest(a)
    assert moved
    assert {m.partition_key() for m in moved} & {m.partition_key() for m in kept} == set()
    assert sorted(int(m.data()) for m in (*held, *moved, *kept)) == list(range(40))


def test_out_of_order_a_key_moves_at_once(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    policy = pulsar.ConsumerKeySharedPolicy(allow_out_of_order_delivery=True)
    a = subscribe(client, topic, "a", receiver_queue_size=2, key_shared_policy=policy)
    send(client, topic, 40, keys=10)
    held = receive(a, 10)
    b = subscribe(client, topic, "b", key_shared_policy=policy)
    moved = receive_rest(b)
    assert {m.partition_key() for m in moved} & {m.partition_key() for m in held}
    assert sorted(int(m.data()) for m in (*held, *receive_rest(a), *moved)) == list(range(40))
    a.redeliver_unacknowledged_messages()
    b.redeliver_unacknowledged_messages()
    again = counted((*receive_rest(a), *receive_rest(b)))
    assert sorted(int(data) for data, _ in again) == list(range(40))


def test_a_consumer_that_leaves_hands_its_keys_over_in_order(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a, b = subscribe(client, topic, "a"), subscribe(client, topic, "b")
    send(client, topic, 60, keys=6)
    mine = payloads(receive_rest(b))
    a.close()
    rest = receive(b, 60 - len(mine))
    assert sorted(map(int, (*mine, *payloads(rest)))) == list(range(60))
    assert {message.redelivery_count() for message in rest} == {0}
    for key in {message.partition_key() for message in rest}:
        numbers = [int(message.data()) for message in rest if message.partition_key() == key]
        assert numbers == sorted(numbers)


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


def test_ranges_that_nobody_has_wait(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    a = subscribe(client, topic, "a", key_shared_policy=sticky((0, 32767)))
    send(client, topic, 100, keys=50)
    found = receive_rest(a)
    assert 0 < len(found) < 100
    b = subscribe(client, topic, "b", key_shared_policy=sticky((32768, 65535)))
    assert sorted(map(int, payloads((*found, *receive_rest(b))))) == list(range(100))


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
