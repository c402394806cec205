"""Subscription types, redelivery, listeners: who gets what, and when again. As seen on Pulsar 4.0.7."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import EARLIEST, Unique, counted, nothing_comes, payloads, receive, receive_rest, send
from tests.waiting import until

EXCLUSIVE, SHARED, FAILOVER = pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover


# Who may join ---------------------------------------------------------------------------------------------------------


def test_memberships_are_forgotten_with_their_last_consumer(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumers = [client.subscribe(topic, name) for name in ("a", "b", "c")]
    memberships = client._session.node().memberships
    assert {name for place, name in memberships._members if place.endswith(topic)} == {"a", "b", "c"}
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "a")
    consumers.pop().unsubscribe()
    for consumer in consumers:
        consumer.close()
    assert not [place for place, _ in memberships._members if place.endswith(topic)]
    client.subscribe(topic, "a").close()


# Redelivery -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
def test_on_exclusive_and_failover_everything_unacknowledged_comes_again_uncounted(
    client: pulsar.Client, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    consumer = client.subscribe(
        topic, "s", kind, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=100, consumer_name="c"
    )
    send(client, topic, 6)
    messages = receive(consumer, 6)
    consumer.acknowledge(messages[1])
    consumer.negative_acknowledge(messages[3])
    left = [(str(n), 0) for n in (0, 2, 3, 4, 5)]
    assert counted(receive(consumer, 5)) == left
    consumer.redeliver_unacknowledged_messages()
    assert counted(receive(consumer, 5)) == left
    consumer.close()
    consumer = client.subscribe(topic, "s", kind)
    again = receive(consumer, 5)
    assert counted(again) == left
    consumer.acknowledge_cumulative(again[2])
    consumer.close()
    consumer = client.subscribe(topic, "s", kind)
    assert counted(receive(consumer, 2)) == left[3:]
    assert nothing_comes(consumer)


def test_a_negative_ack_of_an_acknowledged_message(client: pulsar.Client, unique: Unique) -> None:
    """Shared: nothing. Exclusive: the others come again all the same."""
    for kind, expected in ((SHARED, []), (EXCLUSIVE, ["0", "2"])):
        topic = unique(kind.name.lower())
        consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=50)
        send(client, topic, 3)
        messages = receive(consumer, 3)
        consumer.acknowledge(messages[1])
        consumer.negative_acknowledge(messages[1])
        assert payloads(receive_rest(consumer)) == expected


# Several consumers ----------------------------------------------------------------------------------------------------


def test_a_failover_consumer_that_does_not_receive_holds_up_no_other_partition(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    options: Any = {"initial_position": EARLIEST, "receiver_queue_size": 1}  # for each partition
    active = client.subscribe(topic, "s", FAILOVER, consumer_name="a", **options)
    standing = client.subscribe(topic, "s", FAILOVER, consumer_name="b", **options)
    send(client, f"{topic}-partition-1", 5)
    reader = standing._member._serving._reader
    until(lambda: 1 in reader._paused, "the partition whose consumer does not receive to be read no more")
    for start in (0, 3):
        send(client, f"{topic}-partition-0", 3, start=start)
        assert payloads(receive(active, 3)) == [str(number) for number in range(start, start + 3)]
    send(client, f"{topic}-partition-0", 2, start=6)
    until(lambda: 0 in reader._paused, "nothing to be read while both inboxes are full")
    send(client, f"{topic}-partition-0", 1, start=8)
    assert payloads(receive(active, 3)) == ["6", "7", "8"]
    assert payloads(receive(standing, 5)) == ["0", "1", "2", "3", "4"]


def test_failover_prefers_the_higher_priority_level_to_the_name(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    standby = client.subscribe(topic, "s", FAILOVER, initial_position=EARLIEST, consumer_name="a", priority_level=1)
    active = client.subscribe(topic, "s", FAILOVER, consumer_name="z", priority_level=0)
    send(client, topic, 3)
    assert payloads(receive(active, 3)) == ["0", "1", "2"]
    active.close()
    assert payloads(receive(standby, 3)) == ["0", "1", "2"]


def test_a_slow_consumer_does_not_hold_up_the_others(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    slow = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=1)
    quick = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 200)
    assert len(receive(quick, 199)) == 199
    assert len(receive(slow, 1)) == 1


# Queue of size 0 ------------------------------------------------------------------------------------------------------


def test_with_queue_size_zero_nothing_is_kept_from_others(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    none = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=0)
    other = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 4)
    assert payloads(receive(other, 4)) == ["0", "1", "2", "3"]
    other.close()
    assert payloads(receive(none, 4)) == ["0", "1", "2", "3"]
    with pytest.raises(pulsar.Timeout):
        none.receive(100)


def test_with_queue_size_zero_a_listener_and_receive_async_are_served(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    got: list[str] = []
    done = threading.Event()

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        got.append(message.data().decode())
        consumer.acknowledge(message)
        if len(got) == 3:
            done.set()

    client.subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=0, message_listener=listen)
    send(client, topic, 3)
    assert done.wait(15)
    assert got == ["0", "1", "2"]
    consumer = client.subscribe(topic, "s2", SHARED, initial_position=EARLIEST, receiver_queue_size=0)
    answers: list[Any] = []
    answered = threading.Event()

    def answer(result: pulsar.Result, message: Any) -> None:
        answers.append((result, message.data().decode()))
        if len(answers) == 2:
            answered.set()

    consumer.receive_async(answer)
    consumer.receive_async(answer)
    assert answered.wait(15)
    assert answers == [(pulsar.Result.Ok, "0"), (pulsar.Result.Ok, "1")]
    assert payloads(receive(consumer, 1)) == ["2"]


# Listeners ------------------------------------------------------------------------------------------------------------


def test_a_listener_gets_messages_in_order_and_excludes_receive(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    got: list[str] = []
    consumer = client.subscribe(
        topic, "s", initial_position=EARLIEST, message_listener=lambda _c, message: got.append(message.data().decode())
    )
    send(client, topic, 50)
    until(lambda: len(got) == 50, "fifty messages")
    assert got == [str(n) for n in range(50)]
    for call in (lambda: consumer.receive(10), lambda: consumer.receive_async(lambda _r, _m: None)):
        with pytest.raises(pulsar.InvalidConfiguration, match="listener"):
            call()


def test_a_consumer_may_be_closed_from_its_own_listener(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    closed = threading.Event()

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        consumer.acknowledge(message)
        consumer.close()
        closed.set()

    client.subscribe(topic, "s", initial_position=EARLIEST, message_listener=listen)
    send(client, topic, 2)
    assert closed.wait(15)
    again = client.subscribe(topic, "s")
    assert payloads(receive(again, 1)) == ["1"]


def test_receive_async_is_answered_in_order_and_on_close(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    answers: list[tuple[pulsar.Result, Any]] = []
    for _ in range(3):
        consumer.receive_async(lambda result, message: answers.append((result, message)))
    send(client, topic, 2)
    until(lambda: len(answers) == 2, "two answers")
    assert payloads(message for _, message in answers) == ["0", "1"]
    consumer.close()
    until(lambda: len(answers) == 3, "the third answer")
    assert answers[2] == (pulsar.Result.AlreadyClosed, None)


def test_many_threads_receive_and_acknowledge(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    producer = client.create_producer(topic, block_if_queue_full=True)
    for number in range(4000):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    got: list[str] = []
    guard = threading.Lock()

    def work() -> None:
        while True:
            with guard:
                if len(got) >= 4000:
                    return
            try:
                message = consumer.receive(300)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            with guard:
                got.append(message.data().decode())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(map(int, got)) == list(range(4000))
    consumer.close()
    assert receive_rest(client.subscribe(topic, "s", SHARED)) == []


def test_a_consumer_that_cannot_be_opened_is_not_attached(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    """Properties that no record can have are refused, and then others have the subscription, and every key of it."""
    topic, huge = unique(), {f"k{number}": "v" * 100 for number in range(15_000)}
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "new", properties=huge)
    assert admin.list_subscriptions(topic) == []
    open_one = client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, initial_position=EARLIEST)
    for _ in range(3):
        with pytest.raises(pulsar.PulsarException):
            client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, properties=huge)
    producer = client.create_producer(topic)
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"key{number}")
    assert len(receive(open_one, 30)) == 30
