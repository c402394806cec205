"""Topics as the owners of their lists see them: which live, what their logs have, and how large a stretch is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import KafkaRecord, headers_of
from pulsar_on_kafka.ledgers.following import LogRange, Measured
from pulsar_on_kafka.ledgers.owner import Stretch, TopicLogs
from pulsar_on_kafka.ledgers.sampling import Sampled, estimate, runs
from pulsar_on_kafka.mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka.mapping.state.state_topics import LEDGERS
from pulsar_on_kafka.metadata.topics import Topics

_AT_ONCE: Final = 100


class KafkaDataTopics:
    """Implements `DataTopics` from a picture of the cluster, which `look` takes for all state partitions at once.

    Cost: what is new in `topics` is read, and Kafka is asked three questions for each 2,000 topics and partitions. Take
    it after owners took over, or a topic that a former owner knew already may seem gone. For one thread. Memory: the
    picture, and 150 bytes for each record that is read of a hundred stretches (8 MB where each has 512).
    """

    def __init__(self, topics: Topics, admin: KafkaAdmin, reader: RangeReader) -> None:
        self._topics = topics
        self._admin = admin
        self._reader = reader
        self._seen: dict[int, list[TopicLogs]] = {}

    def look(self, state_partitions: Sequence[int], deadline: Deadline) -> None:
        """Take the picture of what lies in these partitions."""
        wanted = frozenset(state_partitions)
        records = [
            record
            for record in self._topics.active(deadline)
            if LEDGERS.partition_for(record.name) in wanted and TopicName.parse(record.name).is_persistent
        ]
        self._seen = {number: [] for number in wanted}
        for topic in self._living(records, deadline):
            self._seen[LEDGERS.partition_for(topic.name)].append(topic)

    def _living(self, records: Sequence[TopicRecord], deadline: Deadline) -> list[TopicLogs]:
        """Of a topic that Kafka does not tell of now nothing is known, which is no reason to forget its lists. Where
        another Kafka topic has its place, its life is over."""
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
            sampled[belongs[place]].extend(_sampled(record) for record in records)

        failed = {belongs[place]: failure for place, failure in self._reader.read(ranges, take, deadline).items()}
        return [
            failed.get(number) or estimate(stretch.start, stretch.end, sampled[number])
            for number, stretch in enumerate(stretches)
        ]


def _of(topic: str, partitions: int, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> dict[int, LogRange]:
    return {p: LogRange(*ranges[topic, p]) for p in range(partitions) if (topic, p) in ranges}


def _sampled(record: KafkaRecord) -> Sampled:
    headers = sum(len(name) + len(value or b"") for name, value in headers_of(record) or ())
    size = len(record.key() or b"") + len(record.value() or b"") + headers
    return Sampled(record.offset(), size, record.timestamp()[1])
