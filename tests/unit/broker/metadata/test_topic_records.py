"""Records of many topics are read together, and decoded when they have changed."""

from __future__ import annotations

from dataclasses import replace

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.topic_records import TopicRecords
from pulsar_on_kafka.broker.metadata.topics import TOPIC_KEYS
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord, encode_topic
from pulsar_on_kafka_mapping.state.state_topics import TOPICS, StateTopic
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
NAMES = [TopicName.parse(f"t{number}") for number in range(300)]


class CountingLog(MemoryStateLog):
    def __init__(self) -> None:
        super().__init__()
        self.ends = 0

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        self.ends += 1
        return super().end_offset(topic, partition, deadline)


def _records(log: MemoryStateLog) -> TopicRecords:
    return TopicRecords(Entities(log, TOPICS, TOPIC_KEYS, SystemClock()))


def _write(records: TopicRecords, name: TopicName) -> TopicRecord:
    record = TopicRecord(str(name), LifeState.ACTIVE, f"kafka.{name.local_name}", 1, 100)
    records._entities.update(str(name), lambda current: encode_topic(record), NEVER)
    return record


def test_topics_with_and_without_a_record_are_one_request_per_partition() -> None:
    log = CountingLog()
    records = _records(log)
    written = {name: _write(records, name) for name in NAMES[::2]}
    log.ends = 0
    assert records.of([*NAMES, NAMES[0].with_partition(3)], NEVER) == {name: written.get(name) for name in NAMES}
    assert log.ends <= TOPICS.partitions


def test_a_record_that_another_process_changed_is_read_anew() -> None:
    log = MemoryStateLog()
    records, elsewhere = _records(log), _records(log)
    written = {name: _write(records, name) for name in NAMES[:3]}
    assert records.of(written, NEVER) == records.of(written, NEVER) == written
    elsewhere.amend(NAMES[1], lambda record: replace(record, policies={"deduplication": True}), NEVER)
    changed = replace(written[NAMES[1]], policies={"deduplication": True})
    assert records.of(written, NEVER) == {**written, NAMES[1]: changed}
