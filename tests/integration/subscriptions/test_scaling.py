"""Fleets that grow and shrink in good order: what applications hold comes to nobody else, wherever its partition goes.

A client with settings of its own is a node of its own, with its own memberships, as another process is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from tests.integration.pending_ack_support import begin
from tests.integration.subscriptions.test_leases import join, known_to_owner
from tests.seeds import first_of
from tests.steps import (
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Process,
    Unique,
    nothing_comes,
    payloads,
    receive,
    receive_rest,
    send,
)
from tests.waiting import never, until

pytestmark = pytest.mark.kafka

COUNT = 100
FLEETS = [(SHARED, 8), (KEY_SHARED, 1), (FAILOVER, 1), (SHARED, 1), (KEY_SHARED, 8)]
"""On Failover over several partitions whoever joins becomes active for some, and gets what is held of these."""


class Holder:
    """A consumer in a process of its own whose application keeps every message until it is told to acknowledge."""

    def __init__(self, process: Process, topic: str, kind: pulsar.ConsumerType = SHARED, **options: Any) -> None:
        self.consumer = join(process, topic, kind, receiver_queue_size=10, **options)
        self.held: list[pulsar.Message] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self) -> None:
        while not self._over.is_set():
            try:
                self.held.append(self.consumer.receive(50))
            except pulsar.Timeout:
                continue

    def texts(self) -> list[str]:
        return payloads(list(self.held))

    def leave(self) -> None:
        """And give everything back."""
        self._stop()
        self.consumer.close()

    def _stop(self) -> None:
        self._over.set()
        self._thread.join(20)

    def finish(self) -> list[str]:
        """Acknowledge everything, durably, and leave; gives what it had."""
        self._stop()
        for message in self.held:
            self.consumer.acknowledge(message)
        self.consumer.flush()
        self.consumer.close()
        return self.texts()


def assert_each_once(texts: list[str], count: int) -> None:
    doubled = {text: times for text, times in Counter(texts).items() if times > 1}
    missing = {str(number) for number in range(count)}.difference(texts)
    assert not doubled, f"{len(doubled)} of {count} came more than once: {sorted(doubled)[:20]}"
    assert not missing, f"{len(missing)} of {count} did not come: {sorted(missing)[:20]}"


def topic_of(admin: AdminClient, unique: Unique, partitions: int) -> str:
    topic = unique()
    admin.create_partitioned_topic(topic, partitions)
    return topic


def hold_while_others_come_and_go(process: Process, topic: str, kind: pulsar.ConsumerType, seconds: float) -> None:
    holders = [Holder(process, topic, kind)]
    if kind is FAILOVER:  # the one that is active, and the owner, which leaves first
        holders = [Holder(process, topic, kind, consumer_name="-first"), *holders]
        until(lambda: known_to_owner([each.consumer for each in holders]) == 2, "the owner to know both")
    send(process(), topic, COUNT, batching_enabled=False)
    until(lambda: len(holders[0].held) == COUNT, "everything to be held")
    texts: list[str] = []
    deadline = Deadline.after(seconds)
    while not deadline.passed():
        holders += [Holder(process, topic, kind), Holder(process, topic, kind)]
        threading.Event().wait(0.5)  # what an application does in the meantime
        texts += holders.pop(1).finish()
    for holder in holders:
        texts += holder.finish()
    assert_each_once(texts, COUNT)
    assert nothing_comes(join(process, topic, kind))


@pytest.mark.parametrize(
    ("kind", "partitions"), [FLEETS[0], *(pytest.param(*fleet, marks=pytest.mark.long) for fleet in FLEETS[1:])]
)
def test_what_is_held_stays_while_processes_join_and_leave(
    process: Process, admin: AdminClient, unique: Unique, kind: pulsar.ConsumerType, partitions: int
) -> None:
    hold_while_others_come_and_go(process, topic_of(admin, unique, partitions), kind, 4)


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "partitions"), FLEETS)
def test_the_same_for_a_minute(
    process: Process, admin: AdminClient, unique: Unique, kind: pulsar.ConsumerType, partitions: int
) -> None:
    hold_while_others_come_and_go(process, topic_of(admin, unique, partitions), kind, 60)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_on_failover_messages_come_to_a_consumer_as_often_as_it_becomes_active(
    process: Process, admin: AdminClient, unique: Unique, seed: int
) -> None:
    chance, partitions, each = Random(seed), 8, 10
    topic, client = topic_of(admin, unique, partitions), process()
    for number in range(partitions):
        send(client, f"{topic}-partition-{number}", each, start=number * each, batching_enabled=False)
    live: dict[str, Holder] = {}
    active: dict[int, str] = {}
    turns: Counter[tuple[str, int]] = Counter()
    for step in range(8):
        if len(live) < 2 or chance.random() < 0.6:
            name = f"{chance.choice('abcdefgh')}{step}"
            live[name] = Holder(process, topic, FAILOVER, consumer_name=name)
        else:
            live.pop(chance.choice(sorted(live))).leave()
        for number in range(partitions):
            name = sorted(live)[number % len(live)]
            if active.get(number) != name:
                active[number] = name
                turns[name, number] += 1

        def wrong() -> dict[str, tuple[int, int]]:
            """How often something came, and how often it should have; empty: all is well."""
            return {
                f"{n} to {name}": (counts[n], turns[name, n // each])
                for name, counts in [(name, Counter(map(int, holder.texts()))) for name, holder in live.items()]
                for n in range(partitions * each)
                if counts[n] != turns[name, n // each]
            }

        until(lambda: not wrong(), f"what was sent to come to {active}")
        never(wrong, f"something to another one than {active}", 1.0)
    for holder in live.values():
        holder.leave()


@pytest.mark.parametrize("kind", first_of(1, [pulsar.ConsumerType.Failover, pulsar.ConsumerType.Exclusive]))
def test_what_is_held_stays_when_the_topic_gets_more_partitions(
    process: Process, admin: AdminClient, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    """All that moves partitions under an Exclusive consumer in good order."""
    topic = topic_of(admin, unique, 2)
    client = process()
    send(client, topic, 20)
    consumer = join(process, topic, kind)
    held = receive(consumer, 20)
    admin.update_partitions(topic, 4)
    send(client, f"{topic}-partition-3", 5, start=20)
    held += receive(consumer, 5)
    assert nothing_comes(consumer)
    assert_each_once(payloads(held), 25)
    for message in held:
        consumer.acknowledge(message)
    consumer.close()
    assert nothing_comes(join(process, topic, kind))


def test_who_joins_gets_only_what_was_not_received(process: Process, admin: AdminClient, unique: Unique) -> None:
    topic = topic_of(admin, unique, 4)
    send(process(), topic, 400, batching_enabled=False)
    first = join(process, topic)
    held = receive(first, 100)
    others = [Holder(process, topic), Holder(process, topic)]
    until(lambda: sum(len(other.held) for other in others) >= 100, "the others to get some")
    for message in held:
        first.acknowledge(message)
    texts = payloads(held)
    while len(texts) + sum(len(other.held) for other in others) < 400:
        for message in receive_rest(first):
            texts.append(message.data().decode())
            first.acknowledge(message)
    first.close()
    assert_each_once([*texts, *others[0].finish(), *others[1].finish()], 400)


def test_two_processes_that_begin_together(process: Process, admin: AdminClient, unique: Unique) -> None:
    topic = topic_of(admin, unique, 4)
    send(process(), topic, 80)
    holders: list[Holder] = []
    threads = [threading.Thread(target=lambda: holders.append(Holder(process, topic))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: sum(len(holder.held) for holder in holders) >= 80, "everything to be received")
    assert_each_once([text for holder in holders for text in holder.finish()], 80)


def test_keys_stay_when_one_of_three_leaves_and_another_joins(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    topic = topic_of(admin, unique, 4)
    producer = process().create_producer(topic, block_if_queue_full=True)
    for number in range(800):
        producer.send_async(str(number).encode(), None, partition_key=f"k{number % 40}")
    producer.flush()
    holders = [Holder(process, topic, KEY_SHARED) for _ in range(3)]
    until(lambda: sum(len(holder.held) for holder in holders) >= 300, "some to be received")
    texts = holders.pop().finish()
    holders.append(Holder(process, topic, KEY_SHARED))
    until(lambda: len(texts) + sum(len(holder.held) for holder in holders) >= 800, "everything to be received")
    assert_each_once(texts + [text for holder in holders for text in holder.finish()], 800)


@pytest.mark.long
def test_everything_that_is_done_with_a_message_works_where_its_partition_has_moved(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    topic = topic_of(admin, unique, 2)
    client = process()
    for number in range(2):  # one of the partitions moves
        part = f"{topic}-partition-{number}"
        send(client, part, 6)
        batches = client.create_producer(part, batching_enabled=True, batching_max_publish_delay_ms=1000)
        for text in "abcd":
            batches.send_async(text.encode(), None)
        batches.flush()
        client.create_producer(part, chunking_enabled=True).send(b"x" * 2_500_000)
    options: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 100, "unacked_messages_timeout_ms": 10_000}
    options["dead_letter_policy"] = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead", "graves")
    first = join(process, topic, **options)
    received = receive(first, 22)
    others = [join(process, topic, **options)]
    until(lambda: others[0]._member.owned_partitions(), "a partition to move")
    kept, dropped = begin(client), begin(client)
    refuse = first.negative_acknowledge
    actions: dict[str, Callable[[pulsar.Message], None]] = dict.fromkeys("01abx", first.acknowledge)
    actions |= {"2": partial(first.acknowledge, txn=kept), "3": partial(first.acknowledge, txn=dropped)}
    actions |= {"4": refuse, "c": refuse}  # and for what is left it takes too long
    for message in received:
        if action := actions.get(message.data()[:1].decode()):
            action(message)
    kept.commit()
    dropped.abort()
    again: list[str] = []

    def all_came_again() -> bool:
        for consumer in (first, *others):
            for message in receive_rest(consumer, 20):
                again.append(message.data()[:10].decode())
                consumer.acknowledge(message)
        return Counter(again) == Counter("345cd345cd")

    until(all_came_again, lambda: f"what was refused, left, or not acknowledged in time to come again, not {again}")
    for consumer in (first, *others):
        consumer.close()
    assert nothing_comes(join(process, topic))


def test_what_is_refused_where_its_partition_has_moved_is_buried_in_time(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    topic = topic_of(admin, unique, 2)
    policy = pulsar.ConsumerDeadLetterPolicy(2, f"{topic}-dead", "graves")
    send(process(), topic, 20)
    consumers = [join(process, topic, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=10)]
    held = receive(consumers[0], 20)
    consumers.append(join(process, topic, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=10))
    until(lambda: consumers[1]._member.owned_partitions(), "a partition to move")
    for message in held:
        consumers[0].negative_acknowledge(message)
    times = Counter(payloads(held))
    graves = join(process, f"{topic}-dead")
    dead: list[str] = []

    def all_buried() -> bool:
        for consumer in consumers:
            for message in receive_rest(consumer, 20):
                times[message.data().decode()] += 1
                consumer.negative_acknowledge(message)
        dead.extend(payloads(receive_rest(graves, 20)))
        return len(dead) >= 20

    until(all_buried, "everything to be buried")
    assert_each_once(dead, 20)
    assert set(times.values()) == {3}, times
