"""Housekeeping work is done for one partition of the state topics that are partitioned by topic into 16."""

from __future__ import annotations

from typing import Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline

DAY_MS: Final = 86_400_000
MOST_AT_ONCE: Final = 500
"""Tombstones of one append."""
MOST_TOMBSTONES: Final = 20_000
"""Of one call."""


class Work(Protocol):
    """For one thread. What cannot be done now is told once, and left to the next call."""

    @property
    def name(self) -> str:
        """Its name in metrics."""
        ...

    def run(self, partition: int, deadline: Deadline) -> int:
        """Do it; how many records were written, tombstones among them.

        Raises:
            LayerError: a state topic cannot be read or written.
        """
        ...
