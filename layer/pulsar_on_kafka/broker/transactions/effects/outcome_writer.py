"""Writes outcomes: OPEN and ABORTED entries, ENDs and low-water marks in state topics, markers in the data.

The order makes every step repeatable. In each partition the marker comes first, for transactions whose OPEN is there (a
session that wrote all of them need not look); then the buffer: ABORTED is durable before its OPEN is deleted, since no
entry means committed. A partition without the OPEN was settled before and is skipped, so no process repeats effects
that succeeded in some of many partitions. Requests go to many partitions at once, and reads of them have a budget;
partitions beyond the time limit are reported (`PartitionsFailed`).

Where a commit's marker may be there already, because an owner died or an attempt failed, the log is read first: one
marker is enough, and records behind it are written as VOID, before its OPEN is deleted. (Only an append that was under
way for longer, or a log too long to be read in between, brings a second marker, which readers pass over. That of an
abort may come twice: its entry tells all readers.) ABORTED entries are written unsealed: readers compare headers from
their bound on, so late records are not read either, nor records that the entry does not name because a search would
have delayed the coordinator. `Sealing` seals the entries when no record can be late.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchTopic
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.broker.transactions.buffer.verify import Rebuilt
from pulsar_on_kafka.broker.transactions.records import outcomes
from pulsar_on_kafka.broker.transactions.records.outcomes import (
    Announcement,
    Ended,
    OpenedTransaction,
    PartitionsFailed,
    Records,
)
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK, StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition

MAX_LATE_MS: Final = 120_000
"""The longest time after a transaction's time-out at which a record of it may arrive. No broker enforces that. Where a
topic rejects older records, an entry is sealed; elsewhere readers recognise the records by their headers."""
CLOCKS_DIFFER_MS: Final = 300_000
"""The largest difference between the clocks of two machines for which `AbortedEntry.late_until_ms` holds."""

_NO_LIFE: Final = 0
"""The incarnation in entries of a deleted topic: the next topic under its name has a higher one. The first topic of a
cluster may have this one."""
_LOOK_THROUGH: Final = 10_000
"""An ABORTED entry names what was found in so many records; readers find what lies in more."""
_MAX_REREAD_RECORDS: Final = 100_000
_TOGETHER: Final = 50_000
"""Up to this many records are scanned together, or those of one partition."""
_LOOK_S: Final = 0.5
"""No more is begun after that: other transactions wait."""

T = TypeVar("T")


class PartitionScan(NamedTuple):
    """[start, end) of a data partition, to be looked through for messages and markers of these transactions."""

    where: TopicPartition
    start: int
    end: int
    txns: Set[TxnId]


class DataPartitions(Protocol):
    """The calls on data topics that outcomes use. Thread-safe; raises LayerErrors."""

    def incarnation(self, topic: str, deadline: Deadline) -> int | None:
        """The incarnation of the topic's present life; None when there is no such topic."""

    def prepare(self, topic: str, deadline: Deadline) -> None:
        """Called before a transaction's first record goes there; from the second time on it costs nothing."""

    def end_offsets(self, partitions: Collection[TopicPartition], deadline: Deadline) -> Mapping[TopicPartition, int]:
        """The offset of the next record in each partition, or one behind that; unresponsive partitions are missing."""

    def known_ends(self, partitions: Collection[TopicPartition], deadline: Deadline) -> Mapping[TopicPartition, int]:
        """`end_offsets`, or the ends of a moment ago."""

    def append_markers(
        self, markers: Mapping[TopicPartition, Sequence[tuple[TxnId, bool]]], deadline: Deadline
    ) -> None:
        """A marker for each (True: committed), all durable. Raises PartitionsFailed; those in others are durable."""

    def look_through(
        self, looks: Sequence[PartitionScan], deadline: Deadline
    ) -> Mapping[TopicPartition, Mapping[TxnId, Rebuilt]]:
        """The records of these transactions; a transaction without any may be missing. Partitions that could not be
        read, or not in time, are missing."""


@dataclass(frozen=True, slots=True)
class LookBudget:
    """A limit of records that are scanned together (or one partition), and a time after which no scan begins."""

    together: int = _TOGETHER
    seconds: float = _LOOK_S


class LoggedOutcomes:
    """For all coordinators of a process; thread-safe. Implements `Outcomes`. Memory: see `TransactionViews`."""

    def __init__(
        self, log: StateLog, data: DataPartitions, views: TransactionViews, budget: LookBudget | None = None
    ) -> None:
        self._log = log
        self._data = data
        self._views = views
        self._budget = budget or LookBudget()
        self._session = secrets.token_hex(16)

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        """Raises NoSuchTopic when one of the topics is not there."""
        opens, opened = self._opens(participants, session, deadline)
        self._append(opens, deadline)
        return opened

    def _opens(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> tuple[Records, dict[tuple[TxnId, TopicPartition], OpenedTransaction]]:
        places: list[tuple[TopicPartition, DataPartition, list[TxnId]]] = []
        for each, txns in _by_partition((each, txn) for txn, partitions in participants for each in partitions).items():
            where = self._where(each, deadline)
            if where is None:
                raise NoSuchTopic(f"topic {each.topic} was deleted, a transaction cannot write to it")
            self._data.prepare(each.topic, deadline)
            places.append((each, where, txns))
        ends = self._data.known_ends([each for each, _, _ in places], deadline) if places else {}
        _check_complete(each for each, _, _ in places if each not in ends)
        opened: dict[tuple[TxnId, TopicPartition], OpenedTransaction] = {}
        announced: list[tuple[TxnId, DataPartition]] = []
        for each, where, txns in places:
            announced.extend((txn, where) for txn in txns)
            opened.update(((txn, each), OpenedTransaction(where.incarnation, ends[each])) for txn in txns)
        bounds = {where: ends[each] for each, where, _ in places}
        return outcomes.open_records(announced, bounds, session), opened

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        places: dict[DataPartition, list[Ended]] = {}
        for each, those in _by_partition((each, one) for one in ended for each in one.partitions).items():
            where = self._where(each, deadline)
            if where is not None:
                places[where] = those
        bounds = self._bounds(places, deadline)
        again = {
            where: found
            for where, those in places.items()
            if (found := {one.txn: bounds[where][one.txn] for one in those if _may_be_there(one, bounds[where])})
        }
        ends = self._data.end_offsets([_place(where) for where in again], deadline) if again else {}
        unread = {_place(where): "does not report its end offset" for where in again if _place(where) not in ends}
        looks: list[PartitionScan] = []
        for where, found in again.items():
            each, start = _place(where), min(found.values())
            if each in ends and ends[each] - start <= _MAX_REREAD_RECORDS:
                looks.append(PartitionScan(each, start, ends[each], found.keys()))
        unclear = unread.keys() | {look.where for look in looks}
        at_once = {each: where for where in places if (each := _place(where)) not in unclear}
        unread |= self._mark({where: places[where] for where in at_once.values()}, bounds, {}, deadline)
        unreached = {look.where for look in looks}
        by_place = {_place(where): where for where in places}
        for together, seen in self._looked_through(looks, deadline):
            unreached -= together
            unread |= dict.fromkeys(together - seen.keys(), "cannot be read")
            known = {by_place[each]: found for each, found in seen.items()}
            self._put_late_ones_on_record(known, deadline)
            unread |= self._mark({where: places[where] for where in known}, bounds, known, deadline)
        if unread or unreached:
            reasons = [f"{topic}-{partition}: {reason}" for (topic, partition), reason in unread.items()]
            raise PartitionsFailed(unread, reasons[0] if reasons else "there is more to be read", unreached)

    def _mark(
        self,
        places: Mapping[DataPartition, Sequence[Ended]],
        bounds: Mapping[DataPartition, Mapping[TxnId, int]],
        seen: Mapping[DataPartition, Mapping[TxnId, Rebuilt]],
        deadline: Deadline,
    ) -> dict[TopicPartition, str]:
        """Append the markers that are due and were not seen; where that failed, and why."""
        markers: dict[TopicPartition, list[tuple[TxnId, bool]]] = {}
        for where, those in places.items():
            there = {txn for txn, found in seen.get(where, {}).items() if found.outcomes}
            due = [(one.txn, one.committed) for one in those if one.txn in bounds[where] and one.txn not in there]
            if due:
                markers[_place(where)] = due
        try:
            if markers:
                self._data.append_markers(markers, deadline)
        except PartitionsFailed as failure:
            return dict.fromkeys(failure.partitions, str(failure))
        return {}

    def _looked_through(
        self, looks: Sequence[PartitionScan], deadline: Deadline
    ) -> Iterator[tuple[set[TopicPartition], Mapping[TopicPartition, Mapping[TxnId, Rebuilt]]]]:
        """Some after the others, as long as the budget lasts: which these are, and what was found in them."""
        budget = Deadline.after(self._budget.seconds)
        left = list(looks)
        while left:
            together = [left.pop()]
            records = together[0].end - together[0].start
            while left and records + left[-1].end - left[-1].start <= self._budget.together:
                together.append(left.pop())
                records += together[-1].end - together[-1].start
            half = Deadline.after(deadline.remaining_s() / 2)
            yield {look.where for look in together}, self._data.look_through(together, half)
            if budget.passed():
                return

    def _put_late_ones_on_record(
        self, seen: Mapping[DataPartition, Mapping[TxnId, Rebuilt]], deadline: Deadline
    ) -> None:
        """Writes the records behind the marker of a commit as VOID."""
        records: list[Records] = []
        for where, found in seen.items():
            late = {txn: of_it.late for txn, of_it in found.items() if of_it.late}
            if late:
                question = partial(_void_records, late, where, self._session)
                records.append(self._views.buffers.query(where.topic, question, deadline))
        self._append(_together(records), deadline)

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        self._append(outcomes.end_records(ended), deadline, TRANSACTION_PENDING_ACK)

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        opens, opened = self._opens(along, session, deadline)
        places: dict[DataPartition, list[Ended]] = {}
        deleted: set[DataPartition] = set()
        for each, those in _by_partition((each, one) for one in ended for each in one.partitions).items():
            where = self._where(each, deadline)
            if where is None:
                where = DataPartition(*each, _NO_LIFE)
                deleted.add(where)
            places[where] = those
        aborted, unasked = self._aborted(places, deleted, session, deadline)
        over = {where: those for where, those in places.items() if _place(where) not in unasked}
        gone = self._opens_gone(over, session, deadline)
        self._append(aborted, deadline)
        self._append(gone if unasked else _together([gone, opens]), deadline)
        _check_complete(unasked)
        return opened

    def _aborted(
        self,
        places: Mapping[DataPartition, Sequence[Ended]],
        deleted: Set[DataPartition],
        session: str,
        deadline: Deadline,
    ) -> tuple[Records, set[TopicPartition]]:
        """ABORTED entries of those with an OPEN (an entry that is there already may be incomplete), and the partitions
        that do not report their end.

        A `deleted` topic gets entries, too: records under way to it reach the next topic created under its name.
        """
        failed = {where: [one for one in those if not one.committed] for where, those in places.items()}
        bounds = {where: found for where, found in self._bounds(failed, deadline).items() if found}
        there = [_place(where) for where in bounds if where not in deleted]
        ends = self._data.end_offsets(there, deadline) if there else {}
        looks = [
            PartitionScan(each, start, ends[each], found.keys())
            for where, found in bounds.items()
            if (each := _place(where)) in ends and 0 < ends[each] - (start := min(found.values())) <= _LOOK_THROUGH
        ]
        seen: dict[TopicPartition, Mapping[TxnId, Rebuilt]] = {}
        for _, found_there in self._looked_through(looks, deadline):
            seen.update(found_there)
        until_ms = {one.txn: one.deadline_ms for those in failed.values() for one in those}
        records = [
            outcomes.aborted_records(
                txn,
                where,
                found.offsets | found.late,
                bound,
                max(bound, ends.get(each, 0)),
                session,
                sealed=False,
                late_until_ms=until_ms[txn] + MAX_LATE_MS + CLOCKS_DIFFER_MS if until_ms[txn] else 0,
            )
            for where, of_where in bounds.items()
            if (each := _place(where)) in ends or where in deleted
            for txn, bound in of_where.items()
            for found in [seen.get(each, {}).get(txn, Rebuilt())]
        ]
        return _together(records), set(there) - ends.keys()

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        """Publish it in every partition of the buffer topic: a former owner that wakes up may write an OPEN to any."""
        self._append(outcomes.low_water_records(coordinator, low_water, session), deadline)

    def _where(self, each: TopicPartition, deadline: Deadline) -> DataPartition | None:
        incarnation = self._data.incarnation(each.topic, deadline)
        return None if incarnation is None else DataPartition(each.topic, each.partition, incarnation)

    def _query_all(
        self, places: Iterable[DataPartition], question: Callable[[BufferEntries, DataPartition], T], deadline: Deadline
    ) -> dict[DataPartition, T]:
        """Each partition of the state topic is read to its end once."""
        found: dict[DataPartition, T] = {}
        together: dict[int, list[DataPartition]] = {}
        for where in places:
            together.setdefault(TRANSACTION_BUFFER_SNAPSHOT.partition_for(where.topic), []).append(where)
        for partition, those in together.items():
            query = partial(_query_each, those, question)
            found.update(self._views.buffers.query_partition(partition, query, deadline))
        return found

    def _bounds(
        self, places: Mapping[DataPartition, Sequence[Ended]], deadline: Deadline
    ) -> dict[DataPartition, dict[TxnId, int]]:
        """Bounds of the transactions with an OPEN there: none of their records lies below."""
        found: dict[DataPartition, dict[TxnId, int]] = {where: {} for where in places}
        others: dict[DataPartition, list[TxnId]] = {}
        for where, ended in places.items():
            each = _place(where)
            for one in ended:
                opened = one.opened.get(each)
                if opened is None:
                    others.setdefault(where, []).append(one.txn)
                else:
                    found[where][one.txn] = opened.lower_bound if opened.incarnation == where.incarnation else 0
        for where, announced in self._query_all(others, BufferEntries.announced_bounds, deadline).items():
            found[where].update((txn, announced[txn]) for txn in others[where] if txn in announced)
        return found

    def _opens_gone(self, places: Mapping[DataPartition, Sequence[Ended]], session: str, deadline: Deadline) -> Records:
        own = [(one.txn, where) for where, ended in places.items() for one in ended if _place(where) in one.opened]
        others = {
            where: unknown
            for where, ended in places.items()
            if (unknown := [(one.txn, where) for one in ended if _place(where) not in one.opened])
        }

        def gone(entries: BufferEntries, where: DataPartition) -> Records:
            return outcomes.opens_gone(others[where], entries)

        requested = self._query_all(others, gone, deadline).values()
        return _together([outcomes.own_opens_gone(own, session), *requested])

    def _append(self, records: Records, deadline: Deadline, topic: StateTopic = TRANSACTION_BUFFER_SNAPSHOT) -> None:
        groups = [(topic, partition, together) for partition, together in records.items() if together]
        if groups:
            self._log.append_apart(groups, deadline)


def _place(where: DataPartition) -> TopicPartition:
    return TopicPartition(where.topic, where.partition)


def _may_be_there(one: Ended, bounds: Mapping[TxnId, int]) -> bool:
    """Whether the marker of a former attempt may exist. The marker of an abort may appear twice: readers use its
    entry."""
    return one.again and one.committed and one.txn in bounds


def _void_records(
    late: Mapping[TxnId, BitMap64], where: DataPartition, session: str, entries: BufferEntries
) -> Records:
    return outcomes.void_records(late, where, entries, session)


def _query_each(
    places: Iterable[DataPartition], question: Callable[[BufferEntries, DataPartition], T], entries: BufferEntries
) -> dict[DataPartition, T]:
    return {where: question(entries, where) for where in places}


def _check_complete(unasked: Iterable[TopicPartition]) -> None:
    missing = list(unasked)
    if missing:
        raise PartitionsFailed(missing, "{}-{} does not report its end offset".format(*missing[0]))


def _by_partition(pairs: Iterable[tuple[TopicPartition, T]]) -> dict[TopicPartition, list[T]]:
    found: dict[TopicPartition, list[T]] = {}
    for each, one in pairs:
        found.setdefault(each, []).append(one)
    return found


def _together(several: Iterable[Records]) -> Records:
    found: Records = {}
    for records in several:
        for partition, those in records.items():
            found.setdefault(partition, []).extend(those)
    return found
