"""A Key_Shared policy decides the distribution of keys to a consumer. Source: `pulsar.ConsumerKeySharedPolicy`,
`_pulsar.KeySharedPolicy`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka.broker.subscriptions.records.hash_ranges import KeySharedRule
from pulsar_on_kafka.client.values.enums import KeySharedMode
from pulsar_on_kafka_mapping.routing.sticky_hash import SLOTS


class KeySharedPolicy:
    """The policy has a mode, ranges of hash slots (both ends inclusive), and allows or forbids out-of-order delivery
    when consumers change."""

    def __init__(self) -> None:
        self._mode = KeySharedMode.AutoSplit
        self._out_of_order = False
        self._ranges: list[tuple[int, int]] = []

    def set_key_shared_mode(self, key_shared_mode: KeySharedMode) -> KeySharedPolicy:
        """Choose whether ranges are assigned or named."""
        self._mode = of_type(KeySharedMode, "key_shared_mode", key_shared_mode)
        return self

    def get_key_shared_mode(self) -> KeySharedMode:
        """Whether ranges are assigned or named."""
        return self._mode

    def set_allow_out_of_order_delivery(self, allow_out_of_order_delivery: bool) -> KeySharedPolicy:
        """Choose whether a key may go to another consumer before its messages are acknowledged."""
        self._out_of_order = of_type(bool, "allow_out_of_order_delivery", allow_out_of_order_delivery)
        return self

    def is_allow_out_of_order_delivery(self) -> bool:
        """Whether a key may go to another consumer before its messages are acknowledged."""
        return self._out_of_order

    def set_sticky_ranges(self, sticky_ranges: Sequence[tuple[int, int]]) -> KeySharedPolicy:
        """Raises ValueError: none at all, a number outside of 0 to 65,535, or ranges that overlap.

        A range whose end lies before its start is refused by `subscribe` (`ConsumerAssignError`), as officially.
        """
        ranges = [_range(given) for given in sticky_ranges]
        if not ranges:
            raise ValueError("Ranges for KeyShared policy must not be empty.")
        for first, last in ranges:
            if not (0 <= first < SLOTS and 0 <= last < SLOTS):
                raise ValueError(f"KeySharedPolicy Exception: Ranges must be [0, 65535], got [{first}, {last}].")
        for one, other in combinations(ranges, 2):
            if one[0] <= other[1] and other[0] <= one[1]:
                raise ValueError(f"Ranges for KeyShared policy with overlap: {list(one)} and {list(other)}.")
        self._ranges = ranges
        return self

    def get_sticky_ranges(self) -> list[tuple[int, int]]:
        """The named hash ranges, both ends included."""
        return list(self._ranges)


class ConsumerKeySharedPolicy:
    """A consumer takes this policy with `subscribe(key_shared_policy=...)`."""

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: list[tuple[int, int]] | None = None,
    ) -> None:
        """With AutoSplit the slots are spread over the consumers and `sticky_ranges` have no effect.

        Args:
            allow_out_of_order_delivery: a key moves to its new consumer at once when consumers connect or leave, also
                while the former one has messages of it.
            sticky_ranges: (first, last) slots of 0 to 65,535, both inclusive. The consumers of a subscription divide
                them; messages of unassigned slots wait.

        Raises:
            ValueError: Sticky without ranges, ranges outside of 0 to 65,535 or overlapping.
        """
        if key_shared_mode is KeySharedMode.Sticky and sticky_ranges is None:
            raise ValueError("When using key_shared_mode = KeySharedMode.Sticky you must also provide sticky_ranges")
        self._policy = KeySharedPolicy()
        self._policy.set_key_shared_mode(key_shared_mode)
        self._policy.set_allow_out_of_order_delivery(allow_out_of_order_delivery)
        if sticky_ranges is not None:
            self._policy.set_sticky_ranges(sticky_ranges)

    @property
    def key_shared_mode(self) -> KeySharedMode:
        """Whether ranges are assigned or named."""
        return self._policy.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        """Whether a key may go to another consumer before its messages are acknowledged."""
        return self._policy.is_allow_out_of_order_delivery()

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        """The named hash ranges, both ends included."""
        return self._policy.get_sticky_ranges()

    def policy(self) -> KeySharedPolicy:
        """The policy as the extension's class, as officially."""
        return self._policy


def key_shared_rule(policy: ConsumerKeySharedPolicy | None) -> KeySharedRule:
    """The dispatcher's rule; without a policy AutoSplit with keys in order."""
    if policy is None:
        return KeySharedRule()
    sticky = policy.key_shared_mode is KeySharedMode.Sticky
    return KeySharedRule(tuple(policy.sticky_ranges) if sticky else None, policy.allow_out_of_order_delivery)


def _range(given: object) -> tuple[int, int]:
    if isinstance(given, (tuple, list)) and len(given) == 2 and all(type(number) is int for number in given):
        return given[0], given[1]
    raise TypeError(f"sticky_ranges are pairs of int, got {given!r:.60}")
