"""Real coordinators with real outcomes, and readers: nobody ever sees a record of an open or aborted transaction.

The histories of `test_coordinator_histories`, with data partitions in memory: whoever is told that a transaction is
registered there sends to them. A reader takes the data's end, then reads the buffer topic to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord
from pulsar_on_kafka.broker.transactions.buffer.verify import Rebuilt, rebuild
from pulsar_on_kafka.broker.transactions.effects.outcome_writer import LoggedOutcomes, LookBudget, PartitionScan
from pulsar_on_kafka.broker.transactions.records.outcomes import (
    Announcement,
    Ended,
    OpenedTransaction,
    Outcomes,
    PartitionsFailed,
)
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription
from tests.seeds import in_three
from tests.simulation.coordinators import SimulatedOutcomes, WatchedLog
from tests.simulation.test_coordinator_histories import PARTITIONS, SETTINGS, History
from tests.simulation.turns import NEVER, Actor, ActorsLog


class Data:
    """Data partitions as one owner meets them: the others may have their turns at each call, and calls fail."""

    def __init__(self, history: ReadHistory, judge: SimulatedOutcomes) -> None:
        self._history = history
        self._sent = history.sent
        self._judge = judge
        self._life: int | None = None
        self._ends: dict[tuple[int | None, int], int] = {}
        """Ends seen, by life and partition."""

    def incarnation(self, topic: str, deadline: Deadline) -> int | None:
        self._life = self._history.life_seen()
        return self._life

    def prepare(self, topic: str, deadline: Deadline) -> None:
        pass

    def end_offsets(self, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        self._judge.trouble()
        missing = self._judge.bad_partitions(list(partitions)) | self._history.beyond_the_time(list(partitions))
        ends = {each: len(self._sent[each.partition]) for each in partitions if each not in missing}
        self._ends.update(((self._life, each.partition), end) for each, end in ends.items())
        return ends

    def known_ends(self, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        known = {
            each: self._ends[self._life, each.partition]
            for each in partitions
            if (self._life, each.partition) in self._ends and self._history.rng.random() < 0.5
        }
        return known | self.end_offsets([each for each in partitions if each not in known], deadline)

    def append_markers(
        self, markers: Mapping[TopicPartition, Sequence[tuple[TxnId, bool]]], deadline: Deadline
    ) -> None:
        self._judge.trouble()
        bad = self._judge.bad_partitions(list(markers)) | self._history.beyond_the_time(list(markers))
        for each, ended in markers.items():
            if each not in bad or self._history.rng.random() < 0.5:
                self._sent[each.partition].extend(ended)
        if bad:
            raise PartitionsFailed(bad, "simulated")
        self._judge.trouble()

    def look_through(
        self, looks: Sequence[PartitionScan], deadline: Deadline
    ) -> dict[TopicPartition, Mapping[TxnId, Rebuilt]]:
        self._judge.trouble()
        wanted = [look.where for look in looks]
        missing = self._judge.bad_partitions(wanted) | self._history.beyond_the_time(wanted)
        return {look.where: self._found(look) for look in looks if look.where not in missing}

    def _found(self, look: PartitionScan) -> Mapping[TxnId, Rebuilt]:
        records = enumerate(self._sent[look.where.partition][look.start : look.end], look.start)
        return rebuild(MetRecord(offset, txn, marker) for offset, (txn, marker) in records if txn in look.txns)


class JudgedOutcomes(LoggedOutcomes):
    """The real ones; what they did is told to the judge."""

    def __init__(self, history: ReadHistory, log: ActorsLog | WatchedLog, judge: SimulatedOutcomes) -> None:
        views = TransactionViews(log, history.clock)
        super().__init__(log, Data(history, judge), views, history.budget)
        self._judge = judge

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        opened = super().announce(participants, session, deadline)
        self._judge.announce(participants, session, deadline)
        return opened

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        try:
            super().write_markers(ended, deadline)
        except PartitionsFailed as failure:
            self._judge.mark(ended, failure.partitions)
            raise
        self._judge.write_markers(ended, deadline)

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        super().end_acks(ended, deadline)
        self._judge.end_acks(ended, deadline)

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        try:
            opened = super().settle_buffers(ended, session, deadline, along)
        except PartitionsFailed as failure:
            if not along:  # else it may be theirs
                self._judge.settle(ended, failure.partitions)
            raise
        self._judge.settle(ended)
        if along:
            self._judge.announce(along, session, deadline)
        return opened

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        super().publish_low_water(coordinator, low_water, session, deadline)
        self._judge.publish_low_water(coordinator, low_water, session, deadline)


class ReadHistory(History):
    """Low-water marks are said seldom: each takes an append to every partition of the buffer topic."""

    settings = replace(SETTINGS, low_water_every_ms=40_000)
    budget: LookBudget | None = None

    def __init__(self, seed: int, steps: int = 120) -> None:
        super().__init__(seed, steps)
        self.sent: list[list[tuple[TxnId, bool | None]]] = [[] for _ in self.partitions]
        """By partition: the transaction of a message, or with its outcome a marker."""
        self.shown = 0
        self.life = 7

    def life_seen(self) -> int | None:
        """The topic's life as a coordinator finds it."""
        return self.life

    def beyond_the_time(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        """What of these a call has no time for."""
        return set()

    def run(self) -> int:
        super().run()
        self._read(all_is_over=True)
        return self.shown

    def effects(self, log: ActorsLog | WatchedLog, outcomes: SimulatedOutcomes) -> Outcomes:
        return JudgedOutcomes(self, log, outcomes)

    def told_registered(self, txn: TxnId, each: TopicPartition | TopicSubscription) -> None:
        super().told_registered(txn, each)
        if isinstance(each, TopicPartition):
            self.sent[each.partition].append((txn, None))

    def _readers_see_the_truth(self) -> None:
        super()._readers_see_the_truth()
        self._read()

    def _read(self, *, all_is_over: bool = False) -> None:
        topic = PARTITIONS[0].topic
        ends = [len(sent) for sent in self.sent]
        buffer = TRANSACTION_BUFFER_SNAPSHOT.partition_for(topic)
        view = LogView(self.log, TRANSACTION_BUFFER_SNAPSHOT, buffer, BufferEntries, self.clock)
        entries = view.query(lambda found: found, NEVER)
        for partition, end in enumerate(ends):
            where = DataPartition(topic, partition, self.life)
            for offset, (txn, marker) in enumerate(self.sent[partition][:end]):
                self._judge(entries, where, offset, txn, marker, all_is_over)

    def _judge(
        self, entries: BufferEntries, where: DataPartition, offset: int, txn: TxnId, marker: bool | None, over: bool
    ) -> None:
        fate = self.truths[txn.coordinator].fates[txn]
        what = f"seed {self.seed}: {where} {offset} {txn}, {fate.status}"
        if marker is not None:
            assert fate.decided, f"{what} has a marker"
            assert fate.committed == marker, f"{what} has a marker that says {marker}"
            return
        status = entries.status(where, txn)
        if status is TxnEntryStatus.COMMITTED:
            assert fate.committed, f"{what} is shown"
            self.shown += 1
        elif status is TxnEntryStatus.ABORTED:
            assert fate.decided, f"{what} is left out"
            assert not fate.committed, f"{what} is left out"
            entry = entries.aborted(where, txn)
            assert entry is not None
            excluded = offset in entry.offsets or (not entry.sealed and offset >= entry.lower_bound)
            assert excluded, f"{what} is not left out by {entry}"
        else:
            assert not over, f"{what} is held back for good"


class RemadeHistory(ReadHistory):
    """The topic is deleted and made anew, again and again. Coordinators notice late, programs never: what is sent goes
    to whatever there is under the name, and what was under way when there was nothing comes to the next one."""

    def __init__(self, seed: int, steps: int = 120) -> None:
        super().__init__(seed, steps)
        self.gone = False
        self._registered: list[tuple[TxnId, int]] = []
        self._under_way: list[tuple[TxnId, int]] = []

    def life_seen(self) -> int | None:
        if self.rng.random() < 0.2:
            return max(7, self.life - 1)
        return None if self.gone else self.life

    def told_registered(self, txn: TxnId, each: TopicPartition | TopicSubscription) -> None:
        History.told_registered(self, txn, each)
        if isinstance(each, TopicPartition):
            self._registered.append((txn, each.partition))
            self._send(txn, each.partition)

    def _step(self, actors: list[Actor], lives: Sequence[Callable[[Actor], None]]) -> None:
        super()._step(actors, lives)
        draw = self.rng.random()
        if draw < 0.05:
            self.gone = True
            for sent in self.sent:
                sent.clear()
        elif draw < 0.15 and self.gone:
            self.gone = False
            self.life += 1
            under_way, self._under_way = self._under_way, []
            for txn, partition in under_way:
                self._send(txn, partition)
        elif draw < 0.4 and self._registered:
            self._send(*self.rng.choice(self._registered))

    def _send(self, txn: TxnId, partition: int) -> None:
        fate = self.truths[txn.coordinator].fates[txn]
        if fate.decided and fate.committed:
            return  # a program has heard of all of its sends before it commits
        if self.gone:
            self._under_way.append((txn, partition))
        else:
            self.sent[partition].append((txn, None))


class WideHistory(ReadHistory):
    """Transactions over many partitions. No attempt has time for more than some of them, the last owner's neither."""

    partitions: ClassVar = [TopicPartition("persistent://a/b/c", number) for number in range(12)]
    registered_at_once = 5
    at_once = 2

    def __init__(self, seed: int, steps: int = 120) -> None:
        super().__init__(seed, steps)
        self.budget = LookBudget(together=self.rng.choice([1, 4, 50]), seconds=0.0)

    def beyond_the_time(self, partitions: Sequence[TopicPartition]) -> set[TopicPartition]:
        return set(self.rng.sample(list(partitions), max(0, len(partitions) - self.at_once)))


@pytest.mark.parametrize("seeds", in_three(25, range(120)), ids=str)
def test_no_reader_sees_a_record_of_an_open_or_aborted_transaction(seeds: range) -> None:
    assert sum(ReadHistory(seed).run() for seed in seeds) > len(seeds)


@pytest.mark.parametrize("seeds", in_three(35, range(100, 300)), ids=str)
def test_a_topic_made_anew_shows_no_record_of_an_open_or_aborted_transaction(seeds: range) -> None:
    assert sum(RemadeHistory(seed).run() for seed in seeds) > len(seeds) // 10


def test_a_transaction_over_more_partitions_than_there_is_time_for_ends() -> None:
    assert sum(WideHistory(seed).run() for seed in range(500, 540)) > 200


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_no_reader_sees_what_is_not_committed() -> None:
    seen = sum(ReadHistory(seed, steps=300).run() for seed in range(300, 3300))
    remade = sum(RemadeHistory(seed, steps=300).run() for seed in range(300, 3300))
    print(f"\n    6,000 histories, {seen:,} records seen, {remade:,} more of topics made anew")
    assert seen > 3000
    assert remade > 1000
