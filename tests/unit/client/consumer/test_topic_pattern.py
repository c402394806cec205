"""Topics that a pattern takes; the expectations were seen on Pulsar 4.0.7."""

from __future__ import annotations

import re

import pytest

from pulsar_on_kafka.client.consumer.consumer_opening import NamespacePattern
from pulsar_on_kafka.client.values.enums import RegexSubscriptionMode
from pulsar_on_kafka_mapping.errors import InvalidTopicName

P = "persistent://public/default/"
TOPICS = [P + "x-a", P + "x-b", P + "x-new", "persistent://other/ns/x-a", "non-persistent://public/default/x-a"]


def matching(pattern: str, mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly) -> list[str]:
    found = NamespacePattern.of(re.compile(pattern), mode).matching(TOPICS)
    return [name.rpartition("default/")[2] if mode is RegexSubscriptionMode.PersistentOnly else name for name in found]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (P + "x-.*", ["x-a", "x-b", "x-new"]),
        (P + "x-", []),
        (P + "x-a|b", ["x-a"]),
        (P + "x-[ab]", ["x-a", "x-b"]),
        ("public/default/x-.*", ["x-a", "x-b", "x-new"]),
        ("x-.*", []),
        (".*default/x-.*", None),
        ("non-persistent://public/default/x-.*", ["x-a", "x-b", "x-new"]),
    ],
)
def test_the_whole_name_without_its_domain_is_matched(pattern: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(InvalidTopicName):
            matching(pattern)
    else:
        assert matching(pattern) == expected


def test_the_mode_chooses_the_domain() -> None:
    assert matching(P + "x-a", RegexSubscriptionMode.NonPersistentOnly) == ["non-persistent://public/default/x-a"]
    assert matching(P + "x-a", RegexSubscriptionMode.AllTopics) == [P + "x-a", "non-persistent://public/default/x-a"]


def test_the_namespace_is_written_out() -> None:
    with pytest.raises(InvalidTopicName):
        NamespacePattern.of(re.compile("persistent://public/.*/x"), RegexSubscriptionMode.PersistentOnly)
    named = NamespacePattern.of(re.compile("persistent://other/ns/.*"), RegexSubscriptionMode.PersistentOnly)
    assert named.namespace == "other/ns"


def test_flags_of_the_pattern_count() -> None:
    assert NamespacePattern.of(re.compile(P + "X-A", re.IGNORECASE), RegexSubscriptionMode.PersistentOnly).matching(
        TOPICS
    ) == [P + "x-a"]
