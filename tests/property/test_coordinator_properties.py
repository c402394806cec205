"""The real coordinator beside a dictionary of statuses: crashes, forgetting and compaction are ordinary steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    Command,
    End,
)
from tests.memory_log import MemoryStateLog
from tests.seeds import examples
from tests.simulation.coordinators import TOPIC, SimulatedOutcomes, Truth, WatchedLog
from tests.simulation.turns import ManualClock
from tests.state_log_requests import StateLogRequests

NEVER = Deadline.never()
SETTINGS = CoordinatorSettings(last_status_delay_ms=0, max_open=4, finished_kept_ms=30_000, max_participants=3)
PARTITIONS = st.builds(TopicPartition, st.just("persistent://a/b/c"), st.integers(0, 3))
SUBSCRIPTIONS = st.builds(TopicSubscription, st.just("persistent://a/b/c"), st.integers(0, 3), st.just("s"))
TURNS = 5
"""As many as the longest wish needs."""


class CoordinatorBesideDictionaries(RuleBasedStateMachine):
    transactions = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.truth = Truth("coordinator 0")
        self.log: MemoryStateLog = WatchedLog(self.clock, {0: self.truth})
        self.sessions = 0
        self.status: dict[TxnId, str] = {}  # open, committed, aborted; the model
        self.taking_part: dict[TxnId, set[object]] = {}
        self.deadlines: dict[TxnId, int] = {}
        self.known: set[TxnId] = set()
        self.highest = 0
        self.start()

    def start(self) -> None:
        self.sessions += 1
        session = f"s{self.sessions}"
        self.outcomes = SimulatedOutcomes(self.truth, random.Random(0), lambda: None, 0.0)
        self.coordinator = Coordinator(
            CoordinatorLog(self.log, 0, self.clock, new_session=lambda: session, topic=TOPIC),
            self.outcomes,
            StateLogRequests(self.log, 0),
            settings=SETTINGS,
            clock=self.clock,
        )
        self.coordinator.take_over(NEVER)

    def do(self, command: Command) -> TxnId:
        future = self.coordinator.submit(command, NEVER)
        for _ in range(TURNS):
            self.coordinator.turn(NEVER)
        return future.result(0)

    def refused(self, command: Command, expected: type[errors.Refused]) -> None:
        with pytest.raises(expected) as refusal:
            self.do(command)
        assert refusal.type is expected

    @rule(target=transactions, timeout_s=st.integers(5, 90))
    def begin(self, timeout_s: int) -> object:
        if sum(status == "open" for status in self.status.values()) >= 4:
            self.refused(Begin(timeout_s * 1000), errors.TooManyTransactions)
            return multiple()
        txn = self.do(Begin(timeout_s * 1000))
        assert txn.least_bits > self.highest, "an id came again"
        self.highest = txn.least_bits
        self.status[txn] = "open"
        self.taking_part[txn] = set()
        self.deadlines[txn] = self.clock.seconds + timeout_s
        return txn

    @rule(txn=transactions, each=PARTITIONS | SUBSCRIPTIONS)
    def register(self, txn: TxnId, each: TopicPartition | TopicSubscription) -> None:
        command = AddPartitions(txn, (each,)) if isinstance(each, TopicPartition) else AddSubscriptions(txn, (each,))
        if self.status[txn] != "open":
            self.refused(command, self.over(txn))
        elif len(self.taking_part[txn] | {each}) > 3:
            self.refused(command, errors.InvalidOption)
        else:
            assert self.do(command) == txn
            self.taking_part[txn].add(each)
            assert isinstance(each, TopicSubscription) or (txn, each) in self.outcomes.announced

    @rule(txn=transactions, commit=st.booleans())
    def end(self, txn: TxnId, commit: bool) -> None:
        wanted = "committed" if commit else "aborted"
        if self.status[txn] not in ("open", wanted):
            self.refused(End(txn, commit), self.over(txn))
            return
        try:
            assert self.do(End(txn, commit)) == txn
            self.status[txn] = wanted
        except errors.TransactionNotFound:
            assert self.status[txn] != "open", "an open transaction was forgotten"

    def over(self, txn: TxnId) -> type[errors.Refused]:
        for _ in range(TURNS):  # behind a crash these forget what is due, before anything is decided
            self.coordinator.turn(NEVER)
        forgotten = CoordinatorLog(self.log, 0, self.clock, topic=TOPIC).read(NEVER).transaction(txn) is None
        return errors.TransactionNotFound if forgotten else errors.InvalidTxnStatus

    @rule(seconds=st.integers(1, 40))
    def time_passes(self, seconds: int) -> None:
        self.clock.seconds += seconds
        for txn, status in self.status.items():
            if status == "open" and self.deadlines[txn] <= self.clock.seconds:
                self.status[txn] = "aborted"
        for _ in range(TURNS):
            self.coordinator.turn(NEVER)

    @rule()
    def crash(self) -> None:
        self.start()

    @rule(command=st.sampled_from(["begin", "end"]), txn=transactions)
    def crash_in_the_middle(self, command: str, txn: TxnId) -> None:
        """One turn writes; whoever comes next finds it."""
        if command == "end" and self.status[txn] == "open":
            self.coordinator.submit(End(txn, commit=True), NEVER)
            self.coordinator.turn(NEVER)
            self.status[txn] = "committed"
        self.start()
        for _ in range(TURNS):
            self.coordinator.turn(NEVER)

    @rule(txn=consumes(transactions))
    def the_program_forgets_it(self, txn: TxnId) -> None:
        pass

    @rule(seed=st.integers(0, 99))
    def compact(self, seed: int) -> None:
        end = self.log.end_offset(TOPIC, 0, NEVER)
        self.log.compact(random.Random(seed), end)
        self.log.drop_tombstones(random.Random(seed), end)

    @invariant()
    def the_log_says_what_the_model_says(self) -> None:
        state = CoordinatorLog(self.log, 0, self.clock, topic=TOPIC).read(NEVER)
        open_ones = {txn for txn, status in self.status.items() if status == "open"}
        assert {each.id for each in state.transactions() if not each.finished} == open_ones
        for each in state.transactions():
            assert each.status.value.lower() == self.status[each.id]
            if each.id in open_ones:
                assert {*each.partitions, *each.subscriptions} == self.taking_part[each.id]
        if open_ones:
            assert state.low_water == min(txn.least_bits - 1 for txn in open_ones)
        else:
            assert state.low_water >= self.highest


CoordinatorBesideDictionaries.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestCoordinatorBesideDictionaries = CoordinatorBesideDictionaries.TestCase
