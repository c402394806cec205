"""Properties of topics, and truncation, on a real broker."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import EARLIEST, Unique, nothing_comes, payloads, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_properties_are_kept_with_the_topic(admin: AdminClient, admin_elsewhere: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_partitioned_topic(topic, 2, properties={"a": "1", "b": "2"})
    assert admin_elsewhere.topic_properties(topic) == {"a": "1", "b": "2"}
    admin_elsewhere.update_topic_properties(topic, {"b": "3", "ü": ""})
    admin.remove_topic_property(topic, "a")
    admin.remove_topic_property(topic, "none")
    admin.update_partitions(topic, 3)
    assert admin.topic_properties(topic) == {"b": "3", "ü": ""}
    with pytest.raises(pulsar.InvalidConfiguration, match="65536"):
        admin.update_topic_properties(topic, {"much": 40_000 * "ü"})
    admin.delete_topic(topic)
    admin.create_topic(topic)
    assert admin.topic_properties(topic) == {}
    with pytest.raises(pulsar.TopicNotFound):
        admin.topic_properties(unique())


def test_a_truncated_topic_is_empty_and_goes_on(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    idle = client.subscribe(topic, "idle", initial_position=EARLIEST)
    idle.close()
    open_one = client.subscribe(topic, "open", initial_position=EARLIEST)
    send(client, topic, 5)
    message = open_one.receive(60_000)
    admin.truncate_topic(topic)
    open_one.acknowledge(message)
    assert admin.topic_stats(topic).entries == 0
    assert admin.topic_stats(topic).subscriptions == {"idle": 0, "open": 0}
    send(client, topic, 2, start=5)
    new = client.subscribe(topic, "new", initial_position=EARLIEST)
    assert payloads(receive(new, 2)) == ["5", "6"]
    assert payloads(receive(client.subscribe(topic, "idle"), 2)) == ["5", "6"]
    assert nothing_comes(new)
    until(lambda: admin.topic_stats(topic).entries == 2, "both")


def test_what_deduplication_needs_stays(client: pulsar.Client, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_topic(topic)
    admin.set_policy(topic, "deduplication", True)
    producer = client.create_producer(topic, producer_name="p")
    for number in range(3):
        producer.send(b"%d" % number, sequence_id=number)
    admin.truncate_topic(topic)
    before = admin.topic_stats(topic).end_offsets
    producer.send(b"again", sequence_id=2)
    assert admin.topic_stats(topic).end_offsets == before
    producer.close()
    assert client.create_producer(topic, producer_name="p").last_sequence_id() == 2
