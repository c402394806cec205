"""Plain numbers that the services increase, a batch at a time, and that are read on demand.

Every number has one writer: the member's or reader's thread, or the thread that serves a producer's reports. Reads take
no lock, so that two numbers of one moment may be a batch apart. Memory: one object for each topic and each subscription
that this process ever used on the cluster.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

TRANSACTION_BOUNDS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0)
"""Source: Pulsar's TransactionMetadataStoreStats."""


class Latencies:
    """A histogram of durations in seconds; the last bucket has no bound."""

    __slots__ = ("_bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds_s, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, number of values up to it), as Prometheus requires."""
        return self._with(map(str, self._bounds_s))

    def cumulative_ms(self) -> list[tuple[str, float]]:
        """The same with bounds in milliseconds."""
        return self._with(str(round(bound * 1000)) for bound in self._bounds_s)

    def _with(self, bounds: Iterable[str]) -> list[tuple[str, float]]:
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*bounds, "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        return buckets


@dataclass(slots=True)
class SubscriptionMeter:
    """One subscription in this process, over all its memberships. Counts go up only.

    `delivered` and `undecryptable` leave out the consumers that are open now: they count for themselves.
    """

    delivered: int = 0
    undecryptable: int = 0
    received_bytes: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    dropped: int = 0
    held_back: int = 0
    """The number of times that a dispatch rate held a partition back."""
    undeliverable: int = 0
    """Entries that a gateway's client could not be given: they stay unacknowledged."""
    deleted_unacknowledged: int = 0
    assigned: int = 0
    revoked: int = 0
    lost: int = 0
    failed_saves: int = 0
    saves_without_segments: int = 0
    saves: Latencies = field(default_factory=Latencies)

    def count_undeliverable(self) -> None:
        self.undeliverable += 1


@dataclass(frozen=True, slots=True)
class SendCounts:
    """Messages of one producer: stored, given up, and under way now. `limited_times`: the number of times that a
    publish rate held it back."""

    sent: int = 0
    failed: int = 0
    pending: int = 0
    limited_times: int = 0

    def __add__(self, other: SendCounts) -> SendCounts:
        return SendCounts(
            self.sent + other.sent,
            self.failed + other.failed,
            self.pending + other.pending,
            self.limited_times + other.limited_times,
        )


class CountsSends(Protocol):
    def send_counts(self) -> SendCounts: ...


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Counts of one reader: messages handed out, messages that no key of it fits, and payload bytes read from Kafka."""

    delivered: int = 0
    undecryptable: int = 0
    received_bytes: int = 0

    def __add__(self, other: ReadCounts) -> ReadCounts:
        return ReadCounts(
            self.delivered + other.delivered,
            self.undecryptable + other.undecryptable,
            self.received_bytes + other.received_bytes,
        )


class CountsReads(Protocol):
    def read_counts(self) -> ReadCounts: ...


U = TypeVar("U")
C = TypeVar("C", SendCounts, ReadCounts)


class _Sum(Generic[U, C]):
    """The sum of the counts of open and of closed objects. Thread-safe."""

    def __init__(self, counted: Callable[[U], C], nothing: C) -> None:
        self._counted: Callable[[U], C] = counted
        self._closed: C = nothing
        self._open: list[U] = []
        self._lock = threading.Lock()

    def opened(self, user: U) -> None:
        with self._lock:
            self._open.append(user)

    def closed(self, user: U) -> None:
        """Keep what it counted; a second call does nothing."""
        with self._lock:
            if user in self._open:
                self._open.remove(user)
                self._closed += self._kept(self._counted(user))

    def counts(self) -> tuple[C, int]:
        with self._lock:
            total, users = self._closed, list(self._open)
        for user in users:
            total += self._counted(user)
        return total, len(users)

    def _kept(self, counts: C) -> C:
        return counts


class TopicMeter(_Sum[CountsSends, SendCounts]):
    """Sum of what this process's producers sent to one topic."""

    def __init__(self) -> None:
        super().__init__(lambda producer: producer.send_counts(), SendCounts())

    def _kept(self, counts: SendCounts) -> SendCounts:
        return replace(counts, pending=0)


class ReaderMeter(_Sum[CountsReads, ReadCounts]):
    """Sum of what the readers of one topic read in this process, those of table views among them."""

    def __init__(self) -> None:
        super().__init__(lambda reader: reader.read_counts(), ReadCounts())
        self._views: list[Sized] = []

    def view_opened(self, view: Sized) -> None:
        """`view`: as long as it has keys."""
        with self._lock:
            self._views.append(view)

    def view_closed(self, view: Sized) -> None:
        with self._lock:
            self._views.remove(view)

    def views(self) -> list[int]:
        with self._lock:
            return [len(view) for view in self._views]


@dataclass(slots=True)
class CoordinatorMeter:
    """One coordinator of transactions, while this process served it. Counts go up only.

    `unfinished` is by the name of the status, and of now. `executions` are times from begin to the end (`finished` as
    the log has it), `ends` those from the decision until it had taken effect everywhere.
    """

    created: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    unfinished: dict[str, int] = field(default_factory=dict)
    executions: Latencies = field(default_factory=lambda: Latencies(TRANSACTION_BOUNDS_S))
    ends: Latencies = field(default_factory=Latencies)


class Meters:
    """The meters of one cluster."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicMeter] = {}
        self._readers: dict[str, ReaderMeter] = {}
        self._subscriptions: dict[tuple[str, str], SubscriptionMeter] = {}
        self._coordinators: dict[int, CoordinatorMeter] = {}

    def topic(self, name: str) -> TopicMeter:
        return self._topics.setdefault(name, TopicMeter())

    def reader(self, topic: str) -> ReaderMeter:
        return self._readers.setdefault(topic, ReaderMeter())

    def subscription(self, topic: str, name: str) -> SubscriptionMeter:
        return self._subscriptions.setdefault((topic, name), SubscriptionMeter())

    def coordinator(self, number: int) -> CoordinatorMeter:
        return self._coordinators.setdefault(number, CoordinatorMeter())

    def coordinators(self) -> list[tuple[int, CoordinatorMeter]]:
        """The meters of coordinators that this process ever served."""
        return sorted(self._coordinators.items(), key=lambda item: item[0])

    def topics(self) -> list[tuple[str, TopicMeter]]:
        return sorted(self._topics.items())

    def readers(self) -> list[tuple[str, ReaderMeter]]:
        return sorted(self._readers.items())

    def subscriptions(self) -> list[tuple[tuple[str, str], SubscriptionMeter]]:
        return sorted(self._subscriptions.items(), key=lambda item: item[0])
