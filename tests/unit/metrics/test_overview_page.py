"""Metrics of all subscriptions as a scrape gets them."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pulsar_on_kafka.metrics.overview import MAX_SUBSCRIPTIONS, page_of
from tests.overviews import TOPIC, overview, stuck, subscription

Samples = dict[tuple[str, str], float]


def samples(text: bytes, label: str = "subscription") -> Samples:
    """By name and one label."""
    return {
        (sample.name, sample.labels.get(label, "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_subscription_is_told_with_its_cluster_topic_and_name() -> None:
    page = page_of(overview(stuck(backlog=10, seconds=600, holes=2, acknowledged=3, acknowledged_total=50)))
    found = samples(page.text)
    assert found["pok_subscription_backlog_entries", "billing"] == 10
    assert found["pok_subscription_holes", "billing"] == 2
    assert found["pok_subscription_individually_acknowledged_entries", "billing"] == 3
    assert found["pok_subscription_acknowledged_entries_total", "billing"] == 50
    assert found["pok_subscription_oldest_seconds", "billing"] == 600
    assert found["pok_subscription_stuck_seconds", "billing"] == 600
    assert found["pok_subscription_dead_letters", "billing"] == 0
    assert found["pok_subscription_processes", "billing"] == 1
    [family] = [each for each in text_string_to_metric_families(page.text.decode()) if each.name.endswith("_holes")]
    assert family.samples[0].labels == {"cluster": "c-1", "topic": TOPIC, "subscription": "billing"}


def test_what_is_rare_has_a_line_only_where_it_is() -> None:
    text = page_of(overview(subscription("well"), subscription("ill", suspects=2, open_transactions=1))).text
    found = samples(text)
    assert found["pok_subscription_suspects", "ill"] == 2
    assert found["pok_subscription_open_transactions", "ill"] == 1
    assert ("pok_subscription_suspects", "well") not in found


def test_replicators_are_told_as_lag_by_cluster_and_not_among_subscriptions() -> None:
    found = samples(page_of(overview(subscription(), stuck("pulsar.repl.us", 7, 60))).text, "to")
    assert found["pok_replication_lag_entries", "us"] == 7
    assert found["pok_replication_lag_seconds", "us"] == 60
    assert found["pok_overview_subscriptions", ""] == 2
    assert sum(name == "pok_subscription_backlog_entries" for name, _ in found) == 1


def test_processes_are_not_told_where_they_are_not_known() -> None:
    found = samples(page_of(overview(subscription(), by_commits=False)).text)
    assert ("pok_subscription_processes", "billing") not in found
    assert found["pok_overview_by_commits", ""] == 0


def test_names_with_quotes_and_line_breaks_are_escaped() -> None:
    name = 'a "quoted" \\ name'
    assert ("pok_subscription_holes", name) in samples(page_of(overview(subscription(name))).text)


@pytest.mark.long
def test_what_is_beyond_the_bound_is_counted_and_the_greatest_backlogs_stay() -> None:
    small = subscription("small")
    many = tuple(replace(small, subscription=f"s{number}") for number in range(MAX_SUBSCRIPTIONS))
    found = samples(page_of(overview(*many, stuck("great", 5))).text)
    assert found["pok_overview_unlisted", ""] == 1
    assert found["pok_subscription_backlog_entries", "great"] == 5
    assert sum(name == "pok_subscription_holes" for name, _ in found) == MAX_SUBSCRIPTIONS


def test_the_zipped_page_is_the_same() -> None:
    page = page_of(overview(subscription()))
    assert gzip.decompress(page.zipped) == page.text
