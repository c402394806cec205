"""Fetch sessions of one process: which broker fetches which partitions, with which bytes.

Nothing is fetched for a watch beyond the window of its reader. Failures are events of `kafka.reading.events`.
The caller sends the requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError

from pulsar_on_kafka.base.errors import Corrupt, LayerError, NoSuchTopic, NotSupportedYet, OffsetOutOfRange
from pulsar_on_kafka.kafka.errors import translate
from pulsar_on_kafka.kafka.reading.events import EndOfLog, Failed, Forbidden, Gone, KafkaPartition, OutOfRange, Stopped
from pulsar_on_kafka.kafka.reading.fetch_session import (
    MAX_PARTITIONS,
    SESSION_ERRORS,
    FetchKind,
    FetchSession,
    LogEnds,
    Watch,
)
from pulsar_on_kafka.kafka.reading.record_batches import end_of
from pulsar_on_kafka.kafka.rights import on_topic
from pulsar_on_kafka.kafka.wire.cluster_messages import NO_TOPIC_ID, PartitionMetadata, TopicMetadata
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode, is_retriable
from pulsar_on_kafka.kafka.wire.fetch_messages import AbortedRange, FetchedPartition, FetchRequest, FetchResponse
from pulsar_on_kafka.kafka.wire.offset_messages import READ_COMMITTED, READ_UNCOMMITTED

BUDGET_BYTES: Final = 256 * 1024 * 1024
MAX_TOPICS: Final = 2_000
"""The limit of topics in one request for metadata."""
_QUIET_BYTES: Final = 1024 * 1024
_BUSY_BYTES: Final = 8 * 1024 * 1024
_MIN_RESPONSE_BYTES: Final = 64 * 1024
_RETRY_INTERVAL_S: Final = 0.1
_LOOKUP_INTERVAL_S: Final = 0.25
_MAX_LOOKUPS_PER_S: Final = 2_000
"""The limit of topics that are looked up again: they may have no leader for long, and a response costs its size."""
_CORRUPT_RETRY_INTERVAL_S: Final = 10.0
_UNKNOWN_S: Final = 5.0
"""A topic that brokers do not know any more for so long is gone."""
_NEVER_KNOWN_S: Final = 30.0
"""The same for one that none of them knew yet: a busy broker learns of a new topic late. librdkafka's default."""
_HOLD_S: Final = 0.2
_LIMITED_AT_ONCE: Final = 16
_SPARSE: Final = 0.5
"""Quiet sessions are joined when all partitions would fill no more than this share of one session less."""

_LEADER_CHANGED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which metadata says where, or whether, the partition is."""
_BROKER_BEHIND: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE})
"""Errors of a broker that is just becoming the leader."""


class Fetched(NamedTuple):
    """Bytes of a partition from `position` on, for `record_batches.decode`."""

    number: int
    generation: int
    where: KafkaPartition
    position: int
    data: bytes
    aborted: tuple[AbortedRange, ...]


class Reported(NamedTuple):
    """An event other than records. After `Stopped` events nothing more is fetched; after `OutOfRange` a seek continues;
    after others fetching is retried."""

    number: int
    generation: int
    event: EndOfLog | Failed


FetchEvent: TypeAlias = Fetched | Reported


@dataclass(slots=True, eq=False)
class _Group:
    """The sessions with one broker at one isolation level."""

    new: FetchSession
    quiet: list[FetchSession] = field(default_factory=list)
    busy: list[FetchSession] = field(default_factory=list)
    with_room: dict[FetchSession, None] = field(default_factory=dict)
    """The quiet sessions that have fewer partitions than the maximum."""


class FetchSessions:
    """Sends requests with `requests`, and takes each response with `answered` or `failed`.

    No call loops over all watches: a change of one costs the same however many there are. Memory: `budget_bytes` for
    all bytes that are under way, or fetched and not handed out, and one batch of records for each request under way,
    because Kafka returns a first batch whatever its size. A watch holds no more than what the others leave free.
    """

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget_bytes = budget_bytes
        self._watches: dict[int, Watch] = {}
        self._topics: dict[str, dict[int, Watch]] = {}
        self._ready: dict[int, Watch] = {}
        """Watches to be fetched that are in no session, with a known leader."""
        self._limited: dict[int, None] = {}
        """Numbers of watches that wait until the budget has more room; some do not any more."""
        self._retries: list[tuple[float, int]] = []
        """Times and numbers of watches that are fetched later: a heap."""
        self._lookups: dict[str, float] = {}
        """Topics whose leaders are unknown, and the time of the next request for them."""
        self._lookup_times: list[tuple[float, str]] = []
        """The same as a heap, with some times that are out of date."""
        self._is_looking_up = False
        self._groups: dict[tuple[int, int], _Group] = {}
        self._idle: dict[FetchSession, None] = {}
        """Sessions that have partitions, and no request under way."""
        self._reserved_bytes = 0
        self.ended: list[FetchSession] = []
        """Sessions whose connections can be closed; the caller clears the list."""
        self.held_bytes = 0
        """The bytes that were fetched and not handed out."""
        self._is_withheld = False
        """Whether the latest requests were withheld because of the budget."""

    @property
    def is_budget_reached(self) -> bool:
        """Whether watches get less than their windows, or nothing, because of the budget."""
        return self._is_withheld or bool(self._limited)

    @property
    def _free_bytes(self) -> int:
        return self._budget_bytes - self.held_bytes

    @property
    def session_count(self) -> int:
        """The number of sessions, with those that wait for a first partition."""
        return sum(1 + len(group.quiet) + len(group.busy) for group in self._groups.values())

    # Watches ------------------------------------------------------------------------------------------------------

    def watch(
        self,
        number: int,
        generation: int,
        where: KafkaPartition,
        position: int,
        window_bytes: int,
        isolation_level: int = READ_UNCOMMITTED,
        topic_id: bytes | None = None,
    ) -> None:
        """Reads a partition from `position` on. `number` is unused so far. The topic has this id, or with None the one
        that is found first.

        `window_bytes` bounds what is fetched and not handed out, except for one response. 0 fetches nothing.
        """
        watch = Watch(number, where, isolation_level, generation, position, window_bytes, topic_id=topic_id)
        self._watches[number] = watch
        self._topics.setdefault(where.topic, {})[number] = watch
        self._look_up(where.topic, 0.0)

    def forget(self, number: int) -> None:
        """Ends a watch, and hands out what it holds. A second call does nothing."""
        watch = self._watches.pop(number, None)
        if watch is not None:
            self.held_bytes -= watch.held_bytes
            self._take_out(watch)
            self._leave_topic(watch)

    def _leave_topic(self, watch: Watch) -> None:
        others = self._topics.get(watch.where.topic)
        if others is not None and others.pop(watch.number, None) is not None and not others:
            del self._topics[watch.where.topic]
            self._lookups.pop(watch.where.topic, None)

    def set_window(self, number: int, window_bytes: int) -> None:
        """Changes the window. With 0 the request under way may still bring records, and no later one does."""
        watch = self._watches.get(number)
        if watch is not None:
            watch.window_bytes = window_bytes
            self._place_or_take_out(watch)

    def hand_out(self, number: int, size: int) -> None:
        """Frees so many bytes of the watch's window and of the budget; nothing once the watch is forgotten. Each
        `Fetched` is handed out once, also one that a seek made useless."""
        watch = self._watches.get(number)
        if watch is not None:
            self.held_bytes -= size
            watch.held_bytes -= size
            self._place_or_take_out(watch)

    def seek(self, number: int, generation: int, position: int) -> list[FetchEvent]:
        """Continues a watch at another position. What is under way for it is dropped. Where a `Stopped` event ended the
        watch, returns it for this generation."""
        watch = self._watches.get(number)
        if watch is None:
            return []
        watch.generation, watch.position = generation, position
        if watch.ended is not None:
            return [Reported(number, generation, watch.ended)]
        watch.fetched_epoch = watch.end_reported = -1
        watch.is_stopped = watch.is_busy = False
        watch.retry_s = 0.0
        if watch.session is None or watch.session.in_flight:
            self._take_out(watch)
            self._place_later(watch)
        else:
            watch.session.change(watch)
        return []

    def watch_of(self, number: int) -> Watch | None:
        """The watch, until it is forgotten. Any thread may read it."""
        return self._watches.get(number)

    def _put(self, session: FetchSession, watch: Watch) -> None:
        session.add(watch)
        if not session.in_flight:
            self._idle[session] = None
        if session.kind is FetchKind.QUIET and len(session.watches) >= MAX_PARTITIONS:
            del self._group(session.node_id, session.isolation_level).with_room[session]

    def _take_out(self, watch: Watch) -> None:
        self._ready.pop(watch.number, None)
        session = watch.session
        if session is not None:
            session.remove(watch)
            if session.kind is FetchKind.QUIET:
                self._group(session.node_id, session.isolation_level).with_room[session] = None

    def _place_or_take_out(self, watch: Watch) -> None:
        if watch.wants_records(self._free_bytes):
            self._place_later(watch)
        else:
            self._take_out(watch)
            self._place_later(watch)

    def _place_later(self, watch: Watch) -> None:
        """Has `requests` place the watch, unless `learn` or the time of its retry does so."""
        if watch.session is None and not watch.needs_leader and not watch.retry_s:
            if watch.is_to_begin(self._free_bytes):
                self._ready[watch.number] = watch
            elif watch.waits_for_budget(self._free_bytes):
                self._limited[watch.number] = None

    # Leaders ------------------------------------------------------------------------------------------------------

    def topics_to_look_up(self, now_s: float) -> tuple[str, ...]:
        """Topics whose metadata is to be requested now, for `learn`, or `look_up_failed`. Until either, none."""
        due: list[str] = []
        interval_s = max(_LOOKUP_INTERVAL_S, len(self._lookups) / _MAX_LOOKUPS_PER_S)
        while not self._is_looking_up and len(due) < MAX_TOPICS and self._next_lookup_s() <= now_s:
            topic = heappop(self._lookup_times)[1]
            self._lookups[topic] = now_s + interval_s
            due.append(topic)
        for topic in due:
            heappush(self._lookup_times, (self._lookups[topic], topic))
        self._is_looking_up = self._is_looking_up or bool(due)
        return tuple(due)

    def _next_lookup_s(self) -> float:
        times = self._lookup_times
        while times and self._lookups.get(times[0][1]) != times[0][0]:
            heappop(times)
        return times[0][0] if times else math.inf

    def _look_up(self, topic: str, at_s: float) -> None:
        if topic not in self._lookups:
            self._lookups[topic] = at_s
            heappush(self._lookup_times, (at_s, topic))

    def look_up_failed(self) -> None:
        """No response came. The topics are looked up again."""
        self._is_looking_up = False

    def learn(self, topics: Iterable[TopicMetadata], now_s: float) -> list[FetchEvent]:
        """Takes the metadata of topics that were to be looked up."""
        self._is_looking_up = False
        events: list[FetchEvent] = []
        for topic in topics:
            watches = self._topics.get(topic.name or "")
            if watches is None:
                continue
            partitions = {each.partition_index: each for each in topic.partitions}
            known = [self._learn(watch, topic, partitions, now_s, events) for watch in list(watches.values())]
            if all(known):
                self._lookups.pop(topic.name or "", None)
        return events

    def _learn(
        self,
        watch: Watch,
        topic: TopicMetadata,
        partitions: dict[int, PartitionMetadata],
        now_s: float,
        events: list[FetchEvent],
    ) -> bool:
        """Whether the watch needs no other look-up."""
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._end(watch, Forbidden(watch.where, _failure(watch, topic.error_code)), events)
            return True
        found = partitions.get(watch.where.partition)
        is_other = topic.error_code == ErrorCode.NONE and watch.topic_id not in (None, topic.topic_id)
        is_unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_other or is_unknown or (topic.error_code == ErrorCode.NONE and found is None):
            watch.unknown_since_s = now_s if watch.unknown_since_s is None else watch.unknown_since_s
            if now_s - watch.unknown_since_s < _patience_s(watch, is_other=is_other):
                return False
            failure = _failure(watch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if is_other:
                failure = NoSuchTopic(f"reading {watch.where}: the topic was deleted, and created again under its name")
            self._end(watch, Gone(watch.where, failure), events)
            return True
        if topic.error_code and not is_retriable(topic.error_code):
            self._end(watch, Stopped(watch.where, _failure(watch, topic.error_code)), events)
            return True
        if found is None or found.leader_id < 0 or found.leader_epoch < watch.leader_epoch:
            return False
        if topic.topic_id == NO_TOPIC_ID:
            no_id = NotSupportedYet(f"reading {watch.where}: its cluster gives topics no ids, which Fetch needs")
            self._end(watch, Stopped(watch.where, no_id), events)
            return True
        watch.unknown_since_s, watch.needs_leader = None, False
        moved = watch.leader != found.leader_id or watch.leader_epoch != found.leader_epoch
        watch.topic_id, watch.leader, watch.leader_epoch = topic.topic_id, found.leader_id, found.leader_epoch
        if moved and watch.session is not None:
            self._take_out(watch)
        self._place_later(watch)
        return True

    def _end(self, watch: Watch, event: Stopped, events: list[FetchEvent]) -> None:
        watch.ended = event
        self._take_out(watch)
        self._leave_topic(watch)
        events.append(Reported(watch.number, watch.generation, event))

    # Requests -----------------------------------------------------------------------------------------------------

    def requests(self, now_s: float) -> list[tuple[FetchSession, FetchRequest]]:
        """The requests to send now, each on a connection of its session: a broker reads the next request of a
        connection only after the response to the one before."""
        while self._next_retry_s() <= now_s:
            watch = self._watches[heappop(self._retries)[1]]
            watch.retry_s = 0.0
            self._place_later(watch)
        self._place_limited()
        self._place(now_s)
        due = [session for session in [*self._idle] if self._is_due(session, now_s)]
        due.sort(key=attrgetter("due_s"))
        ready: list[tuple[FetchSession, FetchRequest]] = []
        self._is_withheld = False
        for session in due:
            free = self._free_bytes - self._reserved_bytes
            if free < min(_MIN_RESPONSE_BYTES, self._budget_bytes):
                self._is_withheld = True
                break
            max_bytes = min(free, self._max_bytes(session.kind))
            self._reserved_bytes += max_bytes
            del self._idle[session]
            ready.append((session, session.request(max_bytes, self._free_bytes)))
        return ready

    def due_s(self, now_s: float) -> float | None:
        """The time of the next call of `requests` and `topics_to_look_up` if nothing happens before."""
        if self._ready:
            return now_s
        first_s = min(self._next_retry_s(), math.inf if self._is_looking_up else self._next_lookup_s())
        if self._limited:
            first_s = min(first_s, now_s + _RETRY_INTERVAL_S)
        if not self._is_withheld:
            for session in self._idle:
                held_s = 0.0 if session.held_since_s is None else session.held_since_s + _HOLD_S
                first_s = min(first_s, max(session.due_s, held_s))
        return None if first_s == math.inf else first_s

    def _next_retry_s(self) -> float:
        retries = self._retries
        while retries:
            retry_s, number = retries[0]
            watch = self._watches.get(number)
            if watch is not None and watch.retry_s == retry_s:
                return retry_s
            heappop(retries)
        return math.inf

    def _is_due(self, session: FetchSession, now_s: float) -> bool:
        if not session.watches:
            del self._idle[session]
            self._end_if_useless(session)
            return False
        if session.due_s > now_s:
            return False
        group = self._group(session.node_id, session.isolation_level)
        return session.kind is not FetchKind.QUIET or not _is_held(group, session, now_s)

    def _max_bytes(self, kind: FetchKind) -> int:
        """Sessions that wait take half of the budget together, so that the busy ones have the other half."""
        if kind is FetchKind.BUSY:
            return _BUSY_BYTES
        count = sum(1 + len(group.quiet) for group in self._groups.values())
        return min(_QUIET_BYTES, max(_MIN_RESPONSE_BYTES, self._budget_bytes // 2 // count))

    def _place_limited(self) -> None:
        """Looks at some of the watches that wait for the budget."""
        for number in [*islice(self._limited, _LIMITED_AT_ONCE)]:
            del self._limited[number]
            watch = self._watches.get(number)
            if watch is not None:
                self._place_later(watch)

    def _place(self, now_s: float) -> None:
        ready, self._ready = self._ready, {}
        for watch in ready.values():
            group = self._group(watch.leader, watch.isolation_level)
            self._put(self._session_for(watch, group, now_s), watch)
        for group in self._groups.values():
            if group.new.watches and not group.new.in_flight:
                for watch in [each for each in group.new.watches.values() if each.is_settled]:
                    session = self._quiet_session_for(watch, group, now_s)
                    if session is not None:
                        self._take_out(watch)
                        self._put(session, watch)

    def _group(self, node_id: int, isolation_level: int) -> _Group:
        key = node_id, isolation_level
        if key not in self._groups:
            self._groups[key] = _Group(FetchSession(node_id, isolation_level, FetchKind.NEW))
        return self._groups[key]

    def _session_for(self, watch: Watch, group: _Group, now_s: float) -> FetchSession:
        if watch.is_busy:
            with_room = (session for session in group.busy if session.has_room(watch.key))
            return next(with_room, None) or _added(group.busy, watch, FetchKind.BUSY, now_s)
        quiet = self._quiet_session_for(watch, group, now_s)
        if quiet is not None:
            return quiet
        return group.new if group.new.has_room(watch.key) else _added_quiet(group, watch, now_s)

    def _quiet_session_for(self, watch: Watch, group: _Group, now_s: float) -> FetchSession | None:
        """A session without a request under way; None if there are only others with room for the watch."""
        key = watch.key
        for session in self._idle:
            if session in group.with_room and session.has_room(key):
                return session
        if any(session.has_room(key) for session in group.with_room):
            return None
        return _added_quiet(group, watch, now_s)

    # Responses ----------------------------------------------------------------------------------------------------

    def failed(self, session: FetchSession, now_s: float) -> None:
        """No response came, and none can come: the connection was closed."""
        self._reserved_bytes -= session.reserved_bytes
        session.lose()
        session.due_s = now_s + _RETRY_INTERVAL_S
        self._idle[session] = None
        for watch in session.watches.values():
            self._look_up(watch.where.topic, now_s)

    def answered(self, session: FetchSession, response: FetchResponse, now_s: float) -> list[FetchEvent]:
        events: list[FetchEvent] = []
        self._reserved_bytes -= session.reserved_bytes
        has_partitions = session.accept(response)
        self._idle[session] = None
        session.due_s = now_s + response.throttle_time_ms / 1000
        if not has_partitions:
            if response.error_code not in SESSION_ERRORS:
                session.due_s += _RETRY_INTERVAL_S
            return events
        for topic_id, partitions in response.topics:
            for partition in partitions:
                key = topic_id, partition.partition_index
                session.ends[key] = _ends(partition, session.isolation_level)
                watch = session.requested(key)
                if watch is not None:
                    self._apply(session, watch, partition, now_s, events)
        if response.throttle_time_ms == 0:
            for key in session.changed_before:
                watch = session.requested(key)
                if watch is not None:
                    watch.ends = session.ends.get(key, watch.ends)
                    _report_end(watch, events)
            session.changed_before.clear()
        if session.kind is FetchKind.QUIET:
            self._dissolve_if_sparse(session)
        return events

    def _apply(
        self, session: FetchSession, watch: Watch, partition: FetchedPartition, now_s: float, events: list[FetchEvent]
    ) -> None:
        if partition.error_code:
            self._apply_error(watch, partition.error_code, now_s, events)
            return
        if partition.diverging_epoch is not None:
            end = partition.diverging_epoch.end_offset
            text = f"{watch.where} was read up to offset {watch.position}, and its log was truncated at {end}"
            self._stop(watch, OffsetOutOfRange(text), events)
            return
        watch.ends = session.ends[watch.key]
        if size := len(partition.records):
            data = bytes(partition.records)
            try:
                position, epoch = end_of(watch.where, data, watch.position)
            except (Corrupt, NotSupportedYet) as failure:
                self._retry(watch, now_s + _CORRUPT_RETRY_INTERVAL_S)
                events.append(Reported(watch.number, watch.generation, Failed(watch.where, failure)))
                return
            aborted = partition.aborted_transactions
            events.append(Fetched(watch.number, watch.generation, watch.where, watch.position, data, aborted))
            self.held_bytes += size
            watch.held_bytes += size
            watch.position, watch.fetched_epoch = position, epoch
            session.change(watch)
            session.move_back(watch)
        watch.is_busy = watch.position < watch.ends.readable and (size > 0 or watch.is_busy)
        watch.is_settled = True
        _report_end(watch, events)
        if not watch.wants_records(self._free_bytes) or watch.is_busy != (session.kind is FetchKind.BUSY):
            self._take_out(watch)
            self._place_later(watch)

    def _apply_error(self, watch: Watch, error_code: int, now_s: float, events: list[FetchEvent]) -> None:
        if error_code in _LEADER_CHANGED:
            watch.needs_leader = True
            self._retry(watch, now_s + _RETRY_INTERVAL_S)
            self._look_up(watch.where.topic, now_s)
        elif error_code in _BROKER_BEHIND:
            self._retry(watch, now_s + _RETRY_INTERVAL_S)
        elif error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._stop(watch, _failure(watch, error_code), events)
        elif error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._end(watch, Forbidden(watch.where, _failure(watch, error_code)), events)
        else:
            self._retry(watch, now_s + _RETRY_INTERVAL_S)
            failed = Failed(watch.where, _failure(watch, error_code))
            events.append(Reported(watch.number, watch.generation, failed))

    def _stop(self, watch: Watch, failure: LayerError, events: list[FetchEvent]) -> None:
        watch.is_stopped = True
        self._take_out(watch)
        event = OutOfRange(watch.where, failure, watch.position)
        events.append(Reported(watch.number, watch.generation, event))

    def _retry(self, watch: Watch, retry_s: float) -> None:
        watch.retry_s = retry_s
        heappush(self._retries, (retry_s, watch.number))
        self._take_out(watch)

    def _dissolve_if_sparse(self, session: FetchSession) -> None:
        """Joins quiet sessions that partitions left: the fewer there are, the fewer connections."""
        if len(session.watches) > _SPARSE * MAX_PARTITIONS:
            return
        group = self._group(session.node_id, session.isolation_level)
        count = sum(len(each.watches) for each in group.quiet)
        others = [each for each in group.quiet if each is not session]
        if count <= _SPARSE * MAX_PARTITIONS * len(others) and all(
            any(other.has_room(key) for other in others) for key in session.watches
        ):
            for watch in list(session.watches.values()):
                self._take_out(watch)
                self._place_later(watch)
            self._idle.pop(session, None)
            self._end_if_useless(session)

    def _end_if_useless(self, session: FetchSession) -> None:
        """Ends a session without partitions, unless it is the only one of its kind: partitions come and go."""
        group = self._group(session.node_id, session.isolation_level)
        others = group.quiet if session.kind is FetchKind.QUIET else group.busy
        if session is not group.new and len(others) > 1:
            others.remove(session)
            group.with_room.pop(session, None)
            self.ended.append(session)


def _is_held(group: _Group, session: FetchSession, now_s: float) -> bool:
    """Whether the next request of a quiet session waits until partitions of the new ones can be added to it."""
    new = group.new
    if (
        not new.in_flight
        or session not in group.with_room
        or not any(each.is_settled and session.has_room(each.key) for each in new.watches.values())
    ):
        session.held_since_s = None
        return False
    if session.held_since_s is None:
        session.held_since_s = now_s
    return now_s - session.held_since_s < _HOLD_S


def _added(sessions: list[FetchSession], watch: Watch, kind: FetchKind, now_s: float) -> FetchSession:
    session = FetchSession(watch.leader, watch.isolation_level, kind)
    session.due_s = now_s  # not before those that wait for room in the budget
    sessions.append(session)
    return session


def _added_quiet(group: _Group, watch: Watch, now_s: float) -> FetchSession:
    session = _added(group.quiet, watch, FetchKind.QUIET, now_s)
    group.with_room[session] = None
    return session


def _ends(partition: FetchedPartition, isolation_level: int) -> LogEnds:
    high_watermark = partition.high_watermark
    return LogEnds(
        high_watermark, partition.last_stable_offset if isolation_level == READ_COMMITTED else high_watermark
    )


def _report_end(watch: Watch, events: list[FetchEvent]) -> None:
    if watch.position >= watch.ends.readable >= 0 and watch.end_reported != watch.position:
        watch.end_reported = watch.position
        events.append(Reported(watch.number, watch.generation, EndOfLog(watch.where, watch.position)))


def _patience_s(watch: Watch, *, is_other: bool) -> float:
    """The time for which brokers may report no such topic, or another one of its name, before it counts as gone."""
    if watch.leader < 0:  # no broker has reported the watched one yet
        return _UNKNOWN_S if is_other else _NEVER_KNOWN_S
    return 0.0 if is_other else _UNKNOWN_S


def _failure(watch: Watch, error_code: int) -> LayerError:
    return translate(KafkaError(error_code), f"reading {watch.where}", on_topic("Read", watch.where.topic))
