"""Limits of coordinators that operators set."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.metadata.policies import OF_TRANSACTIONS, check_level
from pulsar_on_kafka.broker.transactions.coordinator.rules import (
    CoordinatorSettings,
    coordinator_settings,
    parsed_limits,
)


def test_what_nobody_sets_is_what_it_always_was() -> None:
    assert coordinator_settings({}, {}) == CoordinatorSettings()


def test_what_a_process_sets_counts_before_the_clusters() -> None:
    of_process = parsed_limits({
        "transaction_log_batched_write_max_size": "64K",
        "transaction_log_batched_write_max_delay_in_millis": "7",
    })  # fmt: skip
    of_cluster = {
        "transaction_log_batched_write_max_delay_in_millis": 3,
        "transaction_log_batched_write_max_records": 11,
        "transaction_max_timeout_in_seconds": 60,
        "max_active_transactions_per_coordinator": 5,
    }
    assert coordinator_settings(of_process, of_cluster) == CoordinatorSettings(
        max_open=5, max_timeout_ms=60_000, group_records=11, group_bytes=65_536, group_delay_ms=7
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"max_open": "3"}, "'max_open' is no limit of coordinators; there are: max_active_transactions"),
        ({"deduplication": "true"}, "is no limit of coordinators"),
        ({"transaction_log_batched_write_max_records": "0"}, "takes a whole number of 1 to"),
        ({"transaction_max_timeout_in_seconds": "soon"}, "takes a whole number"),
    ],
)
def test_a_wrong_limit_is_refused_by_name(words: dict[str, str], reason: str) -> None:
    with pytest.raises(errors.InvalidOption, match=reason):
        parsed_limits(words)


def test_they_are_policies_of_the_cluster_alone() -> None:
    for policy in OF_TRANSACTIONS:
        check_level(policy.name, cluster=True)
        with pytest.raises(errors.InvalidOption, match="is one of the cluster: set it with pok cluster policy"):
            check_level(policy.name, cluster=False)
