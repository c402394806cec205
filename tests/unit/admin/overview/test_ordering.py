"""In which order subscriptions are listed, and which of them."""

from __future__ import annotations

from pulsar_on_kafka.admin.overview.ordering import Only, Order, ordered
from tests.overviews import slow, stuck, subscription


def test_what_is_worst_comes_first_and_equals_by_name() -> None:
    rows = [subscription("c"), stuck("b", 5, 60), stuck("a", 9, 30), subscription("d")]
    assert [row.subscription for row in ordered(rows, Order.BACKLOG)] == ["a", "b", "c", "d"]
    assert [row.subscription for row in ordered(rows, Order.OLDEST)] == ["b", "a", "c", "d"]
    assert [row.subscription for row in ordered(rows, Order.STUCK)] == ["b", "a", "c", "d"]
    rows = [subscription("slow", acknowledged_per_s=1.0), subscription("fast", acknowledged_per_s=9.0)]
    assert [row.subscription for row in ordered(rows, Order.RATE)] == ["fast", "slow"]
    assert [row.subscription for row in ordered(rows, Order.NAME)] == ["fast", "slow"]


def test_every_order_takes_what_is_not_known() -> None:
    rows = [subscription("a"), stuck("b")]
    assert all(len(ordered(rows, by)) == 2 for by in Order)


def test_in_reverse_equals_stay_by_name() -> None:
    rows = [subscription("c"), stuck("b", 5, 60), subscription("a")]
    assert [row.subscription for row in ordered(rows, Order.BACKLOG, reverse=True)] == ["a", "c", "b"]


def test_kinds_are_told_by_what_is_wrong() -> None:
    found = stuck("a", 5, 60, dead_letters=1)
    assert {only for only in Only if only.applies(found)} >= {Only.ALL, Only.BACKLOG, Only.STUCK, Only.DEAD_LETTERS}
    assert not Only.UNREADABLE.applies(found)


def test_unconsumed_stuck_and_slow_exclude_each_other() -> None:
    words = (Only.UNCONSUMED, Only.STUCK, Only.SLOW)
    for found, word in ((stuck(processes=()), Only.UNCONSUMED), (stuck(), Only.STUCK), (slow(), Only.SLOW)):
        assert [only for only in words if only.applies(found)] == [word]
    assert not any(only.applies(subscription()) for only in words)
