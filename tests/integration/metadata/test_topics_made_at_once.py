"""Namespaces and topics that several make or grow at the same time, or that one made who was killed just then."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from tests.steps import Unique

pytestmark = pytest.mark.kafka


def soon() -> Deadline:
    return Deadline.after(30)


@pytest.fixture
def name(admin: AdminClient, unique: Unique) -> TopicName:
    namespace = f"{unique('tenant')}/shop"
    for _ in range(2):
        admin.node.namespaces.find_or_create(namespace, soon())
    return TopicName.parse(f"persistent://{namespace}/orders")


def test_a_topic_that_somebody_makes_between_looking_and_making(
    admin: AdminClient, name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = admin.node.topics
    look, found = topics.find, []

    def looked_too_early(wanted: TopicName, deadline: Deadline) -> Topic | None:
        found.append(look(wanted, deadline))
        if len(found) == 1:
            topics.create(wanted, 3, deadline)
        return found[-1]

    monkeypatch.setattr(topics, "find", looked_too_early)
    made = topics.find_or_create(name, 2, soon())
    assert found[0] is None
    assert (made.partitioned, made.partitions) == (True, 3)
    assert topics.find_or_create(name, 2, soon()).partitions == 3


def test_what_cannot_grow_is_refused(admin: AdminClient, name: TopicName) -> None:
    with pytest.raises(errors.NoSuchTopic):
        admin.node.topics.grow_to(name, 2, soon())
    admin.node.topics.find_or_create(name, 0, soon())
    with pytest.raises(errors.InvalidOption, match="not partitioned"):
        admin.node.topics.grow_to(name, 2, soon())


def test_a_topic_that_somebody_grows_between_looking_and_growing(
    admin: AdminClient, name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = admin.node.topics
    topics.create(name, 2, soon())
    grow_topic = admin.node.admin.grow_topic

    def grown_too_late(kafka_topic: str, partitions: int, deadline: Deadline) -> None:
        monkeypatch.undo()
        topics.grow(name, partitions, deadline)
        grow_topic(kafka_topic, partitions, deadline)

    monkeypatch.setattr(admin.node.admin, "grow_topic", grown_too_late)
    assert topics.grow_to(name, 4, soon()).partitions == 4
    assert topics.grow_to(name, 3, soon()).partitions == 4
    with pytest.raises(errors.InvalidOption, match="can grow to"):
        topics.grow_to(name, 1_000_000, soon())
