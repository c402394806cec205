"""The snapshots that a subscription has ahead of it."""

from __future__ import annotations

from pulsar_on_kafka.broker.replication_state.snapshot_exchange import SnapshotCache
from pulsar_on_kafka_mapping.records.subscription_markers import Snapshot


def snapshot(local: int) -> Snapshot:
    return Snapshot(str(local), "west", local, {})


def cache(*locals_: int, most: int = 10) -> SnapshotCache:
    made = SnapshotCache(most)
    for local in locals_:
        made.add(snapshot(local))
    return made


def test_the_last_one_that_mark_delete_has_reached_counts() -> None:
    made = cache(10, 20, 30)
    assert made.passed(10) is None  # mark-delete is 9
    assert made.passed(11) == snapshot(10)
    assert made.passed(30) == snapshot(20)
    assert made.passed(10**9) == snapshot(30)


def test_it_stays_until_others_were_told() -> None:
    made = cache(10, 20, 30)
    assert made.passed(25) == made.passed(25) == snapshot(20)
    made.drop(snapshot(20))
    assert (made.passed(25), len(made)) == (None, 1)
    assert made.passed(31) == snapshot(30)


def test_what_does_not_lie_behind_the_others_says_nothing_new() -> None:
    assert len(cache(10, 20, 20, 15)) == 2


def test_of_too_many_the_one_goes_that_leaves_the_smallest_gap() -> None:
    made = cache(0, 100, 110, 200, most=3)
    assert [made.passed(local + 1) for local in (0, 100, 110, 200)] == [
        snapshot(0), snapshot(100), snapshot(100), snapshot(200),
    ]  # fmt: skip


def test_a_subscription_far_behind_passes_some_of_many() -> None:
    made = cache(*range(0, 100_000, 10), most=10)
    assert len(made) == 10
    passed = [made.passed(next_unacked) for next_unacked in range(1, 100_000, 5_000)]
    assert len({each.local for each in passed if each is not None}) >= 5
