"""Unused subscriptions that expired and inactive topics are deleted.

The topic's record contains the time since which a topic or subscription is unused. It is written when the use ends and
when it begins again, so that the time continues across owners. Topics without one of these policies cost nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, Refused, SubscriptionBusy
from pulsar_on_kafka.broker.managed_ledger.expiry import (
    InactiveTopicDeleteMode,
    SubscriptionUse,
    TopicUse,
    subscription_expired,
    topic_expired,
    unused_since,
)
from pulsar_on_kafka.broker.managed_ledger.owner import TopicLogs
from pulsar_on_kafka.broker.metadata.policies import (
    DELETE_WHILE_INACTIVE,
    INACTIVE_TOPIC_DELETE_MODE,
    MAX_INACTIVE_DURATION_SECONDS,
    RETENTION_TIME_IN_MINUTES,
    SUBSCRIPTION_EXPIRATION_TIME_MINUTES,
    applied,
)
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.log_needs import ReadCursors
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka_mapping.names.subscription_group import cluster_of
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord

_log: Final = logging.getLogger(__name__)
_TOPIC: Final = ""
"""Its place among the subscriptions."""

DeleteSubscription = Callable[[Subscription, Deadline], None]
DeleteTopic = Callable[[Topic, Sequence[Subscription], Deadline, Callable[[], None]], None]


class _UsedAgain(Refused):
    """The topic was used after it was found unused."""


class _Rules(NamedTuple):
    subscription_minutes: int
    inactive: bool
    mode: InactiveTopicDeleteMode
    max_inactive_s: int
    retention_minutes: int

    @classmethod
    def of(cls, *levels: Mapping[str, Any]) -> _Rules:
        return cls(
            applied(SUBSCRIPTION_EXPIRATION_TIME_MINUTES, *levels),
            applied(DELETE_WHILE_INACTIVE, *levels),
            InactiveTopicDeleteMode(applied(INACTIVE_TOPIC_DELETE_MODE, *levels)),
            applied(MAX_INACTIVE_DURATION_SECONDS, *levels),
            applied(RETENTION_TIME_IN_MINUTES, *levels),
        )

    @property
    def any(self) -> bool:
        return self.subscription_minutes > 0 or self.inactive


class _Seen(NamedTuple):
    """A topic as it is used now. `connected`: which subscriptions have consumers."""

    topic: Topic
    subscriptions: Mapping[str, Subscription]
    connected: frozenset[str]
    positions: Mapping[str, str]
    """The mark of each subscription, which changes with each use of its cursors."""
    backlog: bool
    producers: int
    logs: TopicLogs

    def marks(self, rules: _Rules) -> dict[str, str | None]:
        marks: dict[str, str | None] = {}
        if rules.subscription_minutes > 0:
            marks = {name: None if name in self.connected else mark for name, mark in self.positions.items()}
        if rules.inactive and not self.topic.bound:
            log = sorted(self.logs.logs.items())
            marks[_TOPIC] = None if self.use(0).active(rules.mode) else _digest(log, sorted(self.positions.items()))
        return marks

    def use(self, last_active_ms: int) -> TopicUse:
        entries = sum(end - start for start, end in self.logs.logs.values())
        return TopicUse(
            self.producers, len(self.connected), len(self.subscriptions), self.backlog, entries, last_active_ms
        )


class UnusedThings:
    """Deletes unused topics and subscriptions, in one thread. Memory: the state of one topic at a time."""

    def __init__(
        self,
        services: Services,
        read_cursors: ReadCursors,
        delete_subscription: DeleteSubscription,
        delete_topic: DeleteTopic,
    ) -> None:
        self._services = services
        self._read_cursors = read_cursors
        self._delete_subscription = delete_subscription
        self._delete_topic = delete_topic

    def run(self, topics: Iterable[TopicLogs], deadline: Deadline) -> int:
        """Delete what has been unused for long enough; gives how many subscriptions and topics went. What cannot be
        done now is logged, and left to the next run."""
        by_name = {TopicName.parse(topic.name): topic for topic in topics}
        records = self._services.topics.records.of(by_name, deadline)
        namespaces = {name.namespace_name for name in by_name}
        inherited = self._services.namespaces.policies_of(namespaces, deadline, required=True)
        gone = 0
        for name, record in records.items():
            if record is None:
                continue
            rules = _Rules.of(record.policies, inherited[name.namespace_name])
            if rules.any or record.unused:
                try:
                    gone += self._judge(by_name[name], record, rules, deadline)
                except LayerError as failure:
                    deadline.check("what is unused to be deleted")
                    _log.warning("topic=%s what is unused of it stays for now: %s", name, failure)
        return gone

    def _judge(self, logs: TopicLogs, record: TopicRecord, rules: _Rules, deadline: Deadline) -> int:
        seen = self._look_at(logs, deadline) if rules.any else None
        now_ms = self._services.clock.now_ms()
        if seen is None:
            topic = self._services.topics.find(TopicName.parse(logs.name), deadline)
            if topic is not None:
                self._services.topics.records.note_unused(topic, {}, deadline)
            return 0
        unused = unused_since(record.unused, seen.marks(rules), now_ms)
        gone = 0
        if (known := unused.get(_TOPIC)) is not None and topic_expired(
            seen.use(known.since_ms), rules.mode, rules.max_inactive_s, rules.retention_minutes, now_ms
        ):
            return self._end_topic(logs, seen, rules, known.mark, deadline)
        for name, found in list(unused.items()):
            subscription = seen.subscriptions.get(name)
            if subscription is None or cluster_of(name) is not None:
                continue
            use = SubscriptionUse(False, subscription.replicated, found.since_ms)
            if subscription_expired(use, rules.subscription_minutes, now_ms) and self._end(subscription, deadline):
                del unused[name]
                gone += 1
        if unused != record.unused:
            self._services.topics.records.note_unused(seen.topic, unused, deadline)
        return gone

    def _end(self, subscription: Subscription, deadline: Deadline) -> bool:
        try:
            self._delete_subscription(subscription, deadline)
        except SubscriptionBusy:  # used again
            return False
        _log.info("cursor=%s/%s deleted: unused", subscription.topic.name, subscription.name)
        return True

    def _end_topic(self, logs: TopicLogs, seen: _Seen, rules: _Rules, mark: str, deadline: Deadline) -> int:
        """Look once more before: what was used meanwhile stays."""

        def check() -> None:
            now = self._look_at(logs, deadline)
            ends = self._services.admin.end_offsets(seen.topic.kafka_topic, list(logs.logs), deadline)
            unchanged = ends == {p: log.end for p, log in logs.logs.items()}
            if now is None or now.marks(rules).get(_TOPIC) != mark or not unchanged:
                raise _UsedAgain(f"topic {logs.name} is used again")
            if joined := self._services.producers.connected(seen.topic, deadline):
                raise _UsedAgain(f"topic {logs.name} has producers again: {', '.join(joined)}")

        try:
            self._delete_topic(seen.topic, list(seen.subscriptions.values()), deadline, check)
        except (_UsedAgain, SubscriptionBusy) as used:
            _log.debug("topic=%s stays: %s", logs.name, used)
            return 0
        _log.info("topic=%s deleted: unused for %d s", seen.topic.name, rules.max_inactive_s)
        return 1

    def _look_at(self, logs: TopicLogs, deadline: Deadline) -> _Seen | None:
        topic = self._services.topics.find(TopicName.parse(logs.name), deadline)
        if topic is None or topic.layout != logs.layout:
            return None
        subscriptions = {each.name: each for each in self._services.subscriptions.list(topic, deadline)}
        connected, positions, backlog = set(), {}, False
        for name, subscription in subscriptions.items():
            if self._services.subscriptions.has_consumers(subscription, deadline):
                connected.add(name)
            cursors = sorted(self._read_cursors(subscription, deadline).items())
            positions[name] = _digest([(p, cursor.version, cursor.state.next_unacked) for p, cursor in cursors])
            backlog = backlog or any(
                cursor.state.next_unacked < logs.logs[p].end for p, cursor in cursors if p in logs.logs
            )
        producers = self._services.producers.heartbeats.publishers(str(topic.name), deadline)
        return _Seen(
            topic,
            subscriptions,
            frozenset(connected),
            positions,
            backlog,
            sum(len(sign.publishers) + sign.unlisted for sign in producers),
            logs,
        )


def _digest(*what: object) -> str:
    return hashlib.blake2b(repr(what).encode(), digest_size=8).hexdigest()
