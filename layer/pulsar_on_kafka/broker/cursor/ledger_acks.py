"""Acknowledgements of many entries at once: one bitmap of entry ids, and batch ack sets, for each ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.state.cursors.cursor_state import Holes

LedgerAcks = Mapping[int, Holes]
"""Entry ids by ledger index."""

_ROUND_BYTES: Final = 16
"""The overhead of one ledger or one batch entry in a record, besides its bits."""


def of_offsets(acked: BitMap64, batches: Mapping[int, tuple[int, int]], entries_per_ledger: int) -> dict[int, Holes]:
    """Offsets of a partition, and (batch size, acknowledged bits) of batch entries by offset, ledger by ledger."""
    bitmaps: dict[int, BitMap] = {}
    if acked:
        for index in range(int(acked.min()) // entries_per_ledger, int(acked.max()) // entries_per_ledger + 1):
            base = index * entries_per_ledger
            if acked.range_cardinality(base, base + entries_per_ledger):
                bitmaps[index] = _within(acked, base, entries_per_ledger)
    sets: dict[int, dict[int, tuple[int, int]]] = {}
    for offset, acks in batches.items():
        index, entry = divmod(offset, entries_per_ledger)
        sets.setdefault(index, {})[entry] = acks
    return {index: Holes(bitmaps.get(index, BitMap()), sets.get(index, {})) for index in sorted({*bitmaps, *sets})}


def to_offsets(ledgers: LedgerAcks, entries_per_ledger: int) -> BitMap64:
    """The offsets of the entries that are acknowledged as a whole."""
    found = BitMap64()
    for index, holes in ledgers.items():
        base = index * entries_per_ledger
        found |= BitMap64([base + entry for entry in holes.acked])
    return found


def below(ledgers: LedgerAcks, end: int, entries_per_ledger: int) -> dict[int, Holes]:
    """The acknowledgements below the offset `end`."""
    found = {}
    for index, holes in ledgers.items():
        left = end - index * entries_per_ledger
        if left >= entries_per_ledger:
            found[index] = holes
        elif left > 0:
            acked = holes.acked.copy()
            acked.remove_range(left, entries_per_ledger)
            batches = {entry: acks for entry, acks in holes.batches.items() if entry < left}
            if acked or batches:
                found[index] = Holes(acked, batches)
    return found


def pieces(ledgers: LedgerAcks, max_bytes: int) -> Iterator[dict[int, Holes]]:
    """The same in ascending pieces of at most `max_bytes` each, but for one bitmap that is longer by itself (512 KiB
    at most: see `positions.MAX_ENTRIES_PER_LEDGER`)."""
    piece: dict[int, Holes] = {}
    size = 0
    for index, acked, batches in _grains(ledgers, max_bytes):
        grain = _ROUND_BYTES + _bytes_of(acked) + sum(map(_set_bytes, batches.values()))
        if piece and size + grain > max_bytes:
            yield piece
            piece, size = {}, 0
        known = piece.get(index)
        piece[index] = Holes(acked, batches) if known is None else Holes(known.acked, {**known.batches, **batches})
        size += grain
    if piece:
        yield piece


def _grains(ledgers: LedgerAcks, max_bytes: int) -> Iterator[tuple[int, BitMap, dict[int, tuple[int, int]]]]:
    for index in sorted(ledgers):
        holes = ledgers[index]
        if holes.acked:
            yield index, holes.acked, {}
        sets: dict[int, tuple[int, int]] = {}
        size = 0
        for entry, acks in sorted(holes.batches.items()):
            if sets and size + _set_bytes(acks) > max_bytes // 2:
                yield index, BitMap(), sets
                sets, size = {}, 0
            sets[entry] = acks
            size += _set_bytes(acks)
        if sets:
            yield index, BitMap(), sets


def _within(acked: BitMap64, base: int, size: int) -> BitMap:
    """Runs first: what Spark delivered is mostly without a gap."""
    if acked.contains_range(base, base + size):
        return BitMap(range(size))
    part = acked & BitMap64(range(base, base + size))
    return BitMap([offset - base for offset in part])


def _bytes_of(acked: BitMap) -> int:
    if not acked:
        return 0
    small = acked.copy()
    small.run_optimize()
    return len(small.serialize())


def _set_bytes(acks: tuple[int, int]) -> int:
    return _ROUND_BYTES + (acks[1].bit_length() + 7) // 8
