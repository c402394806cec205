"""The names of V5 consumers survive the gateways that assign partitions to them."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption, NoSuchTopic, Refused
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.subscriptions.consumer_registrations import (
    MAX_CONSUMERS,
    REGISTRATION_KEYS,
    ConsumerRegistrations,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()


def _topic(incarnation: int) -> Topic:
    return Topic(TopicName.parse("orders"), "orders", "id", 3, True, LedgerLayout(incarnation))


def _registrations(log: MemoryStateLog) -> ConsumerRegistrations:
    return ConsumerRegistrations(Entities(log, SUBSCRIPTIONS, REGISTRATION_KEYS, SystemClock()))


def test_another_process_reads_what_was_registered() -> None:
    log = MemoryStateLog()
    first = _registrations(log).add(_topic(1), "s", ["b"], NEVER)
    assert first.names == ("b",)
    other = _registrations(log)
    assert other.add(_topic(1), "s", ["b"], NEVER) == first, "nothing is written"
    second = other.add(_topic(1), "s", ["a"], NEVER)
    assert second.names == ("a", "b")
    assert second.version > first.version
    assert other.add(_topic(1), "t", ["c"], NEVER).names == ("c",)


def test_removed_names_are_gone() -> None:
    registrations = _registrations(MemoryStateLog())
    assert registrations.remove(_topic(1), "s", ["a"], NEVER) is None
    registrations.add(_topic(1), "s", ["a", "b"], NEVER)
    left = registrations.remove(_topic(1), "s", ["a", "unknown"], NEVER)
    assert left is not None
    assert left.names == ("b",)
    assert registrations.remove(_topic(1), "s", ["a"], NEVER) == left
    assert registrations.add(_topic(1), "s", ["a"], NEVER).version > left.version


def test_a_topic_that_is_created_again_has_no_consumers() -> None:
    registrations = _registrations(MemoryStateLog())
    registrations.add(_topic(1), "s", ["a"], NEVER)
    assert registrations.remove(_topic(2), "s", ["a"], NEVER) is None
    assert registrations.add(_topic(2), "s", ["b"], NEVER).names == ("b",)
    assert registrations.remove(_topic(1), "s", ["b"], NEVER) is None
    with pytest.raises(NoSuchTopic, match="was deleted"):
        registrations.add(_topic(1), "s", ["a"], NEVER)


def test_names_and_their_number_are_bounded() -> None:
    registrations = _registrations(MemoryStateLog())
    for name in ("", "n" * 501):
        with pytest.raises(InvalidOption, match="expected 1 to 500 bytes"):
            registrations.add(_topic(1), "s", [name], NEVER)
    registrations.add(_topic(1), "s", [f"{number}" for number in range(MAX_CONSUMERS)], NEVER)
    with pytest.raises(Refused, match="1000 registered consumers, at most 1000"):
        registrations.add(_topic(1), "s", ["one more"], NEVER)
