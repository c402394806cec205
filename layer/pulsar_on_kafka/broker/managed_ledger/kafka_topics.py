"""Topics as the owners of their lists see them: live topics, their logs, and the size of a stretch.

Kafka reports to no client the bytes of a range of offsets (its log directories are only known whole, and not to
librdkafka). So a few runs of neighbouring records are read, one from each equal part of the stretch, at a place drawn
for that stretch; the first and the last run lie at its ends, because their publish times are needed. The spread of the
runs' means gives the error of the estimate. A stretch that is not larger than all runs together is read whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from random import Random
from statistics import fmean, stdev
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange, Measured
from pulsar_on_kafka.broker.managed_ledger.owner import Stretch, TopicLogs
from pulsar_on_kafka.broker.metadata.topics import Topics
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS

RUNS: Final = 8
RUN_OFFSETS: Final = 64
_T_95: Final = 2.365
"""Student's t for 8 runs: the estimate is off by more than so many standard errors in 1 of 20 cases."""


class Sampled(NamedTuple):
    """A record that was read. `bytes` are those of key, value and headers."""

    offset: int
    bytes: int
    publish_ms: int


def runs(start: int, end: int) -> list[tuple[int, int]]:
    """The runs [first, end) to read of a stretch [start, end), in order; the same ones at each call."""
    if end - start <= RUNS * RUN_OFFSETS:
        return [(start, end)] if end > start else []
    rng = Random(f"{start}-{end}")
    found = []
    for number in range(RUNS):
        low = start + (end - start) * number // RUNS
        high = start + (end - start) * (number + 1) // RUNS - RUN_OFFSETS
        first = low if number == 0 else high if number == RUNS - 1 else rng.randint(low, high)
        found.append((first, first + RUN_OFFSETS))
    return found


def estimate(start: int, end: int, sampled: Sequence[Sampled]) -> Measured:
    """The estimate for the whole stretch from the records of `runs(start, end)`; its offsets may have gaps."""
    requested = runs(start, end)
    if not sampled:
        return Measured(0, 0, 0, 0)
    sums = [0] * len(requested)
    place = 0
    for record in sorted(sampled):
        while record.offset >= requested[place][1]:
            place += 1
        sums[place] += record.bytes
    times = [record.publish_ms for record in sampled]
    first_ms, last_ms = max(0, min(sampled).publish_ms), max(0, *times)
    if len(requested) == 1:
        return Measured(sums[0], 0, first_ms, last_ms)
    entries = end - start
    means = [total / RUN_OFFSETS for total in sums]
    unseen = 1 - RUNS * RUN_OFFSETS / entries
    error = _T_95 * stdev(means) / sqrt(RUNS) * sqrt(unseen) * entries
    return Measured(round(fmean(means) * entries), round(error), first_ms, last_ms)


_AT_ONCE: Final = 100


class KafkaDataTopics:
    """Implements `DataTopics` from a snapshot of the cluster, which `look` takes for all state partitions at once.

    Cost: a reading of new records in `topics`, and three requests to Kafka for each 2,000 topics and partitions. Take
    it after owners took over, or a topic that a former owner knew already may seem deleted. For one thread. Memory: the
    snapshot, and 150 bytes for each record that is read of a hundred stretches (8 MB where each has 512).
    """

    def __init__(self, topics: Topics, admin: KafkaAdmin, reader: RangeReader) -> None:
        self._topics = topics
        self._admin = admin
        self._reader = reader
        self._seen: dict[int, list[TopicLogs]] = {}

    def look(self, state_partitions: Sequence[int], deadline: Deadline) -> None:
        """Take the picture of what lies in these partitions."""
        requested = frozenset(state_partitions)
        records = [
            record
            for record in self._topics.records.active(deadline)
            if LEDGERS.partition_for(record.name) in requested and TopicName.parse(record.name).is_persistent
        ]
        self._seen = {number: [] for number in requested}
        for topic in self._living(records, deadline):
            self._seen[LEDGERS.partition_for(topic.name)].append(topic)

    def _living(self, records: Sequence[TopicRecord], deadline: Deadline) -> list[TopicLogs]:
        """The live topics. A topic that Kafka does not report now keeps its lists. Where another Kafka topic has its
        place, its incarnation has ended."""
        described = self._admin.describe_topics([record.kafka_topic for record in records], deadline)
        alive = [
            record
            for record in records
            if record.kafka_topic not in described or described[record.kafka_topic].topic_id == record.kafka_topic_id
        ]
        partitions = {
            record.kafka_topic: described[record.kafka_topic].partitions if record.partitions else 1
            for record in alive
            if record.kafka_topic in described
        }
        ranges = self._admin.log_ranges([(topic, p) for topic, n in partitions.items() for p in range(n)], deadline)
        return [
            TopicLogs(
                record.name,
                record.kafka_topic,
                LedgerLayout(record.incarnation, record.entries_per_ledger),
                _of(record.kafka_topic, partitions.get(record.kafka_topic, 0), ranges),
                record.bound,
            )
            for record in alive
        ]

    def living(self, state_partition: int, deadline: Deadline) -> Sequence[TopicLogs]:
        return self._seen[state_partition]

    def measure(self, stretches: Sequence[Stretch], deadline: Deadline) -> list[Measured | LayerError]:
        found: list[Measured | LayerError] = []
        for begin in range(0, len(stretches), _AT_ONCE):
            found.extend(self._measure(stretches[begin : begin + _AT_ONCE], deadline))
        return found

    def _measure(self, stretches: Sequence[Stretch], deadline: Deadline) -> list[Measured | LayerError]:
        ranges: list[OffsetRange] = []
        belongs: list[int] = []
        for number, (kafka_topic, partition, start, end) in enumerate(stretches):
            for first, upto in runs(start, end):
                ranges.append(OffsetRange(kafka_topic, partition, first, upto))
                belongs.append(number)
        sampled: dict[int, list[Sampled]] = defaultdict(list)

        def take(place: int, records: list[KafkaRecord]) -> None:
            sampled[belongs[place]].extend(sample_of(record) for record in records)

        failed = {belongs[place]: failure for place, failure in self._reader.read(ranges, take, deadline).items()}
        return [
            failed.get(number) or estimate(stretch.start, stretch.end, sampled[number])
            for number, stretch in enumerate(stretches)
        ]


def _of(topic: str, partitions: int, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> dict[int, LogRange]:
    return {p: LogRange(*ranges[topic, p]) for p in range(partitions) if (topic, p) in ranges}


def sample_of(record: KafkaRecord) -> Sampled:
    headers = sum(len(name) + len(value or b"") for name, value in headers_of(record) or ())
    size = len(record.key() or b"") + len(record.value() or b"") + headers
    return Sampled(record.offset(), size, record.timestamp()[1])
