"""Open ledgers, which are still written to, are trimmed from their beginnings.

Pulsar closes a ledger by age, size or count, and trims it as a whole. Here a ledger is a range of offsets, because
message ids are made of that, so it cannot be closed early. But Kafka deletes any prefix: trimming deletes the part of
an open ledger that would lie in closed ones by now.

    first is raised on the list -> needs of the log are read again -> offsets below are deleted

The creator of a subscription writes its record, then reads the list, and begins there (`first_left.py`); here the list
is written first, and then the subscriptions are read. So one of the two sees the other. A raised first offset stays,
even if a reader still needs offsets below it: then their deletion is postponed. So a late deletion by a paused owner
does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.managed_ledger.ledger_machine import LedgerLists
from pulsar_on_kafka.broker.managed_ledger.model import Ledger, LedgerPlace
from pulsar_on_kafka.broker.managed_ledger.owner import LedgerOwner, TopicLogs
from pulsar_on_kafka.broker.managed_ledger.trimming import MINUTE_MS, Needs, Rollover, is_full, open_trim
from pulsar_on_kafka.service.ledgers import retirement
from pulsar_on_kafka_mapping.state.metadata.ledger_records import LedgerRecord, LedgerState

_log: Final = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 2_000
"""Partitions of which something goes in one run."""
_RETRIM_SHARE: Final = 10
"""Something goes of the same ledger again after one part of so many of the time after which Pulsar closes one, or
later: each time is a record on its list."""


class TrimmingCluster(retirement.RetirementCluster, Protocol):
    """The calls on the cluster that trimming uses besides. They raise LayerErrors."""

    def rollovers(self, topics: Sequence[TopicLogs], deadline: Deadline) -> Mapping[str, Rollover]:
        """The rollover by topic; topics whose policies cannot be read now are missing."""
        ...

    def rolled_over(
        self, topics: Sequence[TopicLogs], rollovers: Mapping[str, Rollover], deadline: Deadline
    ) -> Mapping[str, Mapping[int, int]]:
        """By topic and partition: the first offset whose message is not older than the topic's rollover time; the log's
        end when all are. Unreadable partitions are missing."""
        ...

    def delete_below(self, topic: TopicLogs, before: Mapping[int, int], deadline: Deadline) -> None: ...


class _Open(NamedTuple):
    """A list that has nothing but the ledger that is written to."""

    topic: TopicLogs
    partition: int
    ledger: Ledger

    @property
    def log_start(self) -> int:
        return self.topic.logs[self.partition].start

    @property
    def log_end(self) -> int:
        return self.topic.logs[self.partition].end


class OpenTrimming:
    """Trims open ledgers, in one thread. Memory: 200 bytes for each partition that was trimmed in the last minutes."""

    def __init__(self, use: TrimmingCluster, clock: Clock) -> None:
        self._use = use
        self._clock = clock
        self._not_before_ms: dict[LedgerPlace, int] = {}

    def run(self, owner: LedgerOwner, topics: Sequence[TopicLogs], deadline: Deadline) -> int:
        """Trims these topics of an owner that took over; returns the number of trimmed partitions.

        Raises:
            Fenced: see `LedgerOwner.turn`. Other LayerErrors pass: the next run continues.
        """
        found = list(_open_alone(owner.lists(deadline), topics))
        raised = self._raised(found, deadline)[:MAX_AT_ONCE]
        if raised:
            owner.restate(raised, LedgerState.OPEN, deadline)
            found = list(_open_alone(owner.lists(deadline), topics))
        done = 0
        for topic, due in _by_topic(each for each in found if each.log_start < each.ledger.first):
            before = {each.partition: each.ledger.first for each in due}
            needs = self._use.needs(topic, list(before), deadline)
            free = {p: first for p, first in before.items() if p in needs and _is_free(needs[p], first)}
            if free:
                self._use.delete_below(topic, free, deadline)
                _log.info("topic=%s open ledgers trimmed in %d partitions", topic.name, len(free))
                done += len(free)
        return done

    def _raised(self, found: Sequence[_Open], deadline: Deadline) -> list[Ledger]:
        """The ledgers that may be trimmed, with their new first offsets. Queries the cluster only about ledgers without
        a known reason to keep everything."""
        now_ms = self._clock.now_ms()
        self._not_before_ms = {place: until for place, until in self._not_before_ms.items() if until > now_ms}
        grown = [each for each in found if each.ledger.first < each.log_end]
        rollovers = self._use.rollovers(_topics_of(grown), deadline) if grown else {}
        full = [
            each
            for each in grown
            if each.ledger.place not in self._not_before_ms
            and each.topic.name in rollovers
            and is_full(each.ledger, rollovers[each.topic.name], now_ms)
        ]
        if not full:
            return []
        concerned = _topics_of(full)
        rules = self._use.rules(concerned, deadline)
        recent = self._use.rolled_over(concerned, rollovers, deadline)
        raised: list[Ledger] = []
        for topic, several in _by_topic(iter(full)):
            upto: dict[int, int] = {}
            for _, partition, ledger in several:
                rule, first_recent = rules.get(topic.name, {}).get(partition), recent.get(topic.name, {}).get(partition)
                if rule is not None and first_recent is not None:
                    end, rollover = topic.logs[partition].end, rollovers[topic.name]
                    upto[partition] = open_trim(ledger, end, rule.retention, rule.first_young, rollover, first_recent)
            upto = {each.partition: upto[each.partition] for each in several if _goes(each, upto)}
            needs = self._use.needs(topic, list(upto), deadline) if upto else {}
            for each in several:
                if each.partition in needs:
                    needed = needs[each.partition].first_needed()
                    first = upto[each.partition] if needed is None else min(upto[each.partition], needed)
                    if first > each.ledger.first:
                        again_ms = rollovers[topic.name].max_minutes * MINUTE_MS // _RETRIM_SHARE
                        self._not_before_ms[each.ledger.place] = now_ms + again_ms
                        raised.append(_beginning_at(each.ledger, first))
        return raised


def _open_alone(lists: LedgerLists, topics: Sequence[TopicLogs]) -> Iterator[_Open]:
    for topic in topics:
        for partition, log in () if topic.bound else topic.logs.items():
            listed = lists.ledgers(LedgerPlace(topic.name, topic.layout.incarnation, partition))
            if len(listed) != 1 or listed[0].state is not LedgerState.OPEN:
                continue
            if listed[0].ledger_index == log.end // topic.layout.entries_per_ledger and listed[0].first <= log.end:
                yield _Open(topic, partition, listed[0])


def _topics_of(found: Sequence[_Open]) -> list[TopicLogs]:
    return list({each.topic.name: each.topic for each in found}.values())


def _by_topic(found: Iterator[_Open]) -> Iterator[tuple[TopicLogs, list[_Open]]]:
    several: dict[str, list[_Open]] = {}
    for each in found:
        several.setdefault(each.topic.name, []).append(each)
    for those in several.values():
        yield those[0].topic, those


def _goes(each: _Open, upto: Mapping[int, int]) -> bool:
    return upto.get(each.partition, 0) > each.ledger.first


def _is_free(needs: Needs, first: int) -> bool:
    needed = needs.first_needed()
    return needed is None or needed >= first


def _beginning_at(ledger: Ledger, first: int) -> Ledger:
    """The ledger from `first` on, without measurements: the next turns measure the rest."""
    return ledger._replace(
        record=LedgerRecord(ledger.record.topic, LedgerState.OPEN, first, first, properties=ledger.record.properties)
    )
