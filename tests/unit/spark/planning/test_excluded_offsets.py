"""Excluded offsets as blocks of words, beside plain sets."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from pyroaring import BitMap, BitMap64

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka_spark.base.errors import NotReadable
from pulsar_on_kafka_spark.planning import excluded_offsets as excluded
from pulsar_on_kafka_spark.planning.excluded_offsets import BLOCK, ExcludedOffsets, block_rows
from pulsar_on_kafka_spark.planning.offset_ranges import Range
from tests.seeds import first_of


def unpacked(rows: Sequence[excluded.BlockRow]) -> set[tuple[int, int]]:
    """(Partition, offset), as Spark's bit test sees them."""
    found = set()
    for key, first, words, _, _ in rows:
        partition, block = key >> excluded.SLOT_BITS, key & (1 << excluded.SLOT_BITS) - 1
        for number, word in enumerate(words):
            assert -(2**63) <= word < 2**63
            found |= {(partition, block * BLOCK + (first + number) * 64 + bit) for bit in range(64) if word >> bit & 1}
    return found


def some_offsets(chance: random.Random, below: int) -> set[int]:
    """Of every kind of container: few and many members, and runs."""
    found: set[int] = set()
    for _ in range(chance.randrange(1, 5)):
        start = chance.randrange(below)
        kind = chance.randrange(3)
        if kind == 0:
            found |= {chance.randrange(below) for _ in range(chance.randrange(1, 50))}
        elif kind == 1:
            found |= set(range(start, min(below, start + chance.choice([1, 100, 70_000, 140_000]))))
        else:
            found |= {o for o in range(start, min(below, start + 70_000)) if chance.random() < 0.3}
    return found


@pytest.mark.parametrize("seed", first_of(6, range(20)))
def test_blocks_hold_what_was_added(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([1, 7, 50_000, 4_194_304])
    offsets = some_offsets(chance, 300_000)
    high = {2**33 + offset for offset in some_offsets(chance, 100_000)}
    made = ExcludedOffsets()
    by_ledger: dict[int, list[int]] = {}
    for offset in offsets:
        by_ledger.setdefault(offset // size, []).append(offset % size)
    for ledger, entries in by_ledger.items():
        members = BitMap(entries)
        if chance.random() < 0.5:
            members.run_optimize()
        made.add(ledger * size, members)
    wide = BitMap64(high)
    made.add_all(wide)
    made.add_all(BitMap64())
    assert unpacked(block_rows({3: made})) == {(3, offset) for offset in offsets | high}
    for offset in [*list(offsets)[:50], *(chance.randrange(300_000) for _ in range(50))]:
        assert (offset in made) == (offset in offsets)


def test_words_that_are_zero_at_the_ends_are_left_out() -> None:
    made = ExcludedOffsets()
    made.add(0, BitMap([40_000]))
    assert block_rows({0: made}) == [(0, 625, [1], [], [])]


def test_messages_of_batches_ride_in_the_row_of_their_block() -> None:
    made = ExcludedOffsets(batches={BLOCK + 5: BatchAckSet(70, 1 << 69 | 1), BLOCK + 9: BatchAckSet(2, 2)})
    assert block_rows({1: made}) == [((1 << 40) + 1, 0, [], [5, 9], [[1, 32], [2]])]


def test_holes_are_runs_of_whole_blocks() -> None:
    made = ExcludedOffsets()
    made.add(0, BitMap(range(3 * BLOCK - 1)))
    made.add_all(BitMap64(range(4 * BLOCK, 5 * BLOCK)))
    assert made.holes(Range(100, 9 * BLOCK)) == [Range(100, 2 * BLOCK), Range(4 * BLOCK, 5 * BLOCK)]
    made.clip(Range(BLOCK, 2 * BLOCK))
    assert list(made.blocks) == [1]


def test_ten_million_offsets_take_seconds_and_megabytes() -> None:
    """Half of 20 million, in ledgers of 50,000."""
    bits = random.Random(1)
    made = ExcludedOffsets()
    member = BitMap([entry for entry in range(50_000) if bits.random() < 0.5])
    for ledger in range(400):
        made.add(ledger * 50_000, member)
    rows = block_rows({0: made})
    assert len(rows) == 306
    assert sum(len(words) for _, _, words, _, _ in rows) <= 306 * 1024
    assert sum(bits.bit_count() for bits in made.blocks.values()) == 400 * len(member)


def test_more_blocks_than_the_driver_is_to_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excluded, "MAX_BLOCKS", 3)
    made = ExcludedOffsets()
    made.add_all(BitMap64(range(0, 4 * BLOCK, BLOCK)))
    with pytest.raises(NotReadable, match="read a part of it"):
        block_rows({0: made})
