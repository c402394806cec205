"""Consumer groups of subscriptions, rule by rule."""

from __future__ import annotations

import pytest

from pulsar_on_kafka_mapping.errors import InvalidSubscriptionName, InvalidTopicName
from pulsar_on_kafka_mapping.names.read_back import parse_group_id
from pulsar_on_kafka_mapping.names.subscription_group import MAX_SUBSCRIPTION_CHARS, group_id


@pytest.mark.parametrize(
    ("subscription", "expected"),
    [("audit", "t/audit"), ("a.b_c-d", "t/a.b_c-d"), ("a/b c", "t/a-x2f-b-x20-c"), ("a-x", "t/a-x2d-x")],
)
def test_group_of(subscription: str, expected: str) -> None:
    assert group_id("t", subscription) == expected


@pytest.mark.parametrize("subscription", ["", "a\n", "\ud800", "a" * (MAX_SUBSCRIPTION_CHARS + 1)])
def test_an_impossible_subscription_is_refused(subscription: str) -> None:
    with pytest.raises(InvalidSubscriptionName):
        group_id("t", subscription)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a" * 250, "t\n"])
def test_an_impossible_kafka_topic_is_refused(topic: str) -> None:
    with pytest.raises(InvalidTopicName):
        group_id(topic, "audit")


@pytest.mark.parametrize(
    "group", ["", "console-consumer-1", "t/", "/audit", "t/a/b", "t/a b", "t/-x2D-x", "./a", "t/-xa-"]
)
def test_a_foreign_group_is_none(group: str) -> None:
    assert parse_group_id(group) is None
