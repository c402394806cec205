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

from pulsar_on_kafka.base.errors import HashRangeConflict, SubscriptionBusy
from pulsar_on_kafka.mapping.routing.sticky_hash import SLOTS, murmur3_32

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

    Memory: one reference a slot (512 KiB), and 100 points a consumer.
    """

    def __init__(self) -> None:
        self._rules: dict[C, KeySharedRule] = {}
        self._points: dict[C, list[int]] = {}
        self._names: dict[C, tuple[str, int]] = {}
        self.table: Sequence[C | None] = [None] * SLOTS
        """Slot to consumer; None: nobody's (gaps between sticky ranges, or no consumer at all)."""

    @property
    def rule(self) -> KeySharedRule | None:
        """What the present consumers agree on; None when there is none."""
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
                f"consumer {name} wants {_text(rule)}, the subscription's consumers have {_text(present)}"
            )
        if rule.sticky_ranges is not None:
            self._check_ranges(name, rule.sticky_ranges)
        else:
            used = {number for other, number in self._names.values() if other == name}
            incarnation = next(number for number in range(len(used) + 1) if number not in used)
            self._names[consumer] = (name, incarnation)
            self._points[consumer] = [
                murmur3_32(f"{name}/{incarnation}/{point}".encode()) % SLOTS for point in range(POINTS_PER_CONSUMER)
            ]
        self._rules[consumer] = rule
        self._rebuild()

    def remove(self, consumer: C) -> None:
        """Give its slots to the others (AutoSplit), or to nobody (sticky ranges)."""
        if self._rules.pop(consumer, None) is None:
            return
        self._points.pop(consumer, None)
        self._names.pop(consumer, None)
        self._rebuild()

    def _check_ranges(self, name: str, ranges: tuple[tuple[int, int], ...]) -> None:
        check_ranges(name, ranges)
        for first, last in ranges:
            taken = next((slot for slot in range(first, last + 1) if self.table[slot] is not None), None)
            if taken is not None:
                raise HashRangeConflict(f"consumer {name} wants [{first}, {last}], another one has slot {taken}")

    def _rebuild(self) -> None:
        table: list[C | None] = [None] * SLOTS
        if self._points:
            # Two consumers on one point: the one that came later gives way.
            owners: dict[int, C] = {}
            for consumer, points in self._points.items():
                for point in points:
                    owners.setdefault(point, consumer)
            ring = sorted(owners)
            start = 0
            for point in ring:
                table[start : point + 1] = [owners[point]] * (point + 1 - start)
                start = point + 1
            table[start:] = [owners[ring[0]]] * (SLOTS - start)
        for consumer, rule in self._rules.items():
            for first, last in rule.sticky_ranges or ():
                table[first : last + 1] = [consumer] * (last + 1 - first)
        self.table = table


def _text(rule: KeySharedRule) -> str:
    mode = "AutoSplit" if rule.sticky_ranges is None else "sticky ranges"
    return f"{mode}, {'out of order allowed' if rule.allow_out_of_order else 'keys in order'}"
