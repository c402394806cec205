"""Leased messages behave like a process's own ones: transactions, batches, retries, delays, priorities."""

from __future__ import annotations

import time
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.pending_ack_support import begin
from tests.integration.subscriptions.test_leases import join, known_to_owner
from tests.seeds import first_of
from tests.steps import (
    EARLIEST,
    FAILOVER,
    KEY_SHARED,
    PATIENCE_MS,
    SHARED,
    Process,
    Unique,
    nothing_comes,
    payloads,
    receive,
    receive_rest,
    send,
)
from tests.waiting import until

pytestmark = pytest.mark.kafka

BEHIND = 1
"""A priority level: this consumer gets what others have no room for."""


def two(process: Process, topic: str, **options: Any) -> tuple[pulsar.Consumer, pulsar.Consumer]:
    """Who owns the partition, and who gets its messages, because its priority is higher."""
    owner = join(process, topic, priority_level=BEHIND, **options)
    consumer = join(process, topic, **options)
    until(lambda: known_to_owner([owner, consumer]) == 2, "the owner to know every consumer")
    return owner, consumer


def send_batch(client: pulsar.Client, topic: str, texts: str) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for text in texts:
        producer.send_async(text.encode(), None)
    producer.flush()
    producer.close()


def test_transactions_acknowledge_what_was_leased(process: Process, unique: Unique) -> None:
    topic = unique()
    owner, consumer = two(process, topic)
    client = process()
    send(client, topic, 4)
    send_batch(client, topic, "abcd")
    messages = {message.data().decode(): message for message in receive(consumer, 8)}
    kept, dropped, left_open = begin(client), begin(client), begin(client)
    for text in "01ab":
        consumer.acknowledge(messages[text], txn=kept)
    for text in "2c":
        consumer.acknowledge(messages[text], txn=dropped)
    with pytest.raises(pulsar.TransactionConflict):
        consumer.acknowledge(messages["0"], txn=left_open)
    left_open.abort()
    until(lambda: consumer._endpoint.unacked <= 2, "what transactions hold to be in nobody's hands")
    dropped.abort()
    again = receive(consumer, 3)  # of the batch everything that is not acknowledged
    assert sorted(payloads(again)) == ["2", "c", "d"]
    late = begin(client)
    for message in again:
        consumer.acknowledge(message, txn=late)
    owner.close()  # with two transactions open
    kept.commit()
    late.commit()
    consumer.acknowledge(messages["3"])
    assert nothing_comes(consumer)
    consumer.close()
    assert nothing_comes(join(process, topic))


def test_who_has_a_higher_priority_gets_leases_first(process: Process, unique: Unique) -> None:
    topic = unique()
    owner, consumer = two(process, topic, receiver_queue_size=4)
    send(process(), topic, 6)
    assert payloads(receive(owner, 2)) == ["4", "5"]
    assert payloads(receive(consumer, 4)) == ["0", "1", "2", "3"]


def test_retries_and_delayed_messages_are_leased(process: Process, unique: Unique) -> None:
    topic = unique()
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    owner, consumer = (
        process().subscribe(
            topic, "s", SHARED, initial_position=EARLIEST, retry_enable=True, dead_letter_policy=policy,
            priority_level=priority, unacked_messages_timeout_ms=0,
        )
        for priority in (BEHIND, 0)
    )  # fmt: skip
    of_topics = [
        list(vars(each)["_consumers"].values()) for each in (owner, consumer)
    ]  # the topic's and the retry topic's
    for pair in zip(*of_topics, strict=True):
        until(lambda pair=pair: known_to_owner(list(pair)) == 2, "the owners to know every consumer")  # type: ignore[misc]
    producer = process().create_producer(topic)
    began = time.time()
    producer.send(b"late", deliver_at=int(began * 1000) + 1500)
    producer.send(b"often")
    often = consumer.receive(PATIENCE_MS)
    consumer.reconsume_later(often, 500)
    found = {message.data(): message for message in receive(consumer, 2)}
    assert found.keys() == {b"often", b"late"}
    assert time.time() - began >= 1.5
    consumer.acknowledge(found[b"late"])
    assert found[b"often"].properties()["RECONSUMETIMES"] == "1"
    consumer.reconsume_later(found[b"often"], 60_000)  # once too often
    graves = process().subscribe(f"{topic}-s-DLQ", "graves", initial_position=EARLIEST)
    assert graves.receive(PATIENCE_MS).data() == b"often"
    assert nothing_comes(consumer)
    assert nothing_comes(owner)


@pytest.mark.parametrize("kind", first_of(2, [FAILOVER, KEY_SHARED, SHARED]))
def test_consumers_of_a_single_partition_share_it(
    process: Process, admin: AdminClient, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    """In several processes, and beside those of another partition: nobody gets what is not of its own."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    name = f"{topic}-partition-1"
    first = join(process, name, kind, consumer_name="a", receiver_queue_size=5)
    second = join(process, name, kind, consumer_name="b", receiver_queue_size=5)
    beside = join(process, f"{topic}-partition-0", kind, consumer_name="c")
    until(lambda: known_to_owner([first, second]) == 2, "the owner to know every consumer")
    producer = process().create_producer(name)
    for number in range(100):
        producer.send(str(number).encode(), partition_key=f"k{number % 9}")
    got: dict[str, list[pulsar.Message]] = {"first": [], "second": []}

    def all_there() -> bool:
        for who, consumer in (("first", first), ("second", second)):
            for message in receive_rest(consumer, 20):
                consumer.acknowledge(message)
                got[who].append(message)
        return len(got["first"]) + len(got["second"]) == 100

    until(all_there, "every message to be received")
    numbers = {who: [int(message.data()) for message in messages] for who, messages in got.items()}
    assert sorted(numbers["first"] + numbers["second"]) == list(range(100))
    assert first._member.owned_partitions() + second._member.owned_partitions() == [1]
    if kind is FAILOVER:  # partition 1 is that of the second by name
        assert numbers == {"first": [], "second": list(range(100))}
    else:
        assert all(numbers.values()), numbers
    if kind is KEY_SHARED:
        for key in range(9):
            of_key = [[n for n in each if n % 9 == key] for each in numbers.values()]
            assert sorted(of_key) == [[], list(range(key, 100, 9))]
    second.flush()
    second.close()
    first.close()
    assert nothing_comes(beside)
    beside.close()
    assert nothing_comes(join(process, topic, kind))


def test_what_was_acknowledged_of_a_single_partition_counts_for_the_whole(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    """Told to the owner and not saved by it when it ended: who serves the whole topic next reads it."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    name = f"{topic}-partition-1"
    owner = join(process, name, priority_level=BEHIND)
    other = join(process, name)
    until(lambda: known_to_owner([owner, other]) == 2, "the owner to know every consumer")
    producer = process().create_producer(name)
    for number in range(10):
        producer.send(str(number).encode())
    for message in receive(other, 10)[:6]:
        other.acknowledge(message)
    other.flush()
    owner.close()
    other.close()
    whole = join(process, topic)
    assert sorted(payloads(receive(whole, 4))) == ["6", "7", "8", "9"]
    assert nothing_comes(whole)
