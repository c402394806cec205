"""Pending acks: what open transactions hold of a cursor, who may hold what, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import (
    AppendOutcomeUnknown,
    Closed,
    Fenced,
    InvalidCursorPosition,
    Refused,
    StoreError,
    TransactionConflict,
    TransactionNotFound,
)
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings, apply_to
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import (
    MAX_WAITING,
    TRANSITIONS,
    Input,
    PendingAcks,
    State,
)
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK as TOPIC
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CursorIncarnation, TxnAck, TxnOutcome
from tests.memory_log import MemoryStateLog
from tests.unit.broker.transactions.pending_ack_owner import (
    COORDINATOR,
    LIFE,
    NAME,
    NEVER,
    CursorOwner,
    batch,
    end,
    txn,
    upto,
    values_of,
    whole,
)

T1, T2, T3 = txn(1), txn(2), txn(3)


@pytest.fixture
def log() -> MemoryStateLog:
    return MemoryStateLog()


@pytest.fixture
def owner(log: MemoryStateLog) -> CursorOwner:
    return CursorOwner(log, "aa", 1).start()


# Ack sets -------------------------------------------------------------------------------------------------------------


def in_pulsars_words(acks: BatchAckSet | None) -> str | None:
    """T for what is not acknowledged, the highest index first, as the article writes it."""
    if acks is None:
        return None
    return "".join("F" if acks.acked >> index & 1 else "T" for index in reversed(range(acks.batch_size)))


def from_pulsars_words(offset: int, text: str) -> TxnAck:
    return batch(offset, len(text), *(index for index, letter in enumerate(reversed(text)) if letter == "F"))


def test_the_worked_example_of_ack_sets() -> None:
    """Size 4: TTTF and TTFT give TTFF; another transaction's TFTT gives TFFF; aborting that one gives TTFF back."""
    held = Holdings()
    held.hold(T1, from_pulsars_words(5, "TTTF"))
    held.hold(T1, from_pulsars_words(5, "TTFT"))
    assert in_pulsars_words(held.batch(5)) == "TTFF"
    held.hold(T2, from_pulsars_words(5, "TFTT"))
    assert in_pulsars_words(held.batch(5)) == "TFFF"
    assert held.release(T2) == from_pulsars_words(5, "TFTT")
    assert in_pulsars_words(held.batch(5)) == "TTFF"
    held.release(T1)
    assert in_pulsars_words(held.batch(5)) is None, "all bits are true again: the entry is dropped"
    assert not held


def test_overlapping_leftovers_give_back_only_what_nobody_else_holds() -> None:
    held = Holdings()
    held.hold(T1, TxnAck(BitMap64([1, 2]), {5: (4, 0b0011)}))
    held.hold(T2, TxnAck(BitMap64([2, 3]), {5: (4, 0b0110)}))
    held.release(T1)
    assert held.whole_in(0, 9) == BitMap64([2, 3])
    assert held.batch(5) == BatchAckSet(4, 0b0110)


# Conflicts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (whole(3), whole(3)),
        (whole(3), whole(2, 3)),
        (whole(3), batch(3, 4, 0)),
        (batch(3, 4, 0), whole(3)),
        (batch(3, 4, 0, 1), batch(3, 4, 1, 2)),
        (upto(5), upto(5)),
        (upto(5), upto(9)),
        (upto(5), whole(5)),
        (upto(5), whole(2)),
        (upto(5), batch(4, 4, 0)),
        (upto(5, 4, 0b0011), batch(5, 4, 1)),
        (whole(3), upto(5)),
        (batch(3, 4, 0), upto(5)),
        (batch(5, 4, 1), upto(5, 4, 0b0011)),
    ],
)
def test_what_another_open_transaction_holds_is_a_conflict(owner: CursorOwner, first: TxnAck, second: TxnAck) -> None:
    owner.acknowledge(T1, first)
    with pytest.raises(TransactionConflict, match="562949953421312:2"):
        owner.acknowledge(T2, second)
    assert owner.acks.held.of(T1) == first
    assert T2 not in owner.acks.held


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (whole(3), whole(4)),
        (whole(6), upto(5)),
        (upto(5), whole(6)),
        (batch(3, 4, 0), batch(3, 4, 1)),
        (upto(5, 4, 0b0011), batch(5, 4, 2)),
        (batch(5, 4, 2), upto(5, 4, 0b0011)),
    ],
)
def test_what_does_not_overlap_is_none(owner: CursorOwner, first: TxnAck, second: TxnAck) -> None:
    owner.acknowledge(T1, first)
    owner.acknowledge(T2, second)
    assert owner.acks.held.of(T2) == second


@pytest.mark.parametrize("again", [whole(3), batch(5, 4, 0), upto(9), upto(8)])
def test_a_transaction_cannot_acknowledge_the_same_twice(owner: CursorOwner, again: TxnAck) -> None:
    for ack in (whole(3), batch(5, 4, 0), upto(9)):
        owner.acknowledge(T1, ack)
    with pytest.raises(TransactionConflict):
        owner.acknowledge(T1, again)


def test_a_transaction_goes_on_to_acknowledge_cumulatively(owner: CursorOwner) -> None:
    for ack in (upto(3), upto(5, 4, 0b0001), upto(5, 4, 0b0011), upto(5)):
        owner.acknowledge(T1, ack)
    assert owner.acks.held.of(T1) == upto(5)


@pytest.mark.parametrize("ack", [whole(0), whole(4), whole(4, 9), batch(4, 4, 0), upto(1), batch(6, 4, 1), whole(9, 1)])
def test_what_is_acknowledged_is_a_conflict(owner: CursorOwner, ack: TxnAck) -> None:
    owner.cursor.acknowledge_cumulative(1)
    owner.cursor.acknowledge([4])
    owner.cursor.acknowledge_batches({6: BatchAckSet(4, 0b0010)})
    with pytest.raises(TransactionConflict):
        owner.acknowledge(T1, ack)
    owner.acknowledge(T1, batch(6, 4, 0))


def test_a_batch_has_one_size(owner: CursorOwner) -> None:
    owner.cursor.acknowledge_batches({6: BatchAckSet(4, 0b0010)})
    owner.acknowledge(T1, batch(7, 4, 0))
    for ack in (batch(6, 5, 0), batch(7, 5, 1)):
        with pytest.raises(InvalidCursorPosition):
            owner.acknowledge(T2, ack)


def test_requests_of_one_round_conflict_with_each_other(owner: CursorOwner) -> None:
    first, second = owner.acks.request(T1, whole(3)), owner.acks.request(T2, whole(3))
    answers = owner.round()
    assert answers[first].failure is None
    assert isinstance(answers[second].failure, TransactionConflict)


# Outcomes -------------------------------------------------------------------------------------------------------------


def test_a_commit_reaches_the_cursor(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(0, 3))
    owner.acknowledge(T1, batch(4, 4, 0, 1))
    assert owner.cursor.next_unacked == 0, "nothing is acknowledged before"
    assert owner.acks.held.whole_in(0, 10) == BitMap64([0, 3])
    end(log, T1, committed=True)
    [settled] = owner.settle()
    assert (settled.outcome, settled.redeliver) == (TxnOutcome.COMMITTED, BitMap64())
    assert owner.cursor.next_unacked == 1
    assert owner.cursor.is_acknowledged(3)
    assert owner.cursor.batches.get(4) == BatchAckSet(4, 0b0011)
    assert owner.settle() == []


def test_a_commit_of_a_cumulative_ack_inside_of_a_batch(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, upto(5, 4, 0b0011))
    assert owner.acks.held.whole_in(0, 10) == BitMap64(range(5))
    assert owner.acks.held.batch(5) == BatchAckSet(4, 0b0011)
    end(log, T1, committed=True)
    owner.settle()
    assert owner.cursor.next_unacked == 5
    assert owner.cursor.batches.get(5) == BatchAckSet(4, 0b0011)


def test_an_abort_gives_back_what_was_held(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(0, 3))
    owner.acknowledge(T1, batch(4, 4, 0, 1))
    end(log, T1, committed=False)
    [settled] = owner.settle()
    assert (settled.outcome, settled.redeliver) == (TxnOutcome.ABORTED, BitMap64([0, 3, 4]))
    assert owner.cursor.revision == 0
    owner.acknowledge(T2, whole(0, 3))


def test_an_abort_of_a_cumulative_ack_gives_back_what_lies_below(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.cursor.acknowledge([1])
    owner.acknowledge(T1, upto(3))
    end(log, T1, committed=False)
    [settled] = owner.settle()
    assert settled.redeliver == BitMap64([0, 2, 3])


def test_an_ack_without_transaction_of_what_is_held_is_taken(owner: CursorOwner, log: MemoryStateLog) -> None:
    """The cursor takes it, and neither outcome of the transaction changes that. Source: Pulsar."""
    owner.acknowledge(T1, whole(3, 4))
    owner.acknowledge(T2, whole(6))
    owner.cursor.acknowledge([3, 6])
    end(log, T1, committed=False)
    end(log, T2, committed=True)
    aborted, committed = owner.settle()
    assert (aborted.redeliver, committed.redeliver) == (BitMap64([4]), BitMap64())
    assert [owner.cursor.is_acknowledged(offset) for offset in (3, 4, 6)] == [True, False, True]


def test_the_end_may_come_before_the_ack(owner: CursorOwner, log: MemoryStateLog) -> None:
    end(log, T1, committed=False)
    with pytest.raises(TransactionNotFound, match="has ended"):
        owner.acknowledge(T1, whole(3))
    assert [settled.redeliver for settled in owner.settle()] == [BitMap64([3])], "a consumer that let go of it gets it"
    with pytest.raises(TransactionNotFound, match="has ended"):
        owner.acknowledge(T1, whole(4))
    owner.clean_up()
    assert owner.left() == 1, "its TAKEOVER"
    with pytest.raises(TransactionNotFound, match="has ended"):
        owner.acknowledge(T1, whole(4))


def test_an_ack_behind_the_commit_is_none(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    ticket = owner.acks.request(T1, whole(4))
    decision = owner.acks.decide(owner.cursor)
    end(log, T1, committed=True)
    log.append_many(TOPIC, 0, decision.records, NEVER)
    assert isinstance(owner.round()[ticket].failure, TransactionNotFound)
    [settled] = owner.acks.settle(owner.cursor)
    assert (settled.ack, settled.redeliver) == (whole(3), BitMap64([4]))
    successor = CursorOwner(log, "bb", 2).start()
    assert [found.ack for found in successor.settle()] == [whole(3)]


def test_ending_twice_changes_nothing(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    end(log, T1, committed=True)
    end(log, T1, committed=True)
    assert len(owner.settle()) == 1
    owner.save()
    owner.clean_up()
    end(log, T1, committed=True)  # the next owner of the coordinator does it again
    assert owner.settle() == []
    owner.clean_up()
    assert owner.left() == 1


def test_an_end_that_contradicts_another_is_corrupt(owner: CursorOwner, log: MemoryStateLog) -> None:
    end(log, T1, committed=True)
    end(log, T1, committed=False)
    with pytest.raises(Exception, match=r"is ABORTED for audit .* it was COMMITTED") as raised:
        owner.round()
    assert not isinstance(raised.value, CorruptRecord), "the view says where it lies"


def test_what_is_left_over_below_the_low_water_mark_is_aborted(owner: CursorOwner) -> None:
    owner.acknowledge(T1, whole(3))
    owner.acknowledge(T2, whole(4))
    owner.low_waters = {COORDINATOR: 1}
    [settled] = owner.settle()
    assert (settled.txn, settled.outcome, settled.redeliver) == (T1, TxnOutcome.ABORTED, BitMap64([3]))
    owner.clean_up()
    assert owner.left() == 2, "its TAKEOVER, and the ack of the one that is open"
    with pytest.raises(TransactionNotFound, match="has ended"):
        owner.acknowledge(T1, whole(5))


def test_a_commit_with_its_end_counts_below_the_low_water_mark(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    end(log, T1, committed=True)
    owner.low_waters = {COORDINATOR: 5}
    [settled] = owner.settle()
    assert settled.outcome is TxnOutcome.COMMITTED


# Cleaning -------------------------------------------------------------------------------------------------------------


def test_an_idle_subscription_gets_clean(owner: CursorOwner, log: MemoryStateLog) -> None:
    """The article's question: does cleaning depend on further acks? It does not: END, save, clean, and nothing else."""
    owner.acknowledge(T1, whole(3))
    end(log, T1, committed=True)
    owner.settle()
    assert owner.clean() == 0, "no save holds it yet"
    assert owner.acks.unclean
    owner.save()
    assert owner.clean() == 1, "the ack"
    assert owner.clean() == 1, "then its END"
    assert owner.clean() == 0
    assert not owner.acks.unclean
    assert owner.left() == 1, "its TAKEOVER"


def test_what_needs_no_save_is_cleaned_without_one(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    owner.acknowledge(T2, whole(4))
    owner.cursor.acknowledge([3])
    owner.save()
    end(log, T1, committed=True)  # changes nothing
    end(log, T2, committed=False)
    owner.settle()
    assert [owner.clean(), owner.clean(), owner.clean()] == [2, 2, 0]


def test_a_successor_finishes_the_cleaning(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    end(log, T1, committed=True)
    owner.settle()
    owner.save()
    owner.clean()  # the ack, not its END
    successor = CursorOwner(log, "bb", 2, owner.cursor).start()
    assert successor.settle() == []
    successor.clean_up()
    assert successor.left() == 1


# Owners ---------------------------------------------------------------------------------------------------------------


def test_a_successor_holds_what_was_held(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    successor = CursorOwner(log, "bb", 2).start()
    assert successor.acks.held.is_held(3)
    with pytest.raises(TransactionConflict):
        successor.acknowledge(T2, whole(3))
    end(log, T1, committed=True)
    [settled] = successor.settle()
    assert settled.ack == whole(3)


def test_a_former_owner_cannot_hold_anything(owner: CursorOwner, log: MemoryStateLog) -> None:
    ticket, waiting = owner.acks.request(T1, whole(3)), None
    decision = owner.acks.decide(owner.cursor)
    waiting = owner.acks.request(T1, whole(4))
    successor = CursorOwner(log, "bb", 2).start()
    log.append_many(TOPIC, 0, decision.records, NEVER)
    answers = {
        answer.ticket: answer.failure
        for answer in owner.view.query(lambda found: owner.acks.read_back(found.cursor(NAME), {}), NEVER)
    }
    assert [type(answers[number]) for number in (ticket, waiting)] == [Fenced, Fenced]
    assert owner.acks.state is State.CLOSED
    with pytest.raises(Closed):
        owner.acks.request(T1, whole(5))
    successor.acknowledge(T2, whole(3))
    successor.clean_up()
    assert len(values_of(log)) == 2, "its TAKEOVER and T2's ack: the void one is gone, and so is the old TAKEOVER"


def test_what_was_valid_before_the_take_over_is_held_though_its_owner_is_gone(
    owner: CursorOwner, log: MemoryStateLog
) -> None:
    ticket = owner.acks.request(T1, whole(3))
    log.append_many(TOPIC, 0, owner.acks.decide(owner.cursor).records, NEVER)
    successor = CursorOwner(log, "bb", 2).start()
    [answer] = owner.view.query(lambda found: owner.acks.read_back(found.cursor(NAME), {}), NEVER)
    assert (answer.ticket, answer.failure) == (ticket, None)
    assert successor.acks.held.is_held(3)


def test_an_owner_that_is_not_the_newest_never_gets_ready(owner: CursorOwner, log: MemoryStateLog) -> None:
    with pytest.raises(Fenced, match="Owner\\(session='aa', version=1\\) owns it"):
        CursorOwner(log, "bb", 1).start()


def test_another_life_of_the_subscription_starts_with_nothing(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    born_again = CursorOwner(log, "bb", 1, life=CursorIncarnation(LIFE.topic_incarnation, 4)).start()
    assert not born_again.acks.held
    born_again.clean_up()
    assert born_again.left() == 1


def test_requests_wait_until_it_is_ready(log: MemoryStateLog) -> None:
    owner = CursorOwner(log, "aa", 1)
    ticket = owner.acks.request(T1, whole(3))
    assert owner.acks.state is State.NONE
    assert owner.acks.decide(owner.cursor).records == []
    log.append(TOPIC, 0, *owner.acks.take_over(), NEVER)
    assert owner.acks.state is State.INITIALIZING
    assert owner.round() == {}
    owner.view.query(lambda found: owner.acks.replayed(found.cursor(NAME), {}, 0), NEVER)
    assert owner.acks.state is State.READY
    assert owner.round()[ticket].failure is None


def test_not_more_may_wait_than_so_many(log: MemoryStateLog) -> None:
    acks = CursorOwner(log, "aa", 1).acks
    for number in range(MAX_WAITING):
        acks.request(txn(number), whole(number))
    with pytest.raises(Refused, match="10000 acknowledgements"):
        acks.request(T1, whole(1))
    assert len(acks.close()) == MAX_WAITING
    assert acks.close() == []


@pytest.mark.parametrize(("state", "what"), list(product(State, Input)))
def test_every_move_is_in_the_table_or_refused(state: State, what: Input, log: MemoryStateLog) -> None:
    acks = PendingAcks(NAME, LIFE, "aa", 1)
    acks.state = state
    found = CursorOwner(log, "aa", 1).start().view.query(lambda view: view.cursor(NAME), NEVER)
    moves: dict[Input, Callable[[], object]] = {
        Input.TAKE_OVER: acks.take_over,
        Input.REPLAYED: lambda: acks.replayed(found, {}, 0),
        Input.CLOSE: acks.close,
    }
    if (state, what) in TRANSITIONS:
        moves[what]()
        assert acks.state is TRANSITIONS[state, what]
    else:
        with pytest.raises(Refused, match=state.value):
            moves[what]()
        assert acks.state is state


# When nobody knows whether it was written ----------------------------------------------------------------------------


def test_what_may_be_on_its_way_is_held_until_its_transaction_ends(owner: CursorOwner, log: MemoryStateLog) -> None:
    ticket = owner.acks.request(T1, whole(3))
    records = owner.acks.decide(owner.cursor).records
    [answer] = owner.acks.failed(AppendOutcomeUnknown("simulated"))
    assert answer.ticket == ticket
    assert isinstance(answer.failure, AppendOutcomeUnknown)
    with pytest.raises(TransactionConflict):
        owner.acknowledge(T2, whole(3))
    end(log, T1, committed=False)
    assert [settled.redeliver for settled in owner.settle()] == [BitMap64([3])]
    owner.clean_up()
    log.append_many(TOPIC, 0, records, NEVER)  # it arrives after all
    assert owner.settle() == []
    assert owner.clean() == 1
    assert owner.left() == 1


@pytest.mark.long
def test_a_large_request_is_held_when_all_of_its_records_are_there(owner: CursorOwner, log: MemoryStateLog) -> None:
    offsets = BitMap64(range(0, 300_000_000, 70))
    cursor = CursorState(0, 1 << 22)
    ticket = owner.acks.request(T1, TxnAck(offsets))
    records = owner.acks.decide(cursor).records
    assert len(records) > 1
    log.append_many(TOPIC, 0, records[:1], NEVER)
    assert owner.view.query(lambda found: owner.acks.read_back(found.cursor(NAME), {}), NEVER) == []
    log.append_many(TOPIC, 0, records[1:], NEVER)
    [answer] = owner.view.query(lambda found: owner.acks.read_back(found.cursor(NAME), {}), NEVER)
    assert (answer.ticket, answer.failure) == (ticket, None)
    assert owner.acks.held.of(T1).whole == offsets


def test_what_was_settled_is_told_though_the_next_one_fails(owner: CursorOwner, log: MemoryStateLog) -> None:
    owner.acknowledge(T1, whole(3))
    owner.acknowledge(T2, whole(4))
    end(log, T1, committed=False)
    end(log, T2, committed=True)
    owner.round()

    def fails(cursor: CursorState, ack: TxnAck) -> None:
        raise StoreError("simulated")

    assert [found.txn for found in owner.acks.settle(owner.cursor, fails)] == [T1]
    with pytest.raises(StoreError, match="simulated"):
        owner.acks.settle(owner.cursor, fails)
    assert owner.acks.held.is_held(4), "it is neither lost nor delivered meanwhile"
    assert [found.txn for found in owner.acks.settle(owner.cursor)] == [T2]
    assert owner.cursor.is_acknowledged(4)


def test_applying_again_changes_nothing() -> None:
    cursor = CursorState(0, 1000)
    ack = TxnAck(BitMap64([7]), {9: (4, 0b1000)}, upto(4, 4, 0b0011).cumulative)
    apply_to(cursor, ack)
    before = cursor.revision
    apply_to(cursor, ack)
    assert cursor.revision == before
    assert (cursor.next_unacked, cursor.batches.get(4)) == (4, BatchAckSet(4, 0b0011))
