"""Many ranges of many partitions at once, on a real broker."""

from __future__ import annotations

from collections import defaultdict

import pytest
from confluent_kafka import Producer

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchTopic, OffsetOutOfRange
from pulsar_on_kafka.kafka.reading import range_reader
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.steps import Unique

pytestmark = pytest.mark.kafka

PATIENCE_S = 60.0


@pytest.mark.long
@pytest.mark.parametrize("at_once", [2, range_reader.AT_ONCE])
def test_every_range_is_read_and_what_cannot_be_read_is_told(
    bootstrap: str, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(range_reader, "AT_ONCE", at_once)
    kafka = admin.node.admin
    topics = [unique(f"t{number}") for number in range(3)]
    for topic in topics:
        kafka.create_topic(topic, 2, {}, Deadline.after(PATIENCE_S))
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in topics:
        for partition in range(2):
            for number in range(300):
                producer.produce(topic, str(number).encode() * 20, partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    kafka.delete_records(topics[0], {0: 100}, Deadline.after(PATIENCE_S))
    good = [
        OffsetRange(topic, partition, start, start + 40)
        for start in (120, 0, 260, 130)
        for topic in topics
        for partition in range(2)
        if (topic, partition, start) != (topics[0], 0, 0)
    ]
    bad = [
        OffsetRange(topics[0], 0, 50, 110),
        OffsetRange(topics[1], 0, 290, 310),
        OffsetRange(topics[2], 1, 302, 305),
        OffsetRange(unique("no"), 0, 0, 5),
    ]
    empty = OffsetRange(topics[2], 0, 7, 7)
    reader = RangeReader(KafkaSettings(bootstrap).sampler())
    seen: dict[int, list[int]] = defaultdict(list)

    def take(place: int, records: list[KafkaRecord]) -> None:
        seen[place] += [record.offset() for record in records]

    try:
        for ranges in (good, [*bad[1:], *good, empty], good):  # the same handle again and again
            seen.clear()
            failed = reader.read(ranges, take, Deadline.after(PATIENCE_S))
            begin = len(ranges) - len(good) - (empty in ranges)
            assert sorted(failed) == list(range(begin)), failed
            for place in range(begin, begin + len(good)):
                assert seen[place] == list(range(ranges[place].start, ranges[place].end)), ranges[place]
            assert not any(ranges[place] == empty for place in seen)
        lost = reader.read(bad, take, Deadline.after(PATIENCE_S))
        assert [type(lost[place]) for place in (0, 1, 2)] == [OffsetOutOfRange] * 3
        assert isinstance(lost[3], NoSuchTopic) or "in time" in str(lost[3])
        seen.clear()
        late = reader.read(good, take, Deadline.after(0))
        for place, each in enumerate(good):  # what lay ready was read
            assert place in late or seen[place] == list(range(each.start, each.end))
    finally:
        reader.close()
