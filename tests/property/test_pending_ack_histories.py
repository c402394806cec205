"""Pending acks beside plain sets: one of acknowledged messages, one for each transaction of what it holds.

Owners crash at any time and come back from their last save; former ones go on trying; compaction takes what it may.
`make soak` runs thousands of these histories.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import Closed, Fenced, TransactionConflict, TransactionNotFound
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import State
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK as TOPIC
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck, TxnOutcome
from tests.memory_log import MemoryStateLog
from tests.seeds import examples
from tests.unit.broker.transactions.pending_ack_owner import COORDINATOR, NEVER, CursorOwner, end, txn

ENTRIES = 10
SIZE = 3
Unit = tuple[int, int]


def is_batch(offset: int) -> bool:
    return offset % 3 == 2


def units_of(offset: int) -> list[Unit]:
    return [(offset, index) for index in range(SIZE if is_batch(offset) else 1)]


ALL = [unit for offset in range(ENTRIES) for unit in units_of(offset)]
UNITS = st.sets(st.sampled_from(ALL), min_size=1, max_size=4)
TXN = st.integers(0, 4)


def up_to(last: Unit) -> set[Unit]:
    return {unit for unit in ALL if unit <= last}


def individual(units: Iterable[Unit]) -> TxnAck:
    batches: dict[int, tuple[int, int]] = {}
    for offset, index in units:
        if is_batch(offset):
            batches[offset] = (SIZE, batches.get(offset, (SIZE, 0))[1] | 1 << index)
    return TxnAck(BitMap64(offset for offset, _ in units if not is_batch(offset)), batches)


def cumulative(last: Unit) -> TxnAck:
    offset, index = last
    if not is_batch(offset):
        return TxnAck(cumulative=CumulativeAck(offset))
    return TxnAck(cumulative=CumulativeAck(offset, SIZE, (1 << index + 1) - 1))


def acked_units(cursor: CursorState) -> set[Unit]:
    found = {unit for unit in ALL if cursor.is_acknowledged(unit[0])}
    for offset, acks in cursor.batches.items():
        found |= {(offset, index) for index in range(SIZE) if acks.acked >> index & 1}
    return found


def copy_of(cursor: CursorState) -> CursorState:
    copied = CursorState(cursor.next_unacked, 1000)
    copied.acknowledge(list(cursor.deleted))
    copied.acknowledge_batches(dict(cursor.batches.items()))
    return copied


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryStateLog()
        self.sessions = 0
        self.saved = CursorState(0, 1000)
        self.saved_units: set[Unit] = set()
        self.acked: set[Unit] = set()
        self.held: dict[int, set[Unit]] = {}
        self.cumulative: dict[int, Unit] = {}
        self.ended: dict[int, bool] = {}
        """END is in the log, and the owner has not settled it."""
        self.committed: set[Unit] = set()
        self.base = 0
        """Transactions have numbers from here on; those below are over."""
        self.over: set[int] = set()
        """Ends are given once."""
        self.former: list[CursorOwner] = []

    @initialize()
    def begin(self) -> None:
        self.owner = self.new_owner()

    def new_owner(self) -> CursorOwner:
        self.sessions += 1
        owner = CursorOwner(self.log, f"s{self.sessions}", self.sessions, copy_of(self.saved))
        owner.low_waters = {COORDINATOR: self.base - 1}
        return owner.start()

    # Acknowledging --------------------------------------------------------------------------------------------------

    def others_cumulative(self, number: int) -> set[Unit]:
        return {unit for other, last in self.cumulative.items() if other != number for unit in up_to(last)}

    @rule(which=TXN, units=UNITS)
    def acknowledge(self, which: int, units: set[Unit]) -> None:
        number = self.base + which
        if number in self.over:
            return
        held = {unit for found in self.held.values() for unit in found}
        conflict = bool(units & (self.acked | held | self.others_cumulative(number)))
        try:
            self.owner.acknowledge(txn(number), individual(units))
        except TransactionConflict:
            assert conflict
            return
        assert not conflict
        self.held.setdefault(number, set()).update(units)

    @rule(which=TXN, last=st.sampled_from(ALL))
    def acknowledge_cumulatively(self, which: int, last: Unit) -> None:
        number = self.base + which
        if number in self.over:
            return
        below = up_to(last)
        others = {unit for other, units in self.held.items() if other != number for unit in units}
        mark_delete = min((offset for offset, _ in set(ALL) - self.acked), default=ENTRIES)
        conflict = (
            last[0] < mark_delete
            or bool(self.cumulative.keys() - {number})
            or last <= self.cumulative.get(number, (-1, 0))
            or bool(below & others)
        )
        try:
            self.owner.acknowledge(txn(number), cumulative(last))
        except TransactionConflict:
            assert conflict
            return
        assert not conflict
        self.cumulative[number] = last

    @rule(units=UNITS)
    def acknowledge_without_transaction(self, units: set[Unit]) -> None:
        self.owner.cursor.acknowledge([offset for offset, _ in units if not is_batch(offset)])
        ack = individual(units)
        self.owner.cursor.acknowledge_batches({o: BatchAckSet(size, bits) for o, (size, bits) in ack.batches.items()})
        self.acked |= units

    # Ending -----------------------------------------------------------------------------------------------------------

    def all_of(self, number: int) -> set[Unit]:
        last = self.cumulative.get(number)
        return self.held.get(number, set()) | (set() if last is None else up_to(last))

    @rule(which=TXN, commit=st.booleans())
    def ends(self, which: int, commit: bool) -> None:
        number = self.base + which
        if number in self.over or (number not in self.held and number not in self.cumulative):
            return
        self.ended[number] = commit
        self.over.add(number)
        if commit:
            self.committed |= self.all_of(number)
        end(self.log, txn(number), committed=commit)

    @precondition(lambda self: self.ended)
    @rule()
    def ends_again(self) -> None:
        number, commit = next(iter(self.ended.items()))
        end(self.log, txn(number), committed=commit)

    @rule()
    def settle(self) -> None:
        settled = {found.txn.least_bits: found for found in self.owner.settle()}
        assert {number: found.outcome for number, found in settled.items()} == {
            number: TxnOutcome(commit) for number, commit in self.ended.items()
        }
        for number, commit in self.ended.items():
            if commit:
                self.acked |= self.all_of(number)
        for number, found in settled.items():
            again = set() if self.ended[number] else self.all_of(number) - self.acked
            others = {u for other in {*self.held, *self.cumulative} - {number} for u in self.all_of(other)}
            assert {offset for offset, _ in again - others} <= set(found.redeliver)
            assert not self.ended[number] or not found.redeliver
            self.held.pop(number, None)
            self.cumulative.pop(number, None)
        self.ended.clear()

    @rule()
    def low_water_rises(self) -> None:
        """All that there were are over, and the owner may know before it settled what has an END."""
        self.settle()
        self.base += 5
        self.owner.low_waters = {COORDINATOR: self.base - 1}
        left = {found.txn.least_bits: found for found in self.owner.settle()}
        assert {number for number in left if left[number].outcome is TxnOutcome.ABORTED} == {
            *self.held,
            *self.cumulative,
        }
        self.held.clear()
        self.cumulative.clear()

    # Processes --------------------------------------------------------------------------------------------------------

    @rule()
    def save(self) -> None:
        self.saved = copy_of(self.owner.cursor)
        self.saved_units = set(self.acked)
        self.owner.save()

    @rule()
    def clean(self) -> None:
        self.owner.clean()

    @rule()
    def owner_crashes(self) -> None:
        """Acks without transaction since the last save are lost; those of committed transactions are not."""
        self.former.append(self.owner)
        self.owner = self.new_owner()
        self.acked = set(self.saved_units)
        for found in self.owner.acks.settle(self.owner.cursor):
            number = found.txn.least_bits
            self.ended.pop(number, None)
            self.held.pop(number, None)
            self.cumulative.pop(number, None)
        assert not self.ended
        self.acked |= self.committed

    @precondition(lambda self: self.former)
    @rule(which=TXN, units=UNITS)
    def former_owner_goes_on(self, which: int, units: set[Unit]) -> None:
        former = self.former.pop(0)
        with pytest.raises((Fenced, Closed, TransactionConflict, TransactionNotFound)) as raised:
            former.acknowledge(txn(self.base + which), individual(units))
        if isinstance(raised.value, (TransactionConflict, TransactionNotFound)):  # refused by what it knew
            former.round()
        assert former.acks.state is State.CLOSED
        assert former.clean() == 0

    @rule(seed=st.integers(0, 1 << 30))
    def compact(self, seed: int) -> None:
        rng = random.Random(seed)
        self.log.compact(rng)
        if seed % 3 == 0:
            self.log.drop_tombstones(rng, self.log.end_offset(TOPIC, 0, NEVER))
            self.owner_crashes()  # whoever missed the tombstones starts over

    # What must hold ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_cursor_is_as_told(self) -> None:
        assert acked_units(self.owner.cursor) == self.acked
        assert self.committed - {u for n in self.ended for u in self.all_of(n)} <= self.acked

    @invariant()
    def what_is_held_is_as_told(self) -> None:
        holdings = self.owner.acks.held
        found = set()
        for offset in range(ENTRIES):
            if holdings.is_held(offset):
                found |= set(units_of(offset))
            elif (acks := holdings.batch(offset)) is not None:
                found |= {(offset, index) for index in range(SIZE) if acks.acked >> index & 1}
        assert found == {unit for number in {*self.held, *self.cumulative} for unit in self.all_of(number)}
        assert holdings.whole_in(0, ENTRIES) == BitMap64(o for o in range(ENTRIES) if holdings.is_held(o))

    def teardown(self) -> None:
        """In the end nothing is left but a TAKEOVER."""
        for number in {*self.held, *self.cumulative}:
            self.ends(number - self.base, False)
        self.settle()
        self.save()
        self.owner.clean_up()
        assert self.owner.left() == 1
        assert not self.owner.acks.unclean
        assert not self.owner.acks.held


@pytest.mark.hypothesis
def test_nothing_is_lost_and_nothing_acknowledged_that_was_not() -> None:
    run_state_machine_as_test(
        Histories, settings=settings(max_examples=examples(80), stateful_step_count=40, derandomize=True)
    )


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_nothing_is_lost() -> None:
    run_state_machine_as_test(Histories, settings=settings(max_examples=3000, stateful_step_count=60))
    print("\n    3,000 histories of up to 60 steps")
