"""Topics are compacted by themselves once so much has come since the last time (`compaction_threshold`).

Compacted reads fold, so to compact is to note where the log ends now: no message is read, copied or removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.ledgers.owner import Stretch, TopicLogs
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka.metadata.policies import COMPACTION_THRESHOLD
from pulsar_on_kafka.node.services import Services
from pulsar_on_kafka.service.ledgers.sizes import Measure, Sizes

_log: Final = logging.getLogger(__name__)


class Compacting:
    """For one thread. Memory: some numbers for each partition of the topics that have a threshold."""

    def __init__(self, services: Services, measure: Measure) -> None:
        self._services = services
        self._sizes = Sizes(measure)

    def run(self, topics: Iterable[TopicLogs], deadline: Deadline) -> int:
        """Compact those of which a partition got more than the threshold; gives how many. What cannot be done now is
        logged, and left to the next run."""
        by_name = {TopicName.parse(topic.name): topic for topic in topics}
        thresholds = self._thresholds(by_name, deadline)
        records = self._services.topics.records_of(thresholds, deadline) if thresholds else {}
        grown = {
            name: stretches
            for name, record in records.items()
            if record is not None and (stretches := _since_last(by_name[name], record))
        }
        sizes = self._sizes.of([each for stretches in grown.values() for each in stretches], deadline)
        compacted = 0
        for name, stretches in grown.items():
            most = max((sizes[each].bytes for each in stretches if each in sizes), default=0)
            if most > thresholds[name]:
                compacted += self._compact(name, most, deadline)
        return compacted

    def _thresholds(self, topics: Mapping[TopicName, TopicLogs], deadline: Deadline) -> dict[TopicName, int]:
        found = self._services.applied_to(topics, COMPACTION_THRESHOLD, deadline)
        return {name: threshold for name, threshold in found.items() if threshold > 0}

    def _compact(self, name: TopicName, size: int, deadline: Deadline) -> int:
        try:
            self._services.topics.compact(name, deadline)
        except LayerError as failure:
            deadline.check("topics to be compacted")
            _log.warning("topic=%s cannot be compacted now: %s", name, failure)
            return 0
        _log.info("topic=%s compacted: about %d bytes came since the last time", name, size)
        return 1


def _since_last(logs: TopicLogs, record: TopicRecord) -> list[Stretch]:
    """What came into each partition since it was compacted last."""
    found = []
    for partition, log in logs.logs.items():
        start = max(log.start, record.compacted_to.get(str(partition), 0))
        if start < log.end:
            found.append(Stretch(logs.kafka_topic, partition, start, log.end))
    return found
