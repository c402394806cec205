"""Rows of subscriptions: their order and their words."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.cli.overview.rows import (
    age_text,
    as_json,
    caveats,
    cells,
    compact,
    end_of,
    rate_text,
    remarks,
    short_name,
    totals_text,
)
from tests.overviews import NOW_MS, TOPIC, overview, slow, stuck, subscription


def test_a_row_tells_numbers_ages_and_what_is_wrong() -> None:
    row = stuck("billing", 10, 90, holes=3, suspects=1, dead_letters=2, open_transactions=1)
    assert cells(row, NOW_MS, by_commits=True) == (
        "orders/billing", 10, 3, "1m30s", "", "", 1, "stuck 1m30s, 2 dead letters, 1 suspect, 1 transaction",
    )  # fmt: skip
    assert cells(row, NOW_MS, by_commits=False)[6] == "?"


def test_what_moves_is_not_called_stuck() -> None:
    assert remarks(stuck(seconds=59), NOW_MS) == ""
    assert remarks(stuck(seconds=60), NOW_MS) == "stuck 1m"
    assert remarks(stuck(seconds=60, processes=()), NOW_MS) == "unconsumed 1m"
    assert remarks(slow(), NOW_MS) == "slow, 1h to go"
    assert remarks(subscription(seen_ms=NOW_MS - 90_000), NOW_MS) == "as of 1m30s ago"
    assert remarks(slow(published_per_s=10.0), NOW_MS) == "slow, grows"
    assert remarks(subscription(durable=False), NOW_MS) == "not durable"
    assert remarks(subscription(unreadable="gone"), NOW_MS) == "unreadable: 1 partition"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (999, "0s"), (42_000, "42s"), (312_000, "5m12s"), (3_600_000, "1h"), (90_000_000, "1d"), (-5, "0s")],
)
def test_ages(milliseconds: int, text: str) -> None:
    assert age_text(milliseconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(None, ""), (0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (1234.4, "1,234"), (45_678.0, "45k")]
)
def test_rates(rate: float | None, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10k"), (999_999, "999k"), (1_250_000, "1.2M"), (345_000_000, "345M")],
)
def test_numbers_in_few_characters(number: int, text: str) -> None:
    assert compact(number) == text


def test_topics_of_the_default_namespace_are_named_as_people_type_them() -> None:
    assert short_name(TOPIC) == "orders"
    assert short_name("persistent://shop/sales/orders") == "shop/sales/orders"


def test_a_long_name_keeps_its_end() -> None:
    assert end_of("shop/sales/orders/billing", 15) == "…orders/billing"
    assert end_of("orders/billing", 15) == "orders/billing"


def test_all_in_two_lines() -> None:
    seen = overview(stuck("a", 1_000, 60), stuck("b", 500, 5, dead_letters=1), subscription("c"))
    assert totals_text(seen) == (
        "3 subscriptions of 1 topic, 1 stuck",
        "backlog 1,500, 1 dead letter, 0 open transactions",
    )
    seen = overview(stuck("a"), slow("b"), slow("c"), stuck("d", processes=()))
    assert totals_text(seen)[0] == "4 subscriptions of 1 topic, 1 unconsumed, 1 stuck, 2 slow"


def test_json_has_the_word_and_the_time_that_a_slow_one_needs() -> None:
    made = as_json(overview(stuck("a"), slow("b"), slow("c", published_per_s=10.0), subscription("d")))
    assert [(each["state"], each["catch_up_s"]) for each in made["subscriptions"]] == [
        ("stuck", None), ("slow", 6000.0), ("slow", None), (None, None),
    ]  # fmt: skip


def test_what_the_numbers_lack_is_said() -> None:
    assert caveats(overview()) == []
    said = caveats(overview(by_commits=False, incomplete=("a", "b", "c", "d", "e")))
    assert said[0].endswith("this user may not read __consumer_offsets")
    assert said[1:] == ["incomplete: a; b; c", "and 2 more, --output json has all"]
