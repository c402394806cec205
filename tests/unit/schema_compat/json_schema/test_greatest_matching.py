"""The greatest matching leaves as few as possible without a partner."""

from __future__ import annotations

from pulsar_on_kafka_schema_compat.json_schema.json_schema_checker import matching_size


def test_the_greatest_matching_moves_partners() -> None:
    fits = {0: [0, 1], 1: [0], 2: [1, 2], 3: [2]}
    assert matching_size(4, lambda left: iter(fits[left])) == 3
    assert matching_size(3, lambda left: iter(fits[left])) == 3
