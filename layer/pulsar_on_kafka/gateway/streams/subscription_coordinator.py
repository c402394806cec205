"""Consumers of one subscription share the segments of a topic: no I/O.

A consumer is known by its name. Consumers are sorted by name, segments by their first hash slot, and the segments are
dealt in turn. So the assignment depends on the names and the layout alone, and each gateway computes the same one. A
consumer whose connection is lost keeps its segments for a grace time. Consumers beyond the number of segments have
none. Source: Pulsar's SubscriptionCoordinator and ConsumerSession, 5.0.1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pulsar_on_kafka_mapping.routing.topic_layouts import LayoutSegment, TopicLayout

GRACE_S: Final = 60.0
"""Pulsar's default of `scalableTopicConsumerSessionGracePeriodSeconds`."""

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SegmentAssignment:
    """The segments of one consumer, by the layout of this epoch."""

    epoch: int
    segments: tuple[LayoutSegment, ...]


def deal(segments: Iterable[LayoutSegment], names: Iterable[str]) -> dict[str, tuple[LayoutSegment, ...]]:
    """The segments of each consumer name. Each segment has one consumer if there are any names."""
    consumers = sorted(set(names))
    ordered = sorted(segments, key=lambda segment: (segment.hash_start, segment.segment_id))
    return {name: tuple(ordered[place :: len(consumers)]) for place, name in enumerate(consumers)}


@dataclass(slots=True)
class _Connected(Generic[C]):
    connection: C
    reported: SegmentAssignment | None = None
    """The last assignment that the consumer got."""


class SubscriptionCoordinator(Generic[C]):
    """Not thread-safe. `C` identifies a consumer on one connection: the consumer that connects again is another one.

    The names of the consumers are those on record (`recorded`), also while a consumer is connected. Memory: an entry
    for each name.
    """

    def __init__(self, layout: TopicLayout, grace_s: float = GRACE_S) -> None:
        self.layout = layout
        self._grace_s = grace_s
        self._version = 0
        self._connected: dict[str, _Connected[C]] = {}
        self._expires_s: dict[str, float] = {}
        """By name, the end of the grace time of each consumer on record that is not connected."""
        self._assigned: dict[str, tuple[LayoutSegment, ...]] = {}

    # What happens -------------------------------------------------------------------------------------------------

    def recorded(self, version: int, names: Collection[str], now_s: float) -> None:
        """The record of the subscription's consumers was read or written. An older version than the last is ignored.
        A name that is not connected here has its whole grace time from now on."""
        if version <= self._version:
            return
        self._version = version
        self._expires_s = {
            name: self._expires_s.get(name, now_s + self._grace_s) for name in names if name not in self._connected
        }
        self._assigned = deal(self.layout.segments, names)

    def connect(self, name: str, connection: C) -> None:
        """A consumer has connected. It follows another consumer of its name, as in Pulsar: that one gets no more
        assignments."""
        self._connected[name] = _Connected(connection)
        self._expires_s.pop(name, None)

    def disconnect(self, name: str, connection: C, now_s: float) -> bool:
        """A connection was lost. False: the consumer is not connected by it."""
        if not self.is_connected(name, connection):
            return False
        del self._connected[name]
        if name in self._assigned:
            self._expires_s[name] = now_s + self._grace_s
        return True

    def change_layout(self, layout: TopicLayout) -> None:
        """The topic has got more partitions."""
        self.layout = layout
        self._assigned = deal(layout.segments, self._assigned)

    # What follows -------------------------------------------------------------------------------------------------

    @property
    def names(self) -> Collection[str]:
        """The names on record."""
        return self._assigned.keys()

    @property
    def connections(self) -> Sequence[C]:
        return [each.connection for each in self._connected.values()]

    @property
    def is_empty(self) -> bool:
        return not (self._connected or self._assigned)

    def is_connected(self, name: str, connection: C) -> bool:
        """Whether the consumer of this name is connected by this connection."""
        found = self._connected.get(name)
        return found is not None and found.connection == connection

    def unrecorded(self) -> list[str]:
        """Connected consumers that another gateway has removed from the record: they have to be registered again."""
        return sorted(self._connected.keys() - self._assigned.keys())

    def expired(self, now_s: float) -> list[str]:
        """Consumers whose grace time has ended."""
        return sorted(name for name, expires_s in self._expires_s.items() if expires_s <= now_s)

    @property
    def next_expiry_s(self) -> float:
        """The end of the first grace time; infinite for none."""
        return min(self._expires_s.values(), default=math.inf)

    def assignment(self, name: str) -> SegmentAssignment:
        """The segments of a consumer; none for a name that is not on record."""
        return SegmentAssignment(self.layout.epoch, self._assigned.get(name, ()))

    def report(self, name: str) -> SegmentAssignment:
        """The assignment of a connected consumer, which gets it now."""
        found = self._connected[name].reported = self.assignment(name)
        return found

    def updates(self) -> list[tuple[C, SegmentAssignment]]:
        """Connected consumers whose assignment has changed since their last one, with the new one, which they get
        now."""
        changed = [name for name, each in self._connected.items() if each.reported != self.assignment(name)]
        return [(self._connected[name].connection, self.report(name)) for name in sorted(changed)]
