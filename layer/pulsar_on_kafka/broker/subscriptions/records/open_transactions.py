"""Open transactions that hold records up are looked at again, in growing intervals, in case no marker lets the records
go.

One question to the transaction buffer serves all partitions of a member or reader, and costs one round trip.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.records.views import BufferAccess
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

_FIRST_S: Final = 0.02
_FIRST_WHILE_FULL_S: Final = 0.005
_LONGEST_S: Final = 0.2
_AFTER_FAILURE_S: Final = 1.0
_WARN_EVERY_S: Final = 10.0
_A_BACKLOG: Final = 100
"""Records at once."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wait:
    """`blocker`: the offset of the first record that may not be read."""

    blocker: int
    due_s: float
    interval_s: float


class TransactionWaits:
    """The waits of one member or reader for open transactions, used by its thread. Memory: some numbers for each
    partition of which something waits."""

    def __init__(self, name: str, access: BufferAccess, clock: Clock) -> None:
        self._name = name
        self._access = access
        self._clock = clock
        self._waits: dict[int, _Wait] = {}
        self._warn_s = 0.0
        self.looked_s = -math.inf
        """When, on the monotonic clock, the last request that got a reply was sent."""

    def __bool__(self) -> bool:
        return bool(self._waits)

    def note(self, partition: int, committed: ReadCommitted) -> None:
        blocker = committed.waits_from
        if blocker is None:
            self._waits.pop(partition, None)
            return
        wait = self._waits.get(partition)
        first_s = _FIRST_WHILE_FULL_S if committed.full else _FIRST_S
        due_s = self._clock.monotonic() + first_s
        if wait is None or wait.blocker != blocker:
            self._waits[partition] = _Wait(blocker, due_s, first_s)
        elif first_s < wait.interval_s == _FIRST_S:
            wait.due_s, wait.interval_s = min(wait.due_s, due_s), first_s

    def forget(self, partition: int) -> None:
        self._waits.pop(partition, None)

    @property
    def due_s(self) -> float:
        """The time of the next look on the monotonic clock; infinite when nothing waits."""
        return min((wait.due_s for wait in self._waits.values()), default=math.inf)

    def in_s(self) -> float:
        """Until the next look is due; infinite when nothing waits."""
        return max(0.0, self.due_s - self._clock.monotonic())

    def is_due(self, came: int) -> bool:
        """Whether to look now, when so many records were read just before: a backlog brings the markers along, and what
        waits for too many of them is looked at when it is full."""
        if came >= _A_BACKLOG:
            return False
        now_s = self._clock.monotonic()
        return any(wait.due_s <= now_s for wait in self._waits.values())

    def came(self, partition: int, committed: ReadCommitted, look_again: Callable[[], object]) -> bool:
        """Records of a partition with transactions were read; `look_again` is called if too many wait for these now.
        Returns whether too many still do: then nothing more is to be read before some can be delivered."""
        self.note(partition, committed)
        if committed.full:
            look_again()
        return committed.full

    def look_again(self, partitions: Mapping[int, ReadCommitted], release: Callable[[int], None]) -> bool:
        """Learn what became of the transactions that hold something up in these, and `release` what may go on of each;
        False without a reply."""
        waiting = {number: each for number, each in partitions.items() if each.waits_from is not None}
        for number in self._waits.keys() - waiting.keys():
            del self._waits[number]
        if not waiting:
            return True

        def learn(entries: BufferEntries) -> None:
            for committed in waiting.values():
                committed.learn(committed.unsettled(), entries)

        requested_s = self._clock.monotonic()
        answered = self._query(learn)
        now_s = self._clock.monotonic()
        for wait in self._waits.values():
            wait.interval_s = min(2 * wait.interval_s, _LONGEST_S) if answered else _AFTER_FAILURE_S
            wait.due_s = now_s + wait.interval_s
        if answered:
            self.looked_s = requested_s
            open_ones = {txn for committed in waiting.values() for txn in committed.unsettled()}
            if open_ones:
                self._access.hold_up(open_ones)
        for number, committed in waiting.items():
            release(number)
            self.note(number, committed)
        return answered

    def _query(self, learn: Callable[[BufferEntries], None]) -> bool:
        try:
            self._access.query(learn)
        except errors.LayerError as failure:
            self._warn("cannot find out which transactions are over, their messages wait", failure)
            return False
        return True

    def _warn(self, what: str, failure: errors.LayerError) -> None:
        now_s = self._clock.monotonic()
        if now_s >= self._warn_s:
            self._warn_s = now_s + _WARN_EVERY_S
            _log.warning("%s %s: %s", self._name, what, failure)

    def learn_of(self, committed: ReadCommitted, unknown: Sequence[TxnId]) -> bool:
        """The same of these transactions alone."""
        return self._query(lambda entries: committed.learn(unknown, entries))

    def put_late_on_record(self, partitions: Iterable[ReadCommitted]) -> None:
        """Tell others of records that came after the end of their transaction; what fails is tried again next time."""
        for committed in partitions:
            if not committed.late:
                continue
            try:
                self._access.put_on_record(committed.where, committed.late)
            except errors.LayerError as failure:
                self._warn("cannot put late records on record yet", failure)
                return
            committed.late = {}
