"""Copies in Pulsar: their names and sequence ids, and the acknowledgements that they lack there."""

from __future__ import annotations

import pytest
from pyroaring import BitMap

from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.origin_index import CopiedRun
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import PulsarMessage
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Acknowledged, Position, place_of
from pulsar_on_kafka.clusters.migration.to_pulsar.exported_copies import (
    BATCH_BITS,
    ExportedCopies,
    MessagePlace,
    OriginalsInPulsar,
    export_name,
    original_at,
    sequence_id,
)
from pulsar_on_kafka.clusters.migration.to_pulsar.outgoing import digest_of_message
from pulsar_on_kafka.clusters.migration.to_pulsar.pulsar_topics import policies_body
from pulsar_on_kafka_mapping.errors import MappingError

PER_LEDGER = 50_000


def _at(ledger_id: int, entry_id: int) -> int:
    return place_of(Position(ledger_id, entry_id))


def _acks(below: int, *positions: int) -> ReplicatedAcks:
    found = ReplicatedAcks(PER_LEDGER, below)
    for each in positions:
        found.add(each, BitMap([0]))
    return found


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (7, (1 << BATCH_BITS) - 1), ((1 << 46) - 1, 0)])
def test_a_sequence_id_names_its_message(place: tuple[int, int]) -> None:
    assert original_at(sequence_id(MessagePlace(*place))) == place


def test_sequence_ids_grow_along_the_log_from_one_on() -> None:
    places = [MessagePlace(0, 0), MessagePlace(0, 1), MessagePlace(1, 0), MessagePlace(2, 0)]
    found = [sequence_id(each) for each in places]
    assert found == sorted(found)
    assert found[0] == 1


@pytest.mark.parametrize("place", [(-1, 0), (1 << 46, 0), (0, 1 << BATCH_BITS), (0, -1)])
def test_places_beyond_the_range_are_rejected(place: tuple[int, int]) -> None:
    with pytest.raises(MappingError, match=f"offset {place[0]} and index {place[1]}"):
        sequence_id(MessagePlace(*place))


def test_the_name_of_one_partition() -> None:
    assert export_name("kafka", 3, 1) == "pok.export.kafka.3.1"


def test_places_of_what_is_acknowledged_here_alone() -> None:
    copies = ExportedCopies()
    for entry_id, place in enumerate([(0, 0), (1, 0), (1, 1), (2, 0), (5, 0)]):
        copies.add(sequence_id(MessagePlace(*place)), _at(9, entry_id))
    acks = _acks(1, 5)
    acks.add_batch(1, (2, 0b10))
    copies.chunks[_at(9, 4)] = (_at(8, 0), _at(8, 1))
    done = Acknowledged(_at(9, 1))
    assert list(copies.places(acks, done)) == [_at(9, 2), _at(9, 4)]
    assert list(copies.with_chunks(copies.places(acks, done))) == [_at(8, 0), _at(8, 1), _at(9, 2), _at(9, 4)]
    here, there = copies.left(acks, done)
    assert [original_at(each) for each in here] == [(1, 0), (2, 0)]
    assert [original_at(each) for each in there] == [(1, 0), (1, 1), (2, 0), (5, 0)]


def test_a_second_copy_counts_as_repeated() -> None:
    copies = ExportedCopies()
    for entry_id, offset in enumerate([0, 1, 0, 1, 2]):
        copies.add(sequence_id(MessagePlace(offset, 0)), _at(9, entry_id), offset)
    assert copies.repeated == 2
    assert copies.highest == sequence_id(MessagePlace(2, 0))
    assert list(copies.places(_acks(3), Acknowledged(0))) == [_at(9, 0), _at(9, 1), _at(9, 4)]
    assert copies.digest(*[sequence_id(MessagePlace(1, 0))] * 2) == 1
    assert copies.digest(*[sequence_id(MessagePlace(3, 0))] * 2) is None


def test_entries_that_pulsar_has_are_known_by_their_ledgers() -> None:
    there = OriginalsInPulsar("pulsar:old", 1, {12: 5, 15: 3}, Position(15, 2))
    assert there.any
    assert there.has("pulsar:old", 1, _at(15, 0))
    assert there.has("pulsar:old", 1, _at(9, 0)), "Pulsar has deleted this ledger, and has later ones of the topic"
    assert not there.has("pulsar:old", 0, _at(15, 0))
    assert not there.has("west", 1, _at(15, 0))
    anew = OriginalsInPulsar("pulsar:old", 1, {21: 0}, Position(15, 2))
    assert not anew.any
    assert not anew.has("pulsar:old", 1, _at(15, 0))
    assert not OriginalsInPulsar().any


def test_acknowledged_entries_that_pulsar_has() -> None:
    there = OriginalsInPulsar("pulsar:old", 0, {12: 5, 15: 3}, Position(15, 2))
    runs = [CopiedRun(_at(12, 3), 7, 2), CopiedRun(_at(15, 0), 9, 3)]
    kept = there.places(runs, 0, _acks(8, 10), Acknowledged(_at(12, 2)))
    assert list(kept) == [_at(12, 3), _at(15, 1)]
    trimmed = there.places(runs, 7, _acks(8, 10), Acknowledged(_at(12, 1), ((_at(12, 2), _at(12, 3)),)))
    assert list(trimmed) == [_at(12, 1), _at(12, 3), _at(15, 1)]
    assert list(there.places([], 20, _acks(30), Acknowledged(_at(12, 4)))) == [
        _at(12, 4), _at(15, 0), _at(15, 1), _at(15, 2)
    ]  # fmt: skip


def test_a_digest_covers_all_of_a_message_but_its_number() -> None:
    whole = PulsarMessage(b"x", "k", "o", {"a": "b"}, 7, 1)
    others = [
        PulsarMessage(b"y", "k", "o", {"a": "b"}, 7),
        PulsarMessage(b"x", "ko", "", {"a": "b"}, 7),
        PulsarMessage(b"x", "k", "o", {"a": "c"}, 7),
        PulsarMessage(b"x", "k", "o", {"a": "b"}, 8),
        PulsarMessage(None, "k", "o", {"a": "b"}, 7),
        PulsarMessage(b"", "k", "o", {"a": "b"}, 7),
    ]
    assert len({digest_of_message(each) for each in [whole, *others]}) == 7
    assert digest_of_message(PulsarMessage(b"x", "k", "o", {"a": "b"}, 7, 2)) == digest_of_message(whole)


def test_policies_of_a_new_namespace() -> None:
    own = {"retention_time_in_minutes": -1, "retention_size_in_mb": 5, "replication_clusters": ["west"]}
    found = policies_body({**own, "schema_compatibility_strategy": "ALWAYS_COMPATIBLE"})
    assert found == {
        "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": 5},
        "schema_compatibility_strategy": "ALWAYS_COMPATIBLE",
    }
    assert policies_body({}) == {}
