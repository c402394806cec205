"""A topic that is deleted ledger by ledger: which deletions are asked for, and what an event of it comes to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict, PartitionDeleting, PartitionGone, judge
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.model import LedgerPlace
from pulsar_on_kafka.service.ledgers.topic_deletion import ledgers_of
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord

SIZE = 10
TOPIC = "persistent://public/default/orders"
LAYOUT = LedgerLayout(7, SIZE)


def a_topic(partitions: int = 1) -> TopicRecord:
    return TopicRecord(TOPIC, LifeState.DELETING, "orders", partitions, SIZE, incarnation=7, former=4)


def deleting(log: LogRange, partition: int = 0) -> PartitionDeleting:
    return PartitionDeleting(LedgerPlace(TOPIC, 7, partition), LAYOUT, log)


logs = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)).map(sorted), min_size=1, max_size=4)


@given(logs, st.integers(1, 40))
def test_what_is_asked_for_is_all_that_there_is_and_each_is_deleted_by_itself(
    ranges: list[list[int]], most: int
) -> None:
    starts = {p: LogRange(start, end) for p, (start, end) in enumerate(ranges)}
    asked = list(ledgers_of(a_topic(len(ranges)), starts, most))
    there = sum(log.end // SIZE - log.start // SIZE + 1 for log in starts.values())
    if there <= most:
        assert len(asked) == there, "an event for each ledger"
    assert len(asked) < most + len(ranges) + 1
    for partition, log in starts.items():
        left = log
        for ledger in (each for each in asked if each.fields.partition == partition):
            assert ledger.first == left.start or left.start == left.end, "nothing between two of them"
            found = judge(TOPIC, partition, ledger.id, deleting(left, partition))
            if left.start < ledger.end:
                assert (found.verdict, found.before) == (DeletionVerdict.DELETE, ledger.end)
            left = LogRange(max(left.start, found.before), left.end)
            if ledger.end % SIZE == 0 and ledger.end < log.end:
                again = judge(TOPIC, partition, ledger.id, deleting(left, partition))
                assert again.verdict is DeletionVerdict.DONE, "a second event finds nothing"
        assert left.start == log.end, "nothing is left"


def test_a_ledger_that_never_was_and_one_of_another_life_are_refused() -> None:
    now = deleting(LogRange(0, 35))
    assert judge(TOPIC, 0, LAYOUT.ledger_id(0, 4), now).verdict is DeletionVerdict.REFUSE
    assert judge(TOPIC, 0, LAYOUT.ledger_id(1, 0), now).verdict is DeletionVerdict.REFUSE
    assert judge(TOPIC, 0, LedgerLayout(6, SIZE).ledger_id(0, 0), now).verdict is DeletionVerdict.REFUSE


def test_what_was_asked_for_in_the_life_before_is_done_in_whatever_state_the_topic_is() -> None:
    of_former = LedgerLayout(4, SIZE).ledger_id(2, 3)
    for now in (deleting(LogRange(0, 35)), PartitionGone(7), None):
        assert judge(TOPIC, 2, of_former, now, former=4).verdict is DeletionVerdict.DONE
