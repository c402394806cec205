"""The number of producers that count against a limit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pulsar_on_kafka.broker.metadata.producers.producer_count import producers_beside
from pulsar_on_kafka_mapping.state.metadata.producer_records import claim_name


@pytest.mark.parametrize(
    ("joining", "own", "others", "expected"),
    [
        ("*me", {}, {}, 0),
        ("*me", {"*me": 3, "a": 1}, {}, 4),
        ("a", {"*me": 3, "a": 1}, {}, 3),
        ("a", {}, {"a": "other", "b": "other"}, 1),
        ("*me", {}, {"*other": "other"}, 5),
        ("*me", {}, {"*other": "other", "b": "other"}, 5),
        (claim_name("*me", 1), {claim_name("*me", 0): 4, claim_name("*me", 1): 2, "a": 1}, {}, 3),
        ("a", {claim_name("*me", 0): 4, claim_name("*me", 1): 2}, {}, 4),
        (claim_name("a", 0), {}, {claim_name("*other", 0): "other", claim_name("*other", 1): "other"}, 1),
    ],
)
def test_producers_beside_a_new_one(
    joining: str, own: Mapping[str, int], others: Mapping[str, str], expected: int
) -> None:
    assert producers_beside(joining, own, others, lambda session: 5) == expected
