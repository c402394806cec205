"""A coordinator on the log in memory, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.broker.transactions.records.outcomes import (
    Announcement,
    Ended,
    OpenedTransaction,
    PartitionsFailed,
)
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.broker.transactions.serving.coordinator_client import REQUEST_LIFE_MS, RemoteCoordinator
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionLogKey, TransactionRequestKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_LOG, TRANSACTION_REQUESTS, StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription, TxnStatus
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    Command,
    End,
    TransactionRequest,
    encode_transaction_request,
)
from tests.clocks import PacedClock
from tests.memory_log import MemoryStateLog
from tests.state_log_requests import StateLogRequests, coordinator_logs

NEVER = Deadline.never()
SETTINGS = CoordinatorSettings(last_status_delay_ms=0, finished_kept_ms=40_000)
PARTITION = TopicPartition("persistent://a/b/c", 0)
SUBSCRIPTION = TopicSubscription("persistent://a/b/c", 0, "s")


class CountingLog(MemoryStateLog):
    """Counts appends. `trouble` is raised before or after the next one to the coordinators' log; `meanwhile` is what
    happens just before it."""

    def __init__(self, clock: PacedClock) -> None:
        super().__init__(clock)
        self.groups: list[int] = []
        self.trouble: errors.LayerError | None = None
        self.meanwhile: Callable[[], object] | None = None
        self.deaf = False
        self.forbidden = False
        self.written_in_spite_of_it = False

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        if self.deaf and topic is TRANSACTION_REQUESTS:
            raise errors.NotAuthorized("no right to read requests")
        return super().end_offset(topic, partition, deadline)

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        if self.forbidden:
            raise errors.NotAuthorized("no right to write requests")
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        trouble = self.trouble if topic is TRANSACTION_LOG else None
        if trouble is not None:
            self.trouble = None
            if not self.written_in_spite_of_it:
                raise trouble
        if topic is TRANSACTION_LOG:
            self.groups.append(len(records))
        offsets = super().append_many(topic, partition, records, deadline)
        if trouble is not None:
            raise trouble
        return offsets


class Effects:
    """Everything that was done, in order; `broken` topics fail, `gone` ones were deleted, and `slow` partitions are
    those in which nothing can be done for now."""

    def __init__(self) -> None:
        self.done: list[tuple[str, TxnId, bool]] = []
        self.broken: set[str] = set()
        self.gone: set[str] = set()
        self.slow: set[TopicPartition] = set()
        self.slow_tried = 0
        self.marked: list[tuple[TxnId, TopicPartition]] = []
        self.again: list[tuple[TxnId, bool]] = []
        """Of every attempt to write markers."""
        self.low_water = -1

    def _check(self, partitions: Sequence[TopicPartition]) -> None:
        bad = [each for each in partitions if each.topic in self.broken]
        if bad:
            raise errors.StoreError(f"{bad} broken")

    def _check_slow(self, partitions: Sequence[TopicPartition]) -> None:
        if not self.slow.isdisjoint(partitions):
            self.slow_tried += 1
            raise PartitionsFailed(self.slow.intersection(partitions), "no leader")

    def announce(
        self, participants: Sequence[Announcement], session: str, deadline: Deadline
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        wanted = [each for _, partitions in participants for each in partitions]
        self._check(wanted)
        self._check_slow(wanted)
        for each in wanted:
            if each.topic in self.gone:
                raise errors.NoSuchTopic(f"{each.topic} was deleted")
        self.done.extend(("open", txn, True) for txn, _ in participants)
        return {(txn, each): OpenedTransaction(1, 0) for txn, partitions in participants for each in partitions}

    def write_markers(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        self.again.extend((each.txn, each.again) for each in ended)
        self._check([partition for each in ended for partition in each.partitions])
        self.done.extend(
            ("marker", each.txn, each.committed) for each in ended if not self.slow.issuperset(each.partitions)
        )
        self.marked.extend((each.txn, where) for each in ended for where in each.partitions if where not in self.slow)
        self._check_slow([partition for each in ended for partition in each.partitions])

    def end_acks(self, ended: Sequence[Ended], deadline: Deadline) -> None:
        self.done.extend(("end", each.txn, each.committed) for each in ended)

    def settle_buffers(
        self, ended: Sequence[Ended], session: str, deadline: Deadline, along: Sequence[Announcement] = ()
    ) -> dict[tuple[TxnId, TopicPartition], OpenedTransaction]:
        opened = self.announce(along, session, deadline)
        self.done.extend(("settle", each.txn, each.committed) for each in ended)
        return opened

    def publish_low_water(self, coordinator: int, low_water: int, session: str, deadline: Deadline) -> None:
        self.low_water = low_water

    def of(self, txn: TxnId) -> list[str]:
        return [f"{what} {'commit' if committed else 'abort'}" for what, each, committed in self.done if each == txn]


class World:
    def __init__(self) -> None:
        self.clock = PacedClock()
        self.log = CountingLog(self.clock)
        self.effects = Effects()
        self.meter = CoordinatorMeter()
        self.sessions = 0

    def coordinator(self, settings: CoordinatorSettings = SETTINGS) -> Coordinator:
        self.sessions += 1
        session = f"s{self.sessions}"
        coordinator = Coordinator(
            CoordinatorLog(self.log, 3, self.clock, new_session=lambda: session),
            self.effects,
            StateLogRequests(self.log, 3),
            settings=settings,
            clock=self.clock,
            meter=self.meter,
        )
        coordinator.take_over(NEVER)
        return coordinator

    def do(self, coordinator: Coordinator, command: Command, turns: int = 4) -> TxnId:
        future = coordinator.submit(command, NEVER)
        for _ in range(turns):
            coordinator.turn(NEVER)
        return future.result(0)

    def begin_in_vain(self, coordinator: Coordinator) -> None:
        """Nobody knows whether the append was done, and it was not."""
        self.log.trouble = errors.AppendOutcomeUnknown("?")
        coordinator.submit(Begin(60_000), NEVER)
        with pytest.raises(errors.AppendOutcomeUnknown):
            coordinator.turn(NEVER)
        coordinator.turn(NEVER)

    def state(self) -> CoordinatorState:
        return CoordinatorLog(self.log, 3, self.clock).read(NEVER)

    def status(self, txn: TxnId) -> TxnStatus | None:
        found = self.state().transaction(txn)
        return None if found is None else found.status

    def request(self, request: str, command: Command, until_ms: int = 30_000) -> None:
        self.raw_request(request, encode_transaction_request(TransactionRequest(self.clock.ms + until_ms, command)))

    def raw_request(self, request: str, value: bytes) -> None:
        self.log.append(TRANSACTION_REQUESTS, 3, encode_key(TransactionRequestKey(3, request)), value, NEVER)


# The life of a transaction ------------------------------------------------------------------------------------------


def test_a_transaction_from_begin_to_commit() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    assert (txn.coordinator, txn.least_bits) == (3, 1)
    world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    world.do(coordinator, AddSubscriptions(txn, (SUBSCRIPTION,)))
    assert world.effects.of(txn) == ["open commit"]
    world.do(coordinator, End(txn, commit=True))
    assert world.effects.of(txn)[1:] == ["marker commit", "end commit", "settle commit"]
    assert world.status(txn) is TxnStatus.COMMITTED
    assert world.do(coordinator, End(txn, commit=True)) == txn
    with pytest.raises(errors.InvalidTxnStatus, match="is COMMITTED, it cannot abort"):
        world.do(coordinator, End(txn, commit=False))
    with pytest.raises(errors.TransactionNotFound):
        world.do(coordinator, End(TxnId(3 << 48, 2), commit=True))


def test_what_touches_nothing_ends_without_effects() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    world.do(coordinator, End(txn, commit=False))
    assert world.effects.of(txn) == []
    assert world.status(txn) is TxnStatus.ABORTED


def test_an_effect_waits_until_the_decision_was_read_back() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    future = coordinator.submit(End(txn, commit=True), NEVER)
    world.log.trouble, world.log.written_in_spite_of_it = errors.AppendOutcomeUnknown("?"), True
    with pytest.raises(errors.AppendOutcomeUnknown):
        coordinator.turn(NEVER)
    assert world.status(txn) is TxnStatus.COMMITTING
    assert world.effects.of(txn) == ["open commit"]
    assert not future.done()
    coordinator.turn(NEVER)
    assert world.effects.of(txn)[-1] == "settle commit"
    assert future.result(0) == txn


def test_a_commit_is_told_when_it_is_everywhere_and_the_last_status_goes_with_other_records() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(last_status_delay_ms=50))
    txns = [world.do(coordinator, Begin(60_000)) for _ in range(3)]
    for txn in txns[:2]:
        world.do(coordinator, End(txn, commit=True), turns=1)
        assert world.status(txn) is TxnStatus.COMMITTING
    before = len(world.log.groups)
    world.do(coordinator, End(txns[2], commit=True), turns=1)
    assert [world.status(txn) for txn in txns] == [TxnStatus.COMMITTED, TxnStatus.COMMITTED, TxnStatus.COMMITTING]
    assert world.log.groups[before:] == [2]
    assert world.do(coordinator, End(txns[2], commit=True), turns=1) == txns[2]
    with pytest.raises(errors.InvalidTxnStatus):
        world.do(coordinator, End(txns[2], commit=False))
    world.clock.ms += 50
    coordinator.turn(NEVER)
    assert world.status(txns[2]) is TxnStatus.COMMITTED


def test_another_process_that_asks_for_an_end_need_not_wait_for_other_records() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(last_status_delay_ms=50_000))
    txn = world.do(coordinator, Begin(60_000))
    coordinator.turn(NEVER)
    world.request("r1", End(txn, commit=True))
    for _ in range(2):
        coordinator.turn(NEVER)
    assert world.status(txn) is TxnStatus.COMMITTED


def test_a_registration_is_done_once() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    appends = len(world.log.groups)
    world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    assert len(world.log.groups) == appends
    assert world.effects.of(txn) == ["open commit"]


def test_a_registration_and_an_end_that_come_together_take_their_turns() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    added = coordinator.submit(AddPartitions(txn, (PARTITION,)), NEVER)
    ended = coordinator.submit(End(txn, commit=True), NEVER)
    for _ in range(6):
        coordinator.turn(NEVER)
    assert ended.result(0) == txn
    assert world.effects.of(txn)[:2] == ["open commit", "marker commit"]
    with pytest.raises(errors.InvalidTxnStatus):
        added.result(0)


def test_a_registration_is_told_by_an_owner_that_is_still_one_when_the_buffers_know() -> None:
    """Who took over before they did may have ended the transaction without them."""
    world = World()
    former = world.coordinator()
    txn = world.do(former, Begin(60_000))
    added = former.submit(AddPartitions(txn, (PARTITION,)), NEVER)
    announce = world.effects.announce

    def slowly(*arguments: Any) -> Any:
        world.effects.announce = announce  # type: ignore[method-assign]
        world.do(world.coordinator(), End(txn, commit=False))
        return announce(*arguments)

    world.effects.announce = slowly  # type: ignore[method-assign, assignment]
    former.turn(NEVER)
    with pytest.raises(errors.Fenced):
        former.turn(NEVER)
    former.resign()
    with pytest.raises(errors.AppendOutcomeUnknown):
        added.result(0)


def test_the_records_of_many_transactions_go_in_one_append() -> None:
    world = World()
    coordinator = world.coordinator()
    begun = [coordinator.submit(Begin(60_000), NEVER) for _ in range(100)]
    turns = 0
    while not all(future.done() for future in begun):
        assert coordinator.turn(NEVER), "it is not to wait while some are not begun"
        turns += 1
    assert turns == 25, "four at a time: see Admission"
    txns = [future.result(0) for future in begun]
    ended = [coordinator.submit(End(txn, commit=True), NEVER) for txn in txns]
    for _ in range(3):
        coordinator.turn(NEVER)
    assert all(future.done() for future in ended)
    assert world.log.groups == [1, *[4] * 25, 100, 100]


def test_many_begins_of_one_turn_keep_to_the_limit() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(max_open=3))
    begun = [coordinator.submit(Begin(60_000), NEVER) for _ in range(5)]
    for _ in range(2):
        coordinator.turn(NEVER)
    assert [type(future.exception(0)) for future in begun] == [type(None)] * 3 + [errors.TooManyTransactions] * 2


def test_begins_that_were_lost_do_not_count_as_open_for_good() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(max_open=3))
    for _ in range(5):
        world.begin_in_vain(coordinator)
    assert world.do(coordinator, Begin(60_000)).least_bits == 6


def test_wishes_wait_for_the_groups_delay() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(group_delay_ms=50, group_records=3))
    first = coordinator.submit(Begin(60_000), NEVER)
    for _ in range(3):
        coordinator.turn(NEVER)
    assert not first.done()
    world.clock.ms += 50
    coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    assert first.done()
    three = [coordinator.submit(Begin(60_000), NEVER) for _ in range(3)]
    coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    assert all(future.done() for future in three)


# Time ---------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_not_ended_is_aborted_when_its_time_is_over() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(5_000))
    world.do(coordinator, AddSubscriptions(txn, (SUBSCRIPTION,)))
    world.clock.ms += 4_999
    coordinator.turn(NEVER)
    assert world.status(txn) is TxnStatus.OPEN
    world.clock.ms += 101
    for _ in range(3):
        coordinator.turn(NEVER)
    assert world.status(txn) is TxnStatus.ABORTED
    assert world.effects.of(txn) == ["end abort"]
    with pytest.raises(errors.InvalidTxnStatus, match="is ABORTED, it cannot commit"):
        world.do(coordinator, End(txn, commit=True))


def test_a_new_owner_gives_open_ones_what_is_left_and_drives_the_others_to_the_end() -> None:
    world = World()
    first = world.coordinator()
    left_open, committing, aborting = (world.do(first, Begin(10_000)) for _ in range(3))
    for txn, commit in ((committing, True), (aborting, False)):
        world.do(first, AddPartitions(txn, (PARTITION,)))
        first.submit(End(txn, commit), NEVER)
    first.turn(NEVER)
    world.clock.ms += 6_000
    second = world.coordinator()
    for _ in range(2):
        second.turn(NEVER)
    assert world.status(committing) is TxnStatus.COMMITTED
    assert world.status(aborting) is TxnStatus.ABORTED
    assert world.status(left_open) is TxnStatus.OPEN
    world.clock.ms += 4_100
    for _ in range(3):
        second.turn(NEVER)
    assert world.status(left_open) is TxnStatus.ABORTED


def test_finished_ones_are_forgotten_and_ids_go_on() -> None:
    world = World()
    coordinator = world.coordinator()
    for _ in range(5):
        last = world.do(coordinator, Begin(60_000))
        world.do(coordinator, End(last, commit=True))
    world.clock.ms += 41_000
    for _ in range(4):
        world.clock.ms += 1_000
        coordinator.turn(NEVER)
    assert [each.id for each in world.state().transactions()] == [last]
    assert world.effects.low_water == 5
    second = world.coordinator()
    for _ in range(4):
        world.clock.ms += 1_000
        second.turn(NEVER)
    assert list(world.state().transactions()) == []
    assert world.do(second, Begin(1)).least_bits > 5


# Owners -------------------------------------------------------------------------------------------------------------


def test_what_is_asked_as_soon_as_the_claim_is_there_is_heard() -> None:
    world = World()
    world.log.meanwhile = lambda: world.request("r", Begin(60_000))
    coordinator = world.coordinator()
    coordinator.turn(NEVER)
    assert world.state().begun_by("r") is not None


def test_a_former_owner_can_append_but_decides_nothing() -> None:
    world = World()
    former = world.coordinator()
    txn = world.do(former, Begin(60_000))
    world.do(former, AddPartitions(txn, (PARTITION,)))
    ending = former.submit(End(txn, commit=True), NEVER)
    world.log.meanwhile = lambda: world.do(world.coordinator(), End(txn, commit=False))
    with pytest.raises(errors.Fenced, match=r"owns it, not Owner\(session='s1', version=1\)"):
        former.turn(NEVER)
    former.resign()
    with pytest.raises(errors.TransactionOutcomeUnknown):
        ending.result(0)
    assert world.status(txn) is TxnStatus.ABORTED
    assert world.effects.of(txn)[1:] == ["marker abort", "settle abort"]
    with pytest.raises(errors.TransactionCoordinatorNotFound):
        former.submit(Begin(1), NEVER)


def test_an_id_that_a_former_owner_wrote_in_vain_is_nobody_elses() -> None:
    """Or who reads after compaction took the TAKEOVER between would take the void NEW for the valid one."""
    world = World()
    former = world.coordinator()
    former.submit(Begin(60_000), NEVER)
    successors = []
    world.log.meanwhile = lambda: successors.append(world.coordinator())
    with pytest.raises(errors.Fenced):
        former.turn(NEVER)
    in_vain = world.state().highest_id
    assert world.state().transaction(TxnId(3 << 48, in_vain)) is None
    others = CoordinatorLog(world.log, 3, world.clock).read(NEVER).highest_id
    assert world.do(successors[0], Begin(60_000)).least_bits > others


def test_begins_of_which_nobody_knows_whether_they_were_written_have_a_limit() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(max_waiting=2))
    for _ in range(4):
        world.begin_in_vain(coordinator)
    with pytest.raises(errors.TooManyTransactions, match="has begun 4 transactions of which it has not read"):
        world.do(coordinator, Begin(60_000))


def test_of_two_that_claim_at_once_one_is_fenced() -> None:
    world = World()
    loser = Coordinator(
        CoordinatorLog(world.log, 3, world.clock), world.effects, StateLogRequests(world.log, 3),
        clock=world.clock,
    )  # fmt: skip
    world.log.meanwhile = world.coordinator
    with pytest.raises(errors.Fenced, match=r"owns it, not Owner\(session=.*, version=1\)"):
        loser.take_over(NEVER)
    with pytest.raises(errors.Fenced, match="was not taken over"):
        loser.turn(NEVER)


# Trouble ------------------------------------------------------------------------------------------------------------


def test_a_begin_that_is_perhaps_in_the_log_is_not_repeated_and_its_id_not_given_again() -> None:
    world = World()
    coordinator = world.coordinator()
    world.log.trouble = errors.AppendOutcomeUnknown("?")
    lost = coordinator.submit(Begin(60_000), NEVER)
    with pytest.raises(errors.AppendOutcomeUnknown):
        coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    with pytest.raises(errors.AppendOutcomeUnknown, match="perhaps transaction"):
        lost.result(0)
    assert world.do(coordinator, Begin(60_000)).least_bits == 2


def test_a_begin_whose_append_only_seemed_lost_is_answered_from_the_log() -> None:
    world = World()
    coordinator = world.coordinator()
    world.log.trouble, world.log.written_in_spite_of_it = errors.AppendOutcomeUnknown("?"), True
    found = coordinator.submit(Begin(60_000), NEVER)
    with pytest.raises(errors.AppendOutcomeUnknown):
        coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    assert found.result(0).least_bits == 1


def test_what_was_certainly_not_written_is_written_in_the_next_turn() -> None:
    world = World()
    coordinator = world.coordinator()
    world.log.trouble = errors.AppendFailed("no")
    found = coordinator.submit(Begin(60_000), NEVER)
    with pytest.raises(errors.AppendFailed):
        coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    assert found.done()


def test_a_request_whose_new_is_perhaps_in_the_log_is_not_executed_again() -> None:
    world = World()
    coordinator = world.coordinator()
    coordinator.turn(NEVER)
    world.log.trouble = errors.AppendOutcomeUnknown("?")
    world.request("aa", Begin(60_000))
    with pytest.raises(errors.AppendOutcomeUnknown):
        coordinator.turn(NEVER)
    world.request("aa", Begin(60_000))
    for _ in range(3):
        coordinator.turn(NEVER)
    assert list(world.state().transactions()) == []


def test_one_topic_in_trouble_holds_up_only_its_own_transactions() -> None:
    world = World()
    coordinator = world.coordinator()
    bad_partition = TopicPartition("persistent://a/b/bad", 0)
    bad, good = world.do(coordinator, Begin(60_000)), world.do(coordinator, Begin(60_000))
    world.do(coordinator, AddPartitions(bad, (bad_partition,)))
    world.do(coordinator, AddPartitions(good, (PARTITION,)))
    world.effects.broken = {bad_partition.topic}
    both = [coordinator.submit(End(txn, commit=True), NEVER) for txn in (bad, good)]
    for _ in range(12):
        coordinator.turn(NEVER)
        world.clock.ms += 100
    assert both[1].done()
    assert not both[0].done()
    assert world.effects.low_water == bad.least_bits - 1
    world.effects.broken = set()
    world.clock.ms += 10_000
    for _ in range(3):
        coordinator.turn(NEVER)
    assert both[0].result(0) == bad


def test_a_registration_waits_for_its_own_announcement_only() -> None:
    world = World()
    coordinator = world.coordinator()
    bad_partition = TopicPartition("persistent://a/b/bad", 0)
    bad, good = world.do(coordinator, Begin(60_000)), world.do(coordinator, Begin(60_000))
    world.effects.broken = {bad_partition.topic}
    waits = coordinator.submit(AddPartitions(bad, (bad_partition,)), NEVER)
    done = coordinator.submit(AddPartitions(good, (PARTITION,)), NEVER)
    for _ in range(4):
        coordinator.turn(NEVER)
    assert done.done()
    assert not waits.done()
    world.effects.broken = set()
    world.clock.ms += 200
    for _ in range(2):
        coordinator.turn(NEVER)
    assert waits.result(0) == bad


def test_what_ends_in_a_slow_partition_waits_for_it_together_and_nothing_else_does() -> None:
    world = World()
    coordinator = world.coordinator()
    slow = TopicPartition(PARTITION.topic, 1)
    waiting, others = ([world.do(coordinator, Begin(600_000)) for _ in range(3)] for _ in range(2))
    for txn in waiting:
        world.do(coordinator, AddPartitions(txn, (PARTITION, slow)))
    for txn in others:
        world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    world.effects.slow = {slow}
    ends = {txn: coordinator.submit(End(txn, commit=True), NEVER) for txn in waiting + others}
    coordinator.turn(NEVER)
    assert [ends[txn].done() for txn in waiting + others] == [False] * 3 + [True] * 3
    assert world.effects.slow_tried == 1
    for _ in range(600):
        coordinator.turn(NEVER)
        world.clock.ms += 100
    assert 5 < world.effects.slow_tried < 15, "at growing intervals, all three together"
    world.effects.slow.clear()
    world.clock.ms += 10_000
    coordinator.turn(NEVER)
    assert [ends[txn].result(0) for txn in waiting] == waiting
    once = ["marker commit", "settle commit"]
    assert [world.effects.of(txn) for txn in waiting] == [["open commit", *once, *once]] * 3, "first where it works"
    assert [world.effects.marked.count((txn, each)) for txn in waiting for each in (PARTITION, slow)] == [1] * 6


def test_a_registration_in_a_slow_partition_waits_for_it_alone() -> None:
    world = World()
    coordinator = world.coordinator()
    slow = TopicPartition(PARTITION.topic, 1)
    txn = world.do(coordinator, Begin(60_000))
    world.effects.slow = {slow}
    waits = coordinator.submit(AddPartitions(txn, (slow,)), NEVER)
    done = coordinator.submit(AddPartitions(txn, (PARTITION,)), NEVER)
    for _ in range(3):
        coordinator.turn(NEVER)
    assert done.result(0) == txn
    assert (waits.done(), world.effects.slow_tried) == (False, 1)
    world.effects.slow.clear()
    world.clock.ms += 200
    for _ in range(2):
        coordinator.turn(NEVER)
    assert waits.result(0) == txn


def test_a_registration_where_the_topic_is_gone_is_refused_and_no_other_one() -> None:
    world = World()
    coordinator = world.coordinator()
    gone_partition = TopicPartition("persistent://a/b/gone", 0)
    txn, other = world.do(coordinator, Begin(60_000)), world.do(coordinator, Begin(60_000))
    world.effects.gone = {gone_partition.topic}
    both = [
        coordinator.submit(AddPartitions(which, (partition,)), NEVER)
        for which, partition in ((txn, gone_partition), (txn, PARTITION), (other, PARTITION))
    ]
    for _ in range(4):
        coordinator.turn(NEVER)
    with pytest.raises(errors.NoSuchTopic, match="gone was deleted"):
        both[0].result(0)
    assert [each.result(0) for each in both[1:]] == [txn, other]
    with pytest.raises(errors.NoSuchTopic):
        world.do(coordinator, AddPartitions(txn, (gone_partition,)))
    world.effects.gone = set()
    assert world.do(coordinator, AddPartitions(txn, (gone_partition,))) == txn, "it was made anew"
    assert world.do(coordinator, End(txn, commit=True)) == txn


def test_a_request_to_register_where_the_topic_is_gone_is_answered() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = world.do(coordinator, Begin(60_000))
    world.effects.gone = {PARTITION.topic}
    world.request("cd" * 16, AddPartitions(txn, (PARTITION,)))
    world.clock.ms += 100
    for _ in range(5):
        coordinator.turn(NEVER)
    answer = world.state().answer("cd" * 16)
    assert answer is not None
    assert (answer.refused, answer.reason) == ("NoSuchTopic", f"{PARTITION.topic} was deleted")


def test_effects_are_told_what_may_have_been_done_before() -> None:
    world = World()
    coordinator = world.coordinator()
    first, failing, left = (world.do(coordinator, Begin(60_000)) for _ in range(3))
    for txn in (first, failing, left):
        world.do(coordinator, AddPartitions(txn, (PARTITION,)))
    world.do(coordinator, End(first, commit=True))
    assert world.effects.again == [(first, False)]
    world.effects.broken = {PARTITION.topic}
    ending = coordinator.submit(End(failing, commit=True), NEVER)
    for _ in range(3):
        coordinator.turn(NEVER)
    world.effects.broken = set()
    world.clock.ms += 10_000
    for _ in range(3):
        coordinator.turn(NEVER)
    assert ending.result(0) == failing
    assert world.effects.again[1:] == [(failing, False), (failing, True)]
    world.effects.broken = {PARTITION.topic}
    coordinator.submit(End(left, commit=True), NEVER)
    for _ in range(3):
        coordinator.turn(NEVER)
    world.effects.broken = set()
    world.effects.again.clear()
    successor = world.coordinator()
    for _ in range(3):
        successor.turn(NEVER)
    assert world.effects.again == [(left, True)]


def test_an_unreadable_log_stops_the_coordinator() -> None:
    world = World()
    coordinator = world.coordinator()
    key = encode_key(TransactionLogKey(3, 0, 1, "A" * 22, 1))
    world.log.append(TRANSACTION_LOG, 3, b"who?", b"what?", NEVER)  # no key of ours: nobody's state
    world.log.append(TRANSACTION_LOG, 3, key, b"what?", NEVER)
    coordinator.submit(Begin(1), NEVER)
    with pytest.raises(errors.Corrupt, match=r"offset 2: "):
        coordinator.turn(NEVER)


def test_no_more_wait_than_may() -> None:
    world = World()
    coordinator = world.coordinator(CoordinatorSettings(max_waiting=2))
    coordinator.submit(Begin(1), NEVER)
    coordinator.submit(Begin(1), NEVER)
    with pytest.raises(errors.TooManyTransactions, match="2 commands waiting"):
        coordinator.submit(Begin(1), NEVER)


def test_a_wish_whose_time_is_over_is_given_up() -> None:
    world = World()
    coordinator = world.coordinator()
    late = coordinator.submit(Begin(1), Deadline.after(-1))
    coordinator.turn(NEVER)
    with pytest.raises(errors.DeadlineExceeded):
        late.result(0)
    assert list(world.state().transactions()) == []


# Requests of other processes ----------------------------------------------------------------------------------------


def ask(
    world: World, coordinator: Coordinator, command: Command, request: str = "77", before: Callable[[], object] = int
) -> TxnId:
    """Ask as another process does, which looks once in each turn of the owner."""
    remote = RemoteCoordinator(
        world.log,
        3,
        coordinator_logs(world.log, world.clock),
        world.clock,
        new_request=lambda: request,
        wait=lambda seconds: take_a_turn(world, coordinator, before),
    )
    return remote.request(command, NEVER)


def take_a_turn(world: World, coordinator: Coordinator, before: Callable[[], object]) -> None:
    before()
    world.clock.ms += 100
    coordinator.turn(NEVER)


def test_another_process_is_answered_by_the_log() -> None:
    world = World()
    coordinator = world.coordinator()
    txn = ask(world, coordinator, Begin(60_000), "01")
    assert ask(world, coordinator, AddPartitions(txn, (PARTITION,)), "02") == txn
    assert ask(world, coordinator, AddSubscriptions(txn, (SUBSCRIPTION,)), "03") == txn
    assert ask(world, coordinator, End(txn, commit=True), "04") == txn
    assert world.effects.of(txn) == ["open commit", "marker commit", "end commit", "settle commit"]
    assert ask(world, coordinator, End(txn, commit=True), "05") == txn
    with pytest.raises(errors.InvalidTxnStatus, match="is COMMITTED, it cannot abort"):
        ask(world, coordinator, End(txn, commit=False), "06")
    with pytest.raises(errors.TransactionNotFound, match="does not know it"):
        ask(world, coordinator, End(TxnId(3 << 48, 9), commit=True), "07")
    with pytest.raises(errors.InvalidOption, match="timeout is 0 ms"):
        ask(world, coordinator, Begin(0), "08")


def test_a_request_that_comes_again_and_again_is_executed_once() -> None:
    world = World()
    coordinator = world.coordinator()
    coordinator.turn(NEVER)
    for _ in range(3):
        world.request("aa", Begin(60_000))
        coordinator.turn(NEVER)
        world.request("aa", Begin(60_000))
    successor = world.coordinator()
    successor.turn(NEVER)
    world.request("aa", Begin(60_000))
    for _ in range(3):
        successor.turn(NEVER)
    assert [each.new.request for each in world.state().transactions()] == ["aa"]


def test_what_nobody_waits_for_any_more_is_not_executed() -> None:
    world = World()
    coordinator = world.coordinator()
    coordinator.turn(NEVER)
    world.request("aa", Begin(60_000), until_ms=0)
    for _ in range(3):
        coordinator.turn(NEVER)
    assert list(world.state().transactions()) == []
    answer = world.state().answer("aa")
    assert answer is not None
    assert answer.reason == "the request may be executed for 0 ms more, expected 1 to 40000: clocks differ"


def test_wishes_of_the_own_process_are_seen_to_also_when_requests_cannot_be_read() -> None:
    world = World()
    coordinator = world.coordinator()
    world.log.deaf = True
    assert world.do(coordinator, Begin(60_000)).least_bits == 1
    world.log.deaf = False
    world.request("aa", Begin(60_000))
    world.clock.ms += 2_000
    for _ in range(3):
        coordinator.turn(NEVER)
    assert world.state().begun_by("aa") is not None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "cannot be read: Input data was truncated"),
        (b'{"v":1,"until_ms":1,"ask":"dance"}', "expected one of begin"),
        (
            encode_transaction_request(TransactionRequest(2_000_000, Begin(1))),
            "may be executed for 1000000 ms more, expected 1 to 40000: clocks differ",
        ),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(value: bytes, reason: str) -> None:
    world = World()
    coordinator = world.coordinator()
    coordinator.turn(NEVER)
    world.raw_request("aa", value)
    for _ in range(3):
        coordinator.turn(NEVER)
    answer = world.state().answer("aa")
    assert answer is not None
    assert answer.refused == "InvalidOption"
    assert reason in answer.reason


def test_a_request_that_cannot_be_answered_is_counted_and_stops_nobody() -> None:
    world = World()
    coordinator = world.coordinator()
    coordinator.turn(NEVER)
    world.log.append(TRANSACTION_REQUESTS, 3, b"?", b"{}", NEVER)
    world.log.append(TRANSACTION_REQUESTS, 3, encode_key(TransactionRequestKey(4, "aa")), b"{}", NEVER)
    coordinator.turn(NEVER)
    assert coordinator.unreadable_requests == 2


def test_a_coordinator_that_never_had_an_owner_is_not_asked() -> None:
    world = World()
    remote = RemoteCoordinator(world.log, 3, coordinator_logs(world.log, world.clock), world.clock)
    with pytest.raises(errors.TransactionCoordinatorNotFound, match="never had an owner"):
        remote.request(Begin(60_000), NEVER)
    assert world.log.end_offset(TRANSACTION_REQUESTS, 3, NEVER) == 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (Begin(60_000), errors.AppendOutcomeUnknown),
        (AddPartitions(TxnId(3 << 48, 1), (PARTITION,)), errors.AppendOutcomeUnknown),
        (End(TxnId(3 << 48, 1), True), errors.TransactionOutcomeUnknown),
    ],
)
def test_without_an_answer_the_outcome_is_unknown(command: Command, expected: type[errors.StoreError]) -> None:
    world = World()
    world.coordinator()

    def wait(seconds: float) -> None:
        world.clock.ms += 1_000

    remote = RemoteCoordinator(world.log, 3, coordinator_logs(world.log, world.clock), world.clock, wait=wait)
    with pytest.raises(expected, match="coordinator 3 did not"):
        remote.request(command, NEVER)
    assert world.log.end_offset(TRANSACTION_REQUESTS, 3, NEVER) == 30  # asked every second


def test_another_owner_is_asked_at_once() -> None:
    world = World()
    world.coordinator()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            world.coordinator()
        elif len(waits) == 3:
            world.clock.ms += REQUEST_LIFE_MS

    remote = RemoteCoordinator(world.log, 3, coordinator_logs(world.log, world.clock), world.clock, wait=wait)
    with pytest.raises(errors.AppendOutcomeUnknown):
        remote.request(Begin(60_000), NEVER)
    assert world.log.end_offset(TRANSACTION_REQUESTS, 3, NEVER) == 2


def test_who_may_not_write_requests_hears_it_at_once() -> None:
    world = World()
    world.coordinator()
    world.log.forbidden = True
    remote = RemoteCoordinator(world.log, 3, coordinator_logs(world.log, world.clock), world.clock)
    with pytest.raises(errors.NotAuthorized, match="no right to write"):
        remote.request(Begin(60_000), NEVER)


def test_a_successor_answers_what_its_predecessor_did_not() -> None:
    world = World()
    former = world.coordinator()
    owners = [former]

    def dies() -> None:
        if len(owners) == 1:
            owners.append(world.coordinator())

    class Whoever:
        def turn(self, deadline: Deadline) -> bool:
            return owners[-1].turn(deadline)

    assert ask(world, Whoever(), Begin(60_000), before=dies).least_bits > 0  # type: ignore[arg-type]
    assert len(owners) == 2


def test_futures_of_any_thread() -> None:
    world = World()
    coordinator = world.coordinator()
    future: Future[TxnId] = coordinator.submit(Begin(1), NEVER)
    coordinator.wait_for_work()  # there is something: it returns at once
    coordinator.turn(NEVER)
    coordinator.turn(NEVER)
    assert future.done()
