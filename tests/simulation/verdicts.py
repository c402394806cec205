"""Counts of the verdicts about deletions to which many histories came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from pulsar_on_kafka.broker.managed_ledger.deletion import DeletionVerdict


class JudgedHistory(Protocol):
    """`verdicts`: how often it came to each one."""

    verdicts: dict[DeletionVerdict, int]

    def run(self) -> object: ...


def verdicts_of(histories: Iterable[JudgedHistory]) -> Mapping[DeletionVerdict, int]:
    """Run them, one after the other, and add up their verdicts: each one, also what none of them came to."""
    found = dict.fromkeys(DeletionVerdict, 0)
    for history in histories:
        history.run()
        for verdict, count in history.verdicts.items():
            found[verdict] += count
    return found
