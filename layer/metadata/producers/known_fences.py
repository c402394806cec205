"""Known fences say where exclusive epochs begin in a topic's partitions, and which of their records nobody needs. Pure.

A producer that has a topic for itself writes the *bounds* of its epoch first (where each partition ended), then its
records, and before its first receipt in a partition the *fence* there: the offset of its first record. So whoever finds
bounds without a fence (the producer died in between, or has not come so far) reads on from the bound to find the first
record by itself, and all agree, wherever they begin to read.

Superfluous is a fence when another, of a higher epoch, lies before it, or both lie at or before the log's start: then
every record that the one makes void is void by the other as well. That never changes back, so it does not matter who
removes it, when, or whether its producer writes it once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pulsar_on_kafka.mapping.state.metadata.producer_records import EpochBounds, EpochFence
from pulsar_on_kafka.mapping.state.state_keys import ProducerBoundsKey, ProducerKey


class Epoch(NamedTuple):
    """An exclusive claim. No two claims of a topic's name have the same number, over all lives of it."""

    name: str
    number: int


class Unresolved(NamedTuple):
    """An epoch that begins, if it does, at `not_below` or behind; at or beyond `end` it would make no difference."""

    epoch: Epoch
    not_below: int
    end: int | None


class KnownFences:
    """Fences of one topic, of all its lives. Memory: one entry for each exclusive epoch and partition that is on
    record."""

    def __init__(self) -> None:
        self.fences: dict[int, dict[Epoch, EpochFence]] = {}
        """By partition."""
        self.bounds: dict[Epoch, EpochBounds] = {}

    def put_fence(self, partition: int, epoch: Epoch, fence: EpochFence | None) -> None:
        of_partition = self.fences.setdefault(partition, {})
        if fence is None:
            of_partition.pop(epoch, None)
        else:
            of_partition[epoch] = fence

    def put_bounds(self, epoch: Epoch, bounds: EpochBounds | None) -> None:
        if bounds is None:
            self.bounds.pop(epoch, None)
        else:
            self.bounds[epoch] = bounds

    def first(self, life: int, partition: int) -> dict[Epoch, int]:
        """The offsets of epochs' first records, of one life."""
        fences = self.fences.get(partition, {})
        return {epoch: fence.first for epoch, fence in fences.items() if fence.topic_incarnation == life}

    def unresolved(self, life: int, partition: int, log_start: int) -> list[Unresolved]:
        """Epochs whose first record has to be looked for. What lay before the log's start is gone, and not missed."""
        first = self.first(life, partition)
        found = []
        for epoch, bounds in self.bounds.items():
            if bounds.topic_incarnation != life or epoch in first:
                continue
            ends = bounds.ends
            not_below = max(ends[partition] if partition < len(ends) else 0, log_start)
            end = min((offset for other, offset in first.items() if other.number > epoch.number), default=None)
            if end is None or not_below < end:
                found.append(Unresolved(epoch, not_below, end))
        return found

    def raised(self, epoch: Epoch, partition: int, not_below: int) -> tuple[int, ...] | None:
        """The epoch's bounds with a higher one for a partition; None when they are gone, or as high already."""
        bounds = self.bounds.get(epoch)
        if bounds is None:
            return None
        ends = [*bounds.ends, *[0] * (partition + 1 - len(bounds.ends))]
        if ends[partition] >= not_below:
            return None
        ends[partition] = not_below
        return tuple(ends)

    def superfluous(
        self, topic: str, life: int, log_starts: Mapping[int, int]
    ) -> Iterator[ProducerKey | ProducerBoundsKey]:
        """Keys whose records nobody needs. `log_starts`: of every partition of the topic."""
        for partition, fences in self.fences.items():
            first = self.first(life, partition)
            log_start = log_starts.get(partition, 0)
            for epoch, fence in fences.items():
                of_life, reach = fence.topic_incarnation, max(fence.first, log_start)
                if of_life < life or (
                    of_life == life and any(o.number > epoch.number and at <= reach for o, at in first.items())
                ):
                    yield ProducerKey(topic, partition, epoch.name, epoch.number)
        looked_for = {
            found.epoch for partition, start in log_starts.items() for found in self.unresolved(life, partition, start)
        }
        for epoch, bounds in self.bounds.items():
            of_life = bounds.topic_incarnation
            if of_life < life or (of_life == life and epoch not in looked_for):
                yield ProducerBoundsKey(topic, epoch.name, epoch.number)
