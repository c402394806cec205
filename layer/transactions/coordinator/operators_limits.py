"""Operators' limits of coordinators, set as policies of the cluster or for one process, become settings here. Pure.

Source: Pulsar's broker.conf (`maxActiveTransactionsPerCoordinator`, `transactionLogBatchedWriteMax...`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.metadata.policies import (
    MAX_ACTIVE_TRANSACTIONS_PER_COORDINATOR,
    OF_TRANSACTIONS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_DELAY_IN_MILLIS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_RECORDS,
    TRANSACTION_LOG_BATCHED_WRITE_MAX_SIZE,
    TRANSACTION_MAX_TIMEOUT_IN_SECONDS,
    applied,
    policy_named,
)
from pulsar_on_kafka.transactions.coordinator.rules import CoordinatorSettings


def coordinator_settings(*levels: Mapping[str, Any]) -> CoordinatorSettings:
    """`levels`: what is set, by names of policies: for the process, then for the cluster."""
    return CoordinatorSettings(
        max_open=applied(MAX_ACTIVE_TRANSACTIONS_PER_COORDINATOR, *levels),
        max_timeout_ms=1000 * applied(TRANSACTION_MAX_TIMEOUT_IN_SECONDS, *levels),
        group_records=applied(TRANSACTION_LOG_BATCHED_WRITE_MAX_RECORDS, *levels),
        group_bytes=applied(TRANSACTION_LOG_BATCHED_WRITE_MAX_SIZE, *levels),
        group_delay_ms=applied(TRANSACTION_LOG_BATCHED_WRITE_MAX_DELAY_IN_MILLIS, *levels),
    )


def parsed_limits(words: Mapping[str, str]) -> dict[str, Any]:
    """Values as they are typed, by names of policies. Raises InvalidOption."""
    found: dict[str, Any] = {}
    for name, word in words.items():
        if name not in {policy.name for policy in OF_TRANSACTIONS}:
            names = ", ".join(policy.name for policy in OF_TRANSACTIONS)
            raise errors.InvalidOption(f"{name!r:.60} is no limit of coordinators; there are: {names}")
        found[name] = policy_named(name).parse(word)
    return found
