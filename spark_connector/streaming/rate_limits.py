"""A limit says how much a micro-batch takes of what there is. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

_Place = TypeVar("_Place", bound=Hashable)


def share_out(available: Mapping[_Place, int], most: int | None) -> dict[_Place, int]:
    """Of so many offsets in each place, how many to take: `most` together (None: all), each place in proportion, and
    one at least of every place while that is possible. Source: KafkaMicroBatchStream.rateLimit.
    """
    total = sum(available.values())
    if most is None or total <= most:
        return dict(available)
    some = [place for place, count in available.items() if count]
    least = 1 if len(some) <= most else 0
    rest, left_of = most - least * len(some), total - least * len(some)
    shares = dict.fromkeys(available, 0)
    for place in some:
        shares[place] = least + (available[place] - least) * rest // left_of
    left = most - sum(shares.values())
    for place in sorted(some, key=lambda each: shares[each] - available[each])[
        :left
    ]:  # rounding left less than one each
        shares[place] += 1
    return shares


def entries_within(most_bytes: int, sample: Mapping[int, int]) -> int:
    """How many records of the sizes in `sample` (bytes by how many) fit; one at least, so that a stream goes on."""
    count = sum(sample.values())
    size = sum(size * number for size, number in sample.items())
    return max(1, most_bytes if not size else most_bytes * count // size)
