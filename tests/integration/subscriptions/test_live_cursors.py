"""Cursors that live consumers of other processes own: moved, skipped, saved, deleted.

A client with settings of its own has a node of its own, so it is to others what another process is.
"""

from __future__ import annotations

import signal
import threading
from datetime import timedelta

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.subscriptions.member.requests import life_of
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    CursorLife,
    Request,
    SaveNow,
    Seek,
    Skip,
    encode_request,
)
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES
from tests.programs import a_program
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
    send_fast,
)
from tests.waiting import until


def numbers(*parts: range) -> list[str]:
    return [str(number) for part in parts for number in part]


def backlog(admin: AdminClient, topic: str) -> int:
    return admin.subscription_stats(topic, "s").backlog


def found_subscription(admin: AdminClient, topic: str) -> Subscription:
    return admin._subscription(topic, "s", Deadline.after(20))


def serving_of(consumer: pulsar.Consumer) -> MemberServing:
    return consumer._member._serving


def append(admin: AdminClient, topic: str, partition: int, *values: bytes) -> None:
    name = f"persistent://public/default/{topic}"
    key = encode_key(DeliveryKey(name, partition, "s"))
    state_partition = DELIVERIES.partition_for(name)
    admin.node.log.append_many(DELIVERIES, state_partition, [(key, value) for value in values], Deadline.after(20))


def saved_by_its_owner(admin: AdminClient, topic: str) -> None:
    """Returns when the owner has done everything that stands in the log, and saved."""
    found = found_subscription(admin, topic)
    admin.node.memberships.live_cursors.change(found, dict.fromkeys(found.served, SaveNow()), Deadline.after(20))


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, FAILOVER, SHARED, KEY_SHARED])
def test_a_reset_drops_what_waits_in_inboxes_and_goes_on_from_there(
    admin: AdminClient, process: Process, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic, other = unique(), process()
    consumer = other.subscribe(topic, "s", kind, initial_position=EARLIEST)
    ids = send(other, topic, 20)
    for message in receive(consumer, 5):
        consumer.acknowledge(message)
    admin.reset_cursor(topic, "s", message_id=ids[15])
    assert payloads(receive(consumer, 5)) == numbers(range(15, 20))
    admin.reset_cursor(topic, "s", timestamp_ms=1)
    assert backlog(admin, topic) == 20  # a seek is a save
    assert payloads(receive(consumer, 20)) == numbers(range(20))
    assert nothing_comes(consumer)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_skipped_messages_come_no_more(
    admin: AdminClient, process: Process, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic, other = unique(), process()
    consumer = other.subscribe(topic, "s", kind, initial_position=EARLIEST)
    send(other, topic, 10)
    for message in receive(consumer, 10)[1::2]:
        consumer.acknowledge(message)
    assert admin.skip(topic, "s", 3) == 3  # 0, 2 and 4: what is acknowledged does not count
    assert backlog(admin, topic) == 2
    consumer.redeliver_unacknowledged_messages()
    assert payloads(receive(consumer, 2)) == ["6", "8"]
    admin.clear_backlog(topic, "s")
    assert backlog(admin, topic) == 0
    consumer.redeliver_unacknowledged_messages()
    assert nothing_comes(consumer)
    send(other, topic, 1, start=10)
    assert payloads(receive(consumer, 1)) == ["10"]


def test_a_backlog_that_nobody_read_is_cleared_without_reading_it(
    admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic, other = unique(), process()
    policy = pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=3)  # nothing goes out beyond the reserved limit
    consumer = other.subscribe(
        topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=5, dead_letter_policy=policy
    )
    send(other, topic, 1)
    assert payloads(receive(consumer, 1)) == ["0"]
    send_fast(other, topic, 3000)
    admin.clear_backlog(topic, "s")
    assert backlog(admin, topic) == 0
    other.create_producer(topic).send(b"new")
    came: list[str] = []
    while came[-1:] != ["new"]:
        came += payloads(receive(consumer, 1))
    assert len(came) <= 10


@pytest.mark.long
def test_delayed_messages_are_cleared_too(admin: AdminClient, process: Process, unique: Unique) -> None:
    topic, other = unique(), process()
    consumer = other.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    producer = other.create_producer(topic)
    for _ in range(3):
        producer.send(b"late", deliver_after=timedelta(minutes=1))
    producer.send(b"now")
    receive(consumer, 1)
    until(lambda: serving_of(consumer).stats()[0].delayed == 3, "three wait for their time")
    admin.clear_backlog(topic, "s")
    cleared = serving_of(consumer).stats()[0]
    assert (cleared.delayed, cleared.buffered, cleared.backlog) == (0, 0, 0)
    producer.send(b"behind")
    assert payloads(receive(consumer, 1)) == ["behind"]


def test_a_seek_moves_partitions_that_other_processes_own(admin: AdminClient, process: Process, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 4)
    clients = [process(), process()]
    consumers = [client.subscribe(topic, "s", SHARED, initial_position=EARLIEST) for client in clients]
    until(lambda: sorted(len(c._member.owned_partitions()) for c in consumers) == [2, 2], "both to have a share")
    send(clients[0], topic, 40)
    for consumer in consumers:
        for message in receive(consumer, 20):
            consumer.acknowledge(message)
        consumer.flush()
    for target in (pulsar.MessageId.earliest, 0):
        consumers[0].seek(target)
        found = [payloads(receive(consumer, 20)) for consumer in consumers]
        assert sorted(map(int, found[0] + found[1])) == list(range(40))
    consumers[1].seek(pulsar.MessageId.latest)
    assert backlog(admin, topic) == 0
    assert [receive_rest(consumer) for consumer in consumers] == [[], []]


OWNER = """
from pulsar_on_kafka.broker.subscriptions.requests.request_listener import Answering
client = pulsar.Client(sys.argv[1])
consumer = client.subscribe(sys.argv[2], "s", pulsar.ConsumerType.Shared,
                            initial_position=pulsar.InitialPosition.Earliest)
for _ in range(10):
    consumer.receive(15000)

def die(*_):
    print("dying", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[3] == "before it is saved":
    consumer._member._serving.requests._save = die
else:
    Answering.write = die
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.kills
@pytest.mark.parametrize("successor", [True, False], ids=["another owner follows", "nobody follows"])
@pytest.mark.parametrize("moment", ["before it is saved", "before it is answered"])
def test_an_owner_that_dies_amid_a_request(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, moment: str, successor: bool
) -> None:
    topic = unique()
    client.create_producer(topic)
    process = a_program(OWNER, service_url, topic, moment)
    try:
        admin_client = AdminClient(service_url, operation_timeout_seconds=60)
        until(lambda: admin.list_subscriptions(topic) == ["s"], "the subscription")
        send(client, topic, 10)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        skipped: list[int] = []
        asking = threading.Thread(target=lambda: skipped.append(admin_client.skip(topic, "s", 3)))
        asking.start()
        assert process.stdout.readline() == "dying\n"
        assert process.wait(20) == -signal.SIGKILL
        consumer = client.subscribe(topic, "s", SHARED) if successor else None
        asking.join(60)
        assert skipped == [3]
        if consumer is not None:
            consumer.close()  # what was in its inbox before the skip stayed there
        consumer = client.subscribe(topic, "s", SHARED)
        assert payloads(receive(consumer, 7)) == numbers(range(3, 10))  # skipped once
        assert nothing_comes(consumer)
        admin_client.close()
    finally:
        process.kill()
        process.communicate(timeout=20)


def test_a_rebalance_between_the_effect_and_its_answer(admin: AdminClient, process: Process, unique: Unique) -> None:
    """The owner takes a partition's request in, hands the partition over with it, and its successor answers."""
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    first_client, second_client = process(), process()
    first = first_client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    until(lambda: first._member.owned_partitions() == [0, 1], "the first to own both")
    send(first_client, topic, 20)
    receive(first, 20)
    serving = serving_of(first)
    save, joined = serving.requests._save, []
    second: list[pulsar.Consumer] = []

    def join() -> None:
        second.append(second_client.subscribe(topic, "s", SHARED))

    def save_after_a_rebalance() -> int:
        serving.requests._save = save
        joined.append(threading.Thread(target=join))
        joined[0].start()
        until(lambda: serving._membership.serve_group(0.01) or len(serving._owned) < 2, "a partition to be given away")
        return save()

    serving.requests._save = save_after_a_rebalance
    assert admin.skip(topic, "s", 4) == 8
    assert joined
    joined[0].join(30)
    assert backlog(admin, topic) == 12
    until(lambda: len(second[0]._member.owned_partitions()) == 1, "the second to own one")
    assert nothing_comes(second[0])  # the first one's application holds what moved
    first.close()
    assert len(receive(second[0], 12)) == 12
    assert nothing_comes(second[0])


@pytest.mark.long
def test_nobody_answers(admin: AdminClient, service_url: str, process: Process,
                        unique: Unique) -> None:  # fmt: skip
    topic, other = unique(), process()
    consumer = other.subscribe(topic, "s", initial_position=EARLIEST)
    send(other, topic, 2)
    receive(consumer, 2)
    other._session.node().memberships.deliveries.close(Deadline.after(10))
    with AdminClient(service_url, operation_timeout_seconds=6) as hasty:
        with pytest.raises(pulsar.Timeout, match=r"partitions \[0\] of subscription s.*pulsar-on-kafka"):
            hasty.reset_cursor(topic, "s", timestamp_ms=1)
        # What it waits for when its time is over: members that stay, or what Kafka says of them on a busy machine.
        with pytest.raises(pulsar.Timeout, match=r"live members|describing group"):
            hasty.unsubscribe(topic, "s", force=True)
    assert admin.list_subscriptions(topic) == ["s"]


def test_a_request_takes_effect_once_and_only_in_its_own_life(
    admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic, other = unique(), process()
    consumer = other.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(other, topic, 10)
    receive(consumer, 10)
    saved_by_its_owner(admin, topic)  # its channel listens
    life = life_of(cursor_identity(found_subscription(admin, topic), 0))
    skip = encode_request(Request(b"12345678", life, Skip(2, 10)))
    another_life = CursorLife(life.topic_id, life.topic_incarnation, life.subscription_incarnation + 1)
    append(admin, topic, 0, skip, skip, encode_request(Request(b"abcdefgh", another_life, Seek(10))), skip)
    append(admin, topic, 3, encode_request(Request(b"ABCDEFGH", life, Seek(10))))  # there is no such partition
    saved_by_its_owner(admin, topic)
    append(admin, topic, 0, skip)
    saved_by_its_owner(admin, topic)
    assert backlog(admin, topic) == 8


def test_what_cannot_be_read_or_done_is_skipped_and_told(admin: AdminClient, process: Process, unique: Unique) -> None:
    topic, other = unique(), process()
    consumer = other.subscribe(topic, "s", initial_position=EARLIEST)
    send(other, topic, 5)
    receive(consumer, 5)
    saved_by_its_owner(admin, topic)
    channel = other._session.node().memberships.deliveries
    before = channel.corrupt_records
    append(admin, topic, 0, b'{"v":1,"ask":"seek"', b"\x07 of a kind that is not known", b"{}")
    name = f"persistent://public/default/{topic}"
    admin.node.log.append(DELIVERIES, DELIVERIES.partition_for(name), b"no key", b"{}", Deadline.after(20))
    saved_by_its_owner(admin, topic)
    assert channel.corrupt_records == before + 2
    found = found_subscription(admin, topic)
    with pytest.raises(errors.Refused, match="cannot be set to offset -1"):
        admin.node.memberships.live_cursors.change(found, {0: Seek(-1)}, Deadline.after(20))
    admin.reset_cursor(topic, "s", timestamp_ms=1)
    assert payloads(receive(consumer, 5)) == numbers(range(5))


def test_force_deletes_a_subscription_with_consumers_in_several_processes(
    admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic = unique()
    clients = [process(), process(), process()]
    consumers = [client.subscribe(topic, "s", SHARED, initial_position=EARLIEST) for client in clients]
    send(clients[0], topic, 5)  # one partition: two of the processes own nothing
    with pytest.raises(pulsar.ConsumerBusy):
        admin.unsubscribe(topic, "s")
    admin.unsubscribe(topic, "s", force=True)
    assert admin.list_subscriptions(topic) == []
    for consumer in consumers:
        until(lambda c=consumer: not c.is_connected(), "the consumer to hear of it")  # type: ignore[misc]
        with pytest.raises(pulsar.SubscriptionNotFound, match="deleted by force"):
            receive(consumer, 10)
        consumer.close()
    again = clients[0].subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    assert payloads(receive(again, 5)) == numbers(range(5))
    with pytest.raises(pulsar.SubscriptionNotFound):
        admin.unsubscribe(topic, "other", force=True)


def test_single_partitions_are_moved_where_they_are_served(
    admin: AdminClient, process: Process, unique: Unique
) -> None:
    topic, other = unique(), process()
    admin.create_partitioned_topic(topic, 3)
    send(other, topic, 30)
    consumer = other.subscribe(f"{topic}-partition-1", "s", SHARED, initial_position=EARLIEST)
    for message in receive(consumer, 10):
        consumer.acknowledge(message)
    consumer.flush()
    admin.reset_cursor(topic, "s", timestamp_ms=1)  # of a subscription that is on this partition only
    assert len(receive(consumer, 10)) == 10
    admin.unsubscribe(topic, "s", force=True)
    with pytest.raises(pulsar.SubscriptionNotFound):
        consumer.receive(PATIENCE_MS)
