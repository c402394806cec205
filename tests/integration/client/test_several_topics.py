"""Consumers of several topics and of patterns; batches; topics that grow. Expectations were seen on Pulsar 4.0.7."""

from __future__ import annotations

import re

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.client.consumer.multi_topics import MultiTopicsConsumer
from pulsar_on_kafka.client.receiving.receiving import Receiving
from tests.steps import EARLIEST, PATIENCE_MS, Unique, nothing_comes, receive, receive_rest, send
from tests.waiting import until

P = "persistent://public/default/"


def contents(messages: list[pulsar.Message]) -> list[tuple[str, str]]:
    """(last letter of the topic without partition, payload), sorted."""
    return sorted((m.topic_name().partition("-partition")[0][-1], m.data().decode()) for m in messages)


def drain(consumer: pulsar.Consumer, count: int) -> list[tuple[str, str]]:
    messages = receive(consumer, count)
    for message in messages:
        consumer.acknowledge(message)
    return contents(messages)


@pytest.fixture
def three(client: pulsar.Client, admin: AdminClient, unique: Unique) -> list[str]:
    """Two plain topics and one of two partitions, four messages in each; their names end in a, b and p."""
    base = unique()
    topics = [f"{base}-{letter}" for letter in "abp"]
    admin.create_partitioned_topic(topics[2], 2)
    for topic in topics:
        send(client, topic, 4)
    return topics


EVERYTHING = [(letter, str(number)) for letter in "abp" for number in range(4)]


def test_every_public_method_is_of_several_topics() -> None:
    own = vars(MultiTopicsConsumer)
    shared = {"endpoint", "close"}  # what `close` does is `leave`'s
    public = [name for name in vars(pulsar.Consumer) if not name.startswith("_") and name not in shared]
    assert [name for name in public if name not in own and name not in vars(Receiving)] == []


def test_ids_must_say_their_topic(client: pulsar.Client, three: list[str]) -> None:
    sent = client.create_producer(three[0]).send(b"4")
    consumer = client.subscribe(three, "sub", initial_position=EARLIEST)
    messages = {(m.topic_name(), m.data()): m for m in receive(consumer, 13)}
    first = messages[(P + three[0], b"0")]
    bare = pulsar.MessageId.deserialize(first.message_id().serialize())
    for foreign in (sent, bare, pulsar.MessageId.deserialize(bare.serialize(), P + "nobody")):
        for call in (consumer.acknowledge, consumer.acknowledge_cumulative, consumer.seek):
            with pytest.raises(pulsar.exceptions.OperationNotSupported):
                call(foreign)
    consumer.acknowledge(first.message_id())
    consumer.acknowledge(pulsar.MessageId.deserialize(bare.serialize(), P + three[0]))
    consumer.acknowledge_cumulative(messages[(P + three[0], b"3")])
    consumer.flush()
    with pytest.raises(pulsar.exceptions.OperationNotSupported):
        consumer.get_last_message_id()
    consumer.redeliver_unacknowledged_messages()
    assert contents(receive(consumer, 9)) == [("a", "4"), *[(x, str(n)) for x in "bp" for n in range(4)]]


def test_seek_moves_all_or_the_one_that_is_named(client: pulsar.Client, three: list[str]) -> None:
    consumer = client.subscribe(three, "sub", initial_position=EARLIEST)
    messages = receive(consumer, 12)
    for message in messages:
        consumer.acknowledge(message)
    consumer.seek(pulsar.MessageId.earliest)
    assert drain(consumer, 12) == EVERYTHING
    consumer.seek(0)
    assert drain(consumer, 12) == EVERYTHING
    consumer.seek(pulsar.MessageId.latest)
    assert nothing_comes(consumer)
    [second] = [m for m in messages if m.topic_name() == P + three[0] and m.data() == b"1"]
    consumer.seek(second.message_id())
    assert contents(receive_rest(consumer, 2000, least=2)) == [("a", "2"), ("a", "3")]


def test_unsubscribe_and_exclusion(client: pulsar.Client, admin: AdminClient, three: list[str]) -> None:
    consumer = client.subscribe(three[:2], "sub")
    for other in (three[0], three[:2]):
        with pytest.raises(pulsar.exceptions.ConsumerBusy):
            client.subscribe(other, "sub")
    with pytest.raises(pulsar.exceptions.ConsumerBusy):
        client.subscribe([three[2], P + three[2]], "sub")
    client.subscribe([three[2], three[2]], "other").unsubscribe()  # the same text twice is one topic
    assert admin.list_subscriptions(three[0]) == ["sub"]
    consumer.unsubscribe()
    assert [admin.list_subscriptions(topic) for topic in three] == [[], [], []]
    with pytest.raises(pulsar.exceptions.AlreadyClosed):
        consumer.receive(10)
    consumer.close()
    with pytest.raises(ValueError, match="closed already"):
        consumer.close()


def test_a_topic_that_cannot_be_opened_leaves_none_open(client: pulsar.Client, three: list[str]) -> None:
    with pytest.raises(pulsar.exceptions.TopicNotFound):
        client.subscribe([three[0], "no/such/topic"], "sub")
    with pytest.raises(pulsar.exceptions.InvalidTopicName):
        client.subscribe([three[0], "a/b"], "sub")
    with pytest.raises(TypeError):
        client.subscribe([three[0], 5], "sub")  # type: ignore[list-item]
    with pytest.raises(pulsar.exceptions.InvalidConfiguration):
        client.subscribe(three, "sub", receiver_queue_size=0)
    client.subscribe(three[0], "sub").close()


def test_the_queues_share_their_bound(client: pulsar.Client, three: list[str]) -> None:
    consumer = client.subscribe(
        three, "sub", initial_position=EARLIEST, max_total_receiver_queue_size_across_partitions=6
    )
    endpoints = [each.endpoint for each in consumer._current()]  # type: ignore[attr-defined]
    until(lambda: all(len(endpoint.queue) == 2 for endpoint in endpoints), "inboxes to be full")
    assert [endpoint.capacity for endpoint in endpoints] == [2, 2, 2]
    assert drain(consumer, 12) == EVERYTHING


def test_a_pattern_takes_topics_that_come_and_lets_go_of_those_that_go(
    client: pulsar.Client, admin: AdminClient, three: list[str]
) -> None:
    base = three[0][:-1]
    pattern = re.compile(f"{P}{re.escape(base)}.*")
    consumer = client.subscribe(pattern, "sub", initial_position=EARLIEST, pattern_auto_discovery_period=1)
    assert drain(consumer, 12) == EVERYTHING
    send(client, f"{base}n", 2)
    assert drain(consumer, 2) == [("n", "0"), ("n", "1")]
    with pytest.raises(pulsar.exceptions.OperationNotSupported):
        consumer.get_last_message_id()
    admin.delete_topic(f"{base}n", force=True)
    until(lambda: P + f"{base}n" not in consumer.topics(), "the topic to be let go")  # type: ignore[attr-defined]
    send(client, three[0], 1, start=9)
    assert drain(consumer, 1) == [("a", "9")]
    consumer.unsubscribe()
    assert [admin.list_subscriptions(topic) for topic in three] == [[], [], []]


def test_a_new_topic_is_read_from_its_beginning_also_with_latest(client: pulsar.Client, unique: Unique) -> None:
    base = unique()
    send(client, f"{base}-old", 2)
    consumer = client.subscribe(re.compile(f"{P}{re.escape(base)}.*"), "sub", pattern_auto_discovery_period=1)
    send(client, f"{base}-new", 3)
    assert [message.data() for message in receive(consumer, 3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("period", [0, -1])
def test_a_pattern_without_discovery_has_the_topics_of_its_beginning(
    client: pulsar.Client, unique: Unique, period: int
) -> None:
    base = unique()
    send(client, f"{base}-old", 1)
    pattern = re.compile(f"{P}{re.escape(base)}.*")
    once = client.subscribe(pattern, "once", initial_position=EARLIEST, pattern_auto_discovery_period=period)
    often = client.subscribe(pattern, "often", initial_position=EARLIEST, pattern_auto_discovery_period=1)
    for number in range(3):  # a look of `often` for each
        send(client, f"{base}-new{number}", 1)
        until(lambda number=number: P + f"{base}-new{number}" in often.topics(), "a look")  # type: ignore[attr-defined, misc]
    assert once.topics() == [P + f"{base}-old"]  # type: ignore[attr-defined]


def test_a_topic_of_a_pattern_that_is_made_again_between_two_looks_is_found(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    base = unique()
    send(client, f"{base}-a", 1)
    pattern = re.compile(f"{P}{re.escape(base)}.*")
    consumer = client.subscribe(pattern, "sub", initial_position=EARLIEST, pattern_auto_discovery_period=1)
    assert drain(consumer, 1) == [("a", "0")]
    admin.delete_topic(f"{base}-a", force=True)
    send(client, f"{base}-a", 2, start=7)
    seen: set[bytes] = set()

    def both_come() -> bool:
        message = receive(consumer, 1)[0]
        consumer.acknowledge(message)  # no error, also when it was read before the next look
        seen.add(message.data())
        return seen == {b"7", b"8"}

    until(both_come, "the messages of the new topic")


def test_a_pattern_opens_no_more_topics_than_allowed(service_url: str, three: list[str]) -> None:
    client = pulsar.Client(service_url, max_pattern_topics=2)
    with pytest.raises(pulsar.exceptions.InvalidConfiguration, match="at most 2"):
        client.subscribe(re.compile(f"{P}{re.escape(three[0][:-1])}.*"), "sub")
    client.close()


def test_a_growing_topic_is_noticed_by_all(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 1)
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "sub")
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    until(consumer.is_connected, "the consumer")
    admin.update_partitions(topic, 3)
    early = client.create_producer(topic)  # finds the new partitions at once
    early_ids = [early.send(b"early") for _ in range(3)]
    assert {sent.partition() for sent in early_ids} == {0, 1, 2}
    messages = receive(consumer, 3)
    assert {message.message_id().partition() for message in messages} == {0, 1, 2}
    for message in messages:
        consumer.acknowledge(message.message_id())
    consumer.flush()
    assert {reader.read_next(PATIENCE_MS).message_id().partition() for _ in range(3)} == {0, 1, 2}
    until(lambda: len({producer.send(b"x").partition() for _ in range(3)}) == 3, "the producer to notice")
    consumer.seek(early_ids[2])
    consumer.seek(pulsar.MessageId.earliest)
    assert len(receive(consumer, 6)) == 6
