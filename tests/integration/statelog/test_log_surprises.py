"""Kafka may change a log under a cursor: cut its beginning, lose its end, or be another log altogether."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.steps import EARLIEST, SHARED, Unique, nothing_comes, payloads, receive, send
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.fixture
def own_client(own_broker: EmbeddedBroker) -> Iterator[pulsar.Client]:
    made = pulsar.Client(f"kafka://{own_broker.bootstrap}", operation_timeout_seconds=120)
    yield made
    made.close()


@pytest.fixture
def own_admin(own_broker: EmbeddedBroker) -> Iterator[AdminClient]:
    with AdminClient(f"kafka://{own_broker.bootstrap}") as made:
        yield made


def log_of(broker: EmbeddedBroker, topic: str) -> Path:
    """The directory of a topic's only partition."""
    (found,) = broker.data_dir.rglob(f"{kafka_topic(TopicName.parse(topic))}-0")
    return found


def publish(bootstrap: str, kafka_topic: str, values: list[str]) -> None:
    """With a producer that has never met this log."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(kafka_topic, value)
    assert producer.flush(60) == 0


def stopped_because(consumer: pulsar.Consumer) -> str | None:
    return next((stats.stopped for stats in consumer._member.stats(Deadline.after(30))), None)


def wait_until_stopped(consumer: pulsar.Consumer) -> str:
    until(lambda: stopped_because(consumer), "the partition to be stopped")
    return str(stopped_because(consumer))


def test_a_log_that_lost_its_end_stops_the_partition_and_nothing_is_skipped(
    own_broker: EmbeddedBroker, own_client: pulsar.Client, own_admin: AdminClient, tmp_path: Path, unique: Unique
) -> None:
    live, idle, holes = unique("live"), unique("idle"), unique("holes")
    for topic in (live, idle, holes):
        own_admin.create_topic(topic)
    send(own_client, holes, 4)
    holes_log = log_of(own_broker, holes)
    own_broker.kill()
    shutil.copytree(holes_log, tmp_path / "before")
    own_broker.start()
    send(own_client, holes, 6, start=4)
    send(own_client, live, 10)
    send(own_client, idle, 10)
    attached = own_client.subscribe(live, "s", initial_position=EARLIEST)
    attached.acknowledge_cumulative(receive(attached, 10)[-1])
    attached.flush()
    leaving = own_client.subscribe(idle, "s", initial_position=EARLIEST)
    leaving.acknowledge_cumulative(receive(leaving, 10)[-1])
    leaving.close()
    sharing = own_client.subscribe(holes, "s", SHARED, initial_position=EARLIEST)
    for message in receive(sharing, 10)[4:]:
        sharing.acknowledge(message)
    sharing.close()
    logs = {topic: log_of(own_broker, topic) for topic in (live, idle, holes)}
    own_broker.kill()
    for log in logs.values():
        shutil.rmtree(log)
    shutil.copytree(tmp_path / "before", logs[holes])
    own_broker.start()

    assert "the cluster lost data" in wait_until_stopped(attached)
    for topic in (live, idle, holes):
        publish(own_broker.bootstrap, kafka_topic(TopicName.parse(topic)), ["10", "11", "12"])
    back = own_client.subscribe(idle, "s")
    assert "up to 9" in wait_until_stopped(back)
    # Its position is within the log, and what it knows of as acknowledged is not: new messages took those offsets.
    shared = own_client.subscribe(holes, "s", SHARED)
    assert "up to 9" in wait_until_stopped(shared)
    for consumer, left in ((attached, ["10", "11", "12"]), (back, ["10", "11", "12"])):
        assert nothing_comes(consumer)
        consumer.seek(pulsar.MessageId.earliest)
        assert payloads(receive(consumer, 3)) == left
        assert stopped_because(consumer) is None
    shared.seek(pulsar.MessageId.earliest)
    assert payloads(receive(shared, 7)) == ["0", "1", "2", "3", "10", "11", "12"]


@pytest.mark.long
@pytest.mark.parametrize("behind_our_back", [False, True])
def test_a_topic_made_again_ends_the_consumers_of_its_former_life(
    client: pulsar.Client, service_url: str, admin: AdminClient, unique: Unique, behind_our_back: bool
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    send(client, topic, 5)
    consumer.acknowledge_cumulative(receive(consumer, 5)[-1])
    consumer.flush()
    if behind_our_back:
        name = kafka_topic(TopicName.parse(topic))
        admin.node.admin.delete_topic(name, Deadline.after(60))
        until(lambda: admin.node.admin.create_topic(name, 1, {}, Deadline.after(60)), "the topic to be made again")
    else:
        admin.delete_topic(topic, force=True)
        admin.create_topic(topic)
    publish(service_url.removeprefix("kafka://"), kafka_topic(TopicName.parse(topic)), list("abcdefgh"))
    with pytest.raises(pulsar.TopicNotFound):
        drain(consumer)
    consumer.close()
    again = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert payloads(receive(again, 8)) == list("abcdefgh")
    assert nothing_comes(again)


def drain(consumer: pulsar.Consumer) -> None:
    """Receive until the consumer fails, two minutes at most."""
    deadline = Deadline.after(120)
    while not deadline.passed():
        with contextlib.suppress(pulsar.Timeout):
            consumer.receive(500)


def test_growing_disturbs_no_cursor(
    client: pulsar.Client, service_url: str, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2)
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 10)
    got = receive(consumer, 10)
    for message in got[::2]:
        consumer.acknowledge(message)
    consumer.flush()
    admin.update_partitions(topic, 5)
    publish(service_url.removeprefix("kafka://"), kafka_topic(TopicName.parse(topic)), [f"n{i}" for i in range(200)])
    assert sorted(payloads(receive(consumer, 200))) == sorted(f"n{i}" for i in range(200))
    assert nothing_comes(consumer)
    for message in got[1::2]:
        consumer.acknowledge(message)
    consumer.close()
    assert admin.subscription_stats(topic, "s").backlog == 200


def test_what_kafka_deleted_unacknowledged_is_counted(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    send(client, topic, 10)
    for message in receive(consumer, 10)[1:4]:
        consumer.acknowledge(message)
    consumer.close()
    stats = admin.topic_stats(topic)
    admin.node.admin.delete_records(stats.kafka_topic, {0: 6}, Deadline.after(60))
    again = client.subscribe(topic, "s", SHARED)
    assert payloads(receive(again, 4)) == ["6", "7", "8", "9"]
    meter = again._node.meters.subscription(f"persistent://public/default/{topic}", "s")
    assert meter.deleted_unacknowledged == 3
