"""Copies the commits of groups without members to `cursor_checkpoints`, because Kafka deletes them after some days.

A durable subscription never expires. A process that closes or hands over a cursor writes a checkpoint, and an owner
writes one a minute. This module copies commits of a killed process's last minute, and those of Kafka tools.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from pyroaring import BitMap

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.cursor.checkpoints import CheckpointFold
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.orphaned_records import of_this_life
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.metadata.topic_records import TopicRecords
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.service.housekeeping.cursors import CommittedGroupsAdmin
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.views import read_once
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    CommitMetadata,
    CursorCheckpoint,
    Holes,
    decode_commit_metadata,
    encode_checkpoint,
    encode_commit_metadata,
)
from pulsar_on_kafka_mapping.state.state_keys import CursorCheckpointKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSOR_CHECKPOINTS

_log: Final = logging.getLogger(__name__)
_SUBSCRIPTION_S: Final = 10.0


class TopicLists(Protocol):
    """The part of `metadata.topics.Topics` that lists and finds topics."""

    @property
    def records(self) -> TopicRecords: ...
    def find(self, name: TopicName, deadline: Deadline) -> Topic | None: ...


class SubscriptionLists(Protocol):
    """The call on `metadata.subscriptions.registry.SubscriptionLists` that lists a topic's."""

    def list(self, topic: Topic, deadline: Deadline) -> list[Subscription]: ...


_Copies: TypeAlias = Mapping[tuple[str, int, str], Mapping[str, CursorCheckpoint]]
"""Checkpoints by cursor (topic, partition, subscription) and session."""


class IdleGroups:
    """The copying, in one thread. Memory, during a call: the checkpoints of one partition."""

    name = "idle groups"

    def __init__(
        self,
        log: StateLog,
        clock: Clock,
        topics: TopicLists,
        subscriptions: SubscriptionLists,
        groups: CommittedGroupsAdmin,
    ) -> None:
        self._log = log
        self._clock = clock
        self._topics = topics
        self._subscriptions = subscriptions
        self._groups = groups
        # Not a cursor owner's: a former owner that wakes up writes under its own, and no key carries two facts.
        self._session = secrets.token_hex(16)
        self._next: dict[int, str] = {}

    def run(self, partition: int, deadline: Deadline) -> int:
        """Copies the commits of idle groups: one request for each subscription, and one more for each that needs a
        copy. After the deadline the next call continues with the next topic."""
        names = [
            record.name
            for record in self._topics.records.active(deadline)
            if CURSOR_CHECKPOINTS.partition_for(record.name) == partition and TopicName.parse(record.name).is_persistent
        ]
        fold, unreadable = read_once(self._log, CURSOR_CHECKPOINTS, partition, CheckpointFold, self._clock, deadline)
        copies = fold.all()
        names = [name for name in names if name not in unreadable]
        first, done = self._next.pop(partition, ""), 0
        for name in sorted(names, key=lambda name: (name < first, name)):
            if deadline.passed():
                self._next[partition] = name
                break
            try:
                topic = self._topics.find(TopicName.parse(name), deadline)
                subscriptions = [] if topic is None else self._subscriptions.list(topic, deadline)
            except LayerError as failure:
                _log.warning("topic=%s its cursors cannot be copied now: %s", name, failure)
                continue
            done += sum(self._copied(subscription, copies, deadline) for subscription in subscriptions)
        return done

    def _copied(self, subscription: Subscription, copies: _Copies, deadline: Deadline) -> int:
        try:
            return self._copy(subscription, copies, deadline.at_most(_SUBSCRIPTION_S))
        except LayerError as failure:
            _log.warning("cursor=%s/%s cannot be copied now: %s", subscription.place, subscription.name, failure)
            return 0

    def _copy(
        self,
        subscription: Subscription,
        copies: _Copies,
        deadline: Deadline,
    ) -> int:
        by_group: dict[str, list[int]] = {}
        for number in subscription.served:
            by_group.setdefault(subscription.saving_group(number), []).append(number)
        done = 0
        for group, numbers in by_group.items():
            committed = self._groups.committed(group, subscription.topic.kafka_topic, numbers, deadline)
            requested = {}
            for number, commit in committed.items():
                identity = cursor_identity(subscription, number)
                known = copies.get((identity.topic, number, identity.subscription), {})
                copy = checkpoint_of(identity, commit, known.values(), bytes.fromhex(self._session))
                if copy is not None:
                    requested[number] = copy
            if requested and not self._groups.describe_group(group, deadline).members:
                self._write(subscription, requested, deadline)
                done += len(requested)
        return done

    def _write(self, subscription: Subscription, requested: Mapping[int, CursorCheckpoint], deadline: Deadline) -> None:
        topic, now_ms = str(subscription.topic.name), self._clock.now_ms()
        records: list[tuple[bytes, bytes | None]] = []
        for number, copy in requested.items():
            key = CursorCheckpointKey(topic, number, subscription.name, self._session)
            value = CursorCheckpoint(copy.version, copy.save, copy.kafka_offset, copy.metadata, now_ms)
            records.append((encode_key(key), encode_checkpoint(value)))
        self._log.append_many(CURSOR_CHECKPOINTS, CURSOR_CHECKPOINTS.partition_for(topic), records, deadline)
        _log.info(
            "cursor=%s/%s copied what its idle group has of partitions %s", topic, subscription.name, [*requested]
        )


def checkpoint_of(
    identity: CursorIdentity, commit: CommittedOffset, known: Iterable[CursorCheckpoint], session: bytes
) -> CursorCheckpoint | None:
    """The copy of a commit that a cursor's checkpoints do not have yet; None when there is nothing to be copied.

    What a Kafka tool committed becomes what a take-over would make of it, `session`'s, with the next version: a seek.
    """
    ours = [
        (each, metadata)
        for each in known
        if (metadata := of_this_life(identity, CommittedOffset(each.kafka_offset, each.metadata))) is not None
    ]
    newest, there = max(ours, key=lambda pair: (pair[0].version, pair[0].save), default=(None, None))
    metadata = of_this_life(identity, commit)
    if metadata is not None:
        lineage = metadata.lineage
        if newest is not None and (newest.version, newest.save) >= (lineage.version, lineage.save):
            return None
        return CursorCheckpoint(lineage.version, lineage.save, commit.kafka_offset, commit.metadata, 0)
    if decode_commit_metadata(commit.metadata) is not None:
        return None  # of a life that is over
    if newest is not None and there is not None and newest.kafka_offset == commit.kafka_offset and _is_seek(there):
        return None
    version = 1 if newest is None else newest.version + 1
    sought = CommitMetadata(
        identity.lineage(session, version, 0),
        Holes(BitMap()),
        pending_acks=there is not None and there.pending_acks,
    )
    return CursorCheckpoint(version, 0, commit.kafka_offset, encode_commit_metadata(sought), 0)


def _is_seek(metadata: CommitMetadata) -> bool:
    """Nothing above mark-delete is acknowledged."""
    holes = metadata.holes
    return metadata.marker_offset is None and holes is not None and not holes.acked and not holes.batches
