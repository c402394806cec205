"""More consumers than partitions: one partition's messages go to consumers in several processes, by leases.

A client with settings of its own is a node of its own, with its own memberships, as another process is.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient, ConsumerStats
from tests.steps import (
    EARLIEST,
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
    send_fast,
)
from tests.waiting import until

pytestmark = pytest.mark.kafka


def join(process: Process, topic: str, kind: pulsar.ConsumerType = SHARED, **options: Any) -> pulsar.Consumer:
    return process().subscribe(topic, "s", kind, initial_position=EARLIEST, **options)


class Worker:
    """A consumer in a process of its own, who works 2 ms at each message; `got` has their texts."""

    def __init__(self, consumer: pulsar.Consumer) -> None:
        self.consumer = consumer
        self.got: list[str] = []
        self.keys: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                message = self.consumer.receive(100)
            except pulsar.Timeout:
                continue
            self.got.append(message.data().decode())
            self.keys.append(message.partition_key())
            self._over.wait(0.002)  # what it does with a message: nobody could work them all off alone
            self.consumer.acknowledge(message)

    def stop(self) -> None:
        self._over.set()
        self._thread.join(20)


def work_off(workers: list[Worker], count: int) -> None:
    until(lambda: sum(len(worker.got) for worker in workers) >= count, f"{count} messages to be received")
    for worker in workers:
        worker.stop()


def test_one_partition_is_shared_by_processes(process: Process, unique: Unique) -> None:
    topic = unique()
    workers = [Worker(join(process, topic, receiver_queue_size=50)) for _ in range(3)]
    until(lambda: known_to_owner([worker.consumer for worker in workers]) == 3, "the owner to know every consumer")
    send_fast(process(), topic, 3000)
    work_off(workers, 3000)
    assert sorted(int(text) for worker in workers for text in worker.got) == list(range(3000))
    assert all(len(worker.got) >= 100 for worker in workers), [len(worker.got) for worker in workers]
    for worker in workers:
        worker.consumer.close()
    assert nothing_comes(join(process, topic))


def test_a_key_goes_to_one_process_and_in_order(process: Process, unique: Unique) -> None:
    topic = unique()
    workers = [Worker(join(process, topic, KEY_SHARED)) for _ in range(3)]
    until(lambda: known_to_owner([worker.consumer for worker in workers]) == 3, "the owner to know every consumer")
    producer = process().create_producer(topic)
    for number in range(1000):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 40}")
    producer.flush()
    work_off(workers, 1000)
    holders: dict[str, set[int]] = defaultdict(set)
    for index, worker in enumerate(workers):
        for key in worker.keys:
            holders[key].add(index)
        for key in set(worker.keys):
            numbers = [int(text) for text, k in zip(worker.got, worker.keys, strict=True) if k == key]
            assert numbers == list(range(int(key[1:]), 1000, 40))
    assert len(holders) == 40
    assert all(len(each) == 1 for each in holders.values()), holders
    assert all(worker.got for worker in workers)


def test_dead_letters_of_a_process_that_is_leased_messages(process: Process, unique: Unique) -> None:
    """Its consumer's policy counts, whatever the owner of the partition has."""
    topic = unique()
    owner = join(process, topic, receiver_queue_size=1)
    policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "graves")
    consumer = join(process, topic, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=10)
    until(lambda: known_to_owner([owner, consumer]) == 2, "the owner to know every consumer")
    send(process(), topic, 10)  # one of them stays in the owner's inbox
    counts: dict[str, list[int]] = defaultdict(list)
    graves = process().subscribe(f"{topic}-dead", "graves", initial_position=EARLIEST)

    def refuse_all() -> bool:
        for message in receive_rest(consumer, 100):
            counts[message.data().decode()].append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        return len(counts) == 9 and all(len(each) == 3 for each in counts.values())

    until(refuse_all, "each message to be delivered three times")
    letters = receive(graves, len(counts))
    assert sorted(payloads(letters)) == sorted(counts)
    assert all(each == [0, 1, 2] for each in counts.values()), counts
    consumer.close()
    assert nothing_comes(graves)


def test_operators_see_every_consumer(process: Process, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    owner = join(process, topic, consumer_name="owner", receiver_queue_size=10)
    other = join(process, topic, consumer_name="other", receiver_queue_size=20)
    until(lambda: known_to_owner([owner, other]) == 2, "the owner to know every consumer")
    send(process(), topic, 10)
    taken = other.receive(PATIENCE_MS)
    stats = until(lambda: all_held(admin, topic, 10), "all messages to be in somebody's hands")
    assert [each.consumer_name for each in stats] == ["other", "owner"]
    assert len({each.process for each in stats}) == 2
    there, here = stats
    assert there.permits == 20 - there.unacked + 1  # one was received
    assert here.permits == 10 - here.unacked
    assert there.delivered == there.unacked
    assert there.lease_age_s >= 0
    assert here.lease_age_s == -1
    other.acknowledge(taken)
    until(lambda: consumers_of(admin, topic)[0].unacked == there.unacked - 1, "the acknowledgement to be seen")


@pytest.mark.parametrize("hung", ["owner", "other"])
def test_operators_see_which_consumer_messages_wait_for(
    process: Process, admin: AdminClient, unique: Unique, hung: str
) -> None:
    """The partition's owner knows, and tells of its own consumers and of others'. It reads on while any of them takes
    messages."""
    topic = unique()
    joined = {
        name: join(process, topic, KEY_SHARED, consumer_name=name, receiver_queue_size=10)
        for name in ("owner", "other")
    }
    until(lambda: known_to_owner(list(joined.values())) == 2, "the owner to know every consumer")
    producer = process().create_producer(topic)
    for number in range(1000):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 40}")
    producer.flush()
    working = Worker(next(consumer for name, consumer in joined.items() if name != hung))

    def waits() -> ConsumerStats | None:
        found = next(each for each in consumers_of(admin, topic) if each.consumer_name == hung)
        return found if found.waiting + found.unacked + len(working.got) == 1000 else None

    assert until(waits, "every message to be worked off or to wait").waiting > 300
    until(lambda: min(each.waiting_s for each in consumers_of(admin, topic) if each.waiting) > 0, "time to pass")
    working.stop()
    for consumer in joined.values():
        consumer.close()
    assert admin.subscription_consumers(topic, "s") == []


def all_held(admin: AdminClient, topic: str, count: int) -> list[ConsumerStats] | None:
    found = consumers_of(admin, topic)
    return found if sum(each.unacked for each in found) == count else None


def consumers_of(admin: AdminClient, topic: str) -> list[ConsumerStats]:
    return sorted(admin.subscription_consumers(topic, "s"), key=lambda each: each.consumer_name)


def known_to_owner(consumers: list[pulsar.Consumer]) -> int:
    """How many consumers the owner of the partition hands messages to, now: it knows them, has heard what they take,
    and a save says that there are some."""
    owners = [consumer._member for consumer in consumers if consumer._member.owned_partitions()]
    return max((sum(each.permits() > 0 for each in list(member._endpoints)) for member in owners), default=0)
