"""A subscription that goes on in another cluster, on two real brokers.

Messages are copied by hand here, so that a test says what is copied when.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

import layer as pulsar
from layer.deadline import Deadline
from layer.embedded import EmbeddedBrokerError
from layer.replication.comparison import PartitionComparison
from layer.replication.subscriptions_duty import ReplicatedSubscriptions
from mapping.headers import ORIGINAL_ID, REPLICATED_FROM
from mapping.original_position import OriginalPosition, encode_original
from mapping.topic_name import TopicName
from tests.integration.command_line import CommandLine
from tests.integration.sdk_support import nothing_comes, receive, receive_rest, until
from tests.integration.two_clusters import Cluster, clusters_of, embedded_broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

Unique = Callable[..., str]
PATIENCE_S = 90.0


@dataclass(frozen=True)
class Side(Cluster):
    """A cluster to which messages are copied by hand, or not, but for `replicating`."""

    copied: dict[tuple[str, str], int] = field(default_factory=dict)

    @contextmanager
    def syncing(self) -> Iterator[ReplicatedSubscriptions]:
        duty = ReplicatedSubscriptions(self.admin.node, member="test-subscriptions", every_s=0.2)
        try:
            yield duty
        finally:
            duty.close(Deadline.after(PATIENCE_S))

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
                headers: list[tuple[str, str | bytes | None]] = list(record.headers() or ())
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


@pytest.fixture(scope="module")
def clusters(missing: Callable[[str, str], None]) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        try:
            urls = {name: f"kafka://{stack.enter_context(embedded_broker()).bootstrap}" for name in ("eu", "us")}
        except EmbeddedBrokerError as error:
            missing("kafka", f"no broker: {error}")
        made = stack.enter_context(clusters_of(urls))
        eu, us = (Side(each.name, each.url, each.client, each.admin) for each in made.values())
        yield eu, us


def compared(here: Side, there: Side, topic: str) -> PartitionComparison:
    (found,) = here.admin.compare_subscription(topic, "s", there.name)
    return found


def settle(*duties: ReplicatedSubscriptions) -> None:
    """Everything that is saved was told and taken over, on all sides; an echo included."""
    for _ in range(2):
        for duty in duties:
            assert duty.wait_for_round(Deadline.after(PATIENCE_S))


def test_a_subscription_goes_on_in_another_cluster_and_comes_back(clusters: tuple[Side, Side], unique: Unique) -> None:
    eu, us = clusters
    topic = unique()
    for each in clusters:
        each.make(topic)
        each.admin.set_policy(topic, "replication_clusters", ["eu", "us"])
    consumer = eu.subscribe(topic)
    producer = eu.client.create_producer(topic)
    ids = [producer.send(b"%d" % number) for number in range(200)]
    producer.send(b"tomorrow", deliver_after=timedelta(days=1))
    batches = eu.client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=50)
    for number in range(10):
        batches.send_async(b"batch %d" % number, None)
    batches.flush()
    received = receive(consumer, 210)
    done = {b"%d" % number for number in range(0, 200, 3)} | {b"batch %d" % number for number in range(0, 10, 2)}
    for message in received:
        if message.data() in done:
            consumer.acknowledge(message)
    consumer.flush()
    us.copy_from(eu, topic)
    with eu.syncing() as from_eu, us.syncing() as from_us:
        settle(from_eu, from_us)
        # Nobody ever consumed there: the subscription was made, and has what was done with.
        assert compared(eu, us, topic).equal
        said = CommandLine(eu.url, "subscriptions").json("compare", topic, "-s", "s", "--with", "us")
        assert (said["equal"], said["partitions"][0]["only_here"]) == (True, 0)
        there = us.subscribe(topic)
        left = {message.data() for message in received} - done
        seen = receive(there, len(left))
        assert sorted(message.data() for message in seen) == sorted(left)
        assert nothing_comes(there)
        # The switch: what is consumed there comes back, also of what was published there.
        consumer.close()
        us.client.create_producer(topic).send(b"published there")
        eu.copy_from(us, topic)
        for message in seen[: len(left) // 2]:
            there.acknowledge(message)
        there.acknowledge(receive(there, 1)[0])
        there.flush()
        settle(from_us, from_eu)
        found = compared(eu, us, topic)
        assert found.equal, found
        rest = {message.data() for message in seen[len(left) // 2 :]}
        back = eu.subscribe(topic)
        assert sorted(message.data() for message in receive(back, len(rest))) == sorted(rest)
        assert nothing_comes(back)
        # A seek is local, and what was said before it acknowledges nothing again.
        back.seek(ids[0])
        settle(from_us, from_eu, from_us)
        again = {message.data() for message in receive_rest(back)}
        assert again >= {b"%d" % number for number in range(1, 200)}  # a seek to a message goes on behind it
        back.close()
        there.close()


def test_what_is_copied_after_it_was_acknowledged_is_left_out(clusters: tuple[Side, Side], unique: Unique) -> None:
    """Progress waits for no copy, and owners leave out what the service has not taken over yet."""
    eu, us = clusters
    topic = unique()
    for each in clusters:
        each.make(topic)
        each.admin.set_policy(topic, "replication_clusters", ["eu", "us"])
    consumer = eu.subscribe(topic)
    there = us.subscribe(topic)
    producer = eu.client.create_producer(topic)
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
    with eu.syncing() as from_eu:
        settle(from_eu)
        # No service there: its owner alone decides.
        us.copy_from(eu, topic)
        left = {message.data() for message in received} - done
        assert {message.data() for message in receive(there, len(left))} == left
        assert nothing_comes(there)
        there.flush()
        assert compared(eu, us, topic).equal
    consumer.close()
    there.close()


def test_a_subscription_moves_with_what_the_replicator_copies(clusters: tuple[Side, Side], unique: Unique) -> None:
    eu, us = clusters
    topic = unique()
    eu.admin.set_policy("public/default", "replication_clusters", ["eu", "us"])
    us.admin.set_policy("public/default", "replication_clusters", ["eu", "us"])
    consumer = eu.subscribe(topic)
    producer = eu.client.create_producer(topic)
    for number in range(50):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    received = receive(consumer, 50)
    for message in received[::2]:
        consumer.acknowledge(message)
    consumer.flush()
    left = {message.data() for message in received[1::2]}
    with eu.replicating(), us.replicating(), eu.syncing() as from_eu, us.syncing() as from_us:
        until(lambda: topic in str(us.admin.list_topics("public/default")), "the topic to be made")
        until(lambda: "s" in us.admin.list_subscriptions(topic), "the subscription to be made")
        there = us.subscribe(topic)
        assert {message.data() for message in receive(there, len(left))} == left
        assert nothing_comes(there)
        us.client.create_producer(topic).send(b"published there")
        consumer.close()
        there.close()
        settle(from_eu, from_us)
        back = eu.subscribe(topic)
        assert {message.data() for message in receive(back, len(left) + 1)} == {*left, b"published there"}
        assert nothing_comes(back)
        back.close()
        found = compared(eu, us, topic)
        assert found.equal, found


@pytest.mark.soak
def test_a_switch_in_mid_stream_with_a_hundred_thousand_holes(clusters: tuple[Side, Side], unique: Unique) -> None:
    """Consumers acknowledge at random while the topic is copied; then they are gone, and others begin elsewhere.

    Nothing is lost, nothing that was told comes again, and in the end both sides are equal.
    """
    eu, us = clusters
    topic, count = unique(), 250_000
    for each in clusters:
        each.make(topic)
        each.admin.set_policy(topic, "replication_clusters", ["eu", "us"])
    producer = eu.client.create_producer(topic, block_if_queue_full=True, max_pending_messages=10_000)
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    batches = eu.client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
    for number in range(count, count + 10_000):
        batches.send_async(b"%d" % number, None)
    producer.send(b"tomorrow", deliver_after=timedelta(days=1))
    producer.flush()
    batches.flush()
    generator = random.Random(11)
    done: set[bytes] = set()
    consumer = eu.subscribe(topic, receiver_queue_size=5_000)
    with eu.syncing() as from_eu, us.syncing() as from_us:
        held = 0
        while len(done) < 110_000:
            message = consumer.receive(60_000)
            if held >= 40_000 or generator.random() < 0.75:
                consumer.acknowledge(message)
                done.add(message.data())
            else:
                held += 1
            if len(done) == 50_000:
                us.copy_from(eu, topic)
        consumer.flush()
        settle(from_eu, from_us)
        consumer.close()
        found = compared(eu, us, topic)
        assert found.equal, found
        assert eu.admin.subscription_stats(topic, "s").partitions[0].holes > 10_000
        there = us.subscribe(topic, receiver_queue_size=5_000)
        seen: set[bytes] = set()
        while len(seen) < count + 10_000 - len(done):
            message = there.receive(60_000)
            assert message.data() not in done
            assert message.data() not in seen
            seen.add(message.data())
            there.acknowledge(message)
        assert nothing_comes(there)
        there.flush()
        settle(from_us, from_eu)
        found = compared(eu, us, topic)
        assert found.equal, found
        there.close()
