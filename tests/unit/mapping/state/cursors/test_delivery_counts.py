"""Delivery counts in the saved form of a cursor."""

from __future__ import annotations

import random

import pytest
from pyroaring import BitMap, BitMap64

from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import Marker, decode_index, encode_index
from pulsar_on_kafka_mapping.state.cursors.cursor_state import (
    DELIVERIES,
    CommitMetadata,
    Deliveries,
    Holes,
    Lineage,
    decode_commit_metadata,
    encode_commit_metadata,
)
from tests.seeds import for_each_seed

LINEAGE = Lineage("t" * 22, 1, 2, b"s" * 16, 3, 4)


def some(rng: random.Random) -> Deliveries:
    def offsets() -> BitMap64:
        start = rng.randrange(1 << 40)
        return BitMap64(start + rng.randrange(500) for _ in range(rng.randrange(1, 50)))

    return Deliveries(
        rng.randrange(1 << 40),
        offsets() if rng.random() < 0.5 else BitMap64(),
        {(rng.randrange(5), rng.randrange(5)): offsets() for _ in range(rng.randrange(4))},
        {rng.randrange(1 << 41): offsets() for _ in range(rng.randrange(4))},
    )


@for_each_seed(range(200))
def test_what_goes_in_comes_out(seed: int) -> None:
    deliveries = some(random.Random(seed))
    for given in (deliveries, None):
        metadata = decode_commit_metadata(
            encode_commit_metadata(CommitMetadata(LINEAGE, Holes(BitMap([1])), None, given))
        )
        assert metadata is not None
        assert metadata.deliveries == given
        assert decode_index(encode_index(Marker(LINEAGE, (), deliveries=given))).deliveries == given


def test_a_thousand_neighbours_take_few_bytes() -> None:
    out = bytearray()
    DELIVERIES.write(out, Deliveries(2000, counts={(2, 1): BitMap64(range(1000, 2000))}))
    assert len(out) < 60


@for_each_seed(range(200))
def test_what_is_cut_or_changed_is_corrupt_or_something_else(seed: int) -> None:
    rng = random.Random(seed)
    out = bytearray()
    DELIVERIES.write(out, some(rng))
    with pytest.raises(CorruptRecord):
        DELIVERIES.read(ByteReader(bytes(out[: rng.randrange(len(out))]), "cut"))
