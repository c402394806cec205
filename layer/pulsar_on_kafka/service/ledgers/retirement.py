"""Phase 1 of a deletion: unneeded ledgers leave their list, after an event that requests the deletion of their data is
durable.

    CLOSED -> DELETING -> the event is durable -> needs of the log are read again -> REMOVED
                                                                                   -> CLOSED, if it is needed now

After a crash between any two steps the next owner continues from the list: a DELETING ledger gets an event (perhaps a
second one, which finds nothing to delete) and is judged again. The creator of a subscription writes its record, then
reads the list, and skips DELETING ledgers (`first_left.py`); here the list is written first, and then the subscriptions
are read. So one of the two sees the other. Source: PIP-186.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner, TopicLogs
from pulsar_on_kafka.broker.managed_ledger.trimming import Needs, Retention, trimmable
from pulsar_on_kafka.broker.managed_ledger.trusted import TrustedLedgers
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerState

_log: Final = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 2_000
"""Ledgers of one partition of `ledgers` that are taken off their lists in one go; what is left follows at once."""


class KeptByRule(NamedTuple):
    """A partition's retention, and the offset of the first message that is not older than its time."""

    retention: Retention
    first_young: int


class RetirementCluster(Protocol):
    """The calls on the cluster that retirement uses, for topics whose data is this project's to delete. They raise
    LayerErrors."""

    def rules(self, topics: Sequence[TopicLogs], deadline: Deadline) -> Mapping[str, Mapping[int, KeptByRule]]:
        """Retention rules by topic and partition. Bound, deleted and unreadable topics are missing."""
        ...

    def needs(self, topic: TopicLogs, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, Needs]:
        """Needs of these partitions, read after the call began. A missing partition cannot be read now."""
        ...


class DeletionEvents(Protocol):
    def send(self, ledgers: Sequence[Ledger], deadline: Deadline) -> None:
        """One event for each; return when all are durable. Raises LayerErrors: some may be, then."""
        ...


class Retired(NamedTuple):
    """The counts of one run, in ledgers."""

    removed: int = 0
    kept_after_all: int = 0
    more: bool = False
    """There is more to do at once."""


class Retirement:
    """Retires ledgers, in one thread. Memory: ids of the DELETING ledgers with an event, of the lists owned here.

    `trusted` receives each ledger that is off its list.
    """

    def __init__(self, use: RetirementCluster, events: DeletionEvents, trusted: TrustedLedgers) -> None:
        self._use = use
        self._events = events
        self._trusted = trusted
        self._requested: set[int] = set()

    def run(self, owner: LedgerOwner, topics: Sequence[TopicLogs], deadline: Deadline) -> Retired:
        """Removes deletable ledgers from the lists of these topics of an owner that took over.

        Raises:
            Fenced: see `LedgerOwner.turn`. Other LayerErrors pass: the next run continues.
        """
        lists = owner.lists(deadline)
        concerned = [topic for topic in topics if any(_may_change(lists, topic))]
        if not concerned:
            return Retired()
        free = self._judge(lists, concerned, deadline, enough=MAX_AT_ONCE).free
        owner.restate(_closed(lists, free)[:MAX_AT_ONCE], LedgerState.DELETING, deadline)
        lists = owner.lists(deadline)
        pending = list(islice(_deleting(lists, concerned), MAX_AT_ONCE))
        if not pending:
            return Retired()
        self._request_deletion(pending, deadline)
        named = {ledger.record.topic for ledger in pending}
        judgement = self._judge(lists, [topic for topic in concerned if topic.name in named], deadline)
        may_go = {ledger.id for ledger in judgement.free}
        gone = [ledger for ledger in pending if ledger.id in may_go]
        kept = [ledger for ledger in pending if ledger.id not in may_go and ledger.place in judgement.of]
        owner.restate(gone, LedgerState.REMOVED, deadline)
        owner.restate(kept, LedgerState.CLOSED, deadline)
        lists = owner.lists(deadline)
        self._trusted.add(ledger.id for ledger in gone if lists.ledger(ledger.id) is None)
        self._requested.difference_update(ledger.id for ledger in (*gone, *kept))
        _report(gone, kept)
        return Retired(len(gone), len(kept), len(gone) == MAX_AT_ONCE)

    def _request_deletion(self, pending: Sequence[Ledger], deadline: Deadline) -> None:
        """Requests the deletion of their data; this process requests it once."""
        new = [ledger for ledger in pending if ledger.id not in self._requested]
        if new:
            self._events.send(new, deadline)
            self._requested.update(ledger.id for ledger in new)

    def _judge(
        self, lists: LedgerLists, topics: Sequence[TopicLogs], deadline: Deadline, enough: float = inf
    ) -> _Judgement:
        """The deletable ledgers of these topics' lists, as if none were DELETING yet. Topics are skipped once there is
        `enough`."""
        rules = self._use.rules(topics, deadline)
        free: list[Ledger] = []
        judged: set[LedgerPlace] = set()
        for topic in topics:
            if len(free) >= enough:
                break
            candidates: dict[int, list[Ledger]] = {}
            for partition, rule in rules.get(topic.name, {}).items():
                place = _place(topic, partition)
                listed = [_reopened(ledger) for ledger in lists.ledgers(place)]
                if trimmable(listed, rule.retention, Needs(), rule.first_young):
                    candidates[partition] = listed
                else:
                    judged.add(place)
            needs = self._use.needs(topic, list(candidates), deadline) if candidates else {}
            for partition, need in needs.items():
                rule = rules[topic.name][partition]
                judged.add(_place(topic, partition))
                free.extend(trimmable(candidates[partition], rule.retention, need, rule.first_young))
        return _Judgement(free, judged)


class _Judgement(NamedTuple):
    """`of`: the partitions of which everything was known."""

    free: list[Ledger]
    of: set[LedgerPlace]


def _place(topic: TopicLogs, partition: int) -> LedgerPlace:
    return LedgerPlace(topic.name, topic.layout.incarnation, partition)


def _reopened(ledger: Ledger) -> Ledger:
    if ledger.state is not LedgerState.DELETING:
        return ledger
    return ledger._replace(record=replace(ledger.record, state=LedgerState.CLOSED))


def _closed(lists: LedgerLists, ledgers: Sequence[Ledger]) -> list[Ledger]:
    now = (lists.ledger(ledger.id) for ledger in ledgers)
    return [ledger for ledger in now if ledger is not None and ledger.state is LedgerState.CLOSED]


def _may_change(lists: LedgerLists, topic: TopicLogs) -> Iterator[bool]:
    for partition in topic.logs:
        first = next(iter(lists.ledgers(_place(topic, partition))), None)
        yield first is not None and first.state in (LedgerState.CLOSED, LedgerState.DELETING)


def _deleting(lists: LedgerLists, topics: Sequence[TopicLogs]) -> Iterator[Ledger]:
    for topic in topics:
        for partition in sorted(topic.logs):
            yield from (each for each in lists.ledgers(_place(topic, partition)) if each.state is LedgerState.DELETING)


def _report(gone: Sequence[Ledger], kept: Sequence[Ledger]) -> None:
    for what, ledgers in (("off its list", gone), ("needed after all", kept)):
        for topic, count in Counter(ledger.record.topic for ledger in ledgers).items():
            _log.info("topic=%s ledgers %s: %d", topic, what, count)
