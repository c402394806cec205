"""Retention as two policies: what counts where, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.policies import (
    RETENTION_SIZE_IN_MB,
    RETENTION_TIME_IN_MINUTES,
    applied,
    applied_retention,
    with_policy,
    without_policies,
)

TIME, SIZE = RETENTION_TIME_IN_MINUTES.name, RETENTION_SIZE_IN_MB.name


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([{}, {}], (0, 0)),
        ([{}, {TIME: 60}], (60, -1)),
        ([{SIZE: 5}, {TIME: 60}], (-1, 5)),  # a level counts as a whole
        ([{TIME: 0}, {TIME: 60, SIZE: 5}], (0, 0)),
        ([{TIME: -1, SIZE: -1}, {TIME: 60}], (-1, -1)),
        ([{}, {TIME: 7, SIZE: 8}], (7, 8)),
    ],
)
def test_the_first_level_that_sets_any_of_the_two_counts(
    levels: list[Mapping[str, Any]], expected: tuple[int, int]
) -> None:
    assert applied_retention(*levels) == expected
    assert (applied(RETENTION_TIME_IN_MINUTES, *levels), applied(RETENTION_SIZE_IN_MB, *levels)) == expected


def test_one_bound_that_keeps_nothing_beside_one_that_keeps_something_is_refused() -> None:
    policies = with_policy({}, TIME, 60)
    policies = with_policy(policies, SIZE, 5)
    with pytest.raises(errors.InvalidOption, match=f"remove {SIZE} first"):
        with_policy(policies, TIME, 0)
    with pytest.raises(errors.InvalidOption, match=f"remove {TIME} first"):
        with_policy(policies, SIZE, 0)
    policies = with_policy(without_policies(policies, SIZE), TIME, 0)
    assert with_policy(policies, SIZE, 0) == {TIME: 0, SIZE: 0}
    with pytest.raises(errors.InvalidOption, match="takes a whole number"):
        with_policy({}, TIME, -2)
