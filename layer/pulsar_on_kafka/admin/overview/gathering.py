"""Gathers an overview of all subscriptions repeatedly, at a cost that does not grow with their number.

There are no requests about single subscriptions. A pass requests the ends of all logs (one request for 2,000 partitions
and broker), reads the new records of the state topics and of Kafka's topic of commits, and computes the rest. Log
starts are requested in one pass of ten, and publish times of old entries while they are not known precisely (one
request for 2,000 partitions, in a pass).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pulsar_on_kafka.admin.letters import REDRIVE
from pulsar_on_kafka.admin.overview.log_followers import FollowedLogs, states_of
from pulsar_on_kafka.admin.overview.progress import Growth, Progress, SavedProgress, idle_since
from pulsar_on_kafka.admin.overview.records import (
    Overview,
    PartitionOverview,
    SubscriptionOverview,
    TopicOverview,
)
from pulsar_on_kafka.admin.overview.times import Landmarks, time_to_request
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, Corrupt, NotAuthorized, OffsetOutOfRange
from pulsar_on_kafka.base.processes import is_over
from pulsar_on_kafka.base.text import counted
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, CursorName
from pulsar_on_kafka.broker.cursor.prefetched_segments import NotAtHand
from pulsar_on_kafka.broker.cursor.saved_cursor import UnreadableCursor
from pulsar_on_kafka.broker.metadata.namespaces import BUILT_IN
from pulsar_on_kafka.broker.metadata.subscriptions.registry import is_alive, opened_subscription
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription, cursor_identity
from pulsar_on_kafka.broker.metadata.topics import Topic, opened_topic
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.client.consumer.dead_letters import DLQ_SUFFIX
from pulsar_on_kafka.kafka.groups.offsets_topic import CommitPlace, GroupCommit
from pulsar_on_kafka.kafka.reading.range_reader import OffsetRange, RangeReader
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupMember, KafkaRecord
from pulsar_on_kafka.statelog.api import log_record
from pulsar_on_kafka.statelog.versioned import Versioned
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_state import CursorCheckpoint
from pulsar_on_kafka_mapping.state.metadata.metadata_records import (
    LifeState,
    SubscriptionRecord,
    decode_namespace,
    decode_subscription,
    decode_topic,
)
from pulsar_on_kafka_mapping.state.state_topics import (
    CURSOR_CHECKPOINTS,
    CURSORS,
    SUBSCRIPTIONS,
    TOPICS,
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_PENDING_ACK,
)

EVERY_S: Final = 30.0
"""The interval between two passes of continuous gathering."""
_STARTS_EVERY: Final = 10
"""Passes."""
_LOOK_EVERY_S: Final = 300.0
_LONGEST_ABSENCE_S: Final = 43_200.0
"""Half of what tombstones last."""
_MAX_SEGMENTS: Final = 1000
"""Records of `cursors` that are read in a pass; other cursors keep what was known of them until the next one."""
_SEGMENT_ROUNDS: Final = 4
_QUEUE_KBYTES: Final = 4096
_ANSWER_S: Final = 10.0
"""The longest wait for one answer of a broker: a pass while Kafka is away fails within little more."""

Place: TypeAlias = tuple[str, int]
T = TypeVar("T")


@dataclass(slots=True)
class _Cursor:
    """The data of one cursor. `made_of` is the input of `seen`: while the input stays the same, so does `seen`."""

    seen: SavedProgress
    progress: Progress
    made_of: object = None
    saved_ms: int = 0
    seen_ms: int = 0
    """The time of the last pass that read what was saved, Unix time."""


@dataclass(frozen=True, slots=True)
class _Watched:
    """A subscription with its cursors; as long as what it is `made_of` is the same, so is it."""

    made_of: tuple[Versioned, Topic]
    subscription: Subscription
    record: SubscriptionRecord
    cursors: tuple[CursorIdentity, ...]


@dataclass(slots=True)
class _Partition:
    """The data of one partition's log."""

    start: int
    growth: Growth
    landmarks: Landmarks = field(default_factory=Landmarks)
    seen_ms: int = 0
    """The time of the last pass with a reply, Unix time."""


class Gatherer:
    """The gatherer, for one thread. Memory: see `FollowedLogs`, some kilobytes for each topic, subscription and
    partition: with 10,000 of each some 100 MB; and during a pass 1,000 records of cursors whose holes do not fit their
    commit."""

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self._services = services
        self._reader = RangeReader(settings.of_state(settings.reader(fetch_queue_kbytes=_QUEUE_KBYTES)))
        self._store, self._segments = services.store.with_segments_at_hand()
        self._cursors: dict[CursorIdentity, _Cursor] = {}
        self._partitions: dict[Place, _Partition] = {}
        self._opened: dict[str, tuple[Versioned, Topic | None]] = {}
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._passes = 0
        self._last_s = time.monotonic()
        self._start_over()

    def close(self) -> None:
        """A second call does nothing."""
        self._reader.close()

    def gather(self, deadline: Deadline, *, requesting: int = 1) -> Overview:
        """Makes one pass. `requesting`: the limit of requests to Kafka for publish times of old entries; each one
        halves the uncertainty of their age.

        A partition without a reply keeps its previous numbers, and the overview shows that.

        Raises StoreError: Kafka is not available now, or no partition replies.
        """
        began_s, now_ms = time.monotonic(), self._services.clock.now_ms()
        if began_s - self._last_s > _LONGEST_ABSENCE_S:
            self._start_over()
        try:
            ends = self._read_on(began_s, deadline)
        except OffsetOutOfRange:
            self._start_over()
            ends = self._read_on(began_s, deadline)
        topics = self._topics()
        subscriptions = self._subscriptions(topics)
        answered = self._see_logs(topics.values(), ends, began_s, now_ms, deadline)
        self._see_cursors(subscriptions, began_s, now_ms, deadline)
        for _ in range(requesting):
            if not self._request_times(subscriptions, now_ms, deadline):
                break
        made = self._overview(topics, subscriptions, now_ms, answered)
        self._forget(topics.values(), subscriptions)
        self._passes += 1
        self._last_s = began_s
        return made(time.monotonic() - began_s)

    # Reading ------------------------------------------------------------------------------------------------------

    def _start_over(self) -> None:
        self._logs = FollowedLogs(self._services.log.kafka_name)
        self._looked_s: float | None = None

    def _read_on(self, began_s: float, deadline: Deadline) -> dict[Place, int]:
        logs, admin = self._logs, self._services.admin
        if self._looked_s is None or not logs.complete or began_s - self._looked_s > _LOOK_EVERY_S:
            logs.look(admin, deadline.at_most(_ANSWER_S))
            self._looked_s = began_s
        new = logs.not_begun()
        requested = deadline.at_most(_ANSWER_S)
        starts = admin.starts_now(new, requested, NotAuthorized) if new else {}
        required = [*logs.required_ends(), *self._partitions]
        ends = admin.ends_now(required, requested, NotAuthorized)
        if required and not ends:
            raise ConnectFailed(f"none of {counted(len(required), 'partition')} replies")
        logs.read_on(self._reader, ends, starts, deadline)
        return ends

    def _topics(self) -> dict[str, Topic]:
        """The persistent topics that live, by name."""
        known, self._opened = self._opened, {}
        for name, state in states_of(self._logs.topics).items():
            before, topic = known.get(name, (None, None))
            if before is not state:
                record = _decoded(state, decode_topic)
                lives = record is not None and record.state is LifeState.ACTIVE and TopicName.parse(name).is_persistent
                topic = opened_topic(record, max(1, record.partitions)) if record is not None and lives else None
            self._opened[name] = state, topic
        return {name: topic for name, (_, topic) in self._opened.items() if topic is not None}

    def _subscriptions(self, topics: Mapping[str, Topic]) -> list[_Watched]:
        """The existing subscriptions, by topic and name."""
        known, self._watched = self._watched, {}
        for key, state in sorted(states_of(self._logs.subscriptions).items()):
            topic = topics.get(key[0])
            if topic is None:
                continue
            watched = known.get(key)
            if watched is None or watched.made_of[0] is not state or watched.made_of[1] is not topic:
                watched = _watched(topic, state)
            if watched is not None:
                self._watched[key] = watched
        return [
            each
            for each in self._watched.values()
            if not (each.record.non_durable and self._logs.reads_commits) or self._members(each.subscription)
        ]

    def _members(self, subscription: Subscription) -> list[tuple[GroupMember, int | None]]:
        """The live members of its groups, with the partition that the group is for; None: all."""
        groups: dict[str, int | None] = {subscription.whole_group: None}
        if subscription.by_partition:
            groups = {group: number for number, group in subscription.partition_groups.items()}
        members = self._logs.groups.members
        return [
            (member, number)
            for group, number in groups.items()
            for member in members.get(group, ())
            if not is_over(member.client_id)
        ]

    # Seeing -------------------------------------------------------------------------------------------------------

    def _see_logs(
        self,
        topics: Collection[Topic],
        ends: dict[Place, int],
        now_s: float,
        now_ms: int,
        deadline: Deadline,
    ) -> Collection[Place]:
        """Gives the partitions that answered."""
        places = [(topic.kafka_topic, number) for topic in topics for number in range(topic.partitions)]
        terminated = {(topic.kafka_topic, number): end for topic in topics for number, end in topic.terminated.items()}
        new = [place for place in places if place not in self._partitions]
        admin = self._services.admin
        request = places if self._passes % _STARTS_EVERY == 0 else new
        requested = deadline.at_most(_ANSWER_S)
        starts = admin.starts_now(request, requested, NotAuthorized)
        ends |= admin.ends_now(new, requested, NotAuthorized)
        for place in places:
            end = ends.get(place)
            if end is None:
                continue
            end = min(end, terminated.get(place, end))  # a marker of the termination lies behind it
            log = self._partitions.get(place)
            if log is None:
                log = self._partitions[place] = _Partition(starts.get(place, 0), Growth(end))
            log.start = max(log.start, starts.get(place, 0))
            if end < log.growth.end:  # another Kafka topic of that name
                log.start, log.landmarks = starts.get(place, 0), Landmarks()
            log.seen_ms = now_ms
            log.growth.saw(end, now_s)
            log.landmarks.note(now_ms, end)
        return ends.keys()

    def _see_cursors(
        self,
        subscriptions: Iterable[_Watched],
        now_s: float,
        now_ms: int,
        deadline: Deadline,
    ) -> None:
        cursors = [(each, identity) for each in subscriptions for identity in each.cursors]
        waiting = cursors
        for _ in range(_SEGMENT_ROUNDS):
            waiting = [each for each in waiting if not self._see(*each, now_s, now_ms, deadline)]
            if not self._read_segments(deadline):
                break
        for _, identity in waiting:  # as it was known before
            known = self._cursors.get(identity)
            if known is not None:
                known.progress.saw(known.seen, now_s, now_ms)
        self._segments.at_hand.clear()
        self._segments.required.clear()

    def _see(
        self,
        watched: _Watched,
        identity: CursorIdentity,
        now_s: float,
        now_ms: int,
        deadline: Deadline,
    ) -> bool:
        """False: records have to be read first."""
        subscription = watched.subscription
        number, known = identity.partition, self._cursors.get(identity)
        log = self._partitions.get((identity.kafka_topic, number))
        commit = self._commit(subscription.saving_group(number), identity)
        other = subscription.other_group(number)
        elsewhere = None if other is None else self._commit(other, identity)
        copy = self._checkpoint(identity)
        trimmed = 0 if log is None else log.start
        made_of = (commit, elsewhere, copy, trimmed if known is None or known.seen.next_unacked < trimmed else None)
        if known is None or known.made_of != made_of:
            try:
                seen = self._recovered(subscription, identity, (commit, elsewhere, copy), trimmed, deadline)
            except NotAtHand:
                return False
            saved_ms = max(
                0 if commit is None else commit.committed_ms,
                0 if elsewhere is None else elsewhere.committed_ms,
                0 if copy is None else copy.written_ms,
            )
            if known is None:
                known = self._cursors[identity] = _Cursor(seen, Progress(seen, saved_ms or watched.record.created_ms))
            known.seen, known.saved_ms = seen, saved_ms
            known.made_of = (commit, elsewhere, copy, trimmed if seen.next_unacked < trimmed else None)
        known.progress.saw(known.seen, now_s, now_ms)
        if not known.seen_ms or self._logs.is_current(subscription.saving_group(number), identity.topic):
            known.seen_ms = now_ms
        return True

    def _recovered(
        self,
        subscription: Subscription,
        identity: CursorIdentity,
        saved: tuple[GroupCommit | None, GroupCommit | None, CursorCheckpoint | None],
        trimmed: int,
        deadline: Deadline,
    ) -> SavedProgress:
        commit, elsewhere, copy = (
            None if each is None else CommittedOffset(each.kafka_offset, each.metadata) for each in saved
        )
        recover = partial(
            self._store.recover,
            identity, commit, copy, subscription.start_offset(identity.partition), deadline, elsewhere,
        )  # fmt: skip
        unreadable = ""
        try:
            found = recover()
        except (UnreadableCursor, Corrupt) as reason:
            unreadable = str(reason)
            found = recover(with_holes=False)
        state = found.state
        if state.next_unacked < trimmed:
            try:
                state.acknowledge_cumulative(trimmed - 1)
            except UnreadableCursor as reason:
                unreadable = str(reason)
                state.reset(trimmed)
        suspects = 0 if state.deliveries is None else len(state.deliveries.suspects)
        return SavedProgress(state.next_unacked, len(state.deleted), state.deleted.count_gaps(), suspects, unreadable)

    def _commit(self, group: str, identity: CursorIdentity) -> GroupCommit | None:
        return self._logs.groups.commits.get(CommitPlace(group, identity.kafka_topic, identity.partition))

    def _checkpoint(self, identity: CursorIdentity) -> CursorCheckpoint | None:
        return self._logs.checkpoints[CURSOR_CHECKPOINTS.partition_for(identity.topic)].newest(identity.name)

    def _read_segments(self, deadline: Deadline) -> bool:
        """Read what cursors were found to need; whether anything was."""
        at_hand = self._segments.at_hand
        room = max(0, _MAX_SEGMENTS - len(at_hand))
        requested = sorted(self._segments.required)[:room]
        self._segments.required.clear()
        name = self._services.log.kafka_name(CURSORS)

        def take(number: int, records: list[KafkaRecord]) -> None:
            at_hand[requested[number]] = log_record(records[0])

        ranges = [OffsetRange(name, partition, offset, offset + 1) for partition, offset in requested]
        failed = self._reader.read(ranges, take, deadline) if requested else {}
        for number, where in enumerate(requested):
            if number not in failed or isinstance(failed[number], OffsetOutOfRange):
                at_hand.setdefault(where, None)
        return len(failed) < len(requested)

    # Times --------------------------------------------------------------------------------------------------------

    def _request_times(
        self,
        subscriptions: Iterable[_Watched],
        now_ms: int,
        deadline: Deadline,
    ) -> bool:
        """Requests, once for each partition, the publish time of its oldest unacknowledged entry; returns whether Kafka
        replied."""
        requested: dict[Place, int] = {}
        within_ms = round(EVERY_S * 1000) if self._passes else 1000
        for watched in subscriptions:
            for identity in watched.cursors:
                place = identity.kafka_topic, identity.partition
                log, cursor = self._partitions.get(place), self._cursors.get(identity)
                if log is None or cursor is None or place in requested:
                    continue
                first = max(log.start, cursor.seen.next_unacked)
                published = log.landmarks.of(first) if first < log.growth.end else None
                if published is not None:
                    time_ms = time_to_request(published, now_ms, within_ms)
                    if time_ms is not None:
                        requested[place] = time_ms
        if not requested:
            return False
        found = self._services.admin.offsets_at_times(requested, deadline.at_most(_ANSWER_S), NotAuthorized)
        for place, offset in found.items():
            log = self._partitions[place]
            log.landmarks.note(requested[place], log.growth.end if offset is None else offset)
        return bool(found)

    # Results ------------------------------------------------------------------------------------------------------

    def _overview(
        self,
        topics: Mapping[str, Topic],
        subscriptions: Collection[_Watched],
        now_ms: int,
        answered: Collection[Place],
    ) -> partial[Overview]:
        reported = {name: self._topic(topic) for name, topic in sorted(topics.items())}
        namespaces = {
            record.name
            for state in states_of(self._logs.namespaces).values()
            if (record := _decoded(state, decode_namespace)) is not None and record.state is LifeState.ACTIVE
        }
        names = sorted({name for name in {*namespaces, *BUILT_IN} if "/" in name})
        logs = self._logs
        incomplete = [f"{topic}: {reason}" for topic, reason in logs.failures.items()]
        incomplete += logs.unreadable()
        places = [(topic.kafka_topic, number) for topic in topics.values() for number in range(topic.partitions)]
        silent = [place for place in places if place not in answered]
        if silent:
            of_before = sum(place in self._partitions for place in silent)
            told_before = f"; the numbers of {of_before:,} are of an earlier look" if of_before else ""
            many = counted(len(silent), "partition")
            incomplete.append(f"{many} without a leader now, or that may not be seen{told_before}")
        letters = {name: topic.entries for name, topic in reported.items() if name.endswith(DLQ_SUFFIX)}
        letters |= {str(each.subscription.topic.name): self._backlog(each) for each in subscriptions if _redrives(each)}
        found = tuple(self._subscription(each, letters) for each in subscriptions)
        tenants = tuple(sorted({name.partition("/")[0] for name in names}))
        needed = [self._services.log.kafka_name(state) for state in (TOPICS, SUBSCRIPTIONS)]
        unread = tuple(f"{topic}: {logs.failures[topic]}" for topic in needed if topic in logs.failures)

        def made(took_s: float) -> Overview:
            return Overview(
                self._services.cluster_id, now_ms, took_s, logs.reads_commits, tenants, tuple(names),
                tuple(reported.values()), found, tuple(incomplete), unread,
            )  # fmt: skip

        return partial(made)

    def _topic(self, topic: Topic) -> TopicOverview:
        name = str(topic.name)
        logs = [self._partitions.get((topic.kafka_topic, number)) for number in range(topic.partitions)]
        known = [log for log in logs if log is not None]
        buffer = self._logs.buffers[TRANSACTION_BUFFER_SNAPSHOT.partition_for(name)]
        open_ones = sum(
            len(buffer.open_bounds(DataPartition(name, number, topic.layout.incarnation)))
            for number in range(topic.partitions)
        )
        rates = [log.growth.per_s for log in known if log.growth.per_s is not None]
        return TopicOverview(
            name,
            topic.partitions,
            sum(max(0, log.growth.end - log.start) for log in known),
            sum(log.growth.total for log in known),
            sum(rates) if rates else None,
            open_ones,
        )

    def _subscription(self, watched: _Watched, letters: Mapping[str, int]) -> SubscriptionOverview:
        subscription = watched.subscription
        members, owners = [], dict[int, str]()
        for member, only in self._members(subscription):
            who = f"{member.client_id} {member.host}"
            members.append(who)
            for kafka_topic, number in member.assigned:
                if kafka_topic == subscription.topic.kafka_topic and only in (None, number):
                    owners[number] = who
        name, kind = str(subscription.topic.name), subscription.type.value
        if subscription.by_partition:
            kind = " and ".join(sorted({each.value for each in subscription.partition_types.values()}))
        partitions = tuple(
            reported
            for identity in watched.cursors
            if (reported := self._partition(identity, owners.get(identity.partition, ""))) is not None
        )
        return SubscriptionOverview(
            name,
            subscription.name,
            kind,
            not subscription.non_durable,
            subscription.replicated,
            tuple(members),
            sum(letters.get(topic, 0) for topic in _dead_letter_topics(subscription)),
            partitions,
            self._logs.reads_commits,
            len(watched.cursors) - len(partitions),
        )

    def _partition(self, identity: CursorIdentity, owner: str) -> PartitionOverview | None:
        log = self._partitions.get((identity.kafka_topic, identity.partition))
        cursor = self._cursors.get(identity)
        if log is None or cursor is None:
            return None
        seen, progress, end = cursor.seen, cursor.progress, log.growth.end
        backlog = max(0, end - seen.next_unacked - seen.acknowledged)
        published = log.landmarks.of(seen.next_unacked) if backlog else None
        oldest_ms = None if published is None else published.before_ms
        return PartitionOverview(
            identity.partition,
            log.start,
            end,
            seen.next_unacked - 1,
            backlog,
            seen.acknowledged,
            seen.holes,
            seen.suspects,
            oldest_ms,
            idle_since(backlog, progress.moved_ms, oldest_ms),
            progress.per_s,
            log.growth.per_s,
            progress.total,
            len(self._transactions(identity)),
            cursor.saved_ms,
            owner,
            min(log.seen_ms, cursor.seen_ms),
            progress.recent_per_s,
            log.growth.recent_per_s,
            seen.unreadable,
        )

    def _backlog(self, watched: _Watched) -> int:
        reported = [self._partition(identity, "") for identity in watched.cursors]
        return sum(each.backlog for each in reported if each is not None)

    def _transactions(self, identity: CursorIdentity) -> set[TxnId]:
        """The transactions that hold acknowledgements of a cursor and have not ended."""
        log = self._logs.pending_acks[TRANSACTION_PENDING_ACK.partition_for(identity.topic)]
        acks = log.cursor(CursorName(*identity.name))
        return set(acks.life(identity.life).transactions()) - acks.ends.keys()

    def _forget(self, topics: Iterable[Topic], subscriptions: Iterable[_Watched]) -> None:
        """Forgets deleted topics and subscriptions, and landmarks that are no longer needed."""
        first: dict[Place, int] = {}
        cursors = {}
        for watched in subscriptions:
            for identity in watched.cursors:
                known = self._cursors.get(identity)
                if known is not None:
                    cursors[identity] = known
                    place = identity.kafka_topic, identity.partition
                    first[place] = min(first.get(place, known.seen.next_unacked), known.seen.next_unacked)
        places = {(topic.kafka_topic, number) for topic in topics for number in range(topic.partitions)}
        self._cursors = cursors
        self._partitions = {place: log for place, log in self._partitions.items() if place in places}
        for place, log in self._partitions.items():
            log.landmarks.forget_below(first.get(place, log.growth.end))


def _decoded(state: Versioned, decode: Callable[[bytes], T]) -> T | None:
    try:
        return decode(state.value)
    except CorruptRecord:
        return None


def _watched(topic: Topic, state: Versioned) -> _Watched | None:
    record = _decoded(state, decode_subscription)
    if record is None or not is_alive(record, topic):
        return None
    found = opened_subscription(topic, state, record)
    return _Watched((state, topic), found, record, tuple(cursor_identity(found, number) for number in found.served))


def _redrives(watched: _Watched) -> bool:
    """Whether an acknowledgement there means that a letter was put back, or dropped."""
    return watched.subscription.name == REDRIVE


def _dead_letter_topics(subscription: Subscription) -> list[str]:
    """The default names of the dead letter topics: one, or one for each partition."""
    base = str(subscription.topic.name)
    names = [base, *(f"{base}-partition-{number}" for number in subscription.served if subscription.topic.partitioned)]
    return [f"{name}-{subscription.name}{DLQ_SUFFIX}" for name in names]
