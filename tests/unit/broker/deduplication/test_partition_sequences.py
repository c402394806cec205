"""The rule for one producer name in one partition."""

from __future__ import annotations

from pulsar_on_kafka.broker.deduplication import deduplication_machine
from pulsar_on_kafka.broker.deduplication.deduplication_machine import DeduplicationVerdict, PartitionSequences
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

NEW, DUPLICATE, PENDING, UNKNOWN = (
    DeduplicationVerdict.NEW,
    DeduplicationVerdict.DUPLICATE,
    DeduplicationVerdict.PENDING,
    DeduplicationVerdict.UNKNOWN,
)
UNDECIDED, FORGOTTEN = DeduplicationVerdict.UNDECIDED, DeduplicationVerdict.FORGOTTEN
ONE, TWO = TxnId(0, 1), TxnId(0, 2)


def sent(known: PartitionSequences, *sequences: int) -> None:
    for sequence in sequences:
        assert known.judge(sequence) is NEW
        known.taken(sequence)


def test_only_what_is_above_the_highest_is_new() -> None:
    known = PartitionSequences(stored=4)
    assert [known.judge(sequence) for sequence in (0, 4, 5, 90)] == [DUPLICATE, DUPLICATE, NEW, NEW]


def test_what_repeats_something_under_way_waits_for_its_answer() -> None:
    known = PartitionSequences()
    sent(known, 3, 9)
    assert [known.judge(sequence) for sequence in (3, 5, 9, 10)] == [PENDING, PENDING, PENDING, NEW]
    known.stored_at((3,), 0)
    assert [known.judge(sequence) for sequence in (3, 5, 9)] == [DUPLICATE, PENDING, PENDING]
    known.stored_at((9,), 1)
    assert [known.judge(sequence) for sequence in (3, 5, 9)] == [DUPLICATE, DUPLICATE, DUPLICATE]
    assert known.settled
    assert known.read_from == 2


def test_what_certainly_failed_may_be_sent_again_below_what_was_stored_since() -> None:
    known = PartitionSequences()
    sent(known, 1, 2)
    known.failed((1,), certainly=True)
    known.stored_at((2,), 0)
    assert [known.judge(sequence) for sequence in (0, 1, 2)] == [DUPLICATE, NEW, DUPLICATE]
    sent(known, 1)
    assert known.judge(1) is PENDING
    known.stored_at((1,), 1)
    assert known.judge(1) is DUPLICATE
    assert known.stored == 2


def test_after_a_failure_with_nothing_under_way_the_ids_above_the_stored_are_new_in_any_order() -> None:
    known = PartitionSequences()
    sent(known, 1, 2, 3)
    for sequence in (1, 2, 3):
        known.failed((sequence,), certainly=True)
    sent(known, 3)
    known.stored_at((3,), 0)
    assert [known.judge(sequence) for sequence in (1, 2, 3)] == [NEW, NEW, DUPLICATE]


def test_after_an_unknown_outcome_the_log_decides() -> None:
    known = PartitionSequences(read_from=10)
    sent(known, 1, 2, 3)
    known.stored_at((1,), 10)
    known.failed((2,), certainly=False)
    known.failed((3,), certainly=False)
    assert not known.settled
    assert not known.settled
    assert known.judge(4) is UNKNOWN
    assert known.read_from == 11
    known.found({(2, None)}, 12)
    assert [known.judge(sequence) for sequence in (1, 2, 3, 4)] == [DUPLICATE, DUPLICATE, NEW, NEW]
    assert known.read_from == 12


def test_a_batch_is_found_by_its_first_id() -> None:
    known = PartitionSequences()
    sent(known, 1, 2, 5, 6)
    known.failed((1, 2), certainly=False)
    known.failed((5, 6), certainly=False)
    known.found({(5, None)}, 1)
    assert [known.judge(sequence) for sequence in (1, 2, 5, 6)] == [NEW, NEW, DUPLICATE, DUPLICATE]


def test_reading_does_not_begin_behind_what_is_doubtful() -> None:
    known = PartitionSequences(read_from=5)
    sent(known, 1, 2)
    known.failed((1,), certainly=False)
    known.stored_at((2,), 8)
    assert known.read_from == 5


def test_ids_of_failures_are_kept_within_a_limit_and_the_lower_ones_are_refused() -> None:
    known = PartitionSequences()
    last = 3 * 8 * deduplication_machine.MAX_ABSENT_BYTES
    ids = range(0, last, 2)  # of a bitmap every second bit
    for sequence in range(last + 1):
        known.taken(sequence)
    known.failed([*ids], certainly=True)
    known.stored_at((last,), 0)
    forgotten = known.forgotten_upto
    assert last // 2 < forgotten < last
    assert [known.judge(each) for each in (0, 1, forgotten)] == [FORGOTTEN] * 3
    assert [known.judge(forgotten + 2 - forgotten % 2), known.judge(last - 1), known.judge(last)] == [
        NEW, DUPLICATE, DUPLICATE,
    ]  # fmt: skip
    following = PartitionSequences(known.stored, 1, known.absent, known.forgotten_upto)
    assert [following.judge(each) for each in (0, 1, last - 2, last)] == [FORGOTTEN, FORGOTTEN, NEW, DUPLICATE]


def test_each_id_of_a_record_is_free_again_but_for_those_that_were_stored_before() -> None:
    known = PartitionSequences(5, absent=(2, 4))
    new = known.new_in(2, 8, ONE)
    assert list(new) == [2, 4, 6, 7, 8]
    known.taken_together(new, ONE)
    known.stored_at(new, 10)
    known.decided(ONE, committed=False)
    assert [each for each in range(10) if known.judge(each) is NEW] == [2, 4, 6, 7, 8, 9]


def test_a_record_may_say_any_range_of_ids() -> None:
    known = PartitionSequences(5)
    new = known.new_in(6, 2**63 - 1, ONE)
    known.taken_together(new, ONE)
    known.stored_at(new, 10)
    known.decided(ONE, committed=False)
    known.taken(2**63 - 1)
    known.stored_at((2**63 - 1,), 11)
    assert [known.judge(each) for each in (6, 7, 2**63 - 1)] == [NEW, FORGOTTEN, DUPLICATE]


def test_a_next_holder_hears_of_what_failed_while_later_ones_were_stored() -> None:
    known = PartitionSequences()
    sent(known, 1, 2, 3, 4)
    known.failed((1,), certainly=False)
    known.stored_at((2,), 0)
    known.failed((3,), certainly=True)
    known.failed((4,), certainly=True)
    assert known.doubtful
    known.found({(2, None)}, 1)
    assert (known.doubtful, known.stored, set(known.absent)) == (False, 2, {1, 3, 4})
    following = PartitionSequences(known.stored, 1, known.absent)
    assert [following.judge(sequence) for sequence in (0, 1, 2, 3)] == [DUPLICATE, NEW, DUPLICATE, NEW]


def test_what_a_transaction_stored_is_a_duplicate_to_itself_and_undecided_to_others() -> None:
    known = PartitionSequences(4)
    for sequence in (5, 6, 9):
        known.taken(sequence, ONE)
    known.stored_at((5, 6), 10)
    known.stored_at((9,), 12)
    assert [known.judge(sequence, ONE) for sequence in (4, 5, 7, 9, 10)] == [*[DUPLICATE] * 4, NEW]
    assert [known.judge(sequence, TWO) for sequence in (4, 5, 7, 9, 10)] == [DUPLICATE, *[UNDECIDED] * 3, NEW]
    assert [known.judge(sequence) for sequence in (4, 5, 7, 9, 10)] == [DUPLICATE, *[UNDECIDED] * 3, NEW]
    assert known.depends_on(7) == {ONE}
    assert (known.stored, known.known_upto(20)) == (4, 10)


def test_the_ids_of_an_aborted_transaction_are_free_again_also_below_what_was_stored() -> None:
    known = PartitionSequences(4)
    for sequence, txn in ((5, ONE), (6, ONE), (7, TWO), (8, None)):
        known.taken(sequence, txn)
        known.stored_at((sequence,), 10 + sequence)
    known.decided(ONE, committed=False)
    assert [known.judge(sequence) for sequence in (5, 6, 7, 8, 9)] == [NEW, NEW, UNDECIDED, DUPLICATE, NEW]
    known.taken(5, TWO)
    assert known.judge(5) is PENDING
    known.stored_at((5,), 30)
    known.decided(TWO, committed=True)
    assert [known.judge(sequence) for sequence in (5, 6, 7, 8, 9)] == [DUPLICATE, NEW, DUPLICATE, DUPLICATE, NEW]
    assert known.known_upto(40) == 40


def test_a_record_of_an_aborted_transaction_is_not_what_a_failed_send_left() -> None:
    known = PartitionSequences()
    known.taken(1, ONE)
    known.stored_at((1,), None)
    known.decided(ONE, committed=False)
    known.taken(1)
    known.failed((1,), certainly=False)
    known.found({(1, ONE)}, 5)
    assert known.judge(1) is NEW


def test_ids_that_come_again_in_one_record_are_no_longer_absent() -> None:
    known = PartitionSequences(20, absent=(5, 6, 7, 9))
    assert known.judge(5) is NEW
    known.taken_together((5, 8))
    known.stored_at((5, 8), 30)
    assert [known.judge(sequence) for sequence in (5, 6, 7, 8, 9)] == [DUPLICATE] * 4 + [NEW]


def test_what_an_aborted_transaction_stored_is_free_to_the_next_one_that_stored_something_higher() -> None:
    known = PartitionSequences(1)
    known.taken(2, ONE)
    known.stored_at((2,), 10)
    known.taken(3, TWO)
    known.stored_at((3,), 11)
    assert known.judge(2, TWO) is UNDECIDED
    known.decided(ONE, committed=False)
    assert known.judge(2, TWO) is NEW
    assert PartitionSequences(known.stored, 12, known.absent).judge(2) is NEW
