"""A view of fence records: where epochs of exclusive producers, of replicators and of producer names begin in a topic's
partitions, and which fence records are superfluous. Pure.

A producer that has a topic for itself writes the *bounds* of its epoch first (where each partition ended), then its
records, and before its first receipt in a partition the *fence* there: the offset of its first record. So a reader that
finds bounds without a fence (the producer died in between, or is still sending) reads on from the bound to find the
first record. All readers agree, wherever they begin to read.

A fence is superfluous when another, of a higher epoch, lies before it, or both lie at or before the log's start: then
the other fence voids the same records. This state is final, so any process may remove the fence at any time, even if
its producer writes it once more.

A replicator, or the holder of a producer name, that takes over from one that may still write records a *bound* (where
the partition ended), appends its marker, and records where that lies, under one key, before it writes anything else. A
reader that finds a bound alone searches for the marker from there on. So all readers agree about the beginning of the
epoch, whichever process dies in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pulsar_on_kafka.statelog.api import LogRecord, put
from pulsar_on_kafka_mapping.state.metadata.producer_records import (
    EpochBounds,
    EpochFence,
    ProducerHeartbeat,
    TakeOverBound,
    decode_bounds,
    decode_fence,
    decode_producer_heartbeat,
    decode_take_over,
)
from pulsar_on_kafka_mapping.state.state_keys import (
    ProducerBoundsKey,
    ProducerKey,
    ProducerSessionKey,
    TakeOverKey,
    decode_key,
)


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
        """Fences by partition."""
        self.bounds: dict[Epoch, EpochBounds] = {}

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
        """Keys of superfluous records. `log_starts`: of every partition of the topic."""
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


class OriginEpoch(NamedTuple):
    """An epoch of a replicator, or of a producer name (`epoch_fences.name_origin`). The later one of two with one
    origin has the higher number."""

    origin: str
    number: int


class KnownTakeOvers:
    """Take-overs by replicators and by holders of producer names in one topic, in all its lives. Memory: one entry for
    each epoch and partition that is on record."""

    def __init__(self) -> None:
        self.fences: dict[int, dict[str, dict[int, TakeOverBound]]] = {}
        """Bounds by partition, origin and number of the epoch."""

    def put(self, partition: int, epoch: OriginEpoch, fence: TakeOverBound | None) -> None:
        """Apply what is on record of an epoch in a partition; None where it was removed."""
        origins = self.fences.setdefault(partition, {})
        put(origins.setdefault(epoch.origin, {}), epoch.number, fence)
        if not origins[epoch.origin]:
            del origins[epoch.origin]

    def of(self, life: int, partition: int, origin: str | None = None) -> dict[OriginEpoch, TakeOverBound]:
        """Bounds of one incarnation of the topic; of one `origin`, or of all."""
        origins = self.fences.get(partition, {})
        return {
            OriginEpoch(each, number): fence
            for each in (origins if origin is None else (origin,))
            for number, fence in origins.get(each, {}).items()
            if fence.topic_incarnation == life
        }

    def superfluous(self, topic: str, life: int, partition: int, log_start: int) -> Iterator[TakeOverKey]:
        """Keys of superfluous records: of earlier incarnations, behind the marker of a higher epoch of their origin,
        and before the log's start all but each origin's newest."""
        for origin, epochs in self.fences.get(partition, {}).items():
            begun: int | None = None
            """The beginning of a higher epoch, the first one of these in the log."""
            for number, fence in sorted(epochs.items(), reverse=True):
                passed = begun is not None and begun <= max(fence.offset, log_start - 1)
                if fence.topic_incarnation < life or (fence.topic_incarnation == life and passed):
                    yield TakeOverKey(topic, partition, origin, number)
                if fence.exact and fence.topic_incarnation == life:
                    begun = fence.offset if begun is None else min(begun, fence.offset)


class HeartbeatsAndFences:
    """Fold of one partition of `producers`: the sessions' heartbeats, and where epochs of exclusive producers, of
    replicators and of producer names begin."""

    def __init__(self) -> None:
        self.heartbeats: dict[tuple[str, str], ProducerHeartbeat] = {}
        self.fences: dict[str, KnownFences] = {}
        self.take_overs: dict[str, KnownTakeOvers] = {}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        kept: dict[Any, Any]
        at: Any
        decode: Callable[[bytes], Any]
        match key:
            case ProducerSessionKey():
                kept, at, decode = self.heartbeats, (key.topic, key.session), decode_producer_heartbeat
            case ProducerKey():
                kept = self.fences.setdefault(key.topic, KnownFences()).fences.setdefault(key.partition, {})
                at, decode = Epoch(key.producer_name, key.epoch), decode_fence
            case ProducerBoundsKey():
                kept = self.fences.setdefault(key.topic, KnownFences()).bounds
                at, decode = Epoch(key.producer_name, key.epoch), decode_bounds
            case TakeOverKey():
                begun = None if record.value is None else decode_take_over(record.value)
                of_topic = self.take_overs.setdefault(key.topic, KnownTakeOvers())
                of_topic.put(key.partition, OriginEpoch(key.origin, key.epoch), begun)
                return
            case _:
                return
        value: Any = None if record.value is None else decode(record.value)
        put(kept, at, value)
