"""Outcomes in their state topics and in simulated data partitions, read back as readers do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries, TxnEntryStatus
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord
from pulsar_on_kafka.broker.transactions.buffer.verify import Rebuilt, rebuild
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.effects.outcome_writer import (
    CLOCKS_DIFFER_MS,
    MAX_LATE_MS,
    LoggedOutcomes,
    LookBudget,
    PartitionScan,
)
from pulsar_on_kafka.broker.transactions.records.outcomes import Ended, PartitionsFailed
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import PendingAckEndKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT, TRANSACTION_PENDING_ACK
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnOutcome, decode_end
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    Command,
    End,
)
from tests.memory_log import MemoryStateLog
from tests.state_log_requests import StateLogRequests
from tests.waiting import until

NEVER = Deadline.never()
TOPIC = "persistent://a/b/orders"
PARTITION = TopicPartition(TOPIC, 1)
WHERE = DataPartition(TOPIC, 1, 40)
SUBSCRIPTION = TopicSubscription(TOPIC, 1, "audit")
ONE, TWO = TxnId(2 << 48, 1), TxnId(2 << 48, 2)


class Data:
    """Data partitions: records are (transaction, marker or None)."""

    def __init__(self) -> None:
        self.incarnations: dict[str, int] = {TOPIC: 40}
        self.records: dict[tuple[str, int], list[tuple[TxnId | None, bool | None]]] = {}
        self.silent: set[TopicPartition] = set()
        """They do not say where they end."""
        self.refusing: set[TopicPartition] = set()
        """Nothing can be appended there."""
        self.looked: list[TopicPartition] = []

    def partition(self, topic: str, partition: int) -> list[tuple[TxnId | None, bool | None]]:
        return self.records.setdefault((topic, partition), [])

    def send(self, txn: TxnId | None) -> int:
        self.partition(TOPIC, 1).append((txn, None))
        return len(self.partition(TOPIC, 1)) - 1

    def incarnation(self, topic: str, deadline: Deadline) -> int | None:
        return self.incarnations.get(topic)

    def prepare(self, topic: str, deadline: Deadline) -> None:
        pass

    def end_offsets(self, partitions: Collection[TopicPartition], deadline: Deadline) -> dict[TopicPartition, int]:
        return {each: len(self.partition(*each)) for each in partitions if each not in self.silent}

    known_ends = end_offsets

    def append_markers(
        self, markers: Mapping[TopicPartition, Sequence[tuple[TxnId, bool]]], deadline: Deadline
    ) -> None:
        for each, ended in markers.items():
            if each not in self.refusing:
                self.partition(*each).extend(ended)
        if not self.refusing.isdisjoint(markers):
            raise PartitionsFailed(self.refusing.intersection(markers), "no leader")

    def look_through(
        self, looks: Sequence[PartitionScan], deadline: Deadline
    ) -> dict[TopicPartition, Mapping[TxnId, Rebuilt]]:
        self.looked += [look.where for look in looks]
        return {look.where: self._found(look) for look in looks}

    def _found(self, look: PartitionScan) -> Mapping[TxnId, Rebuilt]:
        records = enumerate(self.partition(*look.where)[look.start : look.end], look.start)
        return rebuild(MetRecord(offset, txn, marker) for offset, (txn, marker) in records if txn in look.txns and txn)

    def markers(self) -> list[tuple[TxnId | None, bool]]:
        return [(txn, marker) for txn, marker in self.partition(TOPIC, 1) if marker is not None]


class World:
    def __init__(self) -> None:
        self.clock = SystemClock()
        self.log = MemoryStateLog(self.clock)
        self.data = Data()
        self.outcomes = LoggedOutcomes(self.log, self.data, TransactionViews(self.log, self.clock))

    def coordinator(self, settings: CoordinatorSettings) -> Coordinator:
        made = Coordinator(
            CoordinatorLog(self.log, 2, self.clock),
            self.outcomes,
            StateLogRequests(self.log, 2),
            settings=settings,
            clock=self.clock,
        )
        made.take_over(NEVER)
        return made

    def entries(self) -> BufferEntries:
        partition = TRANSACTION_BUFFER_SNAPSHOT.partition_for(TOPIC)
        view = LogView(self.log, TRANSACTION_BUFFER_SNAPSHOT, partition, BufferEntries, self.clock)
        return view.query(lambda entries: entries, NEVER)

    def status(self, txn: TxnId) -> TxnEntryStatus:
        return self.entries().status(WHERE, txn)

    def end(self, txn: TxnId, *, committed: bool, session: str = "s") -> None:
        ended = [Ended(txn, committed, (PARTITION,), (SUBSCRIPTION,))]
        self.outcomes.write_markers(ended, NEVER)
        self.outcomes.end_acks(ended, NEVER)
        self.outcomes.settle_buffers(ended, session, NEVER)

    def ends(self) -> dict[PendingAckEndKey, TxnOutcome]:
        partition = TRANSACTION_PENDING_ACK.partition_for(TOPIC)
        end = self.log.end_offset(TRANSACTION_PENDING_ACK, partition, NEVER)
        found: dict[PendingAckEndKey, TxnOutcome] = {}
        for batch in self.log.read(TRANSACTION_PENDING_ACK, partition, 0, end, NEVER):
            for record in batch:
                key = decode_key(record.key)
                assert isinstance(key, PendingAckEndKey)
                found[key] = decode_end(record.value or b"")
        return found


def test_an_announced_transaction_is_open_from_the_partitions_end_on() -> None:
    world = World()
    world.data.send(None)
    world.outcomes.announce([(ONE, [PARTITION]), (TWO, [PARTITION])], "s", NEVER)
    assert world.entries().open_bounds(WHERE) == {ONE: 1, TWO: 1}


def test_what_is_committed_has_a_marker_and_nothing_on_record() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    world.data.send(ONE)
    world.end(ONE, committed=True)
    assert world.data.markers() == [(ONE, True)]
    assert world.status(ONE) is TxnEntryStatus.COMMITTED
    assert world.entries().transactions(WHERE) == []
    assert world.ends() == {PendingAckEndKey(TOPIC, 1, "audit", *ONE): TxnOutcome.COMMITTED}


@pytest.mark.parametrize("life", [40, 0], ids=["a topic", "the cluster's first topic"])
def test_what_is_aborted_has_the_offsets_of_its_records_on_record(life: int) -> None:
    world = World()
    world.data.incarnations[TOPIC] = life
    world.data.send(ONE)  # of another life of the program: below the bound
    world.outcomes.announce([(ONE, [PARTITION]), (TWO, [PARTITION])], "s", NEVER)
    for txn in (ONE, TWO, None, ONE):
        world.data.send(txn)
    world.end(ONE, committed=False)
    entry = world.entries().aborted(DataPartition(TOPIC, 1, life), ONE)
    assert entry is not None
    assert (list(entry.offsets), entry.lower_bound, entry.end, entry.sealed) == ([1, 4], 1, 6, False)
    assert world.status(TWO) is TxnEntryStatus.OPEN
    assert world.data.markers() == [(ONE, False)]
    assert world.ends() == {PendingAckEndKey(TOPIC, 1, "audit", *ONE): TxnOutcome.ABORTED}


@pytest.mark.parametrize("committed", [True, False])
def test_doing_it_all_again_changes_nothing(committed: bool) -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    world.data.send(ONE)
    world.end(ONE, committed=committed)
    before = (world.data.markers(), world.status(ONE), world.entries().aborted(WHERE, ONE), world.ends())
    world.end(ONE, committed=committed, session="t")
    assert (world.data.markers(), world.status(ONE), world.entries().aborted(WHERE, ONE), world.ends()) == before


def test_a_marker_that_is_there_is_not_written_again_and_what_came_behind_it_is_void() -> None:
    world = World()
    world.data.send(None)
    world.outcomes.announce([(ONE, [PARTITION]), (TWO, [PARTITION])], "s", NEVER)
    world.data.send(ONE)
    world.data.send(TWO)
    world.outcomes.write_markers([Ended(ONE, True, (PARTITION,), ())], NEVER)  # then its coordinator dies
    late = world.data.send(ONE)
    world.data.send(TWO)
    ended = [Ended(ONE, True, (PARTITION,), (), again=True), Ended(TWO, True, (PARTITION,), (), again=True)]
    world.outcomes.write_markers(ended, NEVER)
    world.outcomes.settle_buffers(ended, "t", NEVER)
    assert world.data.markers() == [(ONE, True), (TWO, True)]
    assert list(world.entries().void(WHERE, ONE)) == [late]
    assert world.entries().snapshot(WHERE).excluded == BitMap64([late]), "for readers without headers, too"
    assert not world.entries().void(WHERE, TWO)


def test_what_is_too_long_to_be_read_gets_its_marker_again() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    world.outcomes.write_markers([Ended(ONE, True, (PARTITION,), ())], NEVER)
    world.data.partition(TOPIC, 1).extend([(None, None)] * 100_000)
    world.outcomes.write_markers([Ended(ONE, True, (PARTITION,), (), again=True)], NEVER)
    assert world.data.markers() == [(ONE, True)] * 2


def test_openings_of_all_sessions_go_and_the_lowest_bound_counts() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    first = world.data.send(ONE)
    world.outcomes.announce([(ONE, [PARTITION])], "t", NEVER)
    world.end(ONE, committed=False, session="t")
    entry = world.entries().aborted(WHERE, ONE)
    assert entry is not None
    assert list(entry.offsets) == [first]
    assert world.entries().open_bounds(WHERE) == {}


def test_an_opening_that_comes_late_is_void_by_the_low_water_mark() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    world.end(ONE, committed=True)
    world.outcomes.announce([(ONE, [PARTITION])], "woke up", NEVER)
    assert world.status(ONE) is TxnEntryStatus.OPEN
    world.outcomes.publish_low_water(2, 1, "s", NEVER)
    assert world.status(ONE) is TxnEntryStatus.COMMITTED
    for partition in range(TRANSACTION_BUFFER_SNAPSHOT.partitions):
        view = LogView(world.log, TRANSACTION_BUFFER_SNAPSHOT, partition, BufferEntries, world.clock)
        assert view.query(lambda entries: entries.low_water(2), NEVER) == 1


def test_a_topic_that_is_gone_takes_no_part_any_more() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    del world.data.incarnations[TOPIC]
    world.end(ONE, committed=True)
    assert world.data.markers() == []
    assert world.entries().transactions(WHERE) == []
    with pytest.raises(errors.NoSuchTopic, match=r"orders was deleted"):
        world.outcomes.announce([(TWO, [PARTITION])], "s", NEVER)


def test_what_was_aborted_in_a_topic_that_is_gone_is_left_out_of_the_next_one_under_its_name() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    del world.data.incarnations[TOPIC]
    world.end(ONE, committed=False)
    assert world.data.markers() == []
    again = WHERE._replace(incarnation=41)
    assert world.entries().status(again, ONE) is TxnEntryStatus.ABORTED
    assert world.entries().snapshot(again).unsealed == {ONE: 0}


@pytest.mark.parametrize("committed", [True, False])
def test_in_a_topic_made_anew_a_transaction_stays_open_until_it_ends(committed: bool) -> None:
    world = World()
    world.data.send(None)
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    world.data.incarnations[TOPIC] = 41
    world.data.partition(TOPIC, 1).clear()
    again = WHERE._replace(incarnation=41)
    assert world.entries().open_bounds(again) == {ONE: 0}, "not the bound of the former life"
    offset = world.data.send(ONE)
    world.end(ONE, committed=committed)
    assert world.data.markers() == [(ONE, committed)]
    entry = world.entries().aborted(again, ONE)
    if committed:
        assert entry is None
        assert world.entries().transactions(again) == []
    else:
        assert entry is not None
        assert (list(entry.offsets), entry.lower_bound) == ([offset], 0)


def test_a_partition_that_was_registered_and_never_announced_gets_nothing() -> None:
    world = World()
    world.end(ONE, committed=False)
    assert world.data.markers() == []
    assert world.entries().transactions(WHERE) == []


def test_a_coordinator_with_real_outcomes() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(group_delay_ms=0, low_water_every_ms=1))

    def do(command: Command) -> TxnId:
        future = coordinator.submit(command, NEVER)
        while not future.done():
            coordinator.turn(NEVER)
        return future.result()

    kept, dropped = do(Begin(60_000)), do(Begin(60_000))
    for txn in (kept, dropped):
        do(AddPartitions(txn, (PARTITION,)))
        do(AddSubscriptions(txn, (SUBSCRIPTION,)))
        assert world.status(txn) is TxnEntryStatus.OPEN
    for sender in (dropped, kept, dropped, None):
        world.data.send(sender)
    do(End(kept, commit=True))
    do(End(dropped, commit=False))
    assert world.status(kept) is TxnEntryStatus.COMMITTED
    entry = world.entries().aborted(WHERE, dropped)
    assert entry is not None
    assert list(entry.offsets) == [0, 2]
    assert world.data.markers() == [(kept, True), (dropped, False)]
    assert {key.txn_least: outcome.value for key, outcome in world.ends().items()} == {1: True, 2: False}


def test_an_abort_does_not_wait_until_a_long_log_was_looked_through() -> None:
    world = World()
    world.outcomes.announce([(ONE, [PARTITION])], "s", NEVER)
    world.data.send(ONE)
    world.data.partition(TOPIC, 1).extend([(None, None)] * 10_000)
    world.outcomes.settle_buffers([Ended(ONE, False, (PARTITION,), (), deadline_ms=7_000_000)], "s", NEVER)
    entry = world.entries().aborted(WHERE, ONE)
    assert entry is not None
    assert (len(entry.offsets), entry.sealed, entry.lower_bound) == (0, False, 0)
    assert entry.late_until_ms == 7_000_000 + MAX_LATE_MS + CLOCKS_DIFFER_MS
    assert world.status(ONE) is TxnEntryStatus.ABORTED


MANY = tuple(TopicPartition(TOPIC, number) for number in range(12))


def test_what_was_done_in_some_of_many_partitions_is_not_done_again_in_others() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(retry_effects_ms=1, retry_effects_max_ms=1))
    begun = coordinator.submit(Begin(60_000), NEVER)
    coordinator.turn(NEVER)
    txn = begun.result(0)
    added = coordinator.submit(AddPartitions(txn, MANY), NEVER)
    while not added.done():
        coordinator.turn(NEVER)
    for each in MANY:
        world.data.partition(*each).append((txn, None))
    ended = coordinator.submit(End(txn, commit=False), NEVER)
    world.data.refusing = set(MANY[:4])
    world.data.silent = set(MANY[3:6])
    coordinator.turn(NEVER)
    assert [world.data.partition(*each)[1:] for each in MANY] == [[]] * 4 + [[(txn, False)]] * 8
    done = [world.entries().status(DataPartition(*each, 40), txn) for each in MANY]
    assert done == [TxnEntryStatus.OPEN] * 6 + [TxnEntryStatus.ABORTED] * 6
    assert not ended.done()
    world.data.refusing, world.data.silent = set(), set()
    until(lambda: (coordinator.turn(NEVER), ended.done())[1], "the rest to be ended")
    assert [world.data.partition(*each)[1:] for each in MANY] == [[(txn, False)]] * 12


def test_who_comes_next_looks_through_some_partitions_at_a_time_and_goes_on_with_the_others() -> None:
    world = World()
    outcomes = LoggedOutcomes(
        world.log, world.data, TransactionViews(world.log, world.clock), LookBudget(together=4, seconds=0.0)
    )
    outcomes.announce([(ONE, MANY)], "s", NEVER)
    for each in MANY:
        world.data.partition(*each).append((ONE, None))
    outcomes.write_markers([Ended(ONE, True, MANY, ())], NEVER)
    outcomes.settle_buffers([Ended(ONE, True, MANY[:3], ())], "s", NEVER)  # then its coordinator dies
    left = MANY
    calls = 0
    while left:
        calls += 1
        try:
            outcomes.write_markers([Ended(ONE, True, left, (), again=True)], NEVER)
            unreached: frozenset[TopicPartition] = frozenset()
        except PartitionsFailed as failure:
            unreached = failure.unreached
        outcomes.settle_buffers([Ended(ONE, True, tuple(set(left) - unreached), ())], "t", NEVER)
        left = tuple(each for each in left if each in unreached)
    assert calls == 5, "two records each, four at a time, and three partitions that were settled before"
    assert sorted(world.data.looked) == sorted(MANY[3:]), "each once"
    assert [world.data.partition(*each)[1:] for each in MANY] == [[(ONE, True)]] * 12
    assert world.entries().transactions(WHERE) == []


def test_an_abort_waits_for_no_partition_that_cannot_be_read() -> None:
    world = World()
    outcomes = LoggedOutcomes(
        world.log, world.data, TransactionViews(world.log, world.clock), LookBudget(together=4, seconds=0.0)
    )
    outcomes.announce([(ONE, MANY)], "s", NEVER)
    for each in MANY:
        world.data.partition(*each).append((ONE, None))
    outcomes.settle_buffers([Ended(ONE, False, MANY, (), deadline_ms=1)], "s", NEVER)
    entries = [world.entries().aborted(DataPartition(*each, 40), ONE) for each in MANY]
    assert [entry is not None and not entry.sealed for entry in entries] == [True] * 12
    assert sorted(len(entry.offsets) for entry in entries if entry is not None) == [0] * 8 + [1] * 4
