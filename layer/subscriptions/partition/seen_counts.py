"""Redelivery counts as the application sees them, where nobody counts deliveries: they travel with saves. No I/O.

They are no reason to save: they ride in saves that are made anyway, and in the one of an owner that gives a partition
up. So they survive each move in good order; a crash takes those that no save held yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.state.codecs.layouts import compressed
from pulsar_on_kafka.mapping.state.cursors.cursor_state import Deliveries

MOST_BYTES: Final = 1_000
"""Of bitmaps in one save, so that they fit a commit beside some holes. Neighbours take next to nothing, single messages
about 2 bytes each, and each count about 30."""


def to_save(redeliveries: Mapping[int, int], is_acknowledged: Callable[[int], bool]) -> Deliveries | None:
    """The counts above 0 of what is not acknowledged, the highest first, of each the lowest offsets, as far as
    `MOST_BYTES` reach; None for none."""
    by_count: dict[int, list[int]] = {}
    for offset, count in redeliveries.items():
        if count > 0 and not is_acknowledged(offset):
            by_count.setdefault(count, []).append(offset)
    room = MOST_BYTES
    counts: dict[tuple[int, int], BitMap64] = {}
    for count in sorted(by_count, reverse=True):
        offsets = sorted(by_count[count])
        found = BitMap64(offsets)
        while offsets and len(compressed(found)) > room:
            offsets = offsets[: len(offsets) // 2]
            found = BitMap64(offsets)
        if not found:
            break
        counts[0, count] = found
        room -= len(compressed(found))
    return Deliveries(0, counts=counts) if counts else None
