"""The first page: of clusters that are not there, and of a real broker whose consumers hang."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin.overview.records import Overview
from tests.consoles import Console
from tests.overviews import NOW_MS, overview, slow, stuck, subscription
from tests.steps import SHARED, Unique
from tests.waiting import until


def now(seen: Overview) -> Overview:
    """The same overview, gathered now."""
    moved_ms = time.time_ns() // 1_000_000 - NOW_MS
    rows = tuple(
        replace(row, partitions=tuple(
            replace(each, seen_ms=each.seen_ms + moved_ms,
                    oldest_ms=each.oldest_ms and each.oldest_ms + moved_ms,
                    idle_since_ms=each.idle_since_ms and each.idle_since_ms + moved_ms)
            for each in row.partitions
        ))
        for row in seen.subscriptions
    )  # fmt: skip
    return replace(seen, gathered_ms=NOW_MS + moved_ms, subscriptions=rows)


def test_without_a_reply_nothing_is_called_well(lonely: Console) -> None:
    lonely.site.waits_for("no broker answers")
    assert "Whether all is well is not known: the cluster has not replied yet." in lonely.text("/")
    lonely.site.show(now(overview(subscription())))
    told = lonely.text("/")
    assert "No problem is known of 1 subscription of 1 topic, but not all could be checked." in told
    assert "Not checked: transactions; roles." in told
    lonely.site.show(now(overview(subscription())), "all brokers are down")
    assert "Whether all is well is not known: there are no new data." in lonely.text("/")
    lonely.site.show(overview(subscription(), gathered_ms=1_000_000))
    assert "Whether all is well is not known: there are no new data." in lonely.text("/")


def test_the_three_gravest_are_named_and_the_others_follow(lonely: Console) -> None:
    rows = (slow("a"), stuck("b", seconds=7200), stuck("c", seconds=300), stuck("d", processes=(), seconds=3600))
    lonely.site.show(now(overview(*rows, subscription("e", unreadable="gone"))))
    page, told = lonely.get("/"), lonely.text("/")
    assert "4 things need an operator." in told
    assert (
        page.index("e of orders is not served") < page.index("b of orders is stuck") < page.index("d of orders has no")
    )
    assert "1 other finding a of orders is slow" in told
    assert 'href="/subscriptions?only=stuck&amp;sort=stuck">b of orders' in page
    assert "Stuck 2 Unconsumed 1 Slow 1" in told


def test_new_dead_letters_are_a_concern(lonely: Console) -> None:
    seen = now(overview(subscription(dead_letters=3)))
    lonely.site.show(seen)
    assert "gave up" not in lonely.text("/")
    lonely.site.show(replace(seen, subscriptions=(subscription(dead_letters=5),)))
    assert "billing of orders gave up 2 messages within 15 minutes." in lonely.text("/")


@pytest.mark.kafka
def test_of_a_broker_it_checks_transactions_and_roles(client: pulsar.Client, console: Console, unique: Unique) -> None:
    client.subscribe(unique("orders"), "billing", SHARED)
    last = ""

    def checked() -> bool:
        nonlocal last
        last = console.text("/")
        return "an operator" in last and "not known" not in last and "Not checked" not in last

    until(checked, lambda: f"a verdict on all of the cluster: {last}")
