"""What of many subscriptions is shown, and in which order."""

from __future__ import annotations

from pulsar_on_kafka.admin.overview.ordering import Only, Order
from pulsar_on_kafka.console.rows import PAGE, RequestedRows, shown
from tests.many_subscriptions import an_overview


def wanted(**said: str) -> RequestedRows:
    return RequestedRows.of(said.get("q", ""), said.get("only", ""), said.get("sort", ""), said.get("page", ""))


ROWS = an_overview(1000).subscriptions


def test_the_largest_backlog_comes_first_a_page_at_a_time() -> None:
    first = shown(ROWS, wanted())
    assert (first.found, first.pages, len(first.rows), first.first) == (1000, 10, PAGE, 1)
    second = shown(ROWS, wanted(page="2"))
    assert first.rows[-1].backlog >= second.rows[0].backlog
    assert second.first == 101
    assert [row.backlog for row in first.rows] == sorted((row.backlog for row in ROWS), reverse=True)[:PAGE]


def test_a_page_beyond_the_last_is_the_last() -> None:
    assert shown(ROWS, wanted(page="999")).page == 10
    assert shown(ROWS, wanted(page="0")).page == 1
    assert shown([], wanted(page="7")).rows == []


def test_all_words_are_looked_for_in_whatever_case() -> None:
    found = shown(ROWS, wanted(q="ORDERS billing"))
    assert found.rows
    assert all("orders" in row.topic and row.subscription == "billing" for row in found.rows)
    assert shown(ROWS, wanted(q="no such thing")).found == 0


def test_kinds_are_counted_and_shown() -> None:
    found = shown(ROWS, wanted(only="unconsumed"))
    assert found.found == found.counts[Only.UNCONSUMED] > 0
    assert all(row.backlog and not row.processes for row in found.rows)
    assert found.counts[Only.ALL] == 1000


def test_every_column_sorts_both_ways() -> None:
    for column, of in (
        ("stuck", "stuck_since_ms"),
        ("name", "topic"),
        ("holes", "holes"),
        ("rate", "acknowledged_per_s"),
    ):
        one = [getattr(row, of) for row in shown(ROWS, wanted(sort=column)).rows]
        other = [getattr(row, of) for row in shown(ROWS, wanted(sort=f"-{column}")).rows]
        assert one[0] != other[0]
    assert shown(ROWS, wanted(sort="stuck")).rows[0].stuck_since_ms == min(r.stuck_since_ms or 1 << 62 for r in ROWS)


def test_a_head_sorts_the_other_way_when_it_is_clicked_again() -> None:
    assert wanted().sorted_by("backlog") == "-backlog"
    assert wanted(sort="-backlog").sorted_by("backlog") == "backlog"
    assert wanted().sorted_by("holes") == "holes"


def test_whatever_a_browser_says_is_taken_for_something() -> None:
    odd = wanted(q="x" * 1000, only="'); drop", sort="nothing", page="-3")
    assert (len(odd.words), odd.only, odd.sort, odd.page) == (200, Only.ALL, Order.BACKLOG, 1)
    assert wanted(page="٣").page == 1
