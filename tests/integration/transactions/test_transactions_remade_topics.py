"""Topics that are deleted, or deleted and made anew, while a transaction that writes to them is open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.transaction_support import PATIENCE_S, data_of
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def client(service_url: str) -> Iterator[pulsar.Client]:
    made = pulsar.Client(service_url, operation_timeout_seconds=120, enable_transaction=True)
    yield made
    made.close()


def made_anew(admin: AdminClient, topic: str) -> None:
    admin.delete_topic(topic, force=True)
    admin.create_topic(topic)


def read_all(client: pulsar.Client, topic: str, last: bytes) -> list[bytes]:
    """What a new reader gives, up to this message."""
    with_last: list[bytes] = []
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        while not with_last or with_last[-1] != last:
            with_last.append(reader.read_next(int(PATIENCE_S * 1000)).data())
    finally:
        reader.close()
    return with_last


@pytest.mark.parametrize("committed", [True, False])
def test_nobody_sees_what_goes_to_the_topic_made_anew_before_the_end(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique, committed: bool
) -> None:
    topic = unique()
    admin.create_topic(topic)
    first = client.create_producer(topic)
    txn = client.new_transaction(600_000)
    first.send(b"of the former life", txn=txn)
    made_anew(admin, topic)
    with pytest.raises(pulsar.TopicNotFound):
        first.send(b"of the former life")
    sender = client.create_producer(topic)
    outside = client.create_producer(topic)
    outside.send(b"before")
    sender.send(b"inside", txn=txn)
    outside.send(b"behind")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert reader.read_next(int(PATIENCE_S * 1000)).data() == b"before"
    consumer = client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    assert consumer.receive(int(PATIENCE_S * 1000)).data() == b"before"
    assert [found.bound for found in admin.get_transaction_buffer_stats(topic)] == [0]
    with pytest.raises(pulsar.Timeout):
        reader.read_next(1_000)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(100)
    (txn.commit if committed else txn.abort)()
    left = [b"inside", b"behind"] if committed else [b"behind"]
    assert [reader.read_next(int(PATIENCE_S * 1000)).data() for _ in left] == left
    assert [consumer.receive(int(PATIENCE_S * 1000)).data() for _ in left] == left
    assert read_all(client, topic, b"behind") == [b"before", *left]
    kafka_topic = admin.topic_stats(topic).kafka_topic
    assert [seen.ended for seen in data_of(bootstrap, kafka_topic) if seen.ended is not None] == [committed]
    (checked,) = admin.verify_transaction_buffer(topic)
    assert not checked.differences
    assert [each.sealed for each in admin.list_transactions_in_buffer(topic)] == ([] if committed else [False])


def test_a_topic_that_is_gone_refuses_a_transaction_at_once(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, other = unique(), unique("other")
    admin.create_topic(topic)
    producer, second = client.create_producer(topic), client.create_producer(other)
    admin.delete_topic(topic, force=True)
    txn = client.new_transaction(600_000)
    second.send(b"kept out", txn=txn)
    with pytest.raises(pulsar.TopicNotFound, match="was deleted"):
        producer.send(b"x", txn=txn)
    heard: list[pulsar.Result] = []
    producer.send_async(b"x", lambda result, _: heard.append(result), txn=txn)
    until(lambda: heard, "the answer to the send")
    assert heard == [pulsar.Result.TopicNotFound]
    with pytest.raises(pulsar.InvalidTxnStatusError, match="was deleted"):
        txn.commit()
    assert txn.state is pulsar.TransactionState.ABORTED


@pytest.mark.long
def test_what_is_left_of_a_deleted_topic_does_not_keep_its_transaction_from_ending(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, other = unique(), unique("other")
    admin.create_topic(topic)
    producer, second = client.create_producer(topic), client.create_producer(other)
    txn = client.new_transaction(600_000)
    producer.send(b"gone", txn=txn)
    second.send(b"kept", txn=txn)
    admin.delete_topic(topic, force=True)
    txn.commit()
    assert read_all(client, other, b"kept") == [b"kept"]
