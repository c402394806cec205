"""Hash ranges give each key to one consumer of a Key_Shared subscription. Pure: consumers in, a table of slots out.

A key's slot is Pulsar's own (`mapping.routing.sticky_hash`), so sticky ranges mean the same keys as in Pulsar.
AutoSplit puts 100 points of each consumer on a ring of 65,536 slots; a slot belongs to the next point at or above it
(behind the last one, to the lowest). A consumer that comes or goes moves only the slots that it gets or had. Source:
ConsistentHashingStickyKeyConsumerSelector of Pulsar 4.0, the default there. Differs from Pulsar: a consumer's points
are `name/incarnation/number`, so the same consumers may own other keys than there; which consumer a key goes to was
never promised.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pyroaring import BitMap

from pulsar_on_kafka.base.errors import HashRangeConflict, SubscriptionBusy
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS, murmur3_32

POINTS_PER_CONSUMER: Final = 100
"""Source: Pulsar's `subscriptionKeySharedConsistentHashingReplicaPoints`."""

C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class KeySharedRule:
    """The key-shared policy that a consumer asks for. `sticky_ranges` are (first, last) slots, both inclusive; None is
    AutoSplit."""

    sticky_ranges: tuple[tuple[int, int], ...] | None = None
    allow_out_of_order: bool = False

    def agrees_with(self, other: KeySharedRule) -> bool:
        """Both may be on one subscription. Source: PersistentStickyKeyDispatcherMultipleConsumers."""
        return (
            self.allow_out_of_order is other.allow_out_of_order
            and (self.sticky_ranges is None) is (other.sticky_ranges is None)
        )  # fmt: skip


def check_ranges(name: str, ranges: Iterable[tuple[int, int]]) -> None:
    """Raises HashRangeConflict: consumer `name` asks for slots that are none."""
    for first, last in ranges:
        if not 0 <= first <= last < SLOTS:
            raise HashRangeConflict(f"consumer {name} wants [{first}, {last}], expected 0 <= first <= last < {SLOTS}")


class HashRanges(Generic[C]):
    """The consumers of one subscription in this process and the slots of each.

    A consumer that comes or goes costs a copy of the table, and its own points. Memory: one reference a slot (512 KiB),
    and 100 points a consumer.
    """

    def __init__(self) -> None:
        self._rules: dict[C, KeySharedRule] = {}
        self._ring = BitMap()
        """The points of all consumers."""
        self._claims: dict[int, list[C]] = {}
        """By point, the consumers that have it: the one that came first owns it."""
        self._points: dict[C, set[int]] = {}
        self._incarnations: dict[str, set[int]] = {}
        """By name, the incarnations of it that are there."""
        self._names: dict[C, tuple[str, int]] = {}
        self.table: Sequence[C | None] = [None] * SLOTS
        """Slot to consumer; None for slots without a consumer (gaps between sticky ranges, or no consumer at all).
        Replaced, never changed."""

    @property
    def rule(self) -> KeySharedRule | None:
        """The policy of the attached consumers; None without a consumer."""
        return next(iter(self._rules.values()), None)

    def add(self, consumer: C, name: str, rule: KeySharedRule) -> None:
        """Give a consumer its slots.

        Raises:
            SubscriptionBusy: the consumers there have another mode, or another order of delivery.
            HashRangeConflict: one of its ranges overlaps with another consumer's.
        """
        present = self.rule
        if present is not None and not present.agrees_with(rule):
            raise SubscriptionBusy(
                f"consumer {name} requires {_text(rule)}, the subscription's consumers have {_text(present)}"
            )
        table = list(self.table)
        if rule.sticky_ranges is not None:
            self._check_ranges(name, rule.sticky_ranges)
            for first, last in rule.sticky_ranges:
                table[first : last + 1] = [consumer] * (last + 1 - first)
        else:
            for point in self._take_points(consumer, name):
                claims = self._claims.setdefault(point, [])
                claims.append(consumer)
                if len(claims) == 1:
                    self._ring.add(point)
                    self._paint(table, point)
        self._rules[consumer] = rule
        self.table = table

    def remove(self, consumer: C) -> None:
        """Gives its slots to the other consumers (AutoSplit), or to none (sticky ranges)."""
        rule = self._rules.pop(consumer, None)
        if rule is None:
            return
        table = list(self.table)
        for first, last in rule.sticky_ranges or ():
            table[first : last + 1] = [None] * (last + 1 - first)
        if consumer in self._names:
            name, incarnation = self._names.pop(consumer)
            self._incarnations[name].discard(incarnation)
            if not self._incarnations[name]:
                del self._incarnations[name]
        for point in self._points.pop(consumer, ()):
            claims = self._claims[point]
            claims.remove(consumer)
            if not claims:
                del self._claims[point]
                self._ring.remove(point)
            self._paint(table, point)
        self.table = table

    def _take_points(self, consumer: C, name: str) -> set[int]:
        used = self._incarnations.setdefault(name, set())
        incarnation = next(number for number in range(len(used) + 1) if number not in used)
        used.add(incarnation)
        self._names[consumer] = (name, incarnation)
        points = self._points[consumer] = {
            murmur3_32(f"{name}/{incarnation}/{point}".encode()) % SLOTS for point in range(POINTS_PER_CONSUMER)
        }
        return points

    def _paint(self, table: list[C | None], point: int) -> None:
        """Give the slots that lie before a point, which came or went, to the owner of the next point at or above it."""
        ring = self._ring
        if not ring:
            table[:] = [None] * SLOTS
            return
        below = ring.rank(point - 1) if point else 0  # so many points
        end = ring[below] if below < len(ring) else ring[0]
        owner = self._claims[end][0]
        if 0 < below < len(ring):
            start = ring[below - 1] + 1
            table[start : end + 1] = [owner] * (end + 1 - start)
            return
        start = ring[len(ring) - 1] + 1  # around the end of the slots
        table[start:] = [owner] * (SLOTS - start)
        table[: end + 1] = [owner] * (end + 1)

    def _check_ranges(self, name: str, ranges: tuple[tuple[int, int], ...]) -> None:
        check_ranges(name, ranges)
        for first, last in ranges:
            requested = self.table[first : last + 1]
            if requested.count(None) < len(requested):
                taken = next(slot for slot in range(first, last + 1) if self.table[slot] is not None)
                raise HashRangeConflict(f"consumer {name} wants [{first}, {last}], another one has slot {taken}")


def _text(rule: KeySharedRule) -> str:
    mode = "AutoSplit" if rule.sticky_ranges is None else "sticky ranges"
    return f"{mode}, {'out of order allowed' if rule.allow_out_of_order else 'keys in order'}"
