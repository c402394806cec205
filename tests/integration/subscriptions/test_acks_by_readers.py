"""Acknowledgements of messages that were read without a consumer: through the owner, or, without one, as its save."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pytest
from pyroaring import BitMap64

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.ledger_acks import of_offsets
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import cursor_identity
from pulsar_on_kafka.broker.subscriptions.member.requests import life_of
from pulsar_on_kafka.broker.subscriptions.requests import cursor_admin
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import Acknowledge, Request, encode_request
from pulsar_on_kafka_mapping.state.cursors.cursor_state import Holes
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import DELIVERIES
from tests.steps import EARLIEST, SHARED, Unique, nothing_comes, payloads, receive, receive_rest, send, send_fast
from tests.waiting import until


@pytest.fixture
def admin(admin_elsewhere: AdminClient) -> AdminClient:
    return admin_elsewhere


def acknowledge(
    admin: AdminClient,
    topic: str,
    acked: Mapping[int, set[int]],
    batches: Mapping[int, Mapping[int, tuple[int, int]]] | None = None,
) -> int:
    subscription = admin._subscription(topic, "s", Deadline.after(20))
    size = subscription.topic.layout.entries_per_ledger
    acks = {
        partition: of_offsets(BitMap64(acked.get(partition, ())), (batches or {}).get(partition, {}), size)
        for partition in {*acked, *(batches or {})}
    }
    return admin.node.memberships.acknowledge(subscription, acks, Deadline.after(60)).requests


def rest(client: pulsar.Client, topic: str) -> list[int]:
    """What a fresh consumer gets; it acknowledges nothing."""
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    found = sorted(map(int, payloads(receive_rest(consumer))))
    consumer.close()
    return found


def test_without_an_owner_they_are_saved_as_the_owner_would(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=40)
    admin.create_subscription(topic, "s", from_earliest=True)
    send(client, topic, 200)
    acknowledge(admin, topic, {0: set(range(30, 120)) | {150}})
    assert rest(client, topic) == [*range(30), *range(120, 150), *range(151, 200)]
    acknowledge(admin, topic, {0: set(range(30))})
    assert admin.subscription_stats(topic, "s").partitions[0].mark_delete == 119


@pytest.mark.parametrize("near", [True, False], ids=["of this process", "of another process"])
def test_a_live_owner_takes_them_in(
    client: pulsar.Client, admin: AdminClient, service_url: str, unique: Unique, near: bool
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, initial_position=EARLIEST, receiver_queue_size=10)
    send(client, topic, 100)
    held = receive(consumer, 5)
    with AdminClient(service_url) if near else admin as asking:
        acknowledge(asking, topic, {0: set(range(3)) | set(range(40, 90))})
    rest_of_them = receive_rest(consumer)
    # What waited in the inbox stays there; nothing beyond it comes that was acknowledged.
    assert {int(m.data()) for m in rest_of_them} <= set(range(5, 100))
    assert not {int(m.data()) for m in rest_of_them} & set(range(60, 90))
    for message in held[3:] + rest_of_them:
        consumer.acknowledge(message)
    consumer.flush()
    consumer.close()
    assert rest(client, topic) == []


def test_a_live_consumer_that_holds_them_does_not_get_them_again(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, initial_position=EARLIEST, negative_ack_redelivery_delay_ms=1
    )
    send(client, topic, 10)
    held = receive(consumer, 10)
    acknowledge(admin, topic, {0: {2, 3}})
    for message in held:
        consumer.negative_acknowledge(message)
    assert sorted(payloads(receive(consumer, 8))) == [str(n) for n in range(10) if n not in (2, 3)]
    assert nothing_comes(consumer)


def test_messages_of_a_batch_one_by_one(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s", from_earliest=True)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=8, batching_max_publish_delay_ms=60_000
    )
    for number in range(16):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    acknowledge(admin, topic, {}, {0: {0: (8, 0b1111), 1: (8, 0b1)}})
    assert rest(client, topic) == [*range(4, 8), *range(9, 16)]
    live = client.subscribe(topic, "s", consumer_type=SHARED)
    receive(live, 11)
    acknowledge(admin, topic, {}, {0: {0: (8, 0b11110000), 1: (8, 0b10)}})
    live.close()
    assert rest(client, topic) == [*range(10, 16)]


def test_a_request_that_is_read_again_behind_a_seek_does_nothing(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, initial_position=EARLIEST)
    send(client, topic, 10)
    receive(consumer, 10)
    sent: list[tuple[object, bytes]] = []
    channel = admin.node.memberships.deliveries
    written = channel.write

    def noted(records: object, deadline: Deadline) -> list[int]:
        sent.extend(records)  # type: ignore[arg-type]
        return written(records, deadline)  # type: ignore[arg-type]

    channel.write = noted  # type: ignore[method-assign]
    acknowledge(admin, topic, {0: set(range(10))})
    assert sent
    admin.reset_cursor(topic, "s", message_id=pulsar.MessageId.earliest)
    receive(consumer, 10)
    written(sent[:1], Deadline.after(20))  # type: ignore[arg-type]
    acknowledge(admin, topic, {0: {0}})  # answered behind it
    consumer.close()
    assert rest(client, topic) == list(range(1, 10))


def test_a_large_bitmap_takes_several_requests(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_admin, "MAX_BYTES_PER_REQUEST", 200)
    topic = unique()
    admin.create_topic(topic, entries_per_ledger=100)
    admin.create_subscription(topic, "s", from_earliest=True)
    send_fast(client, topic, 1000)
    assert acknowledge(admin, topic, {0: set(range(0, 1000, 2))}) > 5
    assert rest(client, topic) == list(range(1, 1000, 2))


def test_each_partition_has_its_own(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_admin, "MAX_BYTES_PER_REQUEST", 100)
    topic = unique()
    admin.create_partitioned_topic(topic, 3, entries_per_ledger=50)
    admin.create_subscription(topic, "s", from_earliest=True)
    for partition in range(3):
        send(client, f"{topic}-partition-{partition}", 120, start=1000 * partition)
    acknowledge(admin, topic, {0: {1, 60, 110}, 1: set(range(100)), 2: {119}})
    left = [n for n in range(120) if n not in (1, 60, 110)] + [*range(1100, 1120)] + [*range(2000, 2119)]
    assert rest(client, topic) == left


def test_beyond_the_end_nothing_is_acknowledged(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.create_subscription(topic, "s", from_earliest=True)
    send(client, topic, 5)
    acknowledge(admin, topic, {0: set(range(3, 20)), 7: {1}})
    send(client, topic, 5, start=5)
    assert rest(client, topic) == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_request_of_another_life_is_nobodys(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, initial_position=EARLIEST)
    send(client, topic, 4)
    receive(consumer, 4)
    subscription = admin._subscription(topic, "s", Deadline.after(20))
    life = life_of(cursor_identity(subscription, 0))._replace(subscription_incarnation=1)
    request = Request(secrets.token_bytes(8), life, Acknowledge({0: Holes(of_offsets(BitMap64([0]), {}, 50)[0].acked)}))
    key = encode_key(DeliveryKey(str(subscription.topic.name), 0, "s"))
    partition = DELIVERIES.partition_for(str(subscription.topic.name))
    admin.node.log.append_many(DELIVERIES, partition, [(key, encode_request(request))], Deadline.after(20))
    acknowledge(admin, topic, {0: {3}})
    until(lambda: admin.subscription_stats(topic, "s").backlog == 3, "the acknowledgement of the other life to fail")
    consumer.close()
    assert rest(client, topic) == [0, 1, 2]
