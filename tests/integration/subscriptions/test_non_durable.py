"""Subscriptions that end with their last consumer, on persistent topics: Java's `SubscriptionMode.NonDurable`."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.service.housekeeping.deleted_names import NonDurableHousekeeping
from pulsar_on_kafka.service.ledgers.log_use import KafkaLogUse
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS
from tests.programs import a_program
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive, receive_rest, send
from tests.waiting import until

NON_DURABLE = pulsar.SubscriptionMode.NonDurable
TYPES = list(pulsar.ConsumerType)

HOLDER = """
    url, topic, kind = sys.argv[1:]
    client = pulsar.Client(url)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType[kind],
                                initial_position=pulsar.InitialPosition.Earliest,
                                subscription_mode=pulsar.SubscriptionMode.NonDurable)
    message = consumer.receive(30_000)
    consumer.acknowledge(message)
    consumer.flush()
    print(message.data().decode(), flush=True)
    sys.stdin.readline()
    client.close()
"""


class Later(SystemClock):
    """An hour from now."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def found(admin: AdminClient, topic: str) -> Subscription | None:
    """What is on record of the subscription, whether anybody uses it or not."""
    soon = Deadline.after(30)
    opened = admin.node.topics.find(TopicName.parse(topic), soon)
    return None if opened is None else admin.node.subscriptions.find(opened, "s", soon)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_it_begins_as_asked_and_is_gone_with_its_last_consumer(
    client: pulsar.Client, admin: AdminClient, unique: Unique, kind: pulsar.ConsumerType
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number)
    consumer = client.subscribe(topic, "s", kind, initial_position=EARLIEST, subscription_mode=NON_DURABLE)
    first, *_ = receive(consumer, 3)
    consumer.acknowledge(first)
    assert admin.list_subscriptions(topic) == ["s"]
    stats = admin.subscription_stats(topic, "s")
    assert (stats.durable, stats.type) == (False, {"KeyShared": "Key_Shared"}.get(kind.name, kind.name))
    assert admin.topic_stats(topic).subscriptions == {}, "it holds nothing back"
    opened = admin.node.topics.find(TopicName.parse(topic), Deadline.after(30))
    assert opened is not None
    use = KafkaLogUse(admin.node, admin.node.memberships.cursors.read)
    assert list(use.needs_of(opened, [0], Deadline.after(30))[0].cursors) == [], "trimming does not wait for it"
    if kind is not pulsar.ConsumerType.Exclusive:
        second = client.subscribe(topic, "s", kind, subscription_mode=NON_DURABLE)
        consumer.close()
        assert sorted(payloads(receive(second, 2))) == ["1", "2"], "it goes on while it has consumers"
        consumer = second
    consumer.close()
    assert admin.list_subscriptions(topic) == []
    assert found(admin, topic) is None
    latest = client.subscribe(topic, "s", kind, subscription_mode=NON_DURABLE)
    nothing_comes(latest)
    producer.send(b"new")
    assert payloads(receive(latest, 1)) == ["new"]
    latest.unsubscribe()
    assert found(admin, topic) is None


def test_the_modes_exclude_each_other(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    shared = pulsar.ConsumerType.Shared
    durable = client.subscribe(topic, "s", shared)
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic, "s", shared, subscription_mode=NON_DURABLE)
    durable.close()
    with pytest.raises(pulsar.NotAllowedError, match="durable subscription with the same name"):
        client.subscribe(topic, "s", shared, subscription_mode=NON_DURABLE)
    client.subscribe(topic, "s", shared).unsubscribe()
    passing = client.subscribe(topic, "s", shared, subscription_mode=NON_DURABLE)
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic, "s", shared)
    passing.close()
    client.subscribe(topic, "s", shared).close()
    assert admin.list_subscriptions(topic) == ["s"]
    with pytest.raises(pulsar.InvalidConfiguration, match="NonDurable"):
        client.subscribe(topic, "t", subscription_mode=NON_DURABLE, replicate_subscription_state_enabled=True)
    with pytest.raises(ValueError, match="subscription_mode"):
        client.subscribe(topic, "t", subscription_mode="NonDurable")  # type: ignore[arg-type]


def test_processes_share_one_and_the_last_one_ends_it(
    service_url: str, client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    producer = client.create_producer(topic)
    consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared, subscription_mode=NON_DURABLE)
    with a_program(HOLDER, service_url, topic, "Shared") as other:
        assert other.stdin is not None
        assert other.stdout is not None
        until(lambda: len(admin.subscription_stats(topic, "s").consumers) == 2, "both to be there")
        taken = []
        for number in range(20):
            producer.send(b"%d" % number)
        taken.append(other.stdout.readline().strip().encode())
        other.stdin.write("\n")
        other.stdin.close()
        assert other.wait(60) == 0
        for message in receive(consumer, 19):
            consumer.acknowledge(message)
            taken.append(message.data())
    assert sorted(taken, key=int) == [b"%d" % number for number in range(20)], "each of them once"
    consumer.close()
    assert found(admin, topic) is None


@pytest.mark.kills
def test_a_killed_one_leaves_nothing_that_counts(
    service_url: str, client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topics = [unique("a"), unique("b")]
    for topic in topics:
        send(client, topic, 3)
        with a_program(HOLDER, service_url, topic, "Exclusive") as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "0\n"
            holder.kill()
            holder.wait(30)
        assert admin.list_subscriptions(topic) == [], "nobody is shown it"
        assert admin.topic_stats(topic).subscriptions == {}
    anew = client.subscribe(
        topics[0], "s", pulsar.ConsumerType.Shared, initial_position=EARLIEST, subscription_mode=NON_DURABLE
    )
    assert payloads(receive_rest(anew, least=3)) == ["0", "1", "2"], "another begins anew"

    node = admin.node
    housekeeping = NonDurableHousekeeping(Later(), node.topics, node.subscriptions, node.memberships)
    too_early = NonDurableHousekeeping(SystemClock(), node.topics, node.subscriptions, node.memberships)
    left = found(admin, topics[1])
    assert left is not None
    for topic in topics:
        partition = CURSOR_CHECKPOINTS.partition_for(str(TopicName.parse(topic)))
        assert too_early.run(partition, Deadline.after(30)) == 0
        housekeeping.run(partition, Deadline.after(30))
    assert found(admin, topics[1]) is None
    assert found(admin, topics[0]) is not None, "it has a consumer"
    anew.close()
    assert found(admin, topics[0]) is None
