from __future__ import annotations

import pytest

from pulsar_on_kafka.gateway.handlers.topic_patterns import MAX_CHARACTERS, TopicPattern
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("persistent://public/default/a-.*", "a-1", True),
        ("topic://public/default/a-.*", "a-1", True),
        ("public/default/a-.*", "a-", True),
        ("public/default/a-.+", "a-", False),
        ("public/default/a-.+", "a-1-partition-3", True),
        ("public/default/a.c", "abc", True),
        ("public/default/a\\.c", "abc", False),
        ("^public/default/abc$", "abc", True),
        ("public/default/abc", "abcd", False),
        ("public/.*/.*b.*c", "a-b-b-c", True),
        ("public/.*/.*b.*c", "a-c-b", False),
        (".*", "anything", True),
        ("public/default/a.*a", "a", False),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, name: str, expected: bool) -> None:
    assert TopicPattern(pattern).matches(TopicName.parse(name)) is expected


@pytest.mark.parametrize("pattern", ["(a|b)", "[ab]", "a*", "a{3}", "\\d+", "a?", "x" * (MAX_CHARACTERS + 1)])
def test_what_might_backtrack_is_refused(pattern: str) -> None:
    with pytest.raises(MappingError, match="pattern"):
        TopicPattern(pattern)
