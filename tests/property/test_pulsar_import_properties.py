"""Pulsar's cursors against a plain set of positions; and entries as records, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from pulsar_on_kafka.broker.replication_state.origin_index import OriginIndex
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import LedgerSpan, PulsarPartition
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import (
    Entry,
    EntryCopy,
    OriginOfCopies,
    PulsarMessage,
    copies,
    digest_of,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import (
    Position,
    acknowledged,
    acknowledged_copies,
    parse_cursor,
    place_of,
    position_at,
)
from pulsar_on_kafka.clusters.migration.from_pulsar.existing_copies import read_copies
from pulsar_on_kafka.kafka.records import KafkaRecord
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.records.batch_entry import decode_batch
from pulsar_on_kafka_mapping.records.message_record import decode_headers
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin as CopyOrigin

LEDGERS = {3: 5, 4: 0, 9: 12, 2**33 - 1: 4}
"""Ledgers and their numbers of entries, in order."""
ENTRIES = [Position(ledger, entry) for ledger, count in LEDGERS.items() for entry in range(count)]
BOUNDS = st.sampled_from([Position(ledger, entry) for ledger, count in LEDGERS.items() for entry in range(-1, count)])
RANGES = st.lists(st.tuples(BOUNDS, BOUNDS).map(lambda both: (min(both), max(both))), max_size=6)


def told(mark_delete: Position, ranges: list[tuple[Position, Position]]) -> dict[str, object]:
    text = ",".join(f"({low}..{high}]" for low, high in ranges)
    return {"markDeletePosition": str(mark_delete), "individuallyDeletedMessages": f"[{text}]", "state": "Open"}


@given(st.integers(0, 2**33 - 1), st.integers(0, 2**30 - 1), st.integers(0, 2**33 - 1), st.integers(0, 2**30 - 1))
def test_places_are_ordered_as_positions_and_tell_them(a: int, b: int, c: int, d: int) -> None:
    one, other = Position(a, b), Position(c, d)
    assert position_at(place_of(one)) == one
    assert (place_of(one) < place_of(other)) == (one < other)


@pytest.mark.parametrize("position", [Position(2**33, 0), Position(0, 2**30), Position(1, -1)])
def test_what_has_no_place_is_refused(position: Position) -> None:
    with pytest.raises(CorruptRecord, match=str(position)):
        place_of(position)


@given(BOUNDS, RANGES)
def test_a_cursor_has_acknowledged_what_it_says(mark_delete: Position, ranges: list[tuple[Position, Position]]) -> None:
    done = parse_cursor(told(mark_delete, ranges))
    truth = {p for p in ENTRIES if p <= mark_delete or any(low < p <= high for low, high in ranges)}
    assert {p for p in ENTRIES if place_of(p) in done} == truth
    assert list(done.ranges) == sorted(done.ranges)
    assert all(done.end < start < end for start, end in done.ranges)


@given(BOUNDS, RANGES, st.lists(st.booleans(), min_size=len(ENTRIES), max_size=len(ENTRIES)), st.integers(0, 3))
def test_acknowledged_positions_become_offsets_of_copies(
    mark_delete: Position, ranges: list[tuple[Position, Position]], copied: list[bool], gap: int
) -> None:
    """Entries that nobody is given (markers) have no copy; other records lie between copies."""
    done = parse_cursor(told(mark_delete, ranges))
    index, origin, offset = OriginIndex(0), CopyOrigin("pulsar:old", 0), 0
    at: dict[Position, int] = {}
    for position, there in zip(ENTRIES, copied, strict=True):
        if there:
            index.copied(offset, origin, place_of(position), 1)
            at[position] = offset
            offset += 1
        for _ in range(gap):
            index.published_here(offset)
            offset += 1
    found = acknowledged_copies(done, index.runs(origin), 4)
    assert {o for o in range(offset) if found.has(o)} == {o for p, o in at.items() if place_of(p) in done}


@pytest.mark.parametrize(
    "cursor",
    [
        {},
        {"markDeletePosition": "12", "individuallyDeletedMessages": "[]"},
        {"markDeletePosition": "1:2", "individuallyDeletedMessages": "[(1:3..1:5]"},
        {"markDeletePosition": "1:2", "individuallyDeletedMessages": "[(1:3-1:5]]"},
        {"markDeletePosition": 7},
    ],
)
def test_a_cursor_that_is_not_as_known_is_refused(cursor: dict[str, object]) -> None:
    with pytest.raises(CorruptRecord):
        parse_cursor(cursor)


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8))
def test_ranges_in_any_order_are_one_set(end: int, ranges: list[tuple[int, int]]) -> None:
    done = acknowledged(end, ranges)
    truth = {n for n in range(70) if n < end or any(low <= n < high for low, high in ranges)}
    assert {n for n in range(70) if n in done} == truth
    for start in range(0, 70, 7):
        found = BitMap()
        for low, high in done.within(start, start + 20):
            found.add_range(low, high)
        assert set(found) == {n for n in truth if start <= n < start + 20}


@given(st.sampled_from(ENTRIES), st.integers(0, 30))
def test_so_many_entries_before_a_position(position: Position, entries: int) -> None:
    partition = PulsarPartition(ENTRIES[-1], tuple(LedgerSpan(*each) for each in LEDGERS.items()), {})
    found = partition.before(position, entries)
    number = ENTRIES.index(position)
    between = [each for each in ENTRIES if found <= each < position]
    assert len(between) == min(entries, number)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
MESSAGES = st.builds(
    PulsarMessage,
    st.none() | st.binary(max_size=60),
    TEXT,
    TEXT,
    st.dictionaries(TEXT, TEXT, max_size=3),
    st.integers(0, 2**40),
    st.integers(0, 1000),
)
WHOLE = OriginOfCopies("pulsar:old", 3, 7)


@given(st.sampled_from(ENTRIES), st.lists(MESSAGES, min_size=1, max_size=4), st.integers(0, 2**40))
def test_an_entry_is_one_record_with_all_of_its_messages(
    position: Position, messages: list[PulsarMessage], publish_time_ms: int
) -> None:
    entry = Entry(position, "shop", publish_time_ms, messages, 4)
    (record,) = copies(entry, WHOLE, b"\0" * 7 + b"\1", False, 1_000_000, "uuid")
    said = decode_headers(record.headers)
    assert said.original_id is not None
    assert (said.original_id.kafka_offset, said.original_id.partition, said.original_id.epoch) == (
        place_of(position), 3, 7,
    )  # fmt: skip
    assert (said.replicated_from, said.publish_time_ms) == ("pulsar:old", publish_time_ms)
    assert (said.producer_name, said.sequence_id) == ("shop", messages[0].sequence_id)
    if len(messages) == 1:
        assert record.value == messages[0].payload
        assert (dict(said.properties), said.event_time_ms) == (messages[0].properties, messages[0].event_time_ms)
        return
    assert said.batch is not None
    assert record.value is not None
    found = decode_batch(record.value, said.batch.messages)
    for index, each in enumerate(messages):
        message = found.message(index)
        sequence_id = message.sequence_id
        assert message.payload == each.payload
        assert (message.key or b"").decode() == each.key
        assert (message.ordering_key or b"").decode() == each.ordering_key
        assert dict(message.properties or {}) == each.properties
        assert message.event_time_ms == each.event_time_ms
        assert (said.sequence_id + index if sequence_id is None else sequence_id) == each.sequence_id


class Record:
    """A record of a log, as far as it is asked."""

    def __init__(self, offset: int, copy: EntryCopy) -> None:
        self._offset = offset
        self._copy = copy

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._copy.key

    def value(self) -> bytes | None:
        return self._copy.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._copy.headers)


def test_a_message_that_is_cut_is_acknowledged_whole_and_compared_whole() -> None:
    large = Entry(Position(9, 4), "shop", 1, [PulsarMessage(bytes(range(256)) * 9, "k", sequence_id=5)])
    small = Entry(Position(9, 5), "shop", 1, [PulsarMessage(b"x")])
    cut = copies(large, WHOLE, None, False, 900, "first")
    assert len(cut) > 2
    died = cut[:-1]  # whoever sent it was killed, and the next one sends all of it again
    again = copies(large, WHOLE, None, False, 900, "second")
    log = [*died, *again, *copies(small, WHOLE, None, False, 900, "")]
    records: list[KafkaRecord] = [Record(offset, each) for offset, each in enumerate(log)]  # type: ignore[misc]
    here = read_copies([records], 0, len(log), "pulsar:old", 3, (), digests=True)
    assert (
        here.digest(place_of(large.position))
        == digest_of(again)
        == digest_of(copies(large, WHOLE, None, False, 9000, ""))
    )
    assert here.digest(place_of(small.position)) is not None
    assert here.incomplete == list(range(len(died)))
    none = here.acknowledged(acknowledged(0, ()), 4)
    assert {o for o in range(len(log)) if none.has(o)} == set(here.incomplete)
    place = place_of(large.position)
    done = here.acknowledged(acknowledged(0, [(place, place + 1)]), 4)
    assert {o for o in range(len(log)) if done.has(o)} == set(range(len(log) - 1))
