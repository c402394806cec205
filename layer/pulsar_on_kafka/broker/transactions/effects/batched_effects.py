"""A coordinator's decisions take effect in groups, smaller ones when something fails.

A transaction whose effects fail by themselves is retried alone, at growing intervals, and blocks no other transaction.
Transactions that touch an unavailable partition are retried together (`SlowPartitions`). For the coordinator's thread.
Effects in partitions that succeeded are not repeated for the partitions that failed. Memory: the announced partitions
of open transactions, and the partitions of each that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, NoSuchTopic, Refused
from pulsar_on_kafka.broker.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.coordinator.state import NO_ID, LoggedTransaction
from pulsar_on_kafka.broker.transactions.records.outcomes import (
    Announcement,
    Ended,
    OpenedTransaction,
    Outcomes,
    PartitionsFailed,
)
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition

_log: Final = logging.getLogger(__name__)

_FORGOTTEN_AFTER_S: Final = 600.0


@dataclass(slots=True)
class _Rest:
    until_s: float
    pause_s: float


class SlowPartitions:
    """Data partitions in which nothing could be done last time, and when it is tried again: transactions which touch
    such a partition wait for it by themselves, and no others. Times are monotonic. Memory: one entry for each partition
    that failed and did not work since, for ten minutes after it was tried."""

    def __init__(self, first_pause_s: float, longest_pause_s: float) -> None:
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._resting: dict[TopicPartition, _Rest] = {}

    def failed(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """Puts these partitions on hold, longer with each failure."""
        for each in [each for each, rest in self._resting.items() if rest.until_s < now_s - _FORGOTTEN_AFTER_S]:
            del self._resting[each]
        for each in partitions:
            before = self._resting.get(each)
            pause_s = self._first_pause_s if before is None else min(2 * before.pause_s, self._longest_pause_s)
            self._resting[each] = _Rest(now_s + pause_s, pause_s)

    def worked(self, partitions: Iterable[TopicPartition]) -> None:
        if self._resting:
            for each in partitions:
                self._resting.pop(each, None)

    def rested_s(self, partitions: Iterable[TopicPartition]) -> float:
        """The time from which on something may be tried in all of these; minus infinity when none of them failed."""
        if not self._resting:
            return -inf
        return max((self._resting[each].until_s for each in partitions if each in self._resting), default=-inf)


_MAX_AT_ONCE: Final = 512
_FAST_S: Final = 10.0
_SLOW_S: Final = 1.0
"""Time-outs of effects: in partitions that worked, and in those that failed at the last attempt."""
_BUSY_LONGER_S: Final = 4.0
"""The extra delay of the low-water mark while transactions wait: it goes to all partitions of the topic."""
_NONE: Final[dict[TopicPartition, OpenedTransaction | None]] = {}


@dataclass(slots=True)
class _Progress:
    """Steps that this session has done for a transaction whose outcome is not everywhere yet."""

    marked: set[TopicPartition] = field(default_factory=set)
    settled: set[TopicPartition] = field(default_factory=set)
    acked: bool = False


class Effects:
    """Effects, outside of its log, of one session of a coordinator: those that are done, and those that are left."""

    def __init__(self, outcomes: Outcomes, coordinator: int, settings: CoordinatorSettings, clock: Clock) -> None:
        self._outcomes = outcomes
        self._coordinator = coordinator
        self._settings = settings
        self._clock = clock
        self.begin("", 0)

    def begin(self, session: str, by: int) -> None:
        self._session = session
        self._by = by
        self._announced: dict[int, dict[TopicPartition, OpenedTransaction | None]] = {}
        self._refused: dict[TxnId, dict[TopicPartition, Refused]] = {}
        self._at_once = _MAX_AT_ONCE
        self._again_at_s: dict[int, float] = {}
        self._pauses_ms: dict[int, int] = {}
        self._announce_at_s = -inf
        self._next_announce_s = self._next_end_s = inf
        """When the next action that waits for a partition is due."""
        self._published = NO_ID
        self._publish_at_s = -inf
        self._due = False
        longest_s = self._settings.retry_effects_max_ms / 1000
        self._slow = SlowPartitions(self._settings.retry_effects_ms / 1000, longest_s)
        self._tried: set[int] = set()
        """Transactions whose effects failed in this session."""
        self._progress: dict[int, _Progress] = {}

    def next_s(self) -> float:
        """The time on the monotonic clock at which there is something to try again; in the past if there is now."""
        if self._due:
            return -inf
        return min(self._next_announce_s, self._next_end_s, min(self._again_at_s.values(), default=inf))

    def announced(self, local_id: int) -> AbstractSet[TopicPartition]:
        """Partitions whose buffers know of the transaction, as this session saw to it."""
        return self._announced.get(local_id, _NONE).keys()

    def refusal(self, requested: coordinator_machine.Announce) -> Refused | None:
        """Why one of these partitions cannot take part, when the last attempt to announce it found that."""
        refused = self._refused.get(requested.txn, {})
        return next((refused[each] for each in requested.partitions if each in refused), None)

    def forget(self, local_id: int) -> None:
        self._announced.pop(local_id, None)

    def announce(self, requested: Sequence[coordinator_machine.Announce], deadline: Deadline) -> bool:
        """Writes announcements to the buffers, and returns whether a waiting caller can be answered; the others are due
        again a little later.

        When the write fails for all together, each is retried alone: the fault may lie in one topic only. For a deleted
        topic the reply is a refusal.
        """
        self._refused.clear()
        now_s = self._clock.monotonic()
        self._next_announce_s = inf
        if requested and now_s < self._announce_at_s:
            self._next_announce_s = self._announce_at_s
        if not requested or now_s < self._announce_at_s:
            return False
        missing = [each for each in requested if not self.announced(each.txn.least_bits) >= set(each.partitions)]
        news = not missing  # they went with what ended
        fast, slow = self._by_speed(missing, now_s)
        news = self._announced_in_turns(fast, deadline.at_most(_FAST_S)) or news
        news = self._announced_in_turns(slow, deadline.at_most(_SLOW_S)) or news
        resting = [rested_s for each in requested if (rested_s := self._slow.rested_s(each.partitions)) > -inf]
        self._next_announce_s = min([*resting, self._announce_at_s if self._announce_at_s > now_s else inf])
        return news

    def _by_speed(
        self, requested: Sequence[coordinator_machine.Announce], now_s: float
    ) -> tuple[list[Announcement], list[Announcement]]:
        """Announcements by transaction: those of partitions that worked, and those of which one partition has rested
        enough."""
        fast: dict[TxnId, dict[TopicPartition, None]] = {}
        slow: dict[TxnId, dict[TopicPartition, None]] = {}
        for each in requested:
            rested_s = self._slow.rested_s(each.partitions)
            if rested_s <= now_s:
                group = fast if rested_s == -inf else slow
                group.setdefault(each.txn, {}).update(dict.fromkeys(each.partitions))
        return [(txn, tuple(found)) for txn, found in fast.items()], [
            (txn, tuple(found)) for txn, found in slow.items()
        ]

    def _announced_in_turns(self, together: Sequence[Announcement], deadline: Deadline) -> bool:
        if not together:
            return False
        try:
            if self._announced_these(together, deadline):
                self._announce_at_s = -inf
                return True
        except PartitionsFailed as failure:
            self._rest(failure)
            left = [(txn, tuple(each for each in found if each not in failure.partitions)) for txn, found in together]
            return self._announced_in_turns([(txn, found) for txn, found in left if found], deadline)
        single = [(txn, (each,)) for txn, found in together for each in found]
        alone = [self._announced_these([one], deadline) for one in single] if len(single) > 1 else [False]
        if not all(alone):
            self._announce_at_s = self._clock.monotonic() + self._settings.retry_effects_ms / 1000
        return any(alone)

    def _rest(self, failure: PartitionsFailed) -> None:
        _log.warning("coordinator=%d %s", self._coordinator, failure)
        self._slow.failed(failure.troubled, self._clock.monotonic())

    def _announced_these(self, together: Sequence[Announcement], deadline: Deadline) -> bool:
        """Raises PartitionsFailed: no announcement was written."""
        try:
            opened = self._outcomes.announce(together, self._session, deadline)
        except NoSuchTopic as gone:
            ((txn, found), *others) = together
            if others or len(found) > 1:
                return False
            self._refused.setdefault(txn, {})[found[0]] = gone
            return True
        except PartitionsFailed:
            raise
        except LayerError as failure:
            _log.warning("coordinator=%d announcing %d failed: %s", self._coordinator, len(together), failure)
            return False
        self._note(together, opened)
        return True

    def _note(
        self, together: Sequence[Announcement], opened: Mapping[tuple[TxnId, TopicPartition], OpenedTransaction]
    ) -> None:
        for txn, found in together:
            self._slow.worked(found)
            announced = self._announced.setdefault(txn.least_bits, {})
            for each in found:
                announced.setdefault(each, opened.get((txn, each)))  # of two OPENs the first one has the lower bound

    def put_in_place(
        self,
        ending: Sequence[LoggedTransaction],
        deadline: Deadline,
        requested: Sequence[coordinator_machine.Announce] = (),
    ) -> list[LoggedTransaction]:
        """Applies the effects of those of `ending` that are due, and returns those that have all effects. Some
        announcements go along; `announce`, which follows, takes them into account."""
        now_s = self._clock.monotonic()
        known = {transaction.id.least_bits for transaction in ending}
        for local_id in (self._again_at_s.keys() | self._progress.keys()) - known:
            self._settled(local_id)
        due = [found for found in ending if self._again_at_s.get(found.id.least_bits, -inf) <= now_s]
        rested_s = [self._slow.rested_s(found.partitions) for found in due]
        fast = [found for found, at_s in zip(due, rested_s, strict=True) if at_s == -inf]
        slow = [found for found, at_s in zip(due, rested_s, strict=True) if -inf < at_s <= now_s]
        group = fast[: self._at_once]
        self._due = len(fast) > len(group)
        along, _ = self._by_speed(requested if now_s >= self._announce_at_s else (), now_s)
        done = self._put_these_in_place(group, deadline.at_most(_FAST_S), along)
        done += self._put_these_in_place(slow[:_MAX_AT_ONCE], deadline.at_most(_SLOW_S))
        left = {found.id for found in due} - {found.id for found in done}
        waiting = [at_s for found, at_s in zip(due, rested_s, strict=True) if found.id in left]
        self._next_end_s = min((at_s for at_s in waiting if at_s > -inf), default=inf)
        return done

    def _put_these_in_place(
        self, group: list[LoggedTransaction], deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> list[LoggedTransaction]:
        if not group:
            return []
        try:
            done = self._take_effect(group, deadline, along)
        except LayerError as failure:
            _log.warning("coordinator=%d ending %d transactions: %s", self._coordinator, len(group), failure)
            self._failed(group, self._clock.monotonic())
            return []
        self._at_once = min(_MAX_AT_ONCE, self._at_once * 2)
        for transaction in done:
            self._slow.worked(transaction.partitions)
            self._settled(transaction.id.least_bits)
        return done

    def _take_effect(
        self, group: list[LoggedTransaction], deadline: Deadline, along: Sequence[Announcement]
    ) -> list[LoggedTransaction]:
        """Gives those that it worked for. Of the others what was done is kept: they touch partitions in which nothing
        can be done for now, or have so many that there was no time for all."""
        for found in group:
            self._progress.setdefault(found.id.least_bits, _Progress())
        self._write_markers(group, deadline)
        acking = [found for found in group if found.subscriptions and not self._of(found).acked]
        if acking:
            self._outcomes.end_acks([self._ended(found, ()) for found in acking], deadline)
            for found in acking:
                self._of(found).acked = True
        self._settle_buffers(group, along, deadline)
        return [found for found in group if self._of(found).settled.issuperset(found.partitions)]

    def _of(self, transaction: LoggedTransaction) -> _Progress:
        return self._progress[transaction.id.least_bits]

    def _ended(self, found: LoggedTransaction, partitions: Iterable[TopicPartition]) -> Ended:
        return Ended(
            found.id,
            coordinator_machine.committed(found),
            tuple(partitions),
            tuple(found.subscriptions),
            found.deadline_ms(),
            self._opened(found),
            again=found.id.least_bits in self._tried or found.decided_by != self._by,
        )

    def _write_markers(self, group: Sequence[LoggedTransaction], deadline: Deadline) -> None:
        left = {found.id: [each for each in found.partitions if each not in self._of(found).marked] for found in group}
        writing = [self._ended(found, left[found.id]) for found in group if left[found.id]]
        undone = self._undone(group, lambda: self._outcomes.write_markers(writing, deadline)) if writing else ()
        for found in group:
            self._of(found).marked.update(each for each in left[found.id] if each not in undone)

    def _undone(self, group: Sequence[LoggedTransaction], step: Callable[[], object]) -> Collection[TopicPartition]:
        """Partitions in which this step for these transactions was not done."""
        try:
            step()
        except PartitionsFailed as failure:
            if failure.troubled:
                self._rest(failure)
            for found in group:
                if not failure.troubled.isdisjoint(found.partitions):
                    self._tried.add(found.id.least_bits)
            self._due = self._due or bool(failure.unreached)
            return failure.partitions
        return ()

    def _settle_buffers(
        self, group: Sequence[LoggedTransaction], along: Sequence[Announcement], deadline: Deadline
    ) -> None:
        left = {found.id: self._of(found).marked - self._of(found).settled for found in group}
        settling = [self._ended(found, left[found.id]) for found in group if left[found.id]]
        undone = self._undone(group, lambda: self._settled_along(settling, along, deadline)) if settling else ()
        for found in group:
            self._of(found).settled.update(each for each in left[found.id] if each not in undone)

    def _settled_along(self, settling: Sequence[Ended], along: Sequence[Announcement], deadline: Deadline) -> None:
        try:
            opened = self._outcomes.settle_buffers(settling, self._session, deadline, along)
        except (NoSuchTopic, PartitionsFailed):  # what goes along is no reason for what ends to wait
            if not along:
                raise
            self._outcomes.settle_buffers(settling, self._session, deadline)
        else:
            self._note(along, opened)

    def _opened(self, transaction: LoggedTransaction) -> dict[TopicPartition, OpenedTransaction]:
        """All OPENs of the transaction; empty when other sessions may have written some. A transaction that was begun
        in this session has OPENs of no other session, and a later owner searches for them."""
        if transaction.new.by != self._by:
            return {}
        announced = self._announced.get(transaction.id.least_bits, {})
        found = {each: opened for each in transaction.partitions if (opened := announced.get(each)) is not None}
        return found if len(found) == len(transaction.partitions) else {}

    def _failed(self, group: Sequence[LoggedTransaction], now_s: float) -> None:
        if len(group) > 1:
            self._at_once = len(group) // 2
            pause_ms = self._settings.retry_effects_ms
        else:
            local_id = group[0].id.least_bits
            before_ms = self._pauses_ms.get(local_id, self._settings.retry_effects_ms // 2)
            pause_ms = self._pauses_ms[local_id] = min(2 * before_ms, self._settings.retry_effects_max_ms)
        for transaction in group:
            self._tried.add(transaction.id.least_bits)
            self._again_at_s[transaction.id.least_bits] = now_s + pause_ms / 1000

    def _settled(self, local_id: int) -> None:
        self._again_at_s.pop(local_id, None)
        self._pauses_ms.pop(local_id, None)
        self._tried.discard(local_id)
        self._progress.pop(local_id, None)

    def publish_low_water(self, low_water: int, deadline: Deadline, *, busy: bool) -> None:
        """Publishes the mark from time to time when it rose; less often while there is more to do. A failed mark is
        published next time."""
        now_s = self._clock.monotonic()
        due_s = self._publish_at_s + (_BUSY_LONGER_S if busy else 0.0)
        if low_water <= self._published or now_s < due_s:
            return
        self._publish_at_s = now_s + self._settings.low_water_every_ms / 1000
        try:
            self._outcomes.publish_low_water(self._coordinator, low_water, self._session, deadline)
            self._published = low_water
        except LayerError as failure:
            _log.warning("coordinator=%d low water %d: %s", self._coordinator, low_water, failure)
