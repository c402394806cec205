"""Instances: their names, and what they make of the names of topics and groups."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import InvalidInstanceName, InvalidTopicName
from pulsar_on_kafka_mapping.names.read_back import topic_from_kafka
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from pulsar_on_kafka_mapping.state.instances import MAX_INSTANCE_CHARS, Instance, holds_state
from pulsar_on_kafka_mapping.state.state_topics import ALL, CURSORS, LEDGERS

ACME = Instance("acme")
ORDERS = TopicName.parse("orders")
EVENTS = TopicName.parse("persistent://pulsar/system/__ledger_deletion")


@pytest.mark.parametrize(
    ("instance", "topic", "group"),
    [
        (Instance(), "pulsar.system.cursors", "pulsar.system.ledgers/maintenance"),
        (ACME, "pulsar.system-x-acme.cursors", "pulsar.system-x-acme.ledgers/maintenance"),
        (Instance("a-x-1"), "pulsar.system-x-a-x-1.cursors", "pulsar.system-x-a-x-1.ledgers/maintenance"),
    ],
)
def test_the_state_has_a_prefix_of_its_own(instance: Instance, topic: str, group: str) -> None:
    assert instance.state_topic(CURSORS) == topic
    assert instance.group(LEDGERS, "maintenance") == group
    assert topic.startswith(instance.prefix)


def test_topics_of_the_system_s_namespace_are_the_instance_s_and_all_others_everybody_s() -> None:
    assert ACME.kafka_topic(EVENTS) == "pulsar.system-x-acme.__ledger_deletion"
    assert ACME.kafka_topic(ORDERS) == Instance().kafka_topic(ORDERS) == "public.default.orders"
    near = TopicName.parse("persistent://pulsar/system-x-acme/cursors")
    assert ACME.kafka_topic(near) == kafka_topic(near) == "pulsar.system-x2d-x-acme.cursors"


@pytest.mark.parametrize("topic", ALL, ids=lambda topic: topic.name)
def test_state_is_known_by_its_name_and_is_nobody_s_topic(topic: object) -> None:
    for instance in (Instance(), ACME, Instance("a" * MAX_INSTANCE_CHARS)):
        assert holds_state(instance.state_topic(topic))  # type: ignore[arg-type]
    assert topic_from_kafka(ACME.state_topic(topic)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kafka_name",
    ["public.default.orders", "pulsar.systems.cursors", "pulsar.system", "pulsar.system-x2d-x-acme.cursors",
     "pulsar.system-acme.cursors", "pulsar.system-x-.cursors"],
)  # fmt: skip
def test_other_topics_are_no_state(kafka_name: str) -> None:
    assert not holds_state(kafka_name)


@pytest.mark.parametrize(
    "name", ["Acme", "a.b", "a_b", "-a", "a-", "a--b", "a/b", "a b", "acme\n", "é", "a" * (MAX_INSTANCE_CHARS + 1)]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidInstanceName, match="expected 1 to 40 of a-z, 0-9 and single hyphens") as refused:
        Instance(name)
    assert repr(name)[:40] in str(refused.value)


def test_a_name_that_grows_too_long_is_refused() -> None:
    long = TopicName.parse(f"persistent://pulsar/system/{'n' * 230}")
    assert len(Instance().kafka_topic(long)) == 244
    with pytest.raises(InvalidTopicName, match=r"in instance acme has 251 characters"):
        ACME.kafka_topic(long)
