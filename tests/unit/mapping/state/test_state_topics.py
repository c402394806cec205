"""The catalogue of state topics says how many partitions each has, and which of them a record goes to."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import (
    ALL,
    CURSORS,
    DELIVERIES,
    TOPICS,
    TRANSACTION_LOG,
    TRANSACTION_REQUESTS,
    Cleanup,
    StateTopic,
)


def test_a_state_topic_lies_in_pulsar_system() -> None:
    assert str(TRANSACTION_LOG.topic_name) == "persistent://pulsar/system/__transaction_log"
    assert Instance().state_topic(TRANSACTION_LOG) == "pulsar.system.__transaction_log"


def test_the_numbers_of_partitions_never_change() -> None:
    assert {topic.name: topic.partitions for topic in ALL} == {
        "topics": 8,
        "namespaces": 8,
        "subscriptions": 8,
        "schemas": 8,
        "cursors": 16,
        "cursor_checkpoints": 16,
        "ledgers": 16,
        "deliveries": 64,
        "producers": 16,
        "transaction_coordinator_assign": 16,
        "transaction_requests": 16,
        "__transaction_log": 16,
        "__transaction_buffer_snapshot": 16,
        "__transaction_pending_ack": 16,
        "tenants": 1,
        "subscription_progress": 16,
    }


@pytest.mark.parametrize("topic", ALL, ids=lambda topic: topic.name)
def test_a_state_topic_is_made_as_it_is_cleaned(topic: StateTopic) -> None:
    assert topic.configs["cleanup.policy"] == topic.cleanup.value


def test_all_state_topics_but_two_are_compacted() -> None:
    assert [topic for topic in ALL if topic.cleanup is Cleanup.DELETE] == [DELIVERIES, TRANSACTION_REQUESTS]


def test_retention_is_three_days_for_deliveries_and_one_for_requests() -> None:
    assert DELIVERIES.configs["retention.ms"] == "259200000"
    assert TRANSACTION_REQUESTS.configs["retention.ms"] == "86400000"


def test_a_topics_state_is_where_the_crc32_of_its_name_says() -> None:
    name = "persistent://public/default/orders"
    assert TOPICS.partition_for(name) == 0xB135B9DC % 8
    assert CURSORS.partition_for(name) == 0xB135B9DC % 16


def test_a_coordinator_has_its_own_partition() -> None:
    assert TRANSACTION_LOG.partition_of_coordinator(5) == 5


@pytest.mark.parametrize("coordinator", [-1, 1024])
def test_there_are_as_many_coordinators_as_there_may_be_partitions(coordinator: int) -> None:
    assert TRANSACTION_LOG.partition_of_coordinator(16) == 16, "there may be more than at first"
    with pytest.raises(MappingError, match="0 to 1023"):
        TRANSACTION_LOG.partition_of_coordinator(coordinator)


def test_topics_and_coordinators_are_not_mixed_up() -> None:
    with pytest.raises(MappingError, match="expected a coordinator id"):
        TRANSACTION_LOG.partition_for("persistent://public/default/orders")
    with pytest.raises(MappingError, match="expected a topic's name"):
        CURSORS.partition_of_coordinator(0)
