"""One snapshot: who is asked, how often, and which positions it maps."""

from __future__ import annotations

from pulsar_on_kafka.broker.replication_state.snapshot_exchange import TIMEOUT_MS, SnapshotBuilder
from pulsar_on_kafka_mapping.records.subscription_markers import Snapshot, SnapshotRequest, SnapshotResponse
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin

EAST, SOUTH = Origin("east", 1), Origin("south", 2)


def builder(*others: str) -> SnapshotBuilder:
    return SnapshotBuilder("id", "west", set(others), 1_000, 7)


def answer(origin: Origin, upto: int, number: int = 1) -> SnapshotResponse:
    return SnapshotResponse("id", "west", number, origin, upto)


def test_of_two_clusters_one_answer_makes_a_snapshot() -> None:
    made = builder("east")
    assert made.request() == SnapshotRequest("id", "west", 1)
    assert made.answered(answer(EAST, 40), 55) == Snapshot("id", "west", 55, {EAST: 40})
    assert made.answered(answer(EAST, 44), 56) is None


def test_of_three_all_are_asked_twice_and_the_first_positions_count() -> None:
    made = builder("east", "south")
    assert made.answered(answer(EAST, 40), 55) is None
    assert made.answered(answer(SOUTH, 30), 56) == SnapshotRequest("id", "west", 2)
    assert made.answered(answer(SOUTH, 35, 2), 60) is None
    assert made.answered(answer(EAST, 45, 2), 61) == Snapshot("id", "west", 61, {EAST: 40, SOUTH: 30})


def test_an_answer_counts_once_in_its_round_and_of_who_was_asked() -> None:
    made = builder("east", "south")
    for each in (answer(EAST, 40), answer(EAST, 41), answer(SOUTH, 9, 2), answer(Origin("north", 1), 3)):
        assert made.answered(each, 50) is None
    assert made.answered(answer(SOUTH, 30), 56) == SnapshotRequest("id", "west", 2)
    assert made.answered(answer(SOUTH, 31, 1), 57) is None  # of the first round, once more
    assert made.answered(answer(EAST, 45, 2), 58) is None
    snapshot = made.answered(answer(SOUTH, 32, 2), 59)
    assert isinstance(snapshot, Snapshot)
    assert snapshot.upto == {EAST: 40, SOUTH: 30}


def test_nothing_comes_of_it_when_a_topic_was_made_anew_between_the_rounds() -> None:
    made = builder("east", "south")
    made.answered(answer(EAST, 40), 55)
    made.answered(answer(SOUTH, 30), 56)
    assert made.answered(answer(SOUTH, 35, 2), 60) is None
    assert made.answered(answer(Origin("east", 9), 3, 2), 61) is None


def test_it_is_given_up_after_its_time() -> None:
    made = builder("east")
    assert not made.is_over(1_000 + TIMEOUT_MS)
    assert made.is_over(1_001 + TIMEOUT_MS)
