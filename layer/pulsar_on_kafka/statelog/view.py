"""A cached tail of one partition: read to the end on demand, folded incrementally, shared by the threads of a process.

Rules of the log (layer/pulsar_on_kafka/statelog/README.md) that live here. *The end* is taken after the call began.
Nothing is decided before the end is reached, because a later tombstone also deletes earlier records. A reader that has
not been at the end for half of `delete.retention.ms` starts over, because it may have missed tombstones that were
deleted since.

And one more, which the simulation found missing (a paused proposer won a version that another had won): between taking
the end and reading up to it, compaction may delete records because of others *beyond* that end, and leave a loser that
looks like the winner. So a reading counts when it ended within the topic's `min.compaction.lag.ms` of taking the end;
otherwise the end is taken again and read up to, until it has not moved.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast
from weakref import WeakSet

from pulsar_on_kafka.base.clock import Clock, Moment
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt, DeadlineExceeded, OffsetOutOfRange
from pulsar_on_kafka.base.forks import process_lock
from pulsar_on_kafka.statelog.api import LogRecord, StateLog, records_stay_s, tombstones_last_s
from pulsar_on_kafka_mapping.errors import UnreadableKey
from pulsar_on_kafka_mapping.state.state_keys import entity_of
from pulsar_on_kafka_mapping.state.state_topics import StateTopic

_log: Final = logging.getLogger(__name__)


class LogFold(Protocol):
    """State as a fold over records.

    `apply` takes one record, tombstones included, in log order. It raises ValueError (`mapping.errors.CorruptRecord`
    is one) or `Corrupt` for bytes that it cannot read, and then must not have changed anything.
    """

    def apply(self, record: LogRecord) -> None: ...


_MAX_PASSED_OVER: Final = 1000
_NO_ENTITY: Final = ""
"""No topic, namespace or tenant."""

F = TypeVar("F", bound=LogFold)
T = TypeVar("T")


class LogEnd(NamedTuple):
    """A lower bound of the log's end, valid from `requested` on; `LogView.append` returns it."""

    requested: Moment
    end: int
    position: int
    """The view's own position when the append began: in a log that continues it lies below `end`."""
    own: Sequence[LogRecord] = ()
    """The appended records."""

    def since(self, before: LogEnd | None) -> LogEnd:
        """The two appends, one after the other, as if they were one."""
        return self if before is None else LogEnd(before.requested, self.end, before.position, [*before.own, *self.own])

    def is_all_from(self, position: int) -> bool:
        """Whether no foreign records lie in [position, end)."""
        own = self.own
        return self.end - position == len(own) and [record.offset for record in own] == list(range(position, self.end))


class LogView(Generic[F]):
    """The state of one partition, as fresh as its last `refresh`. Thread-safe; a constructor reads nothing.

    A value that the fold cannot read makes its own entity unusable (the topic, namespace or tenant of its key), and
    every question about the whole partition: `refresh` and `query` raise `Corrupt` with topic, partition and offset,
    because a skipped record would be silent loss. The view reads on nevertheless, so it is usable again as soon as an
    operator (`pok doctor --tombstone`) has put a tombstone, or a readable record, under that record's key. Later
    readers then see no trace of the record.

    A record whose key cannot be read is skipped, logged once and counted (`unreadable_keys`): it is not this product's,
    so it must not block the rest of the partition. Memory: 1,000 of them.
    """

    def __init__(self, log: StateLog, topic: StateTopic, partition: int, fold: Callable[[], F], clock: Clock) -> None:
        """`fold` makes an empty state; it is called again whenever the view starts over."""
        self._log = log
        self._topic = topic
        self._partition = partition
        self._new_fold = fold
        self._clock = clock
        self._longest_absence_s = tombstones_last_s(topic) / 2
        self._longest_reading_s = records_stay_s(topic) / 2
        self._name = f"{log.kafka_name(topic)}-{partition}"
        self._fold: F | None = None
        self._position = 0
        self._no_tombstone_missed_since = self._now()
        self._unreadable: dict[bytes, tuple[int, str, str | None]] = {}
        """Unreadable records by key: the place, the reason, and the entity."""
        self._passed_over: dict[int, str] = {}
        """Unreadable keys by hash: the place, and the reason."""
        self._keys_reported = False
        self._changed = threading.Condition()
        with _views_lock:
            _views.add(self)
        self._rounds_begun = 0
        self._rounds_done = 0
        self._busy = False
        self._at_end = False

    @property
    def unreadable_keys(self) -> int:
        """The number of them in the log, 1,000 at most."""
        return len(self._passed_over)

    # Appending ----------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline) -> LogEnd:
        """Appends in this order and waits until all are durable; `records` must not be empty. Raises the errors of
        `StateLog.append_many`.

        With the result `query` returns as soon as these records have been applied, without requesting the end. If their
        offsets show that they follow the last reading directly, without foreign records between, it does not read them.
        """
        requested, position = self._now(), self._position
        offsets = self._log.append_many(self._topic, self._partition, records, deadline)
        now_ms = self._log.now_ms()
        own = [LogRecord(offset, key, value, now_ms) for offset, (key, value) in zip(offsets, records, strict=True)]
        return LogEnd(requested, max(offsets) + 1, position, own)

    # Questions -------------------------------------------------------------------------------------------------------

    def refresh(self, deadline: Deadline, at: LogEnd | None = None, about: str | None = None) -> None:
        """Returns once everything that was in the log when this call began has been applied, or with `at` everything
        that was there when that append began, and the append.

        One thread reads at a time. A caller shares another's reading only when that one takes the end after this call
        began, or reached `at`; otherwise it waits for its own turn.

        `about`: the only topic, namespace or tenant that matters; None for all of them.

        Raises:
            Corrupt: a record cannot be read, see above.
            DeadlineExceeded: the end was not reached in time; the progress is kept for the next call.
        """
        with self._changed:
            enough = self._rounds_begun + 1
            while self._busy:
                self._wait(deadline)
                if self._rounds_done >= enough and self._usable(about):
                    return
            if at is not None and self._has_reached(at, about):
                return
            self._busy = True
            self._rounds_begun += 1
            this_round = self._rounds_begun
        done = False
        try:
            self._read_to_the_end(deadline, at, about)
            done = True
        finally:
            with self._changed:
                self._busy = False
                if done:
                    self._rounds_done = this_round
                self._changed.notify_all()

    def query(
        self, question: Callable[[F], T], deadline: Deadline, at: LogEnd | None = None, about: str | None = None
    ) -> T:
        """Refresh, then put `question` to the state at the end. Nothing is applied while it runs, so keep it short."""
        return self._query(lambda: question(cast("F", self._fold)), deadline, at, about)

    def _query(self, answer: Callable[[], T], deadline: Deadline, at: LogEnd | None, about: str | None) -> T:
        while True:
            self.refresh(deadline, at, about)
            with self._changed:
                while self._busy:
                    self._wait(deadline)
                if self._usable(about):
                    return answer()

    def query_readable(self, question: Callable[[F], T], deadline: Deadline) -> tuple[T, frozenset[str]]:
        """The answer over readable records, and the topics, namespaces and tenants with unreadable ones: listings must
        skip them, because the answer about them may be incomplete.

        Raises the errors of `query`; Corrupt: the entity of such a record is unknown.
        """

        def answer() -> tuple[T, frozenset[str]]:
            spoiled = frozenset(about for *_, about in self._unreadable.values() if about is not None)
            return question(cast("F", self._fold)), spoiled

        found, spoiled = self._query(answer, deadline, None, _NO_ENTITY)
        if spoiled:
            _log.warning(
                "view=%s of %s some records cannot be read, `pok doctor` shows more", self._name, sorted(spoiled)
            )
        return found, spoiled

    def glance(self, question: Callable[[F], T], about: str | None = None) -> T | None:
        """The answer of the state at the last end reached, without reading; None when there is none to be had now."""
        with self._changed:
            if self._busy or not self._usable(about) or self._absent_too_long():
                return None
            return question(cast("F", self._fold))

    def _wait(self, deadline: Deadline) -> None:
        if not self._changed.wait(min(deadline.remaining_s(), threading.TIMEOUT_MAX)) and deadline.passed():
            raise DeadlineExceeded(f"time ran out while {self._name} was being read to its end")

    def _usable(self, about: str | None) -> bool:
        return self._at_end and not (self._unreadable and self._spoiled(about))

    def _spoiled(self, about: str | None) -> list[tuple[int, str, str | None]]:
        every = self._unreadable.values()
        return [each for each in every if about is None or each[2] is None or each[2] == about]

    def _has_reached(self, at: LogEnd, about: str | None) -> bool:
        return self._usable(about) and at.position < at.end <= self._position

    # Reading, by one thread at a time -----------------------------------------------------------------------------

    def _read_to_the_end(self, deadline: Deadline, at: LogEnd | None, about: str | None) -> None:
        while not self._reached_the_end(deadline, at):
            deadline.check(f"{self._name} to be read to its end")
            at = None
        if self._passed_over and not self._keys_reported:
            self._keys_reported = True
            first = next(iter(self._passed_over.values()))
            _log.warning("view=%s skips %d keys, `pok doctor` shows more: %s", self._name, self.unreadable_keys, first)
        if self._unreadable and (spoiled := self._spoiled(about)):
            offset, reason, _ = min(spoiled, key=itemgetter(0))
            raise Corrupt(f"{self._name} offset {offset}: {reason}")

    def _reached_the_end(self, deadline: Deadline, at: LogEnd | None) -> bool:
        """One reading from the position to the end; False when another has to follow."""
        requested, end = self._end(deadline, at)
        if self._fold is not None and end < self._position:
            self._start_over(f"the log ends at {end}, before position {self._position}")
        if self._fold is not None and self._absent_too_long():
            self._start_over("tombstones may have been missed")
        if self._fold is None:
            self._fold = self._new_fold()
            self._position = self._log.start_offset(self._topic, self._partition, deadline)
            self._no_tombstone_missed_since = requested
        nothing_new = self._position >= end
        try:
            if at is not None and at.is_all_from(self._position):
                self._at_end = False
                for record in at.own:
                    self._apply(record, self._fold)
            self._apply_up_to(end, self._fold, deadline)
        except OffsetOutOfRange as gone:
            self._start_over(str(gone))
            return False
        if self._absent_too_long():
            self._start_over("reading took too long, tombstones may have been missed")
            return False
        if not nothing_new and not self._in_time(requested):
            return False
        self._no_tombstone_missed_since = requested
        self._at_end = True
        return True

    def _end(self, deadline: Deadline, at: LogEnd | None) -> tuple[Moment, int]:
        """An end, and since when it is known. Without a state, or when the position lies beyond `at` (which belongs to
        another log then), the end is requested."""
        if at is not None and self._fold is not None and self._position < at.end:
            return at.requested, at.end
        requested = self._now()
        return requested, self._log.end_offset(self._topic, self._partition, deadline)

    def _apply_up_to(self, end: int, fold: F, deadline: Deadline) -> None:
        if self._position >= end:
            return
        self._at_end = False
        for batch in self._log.read(self._topic, self._partition, self._position, end, deadline):
            for record in batch:
                self._apply(record, fold)
        self._position = max(self._position, end)

    def _apply(self, record: LogRecord, fold: F) -> None:
        self._unreadable.pop(record.key, None)
        try:
            fold.apply(record)
        except UnreadableKey as failure:
            if record.value is None:
                self._passed_over.pop(hash(record.key), None)
            elif len(self._passed_over) < _MAX_PASSED_OVER:
                self._passed_over[hash(record.key)] = f"offset={record.offset} {failure}"
        except (Corrupt, ValueError) as failure:
            if record.value is not None:
                self._unreadable[record.key] = (record.offset, str(failure), entity_of(record.key))
        except BaseException:
            self._fold = None  # perhaps half applied: the next reading starts over
            self._at_end = False
            raise
        self._position = record.offset + 1

    def _in_time(self, requested: Moment) -> bool:
        """Whether compaction cannot have deleted records because of others beyond an end that was requested then."""
        return requested.seconds_until(self._now()) < self._longest_reading_s

    def _absent_too_long(self) -> bool:
        return self._no_tombstone_missed_since.seconds_until(self._now()) > self._longest_absence_s

    def _start_over(self, why: str) -> None:
        _log.info("view=%s position=%d starts over: %s", self._name, self._position, why)
        self._fold = None
        self._at_end = False
        self._unreadable.clear()
        self._passed_over.clear()

    def _now(self) -> Moment:
        return Moment.of(self._clock)


_views: Final[WeakSet[LogView[Any]]] = WeakSet()
_views_lock: Final = process_lock()


def unreadable(logs: Collection[StateLog]) -> Counter[tuple[str, str]]:
    """Counts of what this process's views of these logs have met and could not read, by state topic and part (`key`,
    `value`)."""
    most: dict[tuple[str, str, int], int] = {}
    with _views_lock:
        views = [view for view in _views if any(view._log is log for log in logs)]
    for view in views:
        for part, count in (("key", view.unreadable_keys), ("value", len(view._unreadable))):
            where = view._topic.name, part, view._partition
            most[where] = max(count, most.get(where, 0))
    found: Counter[tuple[str, str]] = Counter()
    for (topic, part, _), count in most.items():
        found[topic, part] += count
    return found
