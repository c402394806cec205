"""The owner of one partition of `ledgers`: keeps the lists of all topics in it true, in turns.

A turn reads the log to its end, stops if another process took over, requests the topics' offsets from Kafka, and writes
the changed ledgers. Lists may be stale: every turn starts from the list and the log. So a turn that fails is simply the
next one's work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import (
    NOTHING,
    LedgerListChange,
    LogRange,
    Measured,
    changes,
    removal,
)
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.owned import OwnedLog, random_session
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout, unpack_ledger_id
from pulsar_on_kafka_mapping.state.metadata.ledger_records import (
    LedgerRecord,
    LedgerState,
    MaintenanceTakenOver,
    encode_ledger_value,
)
from pulsar_on_kafka_mapping.state.state_keys import LedgerKey, MaintenanceTakeoverKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS, StateTopic

_log: Final = logging.getLogger(__name__)

MAX_CHANGES: Final = 2_000
"""The limit of changes in one turn; the rest follows in the next ones."""
MAX_TOMBSTONES: Final = 20_000
FULL_CHECK_INTERVAL_MS: Final = 900_000
_NEVER: Final = Deadline.never()
_APPENDED_AT_ONCE: Final = 100
"""Ledgers, also, that are measured together."""


class Stretch(NamedTuple):
    """A stretch of a partition's log: [start, end), not empty."""

    kafka_topic: str
    partition: int
    start: int
    end: int


class TopicLogs(NamedTuple):
    """A living topic. `logs`: what each of its partitions has; a partition without a leader now is missing."""

    name: str
    kafka_topic: str
    layout: LedgerLayout
    logs: Mapping[int, LogRange]
    bound: bool = False
    """Its Kafka topic was there before: what it keeps is Kafka's own business."""


class DataTopics(Protocol):
    def living(self, state_partition: int, deadline: Deadline) -> Sequence[TopicLogs]:
        """Every persistent topic whose lists lie in this partition. One that is missing here is gone for good."""
        ...

    def measure(self, stretches: Sequence[Stretch], deadline: Deadline) -> Sequence[Measured | LayerError]:
        """The records of each, or why they could not be read: they are not there any more, time was over ..."""
        ...


class LedgerTurn(NamedTuple):
    topics: int
    written: int
    cleaned: int
    more: bool
    """There is more to do at once."""


class LedgerOwner:
    """The owner, for one thread. Memory: `LedgerLists`, and the result of `DataTopics.living` during a turn."""

    def __init__(
        self,
        log: StateLog,
        state_partition: int,
        data: DataTopics,
        clock: Clock,
        *,
        new_session: Callable[[], str] = random_session,
        topic: StateTopic = LEDGERS,
    ) -> None:
        self.state_partition = state_partition
        self._data = data
        self._clock = clock
        self._log: OwnedLog[LedgerLists] = OwnedLog(
            LogView(log, topic, state_partition, lambda: LedgerLists(state_partition), clock),
            f"ledgers {state_partition}",
            late_is_harmless=False,
            new_session=new_session,
        )
        self._ops = 0
        self._looked_ms = 0
        self._waits: set[LedgerPlace] = set()
        """Partitions of which a ledger could not be measured in this turn."""

    @property
    def owner(self) -> Owner | None:
        """The owner identity; None before the take-over, and after it was fenced."""
        return self._log.owner

    def take_over(self, deadline: Deadline) -> None:
        """Become the owner, with a session of its own.

        Raises:
            Fenced: another one claimed at the same time.
            Corrupt: a record of the log cannot be read. And what `StateLog` raises.
        """
        self._log.take_over(self._takeover, deadline)
        self._ops, self._looked_ms = 0, 0

    def _takeover(self, _lists: LedgerLists, mine: Owner) -> tuple[bytes, bytes]:
        key = MaintenanceTakeoverKey(self.state_partition, mine.session, mine.version)
        return encode_key(key), encode_ledger_value(mine.version, MaintenanceTakenOver())

    def turn(self, deadline: Deadline, measuring: Deadline = _NEVER) -> LedgerTurn:
        """Brings the lists in line with Kafka's logs, with up to `MAX_CHANGES`.

        Args:
            measuring: after it no more ledgers are measured; the next turn continues.

        Raises:
            Fenced: another process owns them, or an append has an unknown outcome: take over, if Kafka still assigns
                them here.
            Corrupt: a record of the log cannot be read. Other LayerErrors pass: the next turn continues.
        """
        lists = self._log.judged(deadline)
        topics = self._data.living(self.state_partition, deadline)
        look_again = self._clock.now_ms() - self._looked_ms >= FULL_CHECK_INTERVAL_MS
        due = sorted(_due(lists, topics, look_again=look_again), key=_waited_since)
        written, looked_at = self._write(due[:MAX_CHANGES], deadline, measuring)
        more = looked_at < len(due)
        if look_again and not more:
            self._looked_ms = self._clock.now_ms()
        cleaned = self._clean(lists, deadline)
        return LedgerTurn(len(topics), written, cleaned, more)

    def rebuild(self, deadline: Deadline) -> LedgerTurn:
        """Write every list anew from what Kafka has, measured anew. Take over first.

        What was taken off a list stays off it, also where Kafka has its data yet; DELETING ledgers stay so. A list that
        is not there begins at the log's start. There is `more` to do when some could not be measured now. Raises: as
        `turn`.
        """
        lists = self._log.judged(deadline)
        topics = self._data.living(self.state_partition, deadline)
        due = list(_anew(lists, topics))
        written, _ = self._write(due, deadline, _NEVER)
        return LedgerTurn(len(topics), written, self._clean(self._log.judged(deadline), deadline), written < len(due))

    def lists(self, deadline: Deadline) -> LedgerLists:
        """The lists at an end that was taken after this call began. This owner's earlier writes are in them, so it may
        act on them. Raises the errors of `turn`."""
        return self._log.judged(deadline)

    def restate(self, ledgers: Iterable[Ledger], state: LedgerState, deadline: Deadline) -> None:
        """Write these ledgers anew, each with this state, in this order. Act on it after `lists`. Raises: as `turn`;
        after other LayerErrors some are written and some are not."""
        records = [(ledger.id, replace(ledger.record, state=state)) for ledger in ledgers]
        for begin in range(0, len(records), _APPENDED_AT_ONCE):
            self._append(records[begin : begin + _APPENDED_AT_ONCE], deadline)

    def _write(self, due: Sequence[_Due], deadline: Deadline, measuring: Deadline) -> tuple[int, int]:
        """The numbers of written and of examined changes: the first ones. They are appended as they are made, so that
        measurements are kept at the deadline."""
        written = 0
        self._waits.clear()
        for begin in range(0, len(due), _APPENDED_AT_ONCE):
            deadline.check(f"ledgers {self.state_partition} to be measured")
            if measuring.passed():
                return written, begin
            part = due[begin : begin + _APPENDED_AT_ONCE]
            records = self._measured(part, deadline)
            if records:
                self._append(records, deadline)
            written += len(records)
        return written, len(due)

    def _measured(self, due: Sequence[_Due], deadline: Deadline) -> list[tuple[int, LedgerRecord]]:
        """The records to write, without those that could not be measured now."""
        stretches = {each.change.ledger_id: stretch for each in due if (stretch := _stretch(each)) is not None}
        answers = self._data.measure(list(stretches.values()), deadline) if stretches else ()
        measured = dict(zip(stretches, answers, strict=True))
        records: list[tuple[int, LedgerRecord]] = []
        for change, kafka_topic in due:
            found = measured.get(change.ledger_id, NOTHING)
            place = Ledger(change.ledger_id, change.record).place
            if isinstance(found, LayerError):
                self._waits.add(place)  # what follows would look as if this one had been taken off the list
                _log.info("ledger=%d of %s not measured now: %s", change.ledger_id, kafka_topic, found)
            elif place not in self._waits:
                records.append((change.ledger_id, change.written(found)))
        return records

    def _append(self, records: Iterable[tuple[int, LedgerRecord]], deadline: Deadline) -> None:
        owner = self._log.must_own()
        encoded: list[tuple[bytes, bytes | None]] = []
        for ledger_id, record in records:
            key = LedgerKey(ledger_id, owner.session, self._ops)
            self._ops += 1
            encoded.append((encode_key(key), encode_ledger_value(owner.version, record)))
        self._log.append(encoded, deadline)

    def _clean(self, lists: LedgerLists, deadline: Deadline) -> int:
        keys = lists.to_clean(self._log.must_own())[:MAX_TOMBSTONES]
        for begin in range(0, len(keys), _APPENDED_AT_ONCE):
            self._log.append([(key, None) for key in keys[begin : begin + _APPENDED_AT_ONCE]], deadline)
        return len(keys)


class _Due(NamedTuple):
    change: LedgerListChange
    kafka_topic: str


def _stretch(due: _Due) -> Stretch | None:
    change, kafka_topic = due
    record = change.record
    if record.state is LedgerState.REMOVED or change.measure_from >= record.end:
        return None
    return Stretch(kafka_topic, unpack_ledger_id(change.ledger_id).partition, change.measure_from, record.end)


def _waited_since(due: _Due) -> int:
    """Open ledgers that have only grown come last, those first that were looked at longest ago: where more grow all the
    time than one turn takes, none is forgotten. Each is the only change of its partition, so their order is free."""
    change, _ = due
    only_grown = change.record.state is LedgerState.OPEN and change.measure_from > change.record.first
    return change.record.last_publish_ms if only_grown else -1


def _due(lists: LedgerLists, topics: Iterable[TopicLogs], *, look_again: bool) -> Iterator[_Due]:
    alive: set[tuple[str, int]] = set()
    for topic in topics:
        alive.add((topic.name, topic.layout.incarnation))
        for partition, log in topic.logs.items():
            place = LedgerPlace(topic.name, topic.layout.incarnation, partition)
            for change in changes(lists.ledgers(place), place, topic.layout, log, look_again=look_again):
                yield _Due(change, topic.kafka_topic)
    yield from _of_the_dead(lists, alive)


def _anew(lists: LedgerLists, topics: Iterable[TopicLogs]) -> Iterator[_Due]:
    alive: set[tuple[str, int]] = set()
    for topic in topics:
        alive.add((topic.name, topic.layout.incarnation))
        for partition, log in topic.logs.items():
            place = LedgerPlace(topic.name, topic.layout.incarnation, partition)
            listed = {ledger.id: ledger for ledger in lists.ledgers(place)}
            first_id = min(listed, default=0)
            for change in changes([], place, topic.layout, log):
                if change.ledger_id < first_id:
                    continue  # its deletion may be on its way: who saw it listed again could begin with what goes
                before = listed.pop(change.ledger_id, None)
                yield _Due(_as_before(change, before), topic.kafka_topic)
            for ledger in listed.values():
                yield _Due(removal(ledger), topic.kafka_topic)
    yield from _of_the_dead(lists, alive)


def _as_before(change: LedgerListChange, before: Ledger | None) -> LedgerListChange:
    """The change with the data of a listed ledger that Kafka does not have."""
    if before is None:
        return change
    record = replace(change.record, properties=before.record.properties)
    if before.first > record.first:  # what lies below may be about to go (`open_trimming.py`)
        record = replace(record, first=before.first, end=max(before.first, record.end))
        change = replace(change, measure_from=before.first)
    if before.state is LedgerState.DELETING and record.state is LedgerState.CLOSED:
        record = replace(record, state=LedgerState.DELETING)
    return replace(change, record=record)


def _of_the_dead(lists: LedgerLists, alive: set[tuple[str, int]]) -> Iterator[_Due]:
    for place in list(lists.places()):
        if (place.topic, place.incarnation) not in alive:
            for ledger in lists.ledgers(place):
                yield _Due(removal(ledger), "")
