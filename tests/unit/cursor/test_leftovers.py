"""Which records of saves maintenance finds, and where it has to look again."""

from __future__ import annotations

from pulsar_on_kafka.cursor.identity import CursorName
from pulsar_on_kafka.cursor.leftovers import FoundSegments, SegmentName
from pulsar_on_kafka.mapping.state.state_keys import CursorSegmentKey, encode_key
from pulsar_on_kafka.statelog.api import LogRecord

CURSOR = CursorName("persistent://public/default/orders", 0, "audit")
OLD_MS, YOUNG_MS = 100, 300


def _record(offset: int, save: int, value: bytes | None = b"x", timestamp_ms: int = OLD_MS) -> LogRecord:
    return LogRecord(offset, encode_key(CursorSegmentKey(*CURSOR, "session", save, 0)), value, timestamp_ms)


def test_what_was_written_before_the_time_and_from_the_start_on_is_found() -> None:
    found = FoundSegments(before_ms=200, start=1)
    for record in (_record(0, 0), _record(1, 1), _record(2, 2, timestamp_ms=YOUNG_MS)):
        found.apply(record)
    assert found.by_cursor == {CURSOR: {SegmentName("session", 1, 0)}}
    assert found.full_at is None


def test_a_tombstone_takes_back_what_was_found() -> None:
    found = FoundSegments(before_ms=200)
    for record in (_record(0, 0), _record(1, 1), _record(2, 0, None), _record(3, 7, None)):
        found.apply(record)
    assert found.by_cursor == {CURSOR: {SegmentName("session", 1, 0)}}
    found.apply(_record(4, 1, None))
    assert not found.by_cursor


def test_it_is_full_at_the_first_record_that_finds_no_room() -> None:
    found = FoundSegments(before_ms=200, most=1)
    for record in (_record(5, 0), _record(6, 1), _record(7, 0, None), _record(8, 2)):
        found.apply(record)
    assert found.full_at == 6
    assert not found.by_cursor


def test_a_tombstone_makes_room() -> None:
    found = FoundSegments(before_ms=200, most=1)
    for record in (_record(5, 0), _record(6, 0, None), _record(7, 1)):
        found.apply(record)
    assert found.full_at is None
    assert found.by_cursor == {CURSOR: {SegmentName("session", 1, 0)}}
