"""Delivery of non-persistent messages."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition

PATIENCE_S: Final = 0.05


class NonPersistentDispatch:
    """Acknowledges non-persistent messages when they are delivered, and drops them if no inbox has room. Memory: one
    time.

    No message is redelivered: the cursor follows delivery. Source: Pulsar's NonPersistentDispatcher, which drops
    messages without permits. Differs from Pulsar: messages wait 50 ms for a full inbox, because Kafka delivers in
    batches and a burst does not mean a slow consumer.
    """

    def __init__(self) -> None:
        self.due_s = inf
        """The time, on the monotonic clock, at which messages without room are dropped; infinite without any."""

    def after_dispatch(self, partitions: Iterable[OwnedPartition], *, handed: bool, stuck: bool, now_s: float) -> None:
        """`handed`: messages were just delivered; `stuck`: messages are left without room in any inbox."""
        drop = now_s >= self.due_s
        if handed or not stuck or drop:
            self.due_s = inf
        elif self.due_s == inf:
            self.due_s = now_s + PATIENCE_S
        for owned in partitions:
            owned.pass_by(drop=drop and not handed and stuck)
