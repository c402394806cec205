"""The greatest matching is the greatest number of pairs that can be made at the same time: augmenting paths, found
breadth first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator


def matching_size(left_size: int, fits: Callable[[int], Iterator[int]]) -> int:
    """How many on the left can get partners of their own on the right.

    Args:
        left_size: the left side is 0 to `left_size`, exclusive.
        fits: those on the right that one on the left may be paired with; asked no further than needed.
    """
    partner: dict[int, int] = {}
    return sum(_augment(left, fits, partner) for left in range(left_size))


def _augment(start: int, fits: Callable[[int], Iterator[int]], partner: dict[int, int]) -> bool:
    """Give `start` a partner, moving others to free ones if need be; `partner` maps right to left."""
    came_from: dict[int, int] = {}
    waiting = [start]
    for left in waiting:
        for right in fits(left):
            if right in came_from:
                continue
            came_from[right] = left
            if right not in partner:
                _rematch(right, start, came_from, partner)
                return True
            waiting.append(partner[right])
    return False


def _rematch(free: int, start: int, came_from: dict[int, int], partner: dict[int, int]) -> None:
    given = {left: right for right, left in partner.items()}
    right = free
    while came_from[right] != start:
        left = came_from[right]
        partner[right] = left
        right = given[left]
    partner[right] = start
