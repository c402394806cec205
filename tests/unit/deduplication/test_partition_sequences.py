"""The rule for one producer name in one partition."""

from __future__ import annotations

from layer.deduplication import machine
from layer.deduplication.machine import PartitionSequences, Verdict

NEW, DUPLICATE, PENDING, UNKNOWN = Verdict.NEW, Verdict.DUPLICATE, Verdict.PENDING, Verdict.UNKNOWN


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
    assert known.doubtful
    assert not known.settled
    assert known.judge(4) is UNKNOWN
    assert known.read_from == 11
    known.found({2}, 12)
    assert [known.judge(sequence) for sequence in (1, 2, 3, 4)] == [DUPLICATE, DUPLICATE, NEW, NEW]
    assert known.read_from == 12


def test_a_batch_is_found_by_its_first_id() -> None:
    known = PartitionSequences()
    sent(known, 1, 2, 5, 6)
    known.failed((1, 2), certainly=False)
    known.failed((5, 6), certainly=False)
    known.found({5}, 1)
    assert [known.judge(sequence) for sequence in (1, 2, 5, 6)] == [NEW, NEW, DUPLICATE, DUPLICATE]


def test_reading_does_not_begin_behind_what_is_doubtful() -> None:
    known = PartitionSequences(read_from=5)
    sent(known, 1, 2)
    known.failed((1,), certainly=False)
    known.stored_at((2,), 8)
    assert known.read_from == 5


def test_what_is_remembered_of_failures_is_bounded() -> None:
    known = PartitionSequences()
    limit = machine.MAX_ABSENT
    ids = range(limit + 1)
    for sequence in ids:
        known.taken(sequence)
    known.taken(limit + 5)
    known.failed(ids, certainly=True)
    known.stored_at((limit + 5,), 0)
    kept = limit * 9 // 10
    assert [known.judge(sequence) for sequence in (0, limit - kept, limit + 1 - kept, limit)] == [
        DUPLICATE, DUPLICATE, NEW, NEW,
    ]  # fmt: skip
