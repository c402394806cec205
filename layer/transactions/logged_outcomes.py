"""Outcomes where they belong: OPEN and ABORTED entries, ENDs and low-water marks in state topics, markers in the data.

The order makes every step repeatable. Markers come first, for transactions whose OPEN is there (a session that wrote
all of them need not look); then ENDs; then the buffers: ABORTED is durable before its OPEN goes, since nothing on
record means committed. A partition whose OPEN is gone was settled before and is left alone. Where a marker may be there
already, because an owner died or an attempt failed, the log is read first: one marker is enough, and what came behind a
commit's is put on record as void, before its OPEN goes. (Only an append that was under way for longer, or a log too
long to be read in between, brings a second marker, which readers pass over.) ABORTED entries are written unsealed:
readers compare headers from their bound on, so a record that comes late is not read either, nor one that the entry does
not name because looking for it would have held up the coordinator. `Sealing` seals them when no record can come late
any more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from pyroaring import BitMap64

from layer.deadline import Deadline
from layer.errors import NoSuchTopic, StoreError
from layer.statelog.api import StateLog
from layer.transactions import outcome_records
from layer.transactions.buffer.entries import BufferEntries
from layer.transactions.buffer.model import DataPartition
from layer.transactions.outcome_records import Records
from layer.transactions.outcomes import Announcement, Ended, Opened, PartitionsFailed
from layer.transactions.views import TransactionViews
from mapping.state_records.transaction_log import TopicPartition
from mapping.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK, StateTopic
from mapping.txn_id import TxnId

LATE_MOST_MS: Final = 120_000
"""Brokers refuse records whose timestamp is older than this, where `DataPartitions.prepare` sees to it."""
CLOCKS_DIFFER_MS: Final = 300_000
"""By how much the clocks of two machines may differ for `AbortedEntry.late_until_ms` to hold."""

_NO_LIFE: Final = 0
"""Of a topic that is gone: the next one under its name has a higher incarnation."""
_LOOK_THROUGH: Final = 10_000
_READ_AGAIN: Final = 100_000

T = TypeVar("T")


class DataPartitions(Protocol):
    """What outcomes need of data topics. Thread-safe; raises LayerErrors."""

    def incarnation(self, topic: str, deadline: Deadline) -> int | None:
        """Of the topic's present life; None when there is no such topic."""
        ...

    def prepare(self, topic: str, deadline: Deadline) -> None:
        """Called before a transaction's first record goes there; from the second time on it costs nothing."""
        ...

    def end_offset(self, topic: str, partition: int, deadline: Deadline) -> int:
        """Where the next record will lie, or behind that."""
        ...

    def known_end(self, topic: str, partition: int, deadline: Deadline) -> int:
        """As `end_offset`, or where it ended a moment ago."""
        ...

    def append_markers(
        self, markers: Mapping[TopicPartition, Sequence[tuple[TxnId, bool]]], deadline: Deadline
    ) -> None:
        """A marker for each (True: committed), all durable. Raises PartitionsFailed; those in others are durable."""
        ...

    def ends(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]:
        """Those of these transactions that have a marker in [start, end), and their messages behind the first one."""
        ...

    def find(
        self, topic: str, partition: int, start: int, end: int, txns: Set[TxnId], deadline: Deadline
    ) -> Mapping[TxnId, BitMap64]:
        """Offsets of the messages of these transactions in [start, end); one without any may be missing."""
        ...


class LoggedOutcomes:
    """For all coordinators of a process; thread-safe. Implements `Outcomes`. Memory: what `TransactionViews` says."""

    def __init__(self, log: StateLog, data: DataPartitions, views: TransactionViews) -> None:
        self._log = log
        self._data = data
        self._views = views
        self._session = secrets.token_hex(16)

    # Registrations ------------------------------------------------------------------------------------------------

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> dict[tuple[TxnId, TopicPartition], Opened]:
        """Raises NoSuchTopic when one of the topics is not there."""
        opens, opened = self._opens(participants, session, deadline)
        self._append(opens, deadline)
        return opened

    def _opens(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> tuple[Records, dict[tuple[TxnId, TopicPartition], Opened]]:
        opened: dict[tuple[TxnId, TopicPartition], Opened] = {}
        announced: list[tuple[TxnId, DataPartition]] = []
        ends: dict[DataPartition, int] = {}
        for each, txns in _by_partition((each, txn) for txn, partitions in participants for each in partitions):
            where = self._where(each, deadline)
            if where is None:
                raise NoSuchTopic(f"topic {each.topic} was deleted, a transaction cannot write to it")
            self._data.prepare(each.topic, deadline)
            with _of([each]):
                ends[where] = self._data.known_end(each.topic, each.partition, deadline)
            announced.extend((txn, where) for txn in txns)
            opened.update(((txn, each), Opened(where.incarnation, ends[where])) for txn in txns)
        return outcome_records.open_records(announced, ends, session), opened

    # Ends ---------------------------------------------------------------------------------------------------------

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        markers: dict[TopicPartition, list[tuple[TxnId, bool]]] = {}
        failures: list[PartitionsFailed] = []
        for each, those in _by_partition((each, one) for one in ended for each in one.partitions):
            where = self._where(each, deadline)
            if where is None:
                continue
            bounds = self._bounds(where, those, deadline)
            again = {one.txn: bounds[one.txn] for one in those if one.again and one.committed and one.txn in bounds}
            try:
                with _of([each]):
                    done = self._ended_before(where, again, deadline) if again else frozenset()
            except PartitionsFailed as failure:
                failures.append(failure)
                continue
            due = [(one.txn, one.committed) for one in those if one.txn in bounds and one.txn not in done]
            if due:
                markers[each] = due
        try:
            if markers:
                self._data.append_markers(markers, deadline)
        except PartitionsFailed as failure:
            failures.append(failure)
        if failures:
            raise PartitionsFailed(frozenset().union(*(each.partitions for each in failures)), str(failures[0]))

    def _ended_before(self, where: DataPartition, bounds: Mapping[TxnId, int], deadline: Deadline) -> Set[TxnId]:
        """Those of these committed transactions whose marker is there. What came behind it is put on record as void."""
        start = min(bounds.values())
        end = self._data.end_offset(where.topic, where.partition, deadline)
        if end - start > _READ_AGAIN:
            return frozenset()
        found = self._data.ends(where.topic, where.partition, start, end, bounds.keys(), deadline)
        late = {txn: offsets for txn, offsets in found.items() if offsets}
        if late:
            records = self._ask(
                where, lambda entries: outcome_records.void_records(late, where, entries, self._session), deadline
            )
            self._append(records, deadline)
        return found.keys()

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        self._append(outcome_records.end_records(ended), deadline, TRANSACTION_PENDING_ACK)

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> dict[tuple[TxnId, TopicPartition], Opened]:
        opens, opened = self._opens(along, session, deadline)
        aborted: list[Records] = []
        over: list[Records] = []
        for each, those in _by_partition((each, one) for one in ended for each in one.partitions):
            found = self._where(each, deadline)
            where = found or DataPartition(each.topic, each.partition, _NO_LIFE)
            failed = [one for one in those if not one.committed]
            aborted.extend(self._aborted(where, failed, session, deadline, there=found is not None))
            over.append(self._opens_gone(where, those, session, deadline))
        self._append(_together(aborted), deadline)
        self._append(_together([*over, opens]), deadline)
        return opened

    def _aborted(
        self, where: DataPartition, failed: Sequence[Ended], session: str, deadline: Deadline, *, there: bool
    ) -> list[Records]:
        """ABORTED entries of those with an OPEN. (An entry that is there already may be incomplete.)

        Of a topic that is gone, too: what is under way to it comes to the next one that is made under its name.
        """
        bounds = self._bounds(where, failed, deadline)
        if not bounds:
            return []
        until_ms = {one.txn: one.deadline_ms for one in failed}
        start = min(bounds.values())
        end = self._data.end_offset(where.topic, where.partition, deadline) if there else start
        found: Mapping[TxnId, BitMap64] = {}
        if there and end - start <= _LOOK_THROUGH:
            found = self._data.find(where.topic, where.partition, start, end, bounds.keys(), deadline)
        return [
            outcome_records.aborted_records(
                txn,
                where,
                found.get(txn, BitMap64()),
                bound,
                max(bound, end),
                session,
                sealed=False,
                late_until_ms=until_ms[txn] + LATE_MOST_MS + CLOCKS_DIFFER_MS if until_ms[txn] else 0,
            )
            for txn, bound in bounds.items()
        ]

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        """In every partition of the buffer topic: a former owner that wakes up may write an OPEN to any."""
        self._append(outcome_records.low_water_records(coordinator, low_water, session), deadline)

    # Access -------------------------------------------------------------------------------------------------------

    def _where(self, each: TopicPartition, deadline: Deadline) -> DataPartition | None:
        incarnation = self._data.incarnation(each.topic, deadline)
        return None if incarnation is None else DataPartition(each.topic, each.partition, incarnation)

    def _ask(self, where: DataPartition, question: Callable[[BufferEntries], T], deadline: Deadline) -> T:
        return self._views.ask_buffer(where.topic, question, deadline)

    def _bounds(self, where: DataPartition, ended: Iterable[Ended], deadline: Deadline) -> dict[TxnId, int]:
        """Of those with an OPEN there: below which offset none of their records lies."""
        each = TopicPartition(where.topic, where.partition)
        found: dict[TxnId, int] = {}
        others: list[TxnId] = []
        for one in ended:
            opened = one.opened.get(each)
            if opened is None:
                others.append(one.txn)
            else:
                found[one.txn] = opened.lower_bound if opened.incarnation == where.incarnation else 0
        if others:
            announced = self._ask(where, lambda entries: entries.announced_bounds(where), deadline)
            found.update((txn, announced[txn]) for txn in others if txn in announced)
        return found

    def _opens_gone(self, where: DataPartition, ended: Sequence[Ended], session: str, deadline: Deadline) -> Records:
        each = TopicPartition(where.topic, where.partition)
        found = outcome_records.own_opens_gone(((one.txn, where) for one in ended if each in one.opened), session)
        others = [(one.txn, where) for one in ended if each not in one.opened]
        if others:
            asked = self._ask(where, lambda entries: outcome_records.opens_gone(others, entries), deadline)
            found = _together([found, asked])
        return found

    def _append(self, records: Records, deadline: Deadline, topic: StateTopic = TRANSACTION_BUFFER_SNAPSHOT) -> None:
        groups = [(topic, partition, together) for partition, together in records.items() if together]
        if groups:
            self._log.append_apart(groups, deadline)


@contextmanager
def _of(partitions: Collection[TopicPartition]) -> Iterator[None]:
    """What the store refuses inside concerns these."""
    try:
        yield
    except PartitionsFailed:
        raise
    except StoreError as failure:
        raise PartitionsFailed(partitions, str(failure)) from failure


def _by_partition(pairs: Iterable[tuple[TopicPartition, T]]) -> list[tuple[TopicPartition, list[T]]]:
    found: dict[TopicPartition, list[T]] = {}
    for each, one in pairs:
        found.setdefault(each, []).append(one)
    return list(found.items())


def _together(several: Iterable[Records]) -> Records:
    found: Records = {}
    for records in several:
        for partition, those in records.items():
            found.setdefault(partition, []).extend(those)
    return found
