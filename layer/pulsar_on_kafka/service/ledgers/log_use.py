"""The use of topics' logs, who needs them and what retention keeps, follows from subscriptions, transactions and
policies."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchNamespace, NoSuchTopic
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.owner import TopicLogs
from pulsar_on_kafka.broker.managed_ledger.trimming import MINUTE_MS, Needs, Retention, Rollover
from pulsar_on_kafka.broker.metadata.policies import (
    LEDGER_MAX_ENTRIES,
    LEDGER_MAX_MBYTES,
    LEDGER_ROLLOVER_MINUTES,
    RETENTION_SIZE_IN_MB,
    RETENTION_TIME_IN_MINUTES,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.log_needs import ReadCursors, needs_of
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.service.ledgers.retirement import KeptByRule
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

_ROLLOVER: Final = (LEDGER_ROLLOVER_MINUTES, LEDGER_MAX_MBYTES, LEDGER_MAX_ENTRIES)


class KafkaLogUse:
    """Implements `LogUse`. Memory: some numbers for each requested partition, during a call."""

    def __init__(self, services: Services, read_cursors: ReadCursors) -> None:
        self._services = services
        self._read_cursors = read_cursors

    def rules(self, topics: Sequence[TopicLogs], deadline: Deadline) -> Mapping[str, Mapping[int, KeptByRule]]:
        by_name = {TopicName.parse(topic.name): topic for topic in topics if not topic.bound}
        known = self._known_namespaces({name.namespace_name for name in by_name}, deadline)
        by_name = {name: topic for name, topic in by_name.items() if name.namespace_name in known}
        minutes = self._services.applied_to(by_name, RETENTION_TIME_IN_MINUTES, deadline)
        megabytes = self._services.applied_to(by_name, RETENTION_SIZE_IN_MB, deadline)
        found: dict[str, dict[int, KeptByRule]] = {}
        by_time: dict[Retention, list[TopicLogs]] = defaultdict(list)
        for name, topic in by_name.items():
            retention = Retention(minutes[name], megabytes[name])
            if retention.time_minutes > 0:
                by_time[retention].append(topic)
            else:  # everything is older than 0 minutes; where time has no bound it is not looked at
                found[topic.name] = {p: KeptByRule(retention, log.end) for p, log in topic.logs.items()}
        for retention, concerned in by_time.items():
            found |= self._by_time(retention, concerned, deadline)
        return found

    def _known_namespaces(self, namespaces: set[str], deadline: Deadline) -> set[str]:
        """The existing namespaces. Raises NotAuthorized: their retention is unknown, so nothing may be deleted."""
        known: set[str] = set()
        for namespace in namespaces:
            with suppress(NoSuchNamespace):
                self._services.namespaces.policies(namespace, deadline)
                known.add(namespace)
        return known

    def _by_time(
        self, retention: Retention, topics: Sequence[TopicLogs], deadline: Deadline
    ) -> dict[str, dict[int, KeptByRule]]:
        horizon_ms = retention.horizon_ms(self._services.clock.now_ms())
        assert horizon_ms is not None  # noqa: S101 - there is a time
        young = self._first_since(horizon_ms, topics, deadline)
        return {name: {p: KeptByRule(retention, first) for p, first in found.items()} for name, found in young.items()}

    def _first_since(
        self, since_ms: int, topics: Sequence[TopicLogs], deadline: Deadline
    ) -> dict[str, Mapping[int, int]]:
        """By topic and partition the first offset that was published at or after this Unix time; otherwise the log's
        end. Partitions without a leader are missing."""
        places = [(topic.kafka_topic, partition) for topic in topics for partition in topic.logs]
        reported = self._services.admin.offsets_at_time(places, since_ms, deadline)
        found: dict[str, Mapping[int, int]] = {}
        for topic in topics:
            known = {p: reported[topic.kafka_topic, p] for p in topic.logs if (topic.kafka_topic, p) in reported}
            found[topic.name] = {p: topic.logs[p].end if first is None else first for p, first in known.items()}
        return found

    def needs(self, topic: TopicLogs, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, Needs]:
        opened = self._services.topics.find(TopicName.parse(topic.name), deadline)
        if opened is None or opened.layout != topic.layout or opened.bound:
            return {}
        return self.needs_of(opened, partitions, deadline)

    def needs_of(self, topic: Topic, partitions: Sequence[int], deadline: Deadline) -> dict[int, Needs]:
        """The needs of a topic that was just found to be alive. `compacted` is the result of the same look-up."""
        return needs_of(self._services, self._read_cursors, topic, partitions, deadline)

    def rollovers(self, topics: Sequence[TopicLogs], deadline: Deadline) -> Mapping[str, Rollover]:
        by_name = {TopicName.parse(topic.name): topic for topic in topics if not topic.bound}
        known = self._known_namespaces({name.namespace_name for name in by_name}, deadline)
        names = [name for name in by_name if name.namespace_name in known]
        bounds = [self._services.applied_to(names, policy, deadline) for policy in _ROLLOVER]
        return {by_name[name].name: Rollover(*(bound[name] for bound in bounds)) for name in names}

    def rolled_over(
        self, topics: Sequence[TopicLogs], rollovers: Mapping[str, Rollover], deadline: Deadline
    ) -> Mapping[str, Mapping[int, int]]:
        by_minutes: dict[int, list[TopicLogs]] = defaultdict(list)
        for topic in topics:
            by_minutes[rollovers[topic.name].max_minutes].append(topic)
        found: dict[str, Mapping[int, int]] = {}
        for minutes, concerned in by_minutes.items():
            found |= self._first_since(self._services.clock.now_ms() - minutes * MINUTE_MS, concerned, deadline)
        return found

    def delete_below(self, topic: TopicLogs, before: Mapping[int, int], deadline: Deadline) -> None:
        opened = self._services.topics.find(TopicName.parse(topic.name), deadline)
        if opened is None or opened.layout != topic.layout or opened.bound:
            raise NoSuchTopic(f"topic {topic.name} was deleted")
        self._services.topics.removals.delete_records(opened, before, deadline)

    def log_of(self, topic: Topic, partition: int, deadline: Deadline) -> LogRange | None:
        """None when it has no leader now."""
        found = self._services.admin.log_ranges([(topic.kafka_topic, partition)], deadline)
        where = (topic.kafka_topic, partition)
        return LogRange(*found[where]) if where in found else None
