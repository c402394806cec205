"""One fetch session (KIP-227): the partitions that one request after the other fetches from one broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias, TypeVar

from pulsar_on_kafka.kafka.reading.events import KafkaPartition, Stopped
from pulsar_on_kafka.kafka.wire.error_codes import ErrorCode
from pulsar_on_kafka.kafka.wire.fetch_messages import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchRequest,
    FetchResponse,
    PartitionToFetch,
)

MAX_PARTITIONS: Final = 200
"""The limit of one session. A broker looks at each of them for each request of the session."""
MAX_PARTITION_BYTES: Final = 1024 * 1024
"""The limit of one partition in one response. Kafka returns a larger batch all the same."""
MAX_BUSY_PARTITION_BYTES: Final = 4 * 1024 * 1024
"""The same in a busy session: each response costs several changes of threads, however large it is."""
MIN_PARTITION_BYTES: Final = 16 * 1024
_MAX_EPOCH: Final = 2**31 - 1
SESSION_ERRORS: Final = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
"""Errors about a session that a full request begins anew."""

Key: TypeAlias = tuple[bytes, int]
"""Topic id and partition."""


class FetchKind(Enum):
    """The three kinds of sessions differ in the time for which a broker waits for records.

    A request under way cannot be changed, so an added partition would wait as long as the others.
    """

    QUIET = auto()
    """Partitions that were read to their ends, for as long as possible."""
    NEW = auto()
    """Partitions that wait for a place in a quiet session whose request is under way."""
    BUSY = auto()
    """Partitions with a backlog. Quiet ones do not wait for its bytes."""


_MAX_WAIT_MS: Final = {FetchKind.QUIET: 5_000, FetchKind.NEW: 50, FetchKind.BUSY: 5}


class LogEnds(NamedTuple):
    high_watermark: int
    readable: int
    """The same for the isolation level."""


_NO_ENDS: Final = LogEnds(-1, -1)


@dataclass(slots=True, eq=False)
class Watch:
    """The reading of one partition. Several watches may read the same partition at different positions."""

    number: int
    where: KafkaPartition
    isolation_level: int
    generation: int
    """The number of the latest seek. Records of an earlier one are dropped."""
    position: int
    window_bytes: int
    """The bytes that the reader takes; nothing is fetched while it holds so many."""
    held_bytes: int = 0
    """The bytes that were fetched and not handed out."""
    topic_id: bytes | None = None
    leader: int = -1
    leader_epoch: int = -1
    needs_leader: bool = True
    """The leader is unknown, or has changed."""
    fetched_epoch: int = -1
    """The epoch of the last batch that was fetched. The broker compares it with its log, which detects truncation."""
    ends: LogEnds = _NO_ENDS
    """Those of the last response."""
    end_reported: int = -1
    is_busy: bool = False
    is_settled: bool = False
    """A response of a session of new partitions had this watch: it may move to a quiet session."""
    is_stopped: bool = False
    """Its position is not in the log. A seek continues."""
    ended: Stopped | None = None
    """The event after which nothing is fetched any more."""
    unknown_since_s: float | None = None
    retry_s: float = 0.0
    """The time before which nothing is fetched; 0.0 without one."""
    session: FetchSession | None = None

    @property
    def key(self) -> Key:
        return self.topic_id or b"", self.where.partition

    def wants_records(self, free_bytes: int) -> bool:
        """Whether the watch stays in its session. One that holds something takes no more than what the budget has
        free, so that slow readers leave room for all others."""
        is_over = self.held_bytes >= free_bytes and self.held_bytes > 0
        return self.held_bytes < self.window_bytes and not is_over and not self.is_stopped and self.ended is None

    def is_to_begin(self, free_bytes: int) -> bool:
        """Whether a watch without a session gets one: half of its window is free, so that no fetch is for few bytes."""
        return self.wants_records(free_bytes) and self.held_bytes <= max(0, min(self.window_bytes, free_bytes)) // 2

    def waits_for_budget(self, free_bytes: int) -> bool:
        """Whether it would get a session if the budget had more room."""
        return not self.is_to_begin(free_bytes) and self.is_to_begin(self.window_bytes)


class _Sent(NamedTuple):
    """A partition of the session as the broker knows it, and the seek of its watch at that time."""

    number: int
    generation: int
    partition: PartitionToFetch


class FetchSession:
    """Has at most one request under way. Memory: its partitions.

    Quiet sessions send changes only. The other kinds have few partitions or move them with each response, so their
    requests are full ones and take no place in the broker's cache of sessions.
    """

    __slots__ = (
        "_changed", "_epoch", "_id", "_sent", "changed_before", "due_s", "ends", "held_since_s", "in_flight",
        "isolation_level", "kind", "node_id", "reserved_bytes", "watches",
    )  # fmt: skip

    def __init__(self, node_id: int, isolation_level: int, kind: FetchKind) -> None:
        self.node_id = node_id
        self.isolation_level = isolation_level
        self.kind = kind
        self.watches: dict[Key, Watch] = {}
        self.in_flight = False
        self.reserved_bytes = 0
        """The bytes that the response under way may have."""
        self.due_s = 0.0
        """The next request is sent no earlier."""
        self.held_since_s: float | None = None
        """The time since which the next request waits for partitions of the new ones."""
        self.changed_before: dict[Key, None] = {}
        """The partitions that changed between the last response with partitions and the request under way."""
        self.ends: dict[Key, LogEnds] = {}
        """The ends as the broker reported them last. It leaves out a partition without any news."""
        self._sent: dict[Key, _Sent] = {}
        self._changed: dict[Key, None] = {}
        self._id, self._epoch = NO_SESSION, 0

    def has_room(self, key: Key) -> bool:
        return len(self.watches) < MAX_PARTITIONS and key not in self.watches

    def add(self, watch: Watch) -> None:
        self.watches[watch.key] = watch
        self._changed[watch.key] = None
        watch.session = self
        watch.is_settled = False

    def remove(self, watch: Watch) -> None:
        """Forgets the partition with the next request. The response under way has it still."""
        del self.watches[watch.key]
        self._changed[watch.key] = None
        watch.session = None

    def change(self, watch: Watch) -> None:
        """Sends the partition's new position with the next request."""
        self._changed[watch.key] = None

    def requested(self, key: Key) -> Watch | None:
        """The watch for which the response under way has a partition; None if it left, or seeked meanwhile."""
        sent, watch = self._sent.get(key), self.watches.get(key)
        if sent is None or watch is None or (sent.number, sent.generation) != (watch.number, watch.generation):
            return None
        return watch

    def move_back(self, watch: Watch) -> None:
        """Requests this partition after all others, which matters where a response has no room for all."""
        self.watches[watch.key] = self.watches.pop(watch.key)

    def request(self, max_bytes: int, free_bytes: int) -> FetchRequest:
        """Waits for records, but not where a partition's reader has to learn that its log ends at its position."""
        self.in_flight, self.reserved_bytes, self.held_since_s = True, max_bytes, None
        changed = (self.watches.get(key) for key in self._changed)
        is_at_ends = all(watch is None or watch.end_reported == watch.position for watch in changed)
        forgotten: list[Key] = []
        if self.kind is not FetchKind.QUIET or self._epoch == 0:
            limit = MAX_BUSY_PARTITION_BYTES if self.kind is FetchKind.BUSY else MAX_PARTITION_BYTES
            self._sent = {key: _sent(watch, free_bytes, limit) for key, watch in self.watches.items()}
            added = self._sent
            self.ends.clear()
        else:
            added = {}
            for key in self._changed:
                before, watch = self._sent.pop(key, None), self.watches.get(key)
                if watch is not None:
                    self._sent[key] = sent = _sent(watch, free_bytes, MAX_PARTITION_BYTES)
                    if before is None or before.partition != sent.partition:
                        added[key] = sent
                elif before is not None:
                    forgotten.append(key)
                    self.ends.pop(key, None)
        self.changed_before |= self._changed
        self._changed.clear()
        return FetchRequest(
            _MAX_WAIT_MS[self.kind if is_at_ends or self.kind is FetchKind.BUSY else FetchKind.NEW],
            1,
            max_bytes,
            _by_topic((topic_id, sent.partition) for (topic_id, _), sent in added.items()),
            _by_topic(forgotten),
            self._id,
            self._epoch if self.kind is FetchKind.QUIET else FINAL_EPOCH,
            self.isolation_level,
        )

    def accept(self, response: FetchResponse) -> bool:
        """Notes the session's id and epoch. Returns whether the response has partitions; otherwise the next request is
        a full one, and nothing is lost."""
        self.in_flight, self.reserved_bytes = False, 0
        if response.error_code:
            self._epoch = 0
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
        elif self.kind is FetchKind.QUIET:
            began = response.session_id != self._id or self._epoch == 0
            self._id = response.session_id
            self._epoch = 0 if self._id == NO_SESSION else 1 if began or self._epoch == _MAX_EPOCH else self._epoch + 1
        return not response.error_code

    def last_request(self) -> FetchRequest | None:
        """The request that ends a session which is left; None if the broker has none."""
        if self._id == NO_SESSION:
            return None
        return FetchRequest(0, 0, 0, (), (), self._id, FINAL_EPOCH, self.isolation_level)

    def lose(self) -> None:
        """No response came. The next request, a full one, ends the session that the broker may have."""
        self.in_flight, self.reserved_bytes, self._epoch = False, 0, 0


def _sent(watch: Watch, free_bytes: int, limit: int) -> _Sent:
    room = min(watch.window_bytes, free_bytes) - watch.held_bytes
    max_bytes = min(limit, max(MIN_PARTITION_BYTES, room))
    partition = PartitionToFetch(
        watch.where.partition, watch.position, max_bytes, watch.leader_epoch, watch.fetched_epoch
    )
    return _Sent(watch.number, watch.generation, partition)


Item = TypeVar("Item")


def _by_topic(pairs: Iterable[tuple[bytes, Item]]) -> tuple[tuple[bytes, tuple[Item, ...]], ...]:
    topics: dict[bytes, list[Item]] = {}
    for topic_id, item in pairs:
        topics.setdefault(topic_id, []).append(item)
    return tuple((topic_id, tuple(items)) for topic_id, items in topics.items())
