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

from pyroaring import BitMap64

from pulsar_on_kafka.mapping.encoding.varint import Reader, write_varint
from pulsar_on_kafka.mapping.state.codecs.bitmaps import read_bitmap, write_bitmap


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


def write_deliveries(out: bytearray, deliveries: Deliveries) -> None:
    write_varint(out, deliveries.limit)
    write_bitmap(out, deliveries.suspects)
    write_varint(out, len(deliveries.counts))
    for (delivered, redelivered), offsets in sorted(deliveries.counts.items(), key=lambda item: item[0]):
        write_varint(out, delivered)
        write_varint(out, redelivered)
        write_bitmap(out, offsets)
    write_varint(out, len(deliveries.put_off))
    for due_ms in sorted(deliveries.put_off):
        write_varint(out, due_ms)
        write_bitmap(out, deliveries.put_off[due_ms])


def read_deliveries(reader: Reader) -> Deliveries:
    """Raises CorruptRecord."""
    limit = reader.varint()
    suspects = read_bitmap(reader)
    counts: dict[tuple[int, int], BitMap64] = {}
    for _ in range(reader.count(3)):
        delivered, redelivered = reader.varint(), reader.varint()
        counts[delivered, redelivered] = read_bitmap(reader)
    put_off: dict[int, BitMap64] = {}
    for _ in range(reader.count(2)):
        due_ms = reader.varint()
        put_off[due_ms] = read_bitmap(reader)
    return Deliveries(limit, suspects, counts, put_off)
