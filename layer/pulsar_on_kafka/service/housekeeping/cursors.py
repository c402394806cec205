"""Removes superfluous records of `cursors` and `cursor_checkpoints`.

Of live cursors: segments and markers of saves that were never committed (`cursor.orphaned_records`), and all
checkpoints but the newest. Of deleted topics and subscriptions: all. Only records older than a day are examined, to
skip saves under way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.orphaned_records import FoundSegments, SegmentName, of_this_life, orphans
from pulsar_on_kafka.broker.cursor.segments import CursorSegments
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.metadata.topics import LastLife, Topic
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription
from pulsar_on_kafka.service.housekeeping.rounds import DAY_MS, MAX_AT_ONCE, MAX_TOMBSTONES
from pulsar_on_kafka.statelog.api import StateLog, tombstone
from pulsar_on_kafka.statelog.views import read_once
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CursorCheckpoint
from pulsar_on_kafka_mapping.state.state_keys import CursorCheckpointKey, CursorSegmentKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS, CURSORS

_log: Final = logging.getLogger(__name__)
_CURSOR_S: Final = 10.0


class CursorTopics(Protocol):
    """The call on `metadata.topics.CursorTopics` that returns whether a topic lives."""

    def last_life(self, name: TopicName, deadline: Deadline) -> LastLife | None: ...


class CursorSubscriptions(Protocol):
    """The call on `metadata.subscriptions.registry.CursorSubscriptions` that finds a living subscription."""

    def find(self, topic: Topic, name: str, deadline: Deadline) -> Subscription | None: ...


class CommittedGroupsAdmin(Protocol):
    """The calls on `KafkaAdmin` that return a group's commits and its members."""

    def committed(
        self, group_id: str, topic: str, partitions: Sequence[int], deadline: Deadline
    ) -> dict[int, CommittedOffset]: ...
    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription: ...


Checkpointed: TypeAlias = Mapping[str, CursorCheckpoint]
"""The checkpoints of one cursor, by session."""


class CursorHousekeeping:
    """Removes cursor records, in one thread. Memory, during a call: 50,000 names, and the checkpoints of one
    partition."""

    name = "cursors"

    def __init__(
        self,
        log: StateLog,
        clock: Clock,
        topics: CursorTopics,
        subscriptions: CursorSubscriptions,
        groups: CommittedGroupsAdmin,
        *,
        kept_ms: int = DAY_MS,
    ) -> None:
        """`kept_ms`: what is younger is not looked at; far more than a save takes."""
        self._log = log
        self._clock = clock
        self._topics = topics
        self._subscriptions = subscriptions
        self._groups = groups
        self._segments = CursorSegments(log)
        self._kept_ms = kept_ms
        self._starts: dict[int, int] = {}
        self._reported: set[str] = set()

    def run(self, partition: int, deadline: Deadline) -> int:
        """Removes superfluous records of the partition's cursors. At most 20,000 tombstones; the next call continues
        with the rest."""
        before_ms = self._clock.now_ms() - self._kept_ms
        start = self._starts.pop(partition, 0)
        segments, unreadable = read_once(
            self._log, CURSORS, partition, lambda: FoundSegments(before_ms, start), self._clock, deadline
        )
        found = segments.by_cursor
        if segments.full_at is not None:
            self._starts[partition] = segments.full_at
        copies, unreadable_copies = read_once(
            self._log, CURSOR_CHECKPOINTS, partition, CheckpointFold, self._clock, deadline
        )
        checkpoints = {CursorName(*cursor): copied for cursor, copied in copies.all().items()}
        passed_over = unreadable | unreadable_copies
        done = 0
        for cursor in sorted(each for each in {*found, *checkpoints} if each.topic not in passed_over):
            if deadline.passed() or done >= MAX_TOMBSTONES:
                break
            try:
                done += self._keep_house(
                    cursor,
                    found.get(cursor, set()),
                    checkpoints.get(cursor, {}),
                    before_ms,
                    deadline.at_most(_CURSOR_S),
                )
            except LayerError as failure:
                self._report(cursor, failure)
        return done

    def _keep_house(
        self, cursor: CursorName, found: set[SegmentName], copies: Checkpointed, before_ms: int, deadline: Deadline
    ) -> int:
        old = {session for session, copied in copies.items() if copied.written_ms < before_ms}
        if not found and not old:
            return 0
        life = self._topics.last_life(TopicName.parse(cursor.topic), deadline)
        if life is None:
            return 0  # no record of such a topic: the writer may have read a newer one
        identity, subscription = self._identity(cursor, life, deadline)
        if identity is None or subscription is None:
            return self._remove(cursor, sorted(found), sorted(old), deadline)
        newest = self._newest(identity, copies)
        unneeded = old - {newest}
        if not found and not unneeded:
            return 0
        checkpoint = None if newest is None else _as_commit(copies[newest])
        commits = self._commits(subscription, cursor.partition, deadline)
        gone = orphans(
            self._segments,
            identity,
            found,
            commits,
            checkpoint,
            lambda: self._is_owned(subscription, deadline),
            deadline,
        )
        return self._remove(cursor, gone, sorted(unneeded), deadline)

    def _identity(
        self, cursor: CursorName, life: LastLife, deadline: Deadline
    ) -> tuple[CursorIdentity | None, Subscription | None]:
        if life.topic is None:
            return None, None
        subscription = self._subscriptions.find(life.topic, cursor.subscription, deadline)
        if subscription is None or cursor.partition not in subscription.served:
            return None, None
        return cursor_identity(subscription, cursor.partition), subscription

    def _newest(self, identity: CursorIdentity, copies: Checkpointed) -> str | None:
        """The session whose checkpoint counts: the others are older, or of a life that is over."""
        places = {
            session: (copied.version, copied.save)
            for session, copied in copies.items()
            if of_this_life(identity, _as_commit(copied)) is not None
        }
        return max(places, key=lambda session: places[session], default=None)

    def _is_owned(self, subscription: Subscription, deadline: Deadline) -> bool:
        return any(self._groups.describe_group(group, deadline).members for group in subscription.groups)

    def _commits(self, subscription: Subscription, partition: int, deadline: Deadline) -> list[CommittedOffset]:
        groups = {subscription.whole_group, subscription.partition_groups.get(partition, subscription.whole_group)}
        kafka_topic = subscription.topic.kafka_topic
        found = [self._groups.committed(group, kafka_topic, [partition], deadline) for group in sorted(groups)]
        return [commits[partition] for commits in found if partition in commits]

    def _remove(
        self, cursor: CursorName, segments: Iterable[SegmentName], sessions: Iterable[str], deadline: Deadline
    ) -> int:
        names = [encode_key(CursorSegmentKey(*cursor, *name)) for name in segments]
        copies = [encode_key(CursorCheckpointKey(*cursor, session)) for session in sessions]
        for topic, keys in ((CURSORS, names), (CURSOR_CHECKPOINTS, copies)):
            tombstone(self._log, topic, topic.partition_for(cursor.topic), keys, deadline)
        if names or copies:
            _log.info(
                "cursor=%s/%s[%d] removed %d segments and %d checkpoints that nothing refers to", cursor.topic,
                cursor.subscription, cursor.partition, len(names), len(copies),
            )  # fmt: skip
        return len(names) + len(copies)

    def _report(self, cursor: CursorName, failure: LayerError) -> None:
        place = f"{cursor.topic}/{cursor.subscription}[{cursor.partition}]"
        level = logging.DEBUG if place in self._reported else logging.WARNING
        if len(self._reported) < MAX_AT_ONCE:
            self._reported.add(place)
        _log.log(level, "cursor=%s what is left of its saves cannot be removed now: %s", place, failure)


def _as_commit(copied: CursorCheckpoint) -> CommittedOffset:
    return CommittedOffset(copied.kafka_offset, copied.metadata)
