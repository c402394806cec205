"""Messages that come again, and those that came often enough. As seen on Pulsar 4.0.7 with pulsar-client 3.13.0."""

from __future__ import annotations

import resource
import time

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import (
    EARLIEST,
    PATIENCE_MS,
    SHARED,
    Unique,
    counted,
    nothing_comes,
    payloads,
    receive,
    receive_rest,
    send,
    send_fast,
)
from tests.waiting import until


def refuse(consumer: pulsar.Consumer, count: int) -> list[tuple[str, int]]:
    """Negatively acknowledge the next `count` deliveries; nothing comes after them."""
    found = []
    for _ in range(count):
        message = consumer.receive(PATIENCE_MS)
        found.append((message.data().decode(), message.redelivery_count()))
        consumer.negative_acknowledge(message)
    assert nothing_comes(consumer)
    return found


def dead_letters(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    inspector = client.subscribe(topic, "inspector", initial_position=EARLIEST)
    found = receive(inspector, count)
    assert nothing_comes(inspector)
    inspector.close()
    return found


def backlog(admin: AdminClient, topic: str) -> int:
    return sum(partition.backlog for partition in admin.subscription_stats(topic, "s").partitions)


def test_null_and_empty_payloads_stay_what_they_are(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=20,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
    )  # fmt: skip
    producer = client.create_producer(topic)
    producer.send(None, partition_key="gone")
    producer.send(b"")
    refuse(consumer, 4)
    letters = dead_letters(client, f"{topic}-s-DLQ", 2)
    assert [letter.has_null_value() for letter in letters] == [True, False]
    assert letters[0].partition_key() == "gone"


def test_each_partition_has_a_dead_letter_topic_made_when_needed(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=20,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1),
    )  # fmt: skip
    send(client, f"{topic}-partition-1", 3)
    refuse(consumer, 6)
    letters = dead_letters(client, f"{topic}-partition-1-s-DLQ", 3)
    assert [letter.properties()["REAL_TOPIC"] for letter in letters] == [
        f"persistent://public/default/{topic}-partition-1"
    ] * 3
    assert [letter.properties()["ORIGIN_MESSAGE_ID"].split(",")[2] for letter in letters] == ["1"] * 3
    assert not [name for name in admin.list_topics("public/default") if f"{topic}-partition-0-s" in name]


def test_dead_letters_go_to_another_namespace_once_it_is_there(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, dead = unique(), f"persistent://public/{unique('ns')}/dead"

    def subscribed() -> pulsar.Consumer:
        return client.subscribe(
            topic, "s", SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=20,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, dead),
        )  # fmt: skip

    with pytest.raises(pulsar.TopicNotFound, match="does not exist"):
        subscribed()
    admin.create_namespace(dead.removeprefix("persistent://").removesuffix("/dead"))
    consumer = subscribed()
    send(client, topic, 2)
    refuse(consumer, 4)
    until(lambda: consumer.flush() or backlog(admin, topic) == 0, "the dead letters to be stored")
    assert payloads(dead_letters(client, dead, 2)) == ["0", "1"]


def test_the_delay_grows_with_each_redelivery(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST,
        negative_ack_redelivery_backoff=pulsar.MultiplierRedeliveryBackoff(10, 10_000, 40),
    )  # fmt: skip
    send(client, topic, 1)
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    message = receive(consumer, 1)[0]
    assert message.redelivery_count() == 1
    start_s = time.monotonic()
    consumer.negative_acknowledge(message)
    assert counted(receive(consumer, 1)) == [("0", 2)]
    assert time.monotonic() - start_s >= 0.35  # it was 10 ms the first time, and is 400 now


def test_what_is_not_acknowledged_in_time_comes_again(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, unacked_messages_timeout_ms=10_000)
    single = client.subscribe(topic, "exclusive", initial_position=EARLIEST, unacked_messages_timeout_ms=10_000)
    send(client, topic, 5)
    start_s = time.monotonic()
    consumer.acknowledge(receive(consumer, 5)[0])
    single.acknowledge(receive(single, 5)[1])
    assert counted(receive(consumer, 4)) == [(str(n), 1) for n in range(1, 5)]
    assert time.monotonic() - start_s >= 9
    assert counted(receive(single, 4)) == [(str(n), 0) for n in (0, 2, 3, 4)]
    assert nothing_comes(consumer)


@pytest.mark.long
def test_a_redelivery_storm_of_100_000_messages_takes_bounded_memory(client: pulsar.Client, unique: Unique) -> None:
    topic, count = unique(), 100_000
    consumers = [
        client.subscribe(
            topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=50_000,
            negative_ack_redelivery_delay_ms=1000,
        )
        for _ in range(2)
    ]  # fmt: skip
    send_fast(client, topic, count)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    again: set[bytes] = set()
    while len(again) < count:
        for consumer in consumers:
            for message in receive_rest(consumer, 100):
                if message.redelivery_count() == 0:
                    consumer.negative_acknowledge(message)
                    refused += 1
                else:
                    assert message.redelivery_count() == 1
                    again.add(message.data())
                    consumer.acknowledge(message)
    assert refused == count
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mb < 250, f"{grown_mb:.0f} MB"


@pytest.mark.parametrize("together", [True, False], ids=["beside each other", "one after the other"])
@pytest.mark.parametrize("kind", [SHARED, pulsar.ConsumerType.KeyShared], ids=["Shared", "Key_Shared"])
def test_counts_move_with_the_partition_without_a_policy(
    service_url: str, unique: Unique, kind: pulsar.ConsumerType, together: bool
) -> None:
    topic = unique()

    def subscribe(client: pulsar.Client) -> pulsar.Consumer:
        return client.subscribe(topic, "s", kind, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=50)

    first, second = pulsar.Client(service_url), pulsar.Client(service_url)
    send(first, topic, 2)
    consumer = subscribe(first)
    receive(consumer, 2)
    for _ in range(2):  # both come again, then one of them twice
        consumer.redeliver_unacknowledged_messages()
        received = {message.data(): message for message in receive(consumer, 2)}
    consumer.negative_acknowledge(received[b"0"])
    assert counted(receive(consumer, 1)) == [("0", 3)]
    other = subscribe(second) if together else None
    first.close()
    assert dict(counted(receive(other or subscribe(second), 2))) == {"0": 3, "1": 2}
    second.close()
