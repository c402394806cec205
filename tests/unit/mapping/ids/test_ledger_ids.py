"""Ledgers, rule by rule."""

from __future__ import annotations

import pickle

import pytest

from pulsar_on_kafka_mapping.errors import FieldExhausted, ForeignLedger, InvalidMessageId, MappingError
from pulsar_on_kafka_mapping.ids.ledger_ids import (
    MAX_GENERATION,
    MAX_INCARNATION,
    LedgerLayout,
    incarnation_of,
    unpack_ledger_id,
)

LAYOUT = LedgerLayout(incarnation=5, entries_per_ledger=100)


def test_entries_count_from_zero_in_each_ledger() -> None:
    first, second = LAYOUT.ledger_id(0, 0), LAYOUT.ledger_id(0, 1)
    assert [LAYOUT.position(0, offset) for offset in (0, 99, 100)] == [(first, 0), (first, 99), (second, 0)]


def test_an_id_tells_incarnation_partition_and_index() -> None:
    assert unpack_ledger_id(LAYOUT.ledger_id(3, 7)) == (5, 3, 7)


def test_the_largest_fields_fit_63_bits() -> None:
    assert LedgerLayout(MAX_INCARNATION, 1).ledger_id(8191, 2**23 - 1) == 2**63 - 1


def test_a_range_ends_exclusive() -> None:
    assert LAYOUT.ledger_range(2) == (200, 300)


@pytest.mark.parametrize("partition", [0, 3])
def test_kafka_offset_is_the_inverse_of_position(partition: int) -> None:
    assert LAYOUT.kafka_offset(partition, *LAYOUT.position(partition, 12_345)) == 12_345


@pytest.mark.parametrize(
    "ledger_id",
    [LAYOUT.ledger_id(1, 0), LedgerLayout(6, 100).ledger_id(0, 0), -1, 2**63 - 1, 2**63, 2**80],
    ids=["another partition", "another life", "earliest", "latest", "64 bits", "80 bits"],
)
def test_a_foreign_ledger_is_refused(ledger_id: int) -> None:
    with pytest.raises(ForeignLedger, match=f"{ledger_id}.*expected one of incarnation 5, partition 0"):
        LAYOUT.kafka_offset(0, ledger_id, 0)


@pytest.mark.parametrize("entry_id", [-1, 100])
def test_an_entry_outside_its_ledger_is_refused(entry_id: int) -> None:
    with pytest.raises(InvalidMessageId, match=f"entry id is {entry_id} .*0 to 99"):
        LAYOUT.kafka_offset(0, LAYOUT.ledger_id(0, 0), entry_id)


@pytest.mark.parametrize(("partition", "offset"), [(8192, 0), (0, 100 * 2**23)])
def test_an_exhausted_field_is_said(partition: int, offset: int) -> None:
    with pytest.raises(FieldExhausted):
        LAYOUT.position(partition, offset)


@pytest.mark.parametrize(("partition", "offset"), [(-1, 0), (0, -1)])
def test_negative_places_are_refused(partition: int, offset: int) -> None:
    with pytest.raises(InvalidMessageId):
        LAYOUT.position(partition, offset)


@pytest.mark.parametrize("size", [0, -1, 4_194_305])
def test_an_impossible_ledger_size_is_refused(size: int) -> None:
    with pytest.raises(MappingError, match="1 to 4194304"):
        LedgerLayout(1, size)


def test_an_incarnation_beyond_27_bits_is_exhausted() -> None:
    with pytest.raises(FieldExhausted):
        LedgerLayout(MAX_INCARNATION + 1)


def test_incarnation_is_the_place_of_the_creation_record() -> None:
    assert incarnation_of(creation_offset=10, state_partition=3, state_partitions=8) == 83


def test_the_last_incarnation_is_followed_by_an_error() -> None:
    assert incarnation_of(2**24 - 1, 7, 8) == MAX_INCARNATION
    with pytest.raises(FieldExhausted):
        incarnation_of(2**24, 0, 8)


@pytest.mark.parametrize("place", [(-1, 0, 8), (0, 8, 8), (0, -1, 8)])
def test_an_impossible_place_is_refused(place: tuple[int, int, int]) -> None:
    with pytest.raises(MappingError):
        incarnation_of(*place)


@pytest.mark.parametrize("ledger_id", [-1, 2**63])
def test_only_63_bits_unpack(ledger_id: int) -> None:
    with pytest.raises(InvalidMessageId):
        unpack_ledger_id(ledger_id)


def test_a_layout_travels_to_executors() -> None:
    travelled = pickle.loads(pickle.dumps(LAYOUT))  # noqa: S301 - our own bytes
    assert travelled == LAYOUT
    assert travelled.position(1, 250) == LAYOUT.position(1, 250)


def test_ids_of_a_later_generation_are_greater_and_mean_the_same() -> None:
    here, there = LedgerLayout(76), LedgerLayout(4)
    places = [
        layout.in_generation(generation).position(3, offset)
        for generation, (layout, offset) in enumerate([(here, 700_000), (there, 5), (here, 0), (there, 6)])
    ]
    assert places == sorted(places)
    assert [here.kafka_offset(3, *place) for place in (places[0], places[2])] == [700_000, 0]
    with pytest.raises(ForeignLedger):
        here.kafka_offset(3, *places[1])
    assert here.without_generation(places[2][0]) == here.position(3, 0)[0]
    assert here.in_generation(1_000).generation == MAX_GENERATION
    assert here.in_generation(MAX_GENERATION).position(0, 0)[0] < 2**63


def test_a_large_incarnation_has_no_generation() -> None:
    large = LedgerLayout(2**20)
    assert large.in_generation(3) is large
    assert large.without_generation(large.position(0, 7)[0]) == large.position(0, 7)[0]
    assert LedgerLayout(2**20 - 1).in_generation(3).generation == 3
