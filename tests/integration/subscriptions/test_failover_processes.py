"""Failover over several processes: the active consumer of a partition is chosen by priority level and name (that of a
topic without partitions by hashes) from those of all processes, whichever of them owns it in Kafka's group.

A client with settings of its own is a node of its own, as another process is.
"""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.broker.subscriptions.dispatching.strategy import next_on_ring
from tests.integration.subscriptions.test_leases import known_to_owner
from tests.steps import EARLIEST, FAILOVER, PATIENCE_MS, Process, Unique, nothing_comes, payloads, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    """Of one partition: the first by name is its active consumer."""
    name = unique()
    admin.create_partitioned_topic(name, 1)
    return name


def join(process: Process, topic: str, name: str, **options: Any) -> pulsar.Consumer:
    return process().subscribe(topic, "s", FAILOVER, consumer_name=name, initial_position=EARLIEST, **options)


def until_known(*consumers: pulsar.Consumer) -> None:
    until(lambda: known_to_owner(list(consumers)) == len(consumers), "the owner to know every consumer")


def owns(consumer: pulsar.Consumer) -> list[int]:
    return consumer._member.owned_partitions()


def numbers(first: int, end: int) -> list[str]:
    return [str(number) for number in range(first, end)]


def test_the_first_by_name_is_active_in_whatever_process(process: Process, topic: str) -> None:
    second = join(process, topic, "b")
    send(process(), topic, 10)
    for message in receive(second, 4):
        second.acknowledge(message)
    first = join(process, topic, "a")
    got = receive(first, 6)
    assert payloads(got) == numbers(4, 10)
    assert (owns(first), owns(second)) == ([], [0])
    send(process(), topic, 5, start=10)
    got += receive(first, 5)
    assert payloads(got) == numbers(4, 15)
    first.acknowledge_cumulative(got[7], wait=True)
    first.close()
    assert payloads(receive(second, 3)) == numbers(12, 15)
    assert nothing_comes(second)


def test_a_higher_priority_level_comes_before_the_name(process: Process, topic: str) -> None:
    low = join(process, topic, "a", priority_level=1)
    high = join(process, topic, "z")
    until_known(low, high)
    send(process(), topic, 5)
    assert payloads(receive(high, 5)) == numbers(0, 5)
    assert nothing_comes(low)


def test_partitions_are_shared_out_by_name_whoever_owns_them(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 5)
    consumers = {name: join(process, topic, name) for name in ("c", "a", "b")}
    until(lambda: all(len(owns(each)) in (1, 2) for each in consumers.values()), "everybody to own something")
    members = [each._member for each in consumers.values()]
    until(lambda: all(len(member._endpoints) == 3 for member in members), "every owner to know every consumer")
    producer = process().create_producer(
        topic, message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution, batching_enabled=False
    )
    for number in range(100):
        producer.send(str(number).encode())
    got: dict[str, dict[int, list[int]]] = {name: {} for name in consumers}
    for name, partitions in (("a", (0, 3)), ("b", (1, 4)), ("c", (2,))):
        while sum(map(len, got[name].values())) < 20 * len(partitions):
            message = consumers[name].receive(PATIENCE_MS)
            got[name].setdefault(message.message_id().partition(), []).append(int(message.data()))
            consumers[name].acknowledge_cumulative(message)
        assert sorted(got[name]) == list(partitions)
        assert all(each == sorted(each) for each in got[name].values())
    for each in consumers.values():
        assert nothing_comes(each)
        each.close()
    assert nothing_comes(join(process, topic, "d"))


@pytest.mark.long
def test_topics_without_partitions_are_shared_out_by_hashes(process: Process, unique: Unique) -> None:
    names = ["a", "b", "c"]
    clients = {name: process() for name in names}
    for _ in range(4):
        topic = unique()
        consumers = {
            name: client.subscribe(topic, "s", FAILOVER, consumer_name=name, initial_position=EARLIEST)
            for name, client in clients.items()
        }
        until_known(*consumers.values())
        send(process(), topic, 5)
        active = consumers.pop(names[next_on_ring(f"persistent://public/default/{topic}", names)])
        assert payloads(receive(active, 5)) == numbers(0, 5)
        assert all(nothing_comes(consumer) for consumer in consumers.values())


def test_what_is_refused_elsewhere_brings_everything_again_in_order(process: Process, topic: str) -> None:
    owner = join(process, topic, "b")
    active = join(process, topic, "a", negative_ack_redelivery_delay_ms=100)
    until_known(owner, active)
    send(process(), topic, 10)
    got = receive(active, 10)
    active.acknowledge_cumulative(got[2])
    active.negative_acknowledge(got[5])
    again = receive(active, 7)
    assert payloads(again) == numbers(3, 10)
    assert {message.redelivery_count() for message in again} == {0}
    active.redeliver_unacknowledged_messages()
    assert payloads(receive(active, 7)) == numbers(3, 10)
    assert nothing_comes(owner)


def test_the_active_consumer_seeks_and_its_owner_moves(process: Process, topic: str) -> None:
    owner = join(process, topic, "b")
    active = join(process, topic, "a")
    until_known(owner, active)
    ids = send(process(), topic, 10)
    active.acknowledge_cumulative(receive(active, 10)[-1])
    active.seek(ids[4])
    got = receive(active, 5)
    assert payloads(got) == numbers(5, 10)
    owner.close()
    until(lambda: owns(active) == [0], "the active one to own the partition")
    assert nothing_comes(active)
    # The call is about what the former owner handed out: it counts all the same.
    active.acknowledge_cumulative(got[3], wait=True)
    active.close()
    assert payloads(receive(join(process, topic, "c"), 1)) == numbers(9, 10)


def test_who_joins_and_leaves_brings_nothing_again_where_the_active_consumer_stays(
    process: Process, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 4)
    first = join(process, topic, "a")
    for number in range(4):
        send(process(), f"{topic}-partition-{number}", 10)
    held = receive(first, 40)
    second = join(process, topic, "b")
    got = receive(second, 20)
    assert {message.message_id().partition() for message in got} == {1, 3}
    assert nothing_comes(first)
    assert nothing_comes(second)
    moved = sorted(owns(second))
    second.close()
    until(lambda: len(owns(first)) == 4, "the other one to own everything again")
    again = receive(first, 20)
    assert {message.message_id().partition() for message in again} == {1, 3}
    assert nothing_comes(first)
    for message in held:
        first.acknowledge(message)
    first.close()
    assert any(number % 2 == 0 for number in moved), f"{moved} moved, and have another active consumer now"
    assert nothing_comes(join(process, topic, "c"))


def test_batches_chunks_and_refusals_where_the_owner_moves(process: Process, topic: str) -> None:
    owner = join(process, topic, "b")
    active = join(process, topic, "a", negative_ack_redelivery_delay_ms=100)
    client = process()
    until_known(owner, active)
    send(client, topic, 3)
    batches = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for text in "abcd":
        batches.send_async(text.encode(), None)
    batches.flush()
    client.create_producer(topic, chunking_enabled=True).send(b"x" * 2_500_000)
    send(client, topic, 2, start=3)
    got = receive(active, 10)
    active.acknowledge(got[3])  # one of the batch
    others = [owner, join(process, topic, "c")]
    while others and not owns(active):
        last = next(each for each in others if owns(each) == [0])
        others.remove(last)
        last.close()
        until(lambda: any(owns(each) == [0] for each in (active, *others)), "another one to own the partition")
        assert nothing_comes(active)
    for message in (*got[4:6], got[7]):
        active.acknowledge(message)
    active.negative_acknowledge(got[8])
    assert [text[:3] for text in payloads(receive(active, 6))] == ["0", "1", "2", "d", "3", "4"]
    active.acknowledge_cumulative(got[9], wait=True)
    active.close()
    assert nothing_comes(join(process, topic, "d"))


def test_batches_are_acknowledged_in_the_middle(process: Process, topic: str) -> None:
    owner = join(process, topic, "b")
    active = join(process, topic, "a")
    until_known(owner, active)
    producer = process().create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=10_000
    )
    for number in range(20):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    active.acknowledge_cumulative(receive(active, 20)[12], wait=True)
    active.close()
    assert payloads(receive(owner, 7)) == numbers(13, 20)


def test_a_transaction_acknowledges_up_to_a_message_of_another_process(
    process: Process, service_url: str, topic: str
) -> None:
    owner = join(process, topic, "b")
    client = pulsar.Client(service_url, enable_transaction=True, kafka_config={"client.rack": "elsewhere"})
    active = client.subscribe(topic, "s", FAILOVER, consumer_name="a", initial_position=EARLIEST)
    until_known(owner, active)
    send(process(), topic, 10)
    got = receive(active, 10)
    for upto, end in ((3, "abort"), (6, "commit")):
        txn = client.new_transaction()
        active.acknowledge_cumulative(got[upto], txn=txn)
        getattr(txn, end)()
        if end == "abort":
            got = receive(active, 10)
            assert payloads(got) == numbers(0, 10)
    client.close()
    assert payloads(receive(owner, 3)) == numbers(7, 10)
    assert nothing_comes(owner)


def test_one_process_alone_says_and_hears_nothing(process: Process, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 3)
    client = process()
    consumers = [client.subscribe(topic, "s", FAILOVER, consumer_name=name) for name in ("a", "b")]
    until(lambda: len(owns(consumers[0])) == 3, "all partitions to be owned")
    send(process(), topic, 30)
    for message in receive(consumers[0], 20):
        consumers[0].acknowledge(message)
    leasing = consumers[0]._member._serving.leasing
    assert leasing is not None
    assert nothing_comes(consumers[0])
    assert (leasing._inbox.applied_upto, leasing.lessee.mark(), leasing.lessee.requesting) == (0, 0, False)
