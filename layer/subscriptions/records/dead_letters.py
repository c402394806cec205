"""Where messages go that were delivered often enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pulsar_on_kafka.subscriptions.records.delivery import Delivery


class DeadLetters(Protocol):
    """One consumer's way out for dead letters. Called by the member's thread, which it must not block."""

    @property
    def max_redeliver_count(self) -> int:
        """A message is delivered at most one time more than this."""

    def bury(self, letters: Sequence[Delivery], kept: Callable[[Delivery], None]) -> None:
        """Store the letters, in this order, and acknowledge each once it is durable; `kept`, from any thread, gets
        those that could not be stored."""
