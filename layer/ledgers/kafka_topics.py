"""Topics as the owners of their lists see them: which live, what their logs have, and how large a stretch is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from layer.deadline import Deadline
from layer.kafka.admin import KafkaAdmin
from layer.kafka.fetcher import Fetcher
from layer.kafka.records import KafkaRecord
from layer.ledgers.following import LogRange, Measured
from layer.ledgers.owner import TopicLogs
from layer.ledgers.sampling import Sampled, estimate, runs
from layer.metadata.topics import Topics
from mapping.ledger import LedgerLayout
from mapping.state_records.metadata import TopicRecord
from mapping.state_topics import LEDGERS
from mapping.topic_name import TopicName

FETCH_QUEUE_KBYTES: Final = 256
"""Of the fetcher that measures: runs are short, so little is read ahead in vain."""


class KafkaDataTopics:
    """Implements `DataTopics` from a picture of the cluster, which `look` takes for all state partitions at once.

    Cost: what is new in `topics` is read, and Kafka is asked three questions for each 2,000 topics and partitions. Take
    it after owners took over, or a topic that a former owner knew already may seem gone. For one thread.
    """

    def __init__(self, topics: Topics, admin: KafkaAdmin, fetcher: Fetcher) -> None:
        self._topics = topics
        self._admin = admin
        self._fetcher = fetcher
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
            )
            for record in alive
        ]

    def living(self, state_partition: int, deadline: Deadline) -> Sequence[TopicLogs]:
        return self._seen[state_partition]

    def measure(self, kafka_topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Measured:
        sampled = [
            Sampled(record.offset() or 0, _bytes(record), record.timestamp()[1])
            for first, upto in runs(start, end)
            for batch in self._fetcher.read(kafka_topic, partition, first, upto, deadline)
            for record in batch
        ]
        return estimate(start, end, sampled)


def _of(topic: str, partitions: int, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> dict[int, LogRange]:
    return {p: LogRange(*ranges[topic, p]) for p in range(partitions) if (topic, p) in ranges}


def _bytes(record: KafkaRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers() or ())
    return len(record.key() or b"") + len(record.value() or b"") + headers
