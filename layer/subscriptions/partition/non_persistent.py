"""Non-persistent topics: what was handed out is done with, and what finds no room is dropped.

Nothing is ever delivered again: the cursor stands where reading and handing out stand. Source: Pulsar's
NonPersistentDispatcher, which drops what a consumer has no permits for. Differs from Pulsar: a full inbox gets 50 ms to
be taken from first, since Kafka delivers in batches and a burst is not yet a slow consumer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pulsar_on_kafka.subscriptions.partition.partition import OwnedPartition

PATIENCE_S: Final = 0.05


class NonPersistentDispatch:
    """Non-persistent messages of one membership are acknowledged when they are handed out, and dropped when they find
    no room; used by its thread. Memory: none beside a time."""

    def __init__(self) -> None:
        self._full_since_s: float | None = None

    def after_dispatch(self, partitions: Iterable[OwnedPartition], *, handed: bool, stuck: bool, now_s: float) -> None:
        """`handed`: some inbox took something just now; `stuck`: messages are left that no inbox takes."""
        if handed or not stuck:
            self._full_since_s = None
        elif self._full_since_s is None:
            self._full_since_s = now_s
        drop = self._full_since_s is not None and now_s - self._full_since_s > PATIENCE_S
        for owned in partitions:
            if drop:
                owned.drop_waiting()
            owned.pass_by()
