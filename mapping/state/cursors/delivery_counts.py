"""A cursor's saved state says how often messages were delivered.

All of it where a dead letter policy is set; elsewhere only redeliveries as the application saw them (`only_seen`).

    deliveries = limit varint | suspects bitmap
               | counts: count varint, (deliveries varint, redeliveries varint, bitmap)*
               | put off: count varint, (Unix ms varint, bitmap)*
    bitmap     = length varint | portable 64-bit roaring bitmap of offsets

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.state.codecs.layouts import BITMAP, VARINT, record, row, table


@dataclass(frozen=True, slots=True)
class Deliveries:
    """A new owner must know this of what the former one may have handed out.

    `limit`: no offset at or above it was handed out; 0 after an orderly end, when nobody holds anything.
    `suspects`: offsets that were held by a process that died.
    `counts`: offsets by (deliveries up to and including the one that this save permits, redeliveries as the application
    sees them); an offset below `limit` that is not named was delivered once at most. 0 deliveries: nobody counted.
    `put_off`: offsets that nobody holds and that come again, by Unix time in ms.
    """

    limit: int
    suspects: BitMap64 = field(default_factory=BitMap64)
    counts: Mapping[tuple[int, int], BitMap64] = field(default_factory=dict)
    put_off: Mapping[int, BitMap64] = field(default_factory=dict)

    @property
    def only_seen(self) -> bool:
        """Nobody counted deliveries."""
        counted = self.limit or self.suspects or self.put_off
        return not counted and all(delivered == 0 for delivered, _ in self.counts)

    def matter_from(self, next_unacked: int) -> bool:
        """They say something of an offset at or above this one."""
        return self.limit > next_unacked or bool(self.suspects or self.counts or self.put_off)


DELIVERIES: Final = record(
    Deliveries,
    limit=VARINT,
    suspects=BITMAP,
    counts=table(row(VARINT, VARINT), BITMAP),
    put_off=table(VARINT, BITMAP),
)
