"""The assigned reader and what it asks librdkafka's handle for, which a test plays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from pulsar_on_kafka.kafka.reading import assigned_reader
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.kafka.reading.events import KafkaPartition


class Handle:
    """Implements librdkafka's consumer, as far as the reader assigns with it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.calls: list[str] = []
        self.silent = False
        self.made = {"t", "u"}

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.calls.append(f"leaders of {topic}")
        if self.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = None if topic in self.made else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self.calls += [f"read {each.topic}[{each.partition}]" for each in partitions]

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        pass

    def close(self) -> None:
        pass

    def take_calls(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> AssignedReader:
    monkeypatch.setattr(assigned_reader, "Consumer", Handle)
    return AssignedReader({}, "test")


def handle_of(reader: AssignedReader) -> Handle:
    found: Any = reader.open()
    assert isinstance(found, Handle)
    return found


def test_the_leaders_of_a_topic_are_asked_for_before_it_is_first_read(reader: AssignedReader) -> None:
    """librdkafka alone looks for the leaders of topics that are new to a handle at its interval of one second."""
    handle = handle_of(reader)
    reader.add({KafkaPartition("t", 0): 3, KafkaPartition("t", 1): 4})
    assert handle.take_calls() == ["leaders of t", "read t[0]", "read t[1]"]
    reader.drop([KafkaPartition("t", 0)])
    reader.seek({KafkaPartition("t", 1): 9})
    reader.add({KafkaPartition("t", 0): 3})
    assert handle.take_calls() == ["read t[1]", "read t[0]"]
    reader.add({KafkaPartition("u", 0): 0})
    assert handle.take_calls() == ["leaders of u", "read u[0]"]


def test_another_handle_asks_anew(reader: AssignedReader) -> None:
    reader.add({KafkaPartition("t", 0): 3})
    reader.release()
    reader.add({KafkaPartition("t", 0): 3})
    assert handle_of(reader).take_calls() == ["leaders of t", "read t[0]"]
    reader.release()


def test_a_topic_is_asked_for_again_until_a_broker_knows_it(reader: AssignedReader) -> None:
    handle = handle_of(reader)
    handle.silent = True
    reader.add({KafkaPartition("t", 0): 3})
    reader.add({KafkaPartition("gone", 0): 3})
    handle.silent = False
    reader.add({KafkaPartition("gone", 0): 3})
    reader.add({KafkaPartition("gone", 1): 3, KafkaPartition("t", 1): 3})
    assert handle.take_calls() == [
        "leaders of t", "read t[0]",
        "leaders of gone", "read gone[0]",
        "leaders of gone", "read gone[0]",
        "leaders of gone", "leaders of t", "read gone[1]", "read t[1]",
    ]  # fmt: skip
    reader.release()


def test_new_topics_of_a_call_share_one_second(reader: AssignedReader, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = handle_of(reader)
    monkeypatch.setattr(assigned_reader, "_LEARN_S", 0.0)
    reader.add({KafkaPartition("t", 0): 3, KafkaPartition("u", 0): 3})
    assert handle.take_calls() == ["read t[0]", "read u[0]"]
    reader.release()
