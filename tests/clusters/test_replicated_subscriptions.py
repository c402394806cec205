"""A subscription that goes on in another cluster, on two real brokers.

Where a test has to say what is copied when, it copies messages by hand.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.replication_state.comparison import PartitionComparison
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.original_position import OriginalPosition, encode_original
from pulsar_on_kafka_mapping.records.record_headers import ORIGINAL_ID, REPLICATED_FROM
from tests.clusters.cluster import PATIENCE_S, Cluster, refuse_again
from tests.integration.command_line import CommandLine
from tests.steps import nothing_comes, receive, receive_rest
from tests.waiting import until
from tests.watched_rounds import WatchedSubscriptions

REDELIVERY_DELAY_MS = 2_000
"""Closing takes less: a redelivery that is saved, and not made as its consumer closes, counts in other clusters."""


@dataclass(frozen=True)
class Side(Cluster):
    """A cluster to which messages are copied by hand, or by `replicating`."""

    copied: dict[tuple[str, str], int] = field(default_factory=dict)

    def make(self, topic: str) -> None:
        self.client.create_producer(topic).close()

    def subscribe(self, topic: str, **options: Any) -> pulsar.Consumer:
        return self.client.subscribe(
            topic,
            "s",
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=True,
            negative_ack_redelivery_delay_ms=100,
            **options,
        )

    def copy_from(self, there: Side, topic: str) -> None:
        """What was published there and is not here yet."""
        deadline = Deadline.after(PATIENCE_S)
        found = there.admin.node.topics.find(TopicName.parse(topic), deadline)
        mine = self.admin.node.topics.find(TopicName.parse(topic), deadline)
        assert found is not None
        assert mine is not None
        end = there.admin.node.admin.end_offsets(found.kafka_topic, [0], deadline)[0]
        start = self.copied.get((topic, there.name), 0)
        producer = Producer({"bootstrap.servers": self.url.removeprefix("kafka://"), "enable.idempotence": True})
        for batch in there.admin.node.fetcher.read(found.kafka_topic, 0, start, end, deadline):
            for record in batch:
                headers: list[tuple[str, str | bytes | None]] = list(headers_of(record) or ())
                if any(name == REPLICATED_FROM for name, _ in headers):
                    continue
                position = OriginalPosition(record.offset(), 0, found.layout.incarnation, 1)
                headers += [(REPLICATED_FROM, there.name.encode()), (ORIGINAL_ID, encode_original(position))]
                while True:
                    try:
                        producer.produce(mine.kafka_topic, record.value(), record.key(), partition=0, headers=headers)
                        break
                    except BufferError:
                        producer.poll(0.1)
        assert producer.flush(PATIENCE_S) == 0
        self.copied[topic, there.name] = end


@pytest.fixture
def sides(clusters: dict[str, Cluster]) -> tuple[Side, Side]:
    """West and east."""
    west, east = (Side(each.name, each.url, each.client, each.admin) for each in clusters.values())
    return west, east


def compared(here: Side, there: Side, topic: str) -> PartitionComparison:
    (found,) = here.admin.compare_subscription(topic, "s", there.name)
    return found


def settle(*roles: WatchedSubscriptions) -> None:
    """Everything that is saved was told and taken over, on all sides; an echo included."""
    for _ in range(2):
        for role in roles:
            assert role.wait_for_round(Deadline.after(PATIENCE_S))


def test_a_subscription_goes_on_in_another_cluster_and_comes_back(
    sides: tuple[Side, Side], namespace: str, topic: str
) -> None:
    """With what replicators copy, by the policy of a namespace."""
    west, east = sides
    for each in sides:
        each.admin.set_policy(namespace, "replication_clusters", ["west", "east"])
    consumer = west.subscribe(topic)
    producer = west.client.create_producer(topic)
    ids = [producer.send(b"%d" % number) for number in range(200)]
    producer.send(b"tomorrow", deliver_after=timedelta(days=1))
    batches = west.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(10):
        batches.send_async(b"batch %d" % number, None)
    batches.flush()
    received = receive(consumer, 210)
    done = {b"%d" % number for number in range(0, 200, 3)} | {b"batch %d" % number for number in range(0, 10, 2)}
    for message in received:
        if message.data() in done:
            consumer.acknowledge(message)
    consumer.flush()
    with west.replicating(), east.replicating(), west.syncing() as from_west, east.syncing() as from_east:
        until(lambda: west.has_copied(topic, to=east), "everything to be copied")
        settle(from_west, from_east)
        # Nobody ever consumed there: the subscription was made, and has what was done with.
        assert compared(west, east, topic).equal
        said = CommandLine(west.url, "subscriptions").json("compare", topic, "-s", "s", "--with", "east")
        assert (said["equal"], said["partitions"][0]["only_here"]) == (True, 0)
        there = east.subscribe(topic)
        left = {message.data() for message in received} - done
        seen = receive(there, len(left))
        assert sorted(message.data() for message in seen) == sorted(left)
        assert nothing_comes(there)
        # The switch: what is consumed there comes back, also of what was published there.
        consumer.close()
        east.client.create_producer(topic).send(b"published there")
        until(lambda: east.has_copied(topic, to=west), "what was published there to be copied")
        for message in seen[: len(left) // 2]:
            there.acknowledge(message)
        there.acknowledge(receive(there, 1)[0])
        there.flush()
        settle(from_east, from_west)
        found = compared(west, east, topic)
        assert found.equal, found
        rest = {message.data() for message in seen[len(left) // 2 :]}
        back = west.subscribe(topic)
        assert sorted(message.data() for message in receive(back, len(rest))) == sorted(rest)
        assert nothing_comes(back)
        # A seek is local, and what was said before it acknowledges nothing again.
        back.seek(ids[0])
        settle(from_east, from_west, from_east)
        again = {message.data() for message in receive_rest(back)}
        assert again >= {b"%d" % number for number in range(1, 200)}  # a seek to a message goes on behind it
        back.close()
        there.close()


def test_what_transactions_acknowledged_is_told_also_when_they_end_after_the_last_consumer_left(
    sides: tuple[Side, Side], namespace: str, topic: str
) -> None:
    west, east = sides
    for each in sides:
        each.admin.set_policy(namespace, "replication_clusters", ["west", "east"])
    sender = west.client.create_producer(topic)
    for number in range(6):
        sender.send(b"%d" % number)
    consumer = west.subscribe(topic)
    received = receive(consumer, 6)
    transacting = pulsar.Client(west.url, enable_transaction=True, operation_timeout_seconds=120)
    try:
        committed, left = transacting.new_transaction(600_000), transacting.new_transaction(600_000)
        for message in received[:3]:
            consumer.acknowledge(message, txn=committed)
        consumer.acknowledge(received[3], txn=left)
        consumer.close()
        committed.commit()
        live_cursors = west.admin.node.memberships.live_cursors
        found = west.admin.node.topics.find(TopicName.parse(topic), Deadline.after(PATIENCE_S))
        assert found is not None
        subscription = west.admin.node.subscriptions.find(found, "s", Deadline.after(PATIENCE_S))
        assert subscription is not None
        assert len(live_cursors.held_by_transactions(subscription, Deadline.after(PATIENCE_S))) == 1, "a switch waits"
        with west.replicating(), west.syncing() as from_west, east.syncing() as from_east:
            until(lambda: west.has_copied(topic, to=east), "everything to be copied")
            settle(from_west, from_east)
            there = east.subscribe(topic)
            seen = receive(there, 3)
            assert sorted(message.data() for message in seen) == [b"3", b"4", b"5"], "one is held by what is open"
            assert nothing_comes(there)
            left.abort()
        assert not live_cursors.held_by_transactions(subscription, Deadline.after(PATIENCE_S))
    finally:
        transacting.close()


def test_what_is_copied_after_it_was_acknowledged_is_left_out(sides: tuple[Side, Side], topic: str) -> None:
    """Progress waits for no copy, and owners leave out what the service has not taken over yet."""
    west, east = sides
    for each in sides:
        each.make(topic)
        each.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    consumer = west.subscribe(topic)
    there = east.subscribe(topic)
    producer = west.client.create_producer(topic)
    for number in range(300):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    generator = random.Random(7)
    received = receive(consumer, 300)
    done = {message.data() for message in generator.sample(received, 200)}
    for message in received:
        if message.data() in done:
            consumer.acknowledge(message)
    consumer.flush()
    with west.syncing() as from_west:
        settle(from_west)
        # No service there: its owner alone decides.
        east.copy_from(west, topic)
        left = {message.data() for message in received} - done
        assert {message.data() for message in receive(there, len(left))} == left
        assert nothing_comes(there)
        there.flush()
        assert compared(west, east, topic).equal
    consumer.close()
    there.close()


@pytest.mark.long
def test_deliveries_are_counted_on_and_put_off_in_another_cluster(sides: tuple[Side, Side], topic: str) -> None:
    west, east = sides
    policy = pulsar.ConsumerDeadLetterPolicy(3, f"{topic}-dead", "dead")
    for each in sides:
        each.make(topic)
        each.admin.set_policy(topic, "replication_clusters", ["west", "east"])

    def subscribe(side: Side, delay_ms: int, queue: int = 1000) -> pulsar.Consumer:
        return side.client.subscribe(
            topic,
            "s",
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            replicate_subscription_state_enabled=True,
            dead_letter_policy=policy,
            negative_ack_redelivery_delay_ms=delay_ms,
            receiver_queue_size=queue,
        )

    east.client.create_producer(topic).send(b"poison")
    west.copy_from(east, topic)  # the place there and here are another one
    west.client.create_producer(topic).send(b"put off")
    consumer = subscribe(west, 3_600_000)
    for message in receive(consumer, 2):
        if message.data() == b"put off":
            consumer.negative_acknowledge(message)
    consumer.flush()
    consumer.close()
    refuse_again(subscribe(west, REDELIVERY_DELAY_MS, queue=0), [0, 1])
    with west.syncing() as from_west, east.syncing() as from_east:
        settle(from_west, from_east)
        east.copy_from(west, topic)  # what is copied later is known then
        settle(from_west, from_east)
        refuse_again(subscribe(east, REDELIVERY_DELAY_MS, queue=0), [2])
        settle(from_east, from_west)
        last = subscribe(west, REDELIVERY_DELAY_MS)
        message = last.receive(20_000)
        assert (message.data(), message.redelivery_count()) == (b"poison", 3)
        last.negative_acknowledge(message)
        dead = west.client.subscribe(f"{topic}-dead", "dead", initial_position=pulsar.InitialPosition.Earliest)
        assert dead.receive(30_000).data() == b"poison"
        assert nothing_comes(last)  # what is put off for an hour is put off everywhere
        last.close()
        dead.close()


@pytest.mark.soak
def test_a_switch_in_mid_stream_with_a_hundred_thousand_holes(sides: tuple[Side, Side], topic: str) -> None:
    """Consumers acknowledge at random while the topic is copied; then they are gone, and others begin elsewhere.

    Nothing is lost, nothing that was told comes again, and in the end both sides are equal.
    """
    west, east = sides
    count = 250_000
    for each in sides:
        each.make(topic)
        each.admin.set_policy(topic, "replication_clusters", ["west", "east"])
    producer = west.client.create_producer(topic, block_if_queue_full=True, max_pending_messages=10_000)
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    batches = west.client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(count, count + 10_000):
        batches.send_async(b"%d" % number, None)
    producer.send(b"tomorrow", deliver_after=timedelta(days=1))
    producer.flush()
    batches.flush()
    generator = random.Random(11)
    done: set[bytes] = set()
    consumer = west.subscribe(topic, receiver_queue_size=5_000)
    with west.syncing() as from_west, east.syncing() as from_east:
        held = 0
        while len(done) < 110_000:
            message = consumer.receive(60_000)
            if held >= 40_000 or generator.random() < 0.75:
                consumer.acknowledge(message)
                done.add(message.data())
            else:
                held += 1
            if len(done) == 50_000:
                east.copy_from(west, topic)
        consumer.flush()
        settle(from_west, from_east)
        consumer.close()
        found = compared(west, east, topic)
        assert found.equal, found
        assert west.admin.subscription_stats(topic, "s").partitions[0].holes > 10_000
        there = east.subscribe(topic, receiver_queue_size=5_000)
        seen: set[bytes] = set()
        while len(seen) < count + 10_000 - len(done):
            message = there.receive(60_000)
            assert message.data() not in done
            assert message.data() not in seen
            seen.add(message.data())
            there.acknowledge(message)
        assert nothing_comes(there)
        there.flush()
        settle(from_east, from_west)
        found = compared(west, east, topic)
        assert found.equal, found
        there.close()
