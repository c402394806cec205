"""The deletion of a topic, ledger by ledger.

    ACTIVE -> DELETING -> an event for each ledger is durable -> their data is deleted -> DELETED
                          (`deletion_ends`)                      (worker.py)                    (the Kafka topic, too)

The deleting process writes DELETING. From then on the topic does not exist, and the lists of its ledgers do not count:
its record stands for all of them until the last one is deleted. Its maintainer requests the deletions; after a crash
between two steps the next one continues from the record. Kafka has no two topics of one name, so recreating the topic
meanwhile deletes the Kafka topic at once; then the events find nothing to delete. Source: PIP-186.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.managed_ledger.deletion import deletes_by_ledger
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import Ledger
from pulsar_on_kafka.broker.metadata.topics import Topics
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.service.ledgers.retirement import DeletionEvents
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS

_log: Final = logging.getLogger(__name__)

MAX_EVENTS: Final = 10_000
"""The limit of events for one topic. Where it has more ledgers each event covers neighbouring ones together, by the
last of them: Kafka deletes everything below that one's end anyway."""


def ledgers_of(deleting: TopicRecord, logs: Mapping[int, LogRange], most: int = MAX_EVENTS) -> Iterator[Ledger]:
    """Each ledger of these logs, the one that the log's end lies in too, in order; neighbouring ones as one where there
    are more than `most`."""
    layout = LedgerLayout(deleting.incarnation, deleting.entries_per_ledger)
    size = layout.entries_per_ledger
    indexes = {p: range(log.start // size, log.end // size + 1) for p, log in sorted(logs.items())}
    together = -(-sum(map(len, indexes.values())) // most)
    for partition, there in indexes.items():
        for first in there[::together]:
            last = min(first + together - 1, there[-1])
            start = max(logs[partition].start, layout.ledger_range(first)[0])
            end = min(logs[partition].end, layout.ledger_range(last)[1])
            record = LedgerRecord(deleting.name, LedgerState.DELETING, start, end)
            yield Ledger(layout.ledger_id(partition, last), record)


class TopicDeletion:
    """Thread-safe but for `run`, which is for one thread. Memory: 10,000 events."""

    def __init__(self, topics: Topics, admin: KafkaAdmin, events: DeletionEvents) -> None:
        self._topics = topics
        self._admin = admin
        self._events = events

    def run(self, state_partitions: Collection[int], deadline: Deadline) -> int:
        """Requests once the deletion of each ledger of the topics whose lists lie in these partitions of `ledgers`;
        returns the number of topics. A failed topic is logged, and left to the next run.
        """
        done = 0
        for deleting in self._topics.records.being_deleted(deadline):
            if LEDGERS.partition_for(deleting.name) not in state_partitions:
                continue
            try:
                done += not self.end(deleting, deadline) and self._request_deletion(deleting, deadline)
            except LayerError as failure:
                deadline.check(f"topic {deleting.name} to be deleted")
                _log.warning("topic=%s its deletion continues later: %s", deleting.name, failure)
        return done

    def end(self, deleting: TopicRecord, deadline: Deadline) -> bool:
        """Delete the Kafka topic if that is all that is left of it; whether the deletion is over."""
        if deletes_by_ledger(deleting):
            described = self._admin.describe_topic(deleting.kafka_topic, deadline)
            if described is not None and described.topic_id == deleting.kafka_topic_id:
                starts = {p: log.start for p, log in self._logs(deleting, described.partitions, deadline).items()}
                ends = deleting.deletion_ends
                if not ends or any(starts.get(int(p), -1) < end for p, end in ends.items()):
                    return False
        self._topics.finish_deletion(deleting, deadline)
        _log.info("topic=%s deleted with the last of its ledgers", deleting.name)
        return True

    def _request_deletion(self, deleting: TopicRecord, deadline: Deadline) -> bool:
        if deleting.deletion_ends:
            return False
        described = self._admin.describe_topic(deleting.kafka_topic, deadline)
        partitions = 0 if described is None else described.partitions
        logs = self._logs(deleting, partitions, deadline)
        if len(logs) < partitions or not logs:
            return False  # a partition has no leader now
        ledgers = list(ledgers_of(deleting, logs))
        self._events.send(ledgers, deadline)
        self._topics.records.note_deletion_ends(deleting, {p: log.end for p, log in logs.items()}, deadline)
        _log.info("topic=%s the deletion of its ledgers is requested by %d events", deleting.name, len(ledgers))
        return True

    def _logs(self, deleting: TopicRecord, partitions: int, deadline: Deadline) -> dict[int, LogRange]:
        found = self._admin.log_ranges([(deleting.kafka_topic, p) for p in range(partitions)], deadline)
        return {partition: LogRange(*log) for (_, partition), log in found.items()}
