"""Which records of saves maintenance finds, and where it has to look again."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.cursor.orphaned_records import FoundSegments, SegmentName, orphans
from pulsar_on_kafka.broker.cursor.saved_cursor import Save, SavedCursor
from pulsar_on_kafka.broker.cursor.segments import MARKER_SEGMENT, CursorSegments
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.memory_log import MemoryStateLog
from tests.simulation.cursors import an_identity

CURSOR = CursorName("persistent://public/default/orders", 0, "audit")
OLD_MS, YOUNG_MS = 100, 300
DEADLINE = Deadline.never()


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


def _referred_to(save: Save) -> set[SegmentName]:
    marker = save.saved.marker
    assert marker is not None
    parts = [part for ledger in save.saved.segments.values() for part in ledger.parts]
    own = {SegmentName(marker.session.hex(), marker.save, MARKER_SEGMENT - page) for page in range(marker.pages + 1)}
    return own | {SegmentName(part.session.hex(), part.save, part.segment) for part in parts}


@pytest.mark.parametrize("is_owned", [False, True])
def test_what_the_commit_and_the_checkpoint_refer_to_is_no_orphan_nor_is_a_save_under_way(is_owned: bool) -> None:
    """The fourth save is not committed: its owner may be about to, as long as there is one."""
    log, identity = MemoryStateLog(), an_identity()
    store, state, own = CursorStore(log), CursorState(0, 10), b"s" * 16
    state.acknowledge(list(range(1, 6000, 2)))
    saves: list[Save] = []
    saved = SavedCursor(identity.lineage(own, 1, 0))
    for number in range(1, 5):
        state.acknowledge([100 * number])
        saves.append(store.prepare(identity, state, saved, identity.lineage(own, 1, number), DEADLINE))
        saved = saves[-1].saved
        state.dirty_ledgers.clear()
    lineage = identity.lineage(b"x" * 16, 1, 9)
    store.prepare(identity, state, SavedCursor(lineage), lineage, DEADLINE)  # somebody else's, who came to nothing
    found, partition = FoundSegments(before_ms=10**15), CURSORS.partition_for(identity.topic)
    for batch in log.read(CURSORS, partition, 0, log.end_offset(CURSORS, partition, DEADLINE), DEADLINE):
        for record in batch:
            found.apply(record)
    names = found.by_cursor[identity.name]
    commits = [saves[2].commit, CommittedOffset(7, "of a Kafka tool")]
    unneeded = names - _referred_to(saves[0]) - _referred_to(saves[2])
    assert {(name.session == own.hex(), name.save) for name in unneeded} == {(True, 2), (True, 4), (False, 9)}
    left = orphans(CursorSegments(log), identity, names, commits, saves[0].commit, lambda: is_owned, DEADLINE)
    under_way = {name for name in unneeded if name.session == own.hex() and name.save == 4} if is_owned else set()
    assert left == sorted(unneeded - under_way)
