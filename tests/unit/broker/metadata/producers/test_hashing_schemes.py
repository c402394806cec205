"""What producers choose partitions by is on record, and another one is warned of."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.producers.hashing_schemes import HashingSchemes
from pulsar_on_kafka.broker.metadata.producers.registry import CLAIMS_KEYS, claims_in
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka_mapping.routing.key_hashes import KeyHash
from pulsar_on_kafka_mapping.state.metadata.producer_records import decode_claims
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS
from tests.memory_log import MemoryStateLog
from tests.producer_stage import OPENED

DEADLINE = Deadline.never()
TOPIC = replace(OPENED, partitions=3, partitioned=True)


class Process:
    """What one process knows, on a log that all share."""

    def __init__(self, log: MemoryStateLog) -> None:
        self.woken = 0
        self.entities: Entities[str] = Entities(log, PRODUCERS, CLAIMS_KEYS, SystemClock())
        self.schemes = HashingSchemes(self.entities, claims_in, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def begins(self, scheme: KeyHash, topic: Topic = TOPIC) -> None:
        self.schemes.begins(topic, scheme)
        self.schemes.note(DEADLINE)

    def on_record(self) -> tuple[str, ...]:
        found = self.entities.read(str(TOPIC.name), DEADLINE)
        return () if found is None else decode_claims(found.value).hashing_schemes


@pytest.fixture
def log() -> MemoryStateLog:
    return MemoryStateLog()


def test_the_first_ones_is_the_topics(log: MemoryStateLog, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Process(log), Process(log)
    first.begins(KeyHash.JAVA_STRING)
    second.begins(KeyHash.JAVA_STRING)
    second.begins(KeyHash.JAVA_STRING)
    assert first.on_record() == ("JavaStringHash",)
    assert (first.woken, second.woken) == (1, 1)
    assert not caplog.records


def test_who_comes_with_another_one_is_warned(log: MemoryStateLog, caplog: pytest.LogCaptureFixture) -> None:
    Process(log).begins(KeyHash.JAVA_STRING)
    for _ in range(2):  # each process is told
        other = Process(log)
        other.begins(KeyHash.CRC32)
        (told,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert all(word in told for word in (str(TOPIC.name), "Crc32Hash", "JavaStringHash", "no order"))
        caplog.clear()
    Process(log).begins(KeyHash.JAVA_STRING)
    assert not caplog.records
    assert other.on_record() == ("JavaStringHash", "Crc32Hash")


def test_a_topic_without_partitions_has_none(log: MemoryStateLog) -> None:
    process = Process(log)
    process.begins(KeyHash.CRC32, OPENED)
    assert process.woken == 0
    assert process.on_record() == ()


def test_another_life_of_the_topic_begins_anew(log: MemoryStateLog, caplog: pytest.LogCaptureFixture) -> None:
    process = Process(log)
    process.begins(KeyHash.CRC32)
    later = replace(TOPIC, layout=replace(TOPIC.layout, incarnation=TOPIC.layout.incarnation + 1))
    process.begins(KeyHash.BOOST, later)
    assert process.on_record() == ("BoostHash",)
    assert not caplog.records


def test_what_cannot_be_put_on_record_is_tried_again(log: MemoryStateLog, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(log)

    def away(*_: object, **__: object) -> None:
        raise AppendFailed("the broker is away")

    with monkeypatch.context() as broken:
        broken.setattr(process.entities, "update", away)
        process.begins(KeyHash.CRC32)
    assert process.on_record() == ()
    process.schemes.note(DEADLINE)
    assert process.on_record() == ("Crc32Hash",)
