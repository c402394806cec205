"""Subscriptions on single partitions of a topic: by themselves, and handed over to consumers of the whole topic."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.programs import a_program
from tests.seeds import first_of
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive, receive_rest
from tests.waiting import until

pytestmark = pytest.mark.kafka

SHARED, EXCLUSIVE = pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    """One of three partitions."""
    name = unique()
    admin.create_partitioned_topic(name, 3, entries_per_ledger=10)
    return name


def _send(client: pulsar.Client, topic: str, *partitions: int, count: int = 1) -> None:
    for partition in partitions:
        producer = client.create_producer(f"{topic}-partition-{partition}")
        for number in range(count):
            producer.send(f"{partition}.{number}".encode())
        producer.close()


def test_it_receives_its_partition_alone(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    consumer = client.subscribe(f"{topic}-partition-1", "s")
    _send(client, topic, 0, 1, 2, count=3)
    messages = receive(consumer, 3)
    assert payloads(messages) == ["1.0", "1.1", "1.2"]
    assert {message.topic_name() for message in messages} == {f"persistent://public/default/{topic}-partition-1"}
    assert consumer.topic() == f"persistent://public/default/{topic}-partition-1"
    assert consumer.get_last_message_id() == messages[-1].message_id()
    assert nothing_comes(consumer)
    for message in messages:
        consumer.acknowledge(message)
    consumer.flush()
    stats = admin.subscription_stats(topic, "s")
    assert (stats.by_partition, stats.backlog, [p.partition for p in stats.partitions]) == (True, 0, [1])
    assert (len(stats.consumers), stats.partitions[0].mark_delete, bool(stats.partitions[0].owner)) == (1, 2, True)
    assert stats.partition_groups[1].endswith("/s/1")


def test_seek_stays_in_the_partition(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(f"{topic}-partition-1", "s")
    _send(client, topic, 0, 1, count=2)
    ids = [message.message_id() for message in receive(consumer, 2)]
    consumer.acknowledge_cumulative(ids[1])
    consumer.seek(pulsar.MessageId.earliest)
    assert payloads(receive(consumer, 2)) == ["1.0", "1.1"]
    consumer.seek(ids[0])
    assert payloads(receive(consumer, 1)) == ["1.1"]
    consumer.seek(0)
    assert payloads(receive(consumer, 2)) == ["1.0", "1.1"]
    elsewhere = client.subscribe(f"{topic}-partition-0", "t", initial_position=EARLIEST)
    with pytest.raises(pulsar.NotAllowedError, match="partition 0"):
        consumer.acknowledge(receive(elsewhere, 1)[0].message_id())


def test_whole_and_single_exclude_each_other_while_they_live(client: pulsar.Client, topic: str) -> None:
    single = client.subscribe(f"{topic}-partition-1", "s", SHARED)
    with pytest.raises(pulsar.ConsumerBusy, match=r"partition by partition.*partition 1"):
        client.subscribe(topic, "s", SHARED)
    single.close()
    whole = client.subscribe(topic, "s", SHARED)
    with pytest.raises(pulsar.ConsumerBusy, match="as a whole"):
        client.subscribe(f"{topic}-partition-1", "s", SHARED)
    whole.close()
    client.subscribe(f"{topic}-partition-1", "s", EXCLUSIVE).close()
    held = client.subscribe(topic, "s", EXCLUSIVE)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(f"{topic}-partition-0", "s", SHARED)
    held.close()


@pytest.mark.parametrize("count", first_of(1, [60, 8]), ids=["many ledgers", "holes in the commit"])
def test_holes_go_over_in_both_directions(client: pulsar.Client, admin: AdminClient, topic: str, count: int) -> None:
    _send(client, topic, 0, 1, count=count)
    for turn in range(4):  # each turn acknowledges every fourth of both partitions
        options: dict[str, Any] = {"consumer_type": SHARED, "initial_position": EARLIEST}
        if turn % 2:
            consumers = [client.subscribe(f"{topic}-partition-{p}", "s", **options) for p in (0, 1)]
        else:
            consumers = [client.subscribe(topic, "s", **options)]
        expected = sorted(f"{p}.{n}" for p in (0, 1) for n in range(count) if n % 4 >= turn)
        received = [message for consumer in consumers for message in receive(consumer, len(expected) // len(consumers))]
        assert sorted(payloads(received)) == expected
        for message in received:
            if int(message.data().decode().partition(".")[2]) % 4 == turn:
                (consumer,) = [c for c in consumers if c.topic() in message.topic_name()]
                consumer.acknowledge(message)
        for consumer in consumers:
            consumer.close()
        left = count * 2 * (3 - turn) // 4
        assert admin.subscription_stats(topic, "s").backlog == left
        assert admin.topic_stats(topic).subscriptions == {"s": left}


def test_removing_it_from_one_partition(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    _send(client, topic, 0, 1, 2, count=2)
    whole = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    for message in receive(whole, 6):
        if message.data().endswith(b".0"):
            whole.acknowledge(message)
    whole.close()
    single = client.subscribe(f"{topic}-partition-1", "s")
    assert payloads(receive(single, 1)) == ["1.1"]
    single.unsubscribe()
    assert [p.partition for p in admin.subscription_stats(topic, "s").partitions] == [0, 2]
    anew = client.subscribe(f"{topic}-partition-1", "s", SHARED, initial_position=EARLIEST)
    assert payloads(receive(anew, 2)) == ["1.0", "1.1"]
    anew.close()
    whole = client.subscribe(topic, "s", SHARED)
    assert sorted(payloads(receive_rest(whole, least=4))) == ["0.1", "1.0", "1.1", "2.1"]
    whole.close()
    client.subscribe(f"{topic}-partition-2", "only").unsubscribe()
    assert admin.list_subscriptions(topic) == ["s"]


def test_administration_sees_both(client: pulsar.Client, admin: AdminClient, topic: str) -> None:
    _send(client, topic, 0, 1, 2, count=4)
    whole = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    single = client.subscribe(f"{topic}-partition-1", "t", SHARED, initial_position=EARLIEST)
    admin.clear_backlog(topic, "t")
    assert admin.subscription_stats(topic, "t").backlog == 0
    whole.close()
    single.close()
    consumer = client.subscribe(f"{topic}-partition-1", "s", SHARED)
    consumer.acknowledge(receive(consumer, 1)[0])
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 11
    assert admin.skip(topic, "s", 1) == 3
    assert admin.subscription_stats(topic, "s").backlog == 8
    consumer = client.subscribe(f"{topic}-partition-1", "s", SHARED)
    assert payloads(receive_rest(consumer, least=2)) == ["1.2", "1.3"]
    consumer.close()
    admin.reset_cursor(topic, "s", message_id=pulsar.MessageId.earliest)
    consumer = client.subscribe(f"{topic}-partition-0", "s", SHARED)
    assert payloads(receive(consumer, 4)) == ["0.0", "0.1", "0.2", "0.3"]
    consumer.close()
    whole = client.subscribe(topic, "s", SHARED)
    assert len(receive(whole, 12)) == 12
    whole.close()
    admin.clear_backlog(topic, "s")
    assert admin.subscription_stats(topic, "s").backlog == 0
    admin.unsubscribe(topic, "s")
    admin.unsubscribe(topic, "t")
    assert admin.list_subscriptions(topic) == []
    again = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    assert len(receive(again, 12)) == 12


_A_CONSUMER = """
    client = pulsar.Client(sys.argv[1], ack_persist_interval_ms=60_000)
    consumer = client.subscribe(sys.argv[2], "s", consumer_type=pulsar.ConsumerType.Shared,
                                initial_position=pulsar.InitialPosition.Earliest)
    for _ in range(20):
        message = consumer.receive(20_000)
        if int(message.data().decode().partition(".")[2]) % 2:
            consumer.acknowledge(message)
    consumer.flush()
    print("flushed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.kills
def test_two_processes_are_killed_and_the_whole_goes_on_with_the_same_holes(
    client: pulsar.Client, admin: AdminClient, service_url: str, topic: str
) -> None:
    _send(client, topic, 0, 1, count=20)
    with (
        a_program(_A_CONSUMER, service_url, f"{topic}-partition-0") as first,
        a_program(_A_CONSUMER, service_url, f"{topic}-partition-1") as second,
    ):
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "flushed"
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, "s", SHARED)
        for process in (first, second):
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    whole = client.subscribe(topic, "s", SHARED)
    assert sorted(payloads(receive(whole, 20))) == sorted(f"{p}.{n}" for p in (0, 1) for n in range(0, 20, 2))
    assert nothing_comes(whole)


@pytest.mark.kills
def test_a_second_process_takes_the_partition_over(
    client: pulsar.Client, admin: AdminClient, service_url: str, topic: str
) -> None:
    _send(client, topic, 1, count=20)
    ours = None
    with a_program(_A_CONSUMER, service_url, f"{topic}-partition-1") as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "flushed"
        ours = client.subscribe(f"{topic}-partition-1", "s", SHARED)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert payloads(receive(ours, 10)) == [f"1.{n}" for n in range(0, 20, 2)]

    def owned() -> bool:
        return bool(admin.subscription_stats(topic, "s").partitions[0].owner)

    until(owned, "the partition to be owned")
