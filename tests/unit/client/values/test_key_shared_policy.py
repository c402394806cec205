"""A Key_Shared policy takes what the official client's takes."""

from __future__ import annotations

from typing import Any

import pytest

import pulsar_on_kafka as pulsar

STICKY, AUTO_SPLIT = pulsar.KeySharedMode.Sticky, pulsar.KeySharedMode.AutoSplit


def test_defaults() -> None:
    policy = pulsar.ConsumerKeySharedPolicy()
    assert (policy.key_shared_mode, policy.allow_out_of_order_delivery, policy.sticky_ranges) == (AUTO_SPLIT, False, [])
    assert isinstance(policy.policy(), pulsar.KeySharedPolicy)


def test_what_is_set_is_shown() -> None:
    policy = pulsar.ConsumerKeySharedPolicy(STICKY, True, [(0, 7), (8, 65535)])
    assert policy.key_shared_mode is STICKY
    assert policy.allow_out_of_order_delivery
    assert policy.sticky_ranges == [(0, 7), (8, 65535)]


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        (None, "must also provide sticky_ranges"), ([], "must not be empty"),
        ([(0, 65536)], r"Ranges must be \[0, 65535\]"), ([(-1, 5)], r"Ranges must be \[0, 65535\]"),
        ([(0, 5), (5, 9)], "overlap"), ([(0, 9), (2, 5)], "overlap"),
    ],
)  # fmt: skip
def test_ranges_that_are_none(ranges: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        pulsar.ConsumerKeySharedPolicy(STICKY, sticky_ranges=ranges)


@pytest.mark.parametrize(
    "arguments",
    [{"key_shared_mode": 3}, {"allow_out_of_order_delivery": 1}, {"sticky_ranges": [(0, "a")]},
     {"sticky_ranges": [(1, 2, 3)]}, {"sticky_ranges": [7]}],
)  # fmt: skip
def test_values_of_another_type(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"expected to be|pairs of int"):
        pulsar.ConsumerKeySharedPolicy(**arguments)
