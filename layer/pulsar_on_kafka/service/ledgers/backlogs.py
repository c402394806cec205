"""Backlog quotas on Kafka: measures the backlog of the slowest subscriptions, and acts.

Exceeded quotas are written into the topic's record, which producers read anyway (`client/connection/session.py`). They
are written when they change and every two and a half minutes, so that they expire where no process maintains them.
Sizes are estimated from some records of the backlog, and only where it changed. Topics without a limit cost nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange, Measured
from pulsar_on_kafka.broker.managed_ledger.owner import Stretch, TopicLogs
from pulsar_on_kafka.broker.managed_ledger.quotas import (
    EVICTION_TARGET,
    Exceeded,
    QuotaAction,
    Quotas,
    evicted_by_size,
    evicted_by_time,
)
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.log_needs import ReadCursors
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.service.ledgers.expiring import ChangeCursors
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import AcknowledgeUpTo, CursorCommand
from pulsar_on_kafka_mapping.state.metadata.metadata_records import BacklogExceeded, TopicRecord

_log: Final = logging.getLogger(__name__)

Measure: TypeAlias = Callable[[Sequence[Stretch], Deadline], Sequence[Measured | LayerError]]


class Sizes:
    """Measures stretches, in one thread. Memory: an entry for each stretch of the last call."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._known: dict[Stretch, Measured] = {}

    def of(self, stretches: Iterable[Stretch], deadline: Deadline) -> dict[Stretch, Measured]:
        """The measured stretches; those that cannot be measured now are missing, with a log line."""
        requested = list(stretches)
        unknown = [stretch for stretch in requested if stretch not in self._known]
        fresh: dict[Stretch, Measured] = {}
        for stretch, found in zip(unknown, self._measure(unknown, deadline) if unknown else (), strict=True):
            if isinstance(found, LayerError):
                _log.warning("%s-%d could not be measured now: %s", stretch.kafka_topic, stretch.partition, found)
            else:
                fresh[stretch] = found
        known = {**self._known, **fresh}
        self._known = {stretch: known[stretch] for stretch in requested if stretch in known}
        return self._known


TOLD_MS: Final = 300_000
"""The time for which producers apply a written quota state."""
_CURSOR_S: Final = 10.0


class _Backlog(NamedTuple):
    """[first, log.end) of a partition; `cursors`: the next unacknowledged offset of each subscription."""

    log: LogRange
    first: int
    cursors: Mapping[str, int]


@dataclass(slots=True)
class _Limited:
    topic: Topic
    quotas: Quotas
    reported: BacklogExceeded | None
    subscriptions: Mapping[str, Subscription]
    backlogs: Mapping[int, _Backlog]
    """The partitions with a backlog."""
    all_known: bool
    """Otherwise a partition has no leader now."""

    def stretches(self) -> dict[int, Stretch]:
        """The stretches to measure, by partition: without a limit by size only the oldest message."""
        by_size = self.quotas.by_size.limit_bytes >= 0
        return {
            partition: Stretch(
                self.topic.kafka_topic, partition, backlog.first, backlog.log.end if by_size else backlog.first + 1
            )
            for partition, backlog in sorted(self.backlogs.items())
        }


class BacklogKeeper:
    """Keeps backlogs, in one thread. Memory: some numbers for each partition of the topics that have a limit."""

    def __init__(
        self, services: Services, read_cursors: ReadCursors, change_cursors: ChangeCursors, measure: Measure
    ) -> None:
        self._services = services
        self._read_cursors = read_cursors
        self._change_cursors = change_cursors
        self._sizes = Sizes(measure)
        self.exceeded = 0
        """The number of topics whose producers were notified in the last run."""

    def run(self, topics: Iterable[TopicLogs], deadline: Deadline) -> int:
        """Hold these topics' backlogs to their limits; gives how many cursors and topics' records were changed. What
        cannot be done now is logged, and left to the next run."""
        self.exceeded = 0
        limited = self._limited({TopicName.parse(topic.name): topic for topic in topics}, deadline)
        measured = self._sizes.of([stretch for each in limited for stretch in each.stretches().values()], deadline)
        return sum(self._hold(each, measured, deadline) for each in limited)

    def _limited(self, topics: Mapping[TopicName, TopicLogs], deadline: Deadline) -> list[_Limited]:
        records = self._services.topics.records.of(topics, deadline)
        inherited = self._services.namespaces.policies_of({name.namespace_name for name in topics}, deadline)
        found = []
        for name, record in records.items():
            if record is None:
                continue
            quotas = Quotas.of(record.policies, inherited[name.namespace_name])
            if quotas.limited or record.backlog_exceeded is not None:
                try:
                    seen = self._look_at(topics[name], record, quotas, deadline)
                except LayerError as failure:
                    deadline.check("backlogs to be looked at")
                    _log.warning("topic=%s its backlog is not known now: %s", name, failure)
                else:
                    found += [seen] if seen is not None else []
        return found

    def _look_at(self, logs: TopicLogs, record: TopicRecord, quotas: Quotas, deadline: Deadline) -> _Limited | None:
        topic = self._services.topics.find(TopicName.parse(logs.name), deadline)
        if topic is None or topic.layout != logs.layout:
            return None
        cursors: dict[int, dict[str, int]] = defaultdict(dict)
        subscriptions = {each.name: each for each in self._services.subscriptions.durable(topic, deadline)}
        for name, subscription in subscriptions.items():
            for partition, cursor in self._read_cursors(subscription, deadline).items():
                cursors[partition][name] = cursor.state.next_unacked
        backlogs = {
            partition: _Backlog(logs.logs[partition], max(log.start, min(places.values())), places)
            for partition, places in cursors.items()
            if (log := logs.logs.get(partition)) is not None and min(places.values()) < log.end
        }
        all_known = all(partition in logs.logs for partition in cursors)
        return _Limited(topic, quotas, record.backlog_exceeded, subscriptions, backlogs, all_known)

    def _hold(self, limited: _Limited, measured: Mapping[Stretch, Measured], deadline: Deadline) -> int:
        now_ms = self._services.clock.now_ms()
        done = 0
        to_report: Exceeded | None = None
        if limited.quotas.by_size.limit_bytes == 0 and not limited.backlogs:  # always reached
            to_report = limited.quotas.exceeded(0, 0, None, now_ms)
            if to_report is not None and to_report.action is QuotaAction.CONSUMER_BACKLOG_EVICTION:
                to_report = None
        seen = [stretch for stretch in limited.stretches().values() if stretch in measured]
        for stretch in seen:
            partition, sizes = stretch.partition, measured[stretch]
            exceeded = limited.quotas.exceeded(partition, sizes.bytes, sizes.first_publish_ms or None, now_ms)
            if exceeded is None:
                continue
            if exceeded.action is not QuotaAction.CONSUMER_BACKLOG_EVICTION:
                to_report = to_report or exceeded
                continue
            done += self._evict(limited, partition, exceeded, sizes, deadline)
        if to_report is None and not (limited.all_known and len(seen) == len(limited.backlogs)):
            return done  # the written state stands until all is known
        return done + self._report(limited, to_report, now_ms, deadline)

    def _report(self, limited: _Limited, exceeded: Exceeded | None, now_ms: int, deadline: Deadline) -> int:
        reported, to_report = limited.reported, None
        if exceeded is not None:
            self.exceeded += 1
            holds = exceeded.action is QuotaAction.PRODUCER_REQUEST_HOLD
            to_report = BacklogExceeded(holds, exceeded.limit, now_ms + TOLD_MS)
            if reported is not None and reported.until_ms > now_ms + TOLD_MS // 2 and reported.holds is holds:
                return 0
        if reported == to_report:
            return 0
        try:
            self._services.topics.records.note_backlog(limited.topic, to_report, deadline)
        except LayerError as failure:
            deadline.check("producers to be notified of a backlog")
            _log.warning("topic=%s its producers get no notice of its backlog now: %s", limited.topic.name, failure)
            return 0
        _log.info("topic=%s notice to its producers: %s", limited.topic.name, to_report or "they may go on")
        return 1

    def _evict(self, limited: _Limited, partition: int, exceeded: Exceeded, sizes: Measured, deadline: Deadline) -> int:
        backlog = limited.backlogs[partition]
        end = backlog.log.end
        cursors = {name: max(backlog.log.start, place) for name, place in backlog.cursors.items()}
        if exceeded.by_time:
            limit_ms = limited.quotas.by_time.limit_time_s * 1000
            moved = evicted_by_time(
                cursors, self._first_since(limited, partition, limit_ms * EVICTION_TARGET, end, deadline)
            )
        else:
            each = sizes.bytes / (end - backlog.first)
            moved = evicted_by_size(
                cursors, end, lambda offset: round((end - offset) * each), limited.quotas.by_size.limit_bytes
            )
        done = 0
        for name, offset in moved.items():
            if cluster_of(name) is not None:
                _log.warning("cursor=%s/%s holds %s, and is not set on", limited.topic.name, name, exceeded.limit)
                continue
            commands: dict[int, CursorCommand] = {partition: AcknowledgeUpTo(offset - 1)}
            try:
                self._change_cursors(limited.subscriptions[name], commands, Deadline.after(_CURSOR_S))
            except LayerError as failure:
                deadline.check("a backlog to be evicted")
                _log.warning("cursor=%s/%s cannot be set on now: %s", limited.topic.name, name, failure)
            else:
                _log.info(
                    "cursor=%s/%s set on to %d:%d, %s", limited.topic.name, name, partition, offset, exceeded.limit
                )
                done += 1
        return done

    def _first_since(self, limited: _Limited, partition: int, age_ms: float, end: int, deadline: Deadline) -> int:
        place = limited.topic.kafka_topic, partition
        since_ms = self._services.clock.now_ms() - round(age_ms)
        found = self._services.admin.offsets_at_time([place], since_ms, deadline)
        if place not in found:
            return 0
        first = found[place]
        return end if first is None else first
