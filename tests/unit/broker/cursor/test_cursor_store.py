"""A crash between any two writes of a save leaves a cursor that can be read back, on the state log in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, new_session
from pulsar_on_kafka.broker.cursor.saved_cursor import AcceptedSave, RecoveredCursor, Save, SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, decode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.memory_log import MemoryStateLog
from tests.seeds import first_of
from tests.simulation.cursors import (
    TOPIC,
    LogThatBreaks,
    an_identity,
    every_reference_is_there,
    owned_by,
    prepared,
    state_of,
    taken_over,
)

DEADLINE = Deadline.never()
EVERYTHING = 10**9


def a_random_state(rng: random.Random, size: int) -> CursorState:
    state = CursorState(rng.randrange(50), size)
    for _ in range(rng.randrange(1, 40)):
        start = rng.randrange(size * rng.choice((1, 5, 30)))
        if rng.random() < 0.3:
            state.acknowledge_range(start, start + rng.randrange(1, 2 * size))
        elif rng.random() < 0.3:
            batch_size = 2 + start % 20
            indexes = {rng.randrange(batch_size) for _ in range(3)}
            state.acknowledge_batches({start: BatchAckSet(batch_size, sum(1 << index for index in indexes))})
        else:
            state.acknowledge([start + step * 2 for step in range(rng.randrange(1, 300))])
    return state


@pytest.mark.parametrize("seed", first_of(20, range(60)))
def test_what_was_prepared_is_what_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    identity = an_identity(rng.choice((1, 3, 10, 500, 50_000)))
    log = MemoryStateLog()
    store = CursorStore(log)
    state = a_random_state(rng, identity.entries_per_ledger)
    lineage = identity.lineage(new_session(), 1, 0)
    for number in range(rng.randrange(3)):
        state.took_effect(rng.randbytes(8), number)
    save = store.prepare(identity, state, SavedCursor(lineage), lineage, DEADLINE)
    log.compact(rng)
    found = store.recover(identity, save.commit, None, 0, DEADLINE)
    assert state_of(found.state) == state_of(state), f"seed {seed}"
    assert found.state.requests == state.requests
    assert found.source == "commit"
    assert found.saved is not None
    assert found.saved.lineage == lineage
    assert found.saved.segments == save.saved.segments
    assert len(save.commit.metadata) <= 4095


def test_few_holes_ride_in_the_commit_and_write_nothing() -> None:
    log = MemoryStateLog()
    state = CursorState(5, 10)
    state.acknowledge([7, 8, 1000, 40_000])
    identity = an_identity()
    lineage = identity.lineage(new_session(), 1, 0)
    save = CursorStore(log).prepare(identity, state, SavedCursor(lineage), lineage, DEADLINE)
    assert save.saved.marker is None
    assert log.end_offset(CURSORS, CURSORS.partition_for(TOPIC), DEADLINE) == 0
    assert save.commit.kafka_offset == 5


def test_only_changed_ledgers_are_written_again() -> None:
    _log, store, identity, owned = _with_segments()
    first = prepared(store, owned)
    owned.saves.accepted(first)
    assert len(first.new.segments) == 600
    owned.cursor.acknowledge([32])
    second = prepared(store, owned)
    assert [ref.ledger_index for ref in second.new.segments] == [3]
    assert [ref.ledger_index for ref in second.obsolete.segments] == [3]
    found = store.recover(identity, second.commit, None, 0, DEADLINE)
    assert state_of(found.state) == state_of(owned.cursor)


def test_shrinking_back_to_the_commit_tombstones_all_segments_and_the_marker() -> None:
    log, store, identity, owned = _with_segments()
    owned.saves.accepted(prepared(store, owned))
    owned.cursor.acknowledge_cumulative(5999)
    save = prepared(store, owned)
    assert save.saved.marker is None
    store.clean(identity, owned.saves.accepted(save), DEADLINE)
    assert _live_keys(log) == []


def test_no_segments_are_left_behind_by_a_thousand_saves() -> None:
    log, store, identity, owned = _with_segments()
    rng = random.Random(1)
    for _ in range(300):
        owned.cursor.acknowledge([rng.randrange(6000)])
        save = prepared(store, owned)
        if rng.random() < 0.2:
            owned.saves.refused(save)
        else:
            store.clean(identity, owned.saves.accepted(save), DEADLINE)
    save = prepared(store, owned)
    store.clean(identity, owned.saves.accepted(save), DEADLINE)
    live = _live_keys(log)
    assert len([key for key in live if key.segment >= 0]) == len(owned.saves.saved.segments)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("broken_call", [1, 2])
def test_a_crash_between_two_writes_of_a_save_leaves_the_accepted_state(broken_call: int, written: bool) -> None:
    """Call 1 writes the segments, call 2 the marker."""
    log = LogThatBreaks()
    store = CursorStore(log)
    identity = an_identity()
    owned = owned_by(identity, CursorState(0, 10))
    owned.cursor.acknowledge(list(range(1, 6000, 2)))
    accepted = prepared(store, owned)
    owned.saves.accepted(accepted)
    before = state_of(owned.cursor)
    owned.cursor.acknowledge([0, 2, 500])
    log.at, log.written_all_the_same = broken_call, written
    with pytest.raises(errors.AppendOutcomeUnknown):
        prepared(store, owned)
    log.compact(random.Random(7))
    log.drop_tombstones(random.Random(7), EVERYTHING)
    found = CursorStore(log).recover(identity, accepted.commit, None, 0, DEADLINE)
    assert state_of(found.state) == before
    # The same owner goes on: nothing that the broken save took along is forgotten.
    again = prepared(store, owned)
    assert state_of(store.recover(identity, again.commit, None, 0, DEADLINE).state) == state_of(owned.cursor)


def test_a_crash_after_the_marker_and_before_the_commit_leaves_the_accepted_state() -> None:
    log, store, identity, owned = _with_segments()
    accepted = prepared(store, owned)
    owned.saves.accepted(accepted)
    before = state_of(owned.cursor)
    owned.cursor.acknowledge([0, 2, 500])
    prepared(store, owned)
    log.compact(random.Random(3))
    assert state_of(store.recover(identity, accepted.commit, None, 0, DEADLINE).state) == before


def test_a_successor_finishes_the_cleaning_that_a_crash_interrupted() -> None:
    log, store, identity, owned = _with_segments()
    owned.saves.accepted(prepared(store, owned))
    owned.cursor.acknowledge([0, 2, 500])
    second = prepared(store, owned)  # accepted by Kafka, then the process dies
    found = store.recover(identity, second.commit, None, 0, DEADLINE)
    assert found.saved is not None
    assert len(_live_keys(log)) == 604  # who only reads cleans nothing
    successor, save = taken_over(store, identity, found)
    store.clean(identity, successor.saves.accepted(save), DEADLINE)
    store.clean(identity, successor.saves.checkpoint_written(), DEADLINE)
    live = _live_keys(log)
    assert sorted(key.segment for key in live if key.save == 1 and key.segment >= 0) == sorted(
        ref.segment for ref in found.saved.all_segments() if ref.save == 1
    )
    assert [(key.save, key.session) for key in live if key.segment == -1] == [(0, save.saved.lineage.session.hex())]


def test_a_refused_inline_save_forgets_no_ledger() -> None:
    """A save that fits the commit writes no segments; refused, the ledgers that it took must count as changed again."""
    _log, store, identity, owned = _with_segments()
    owned.saves.accepted(prepared(store, owned))
    owned.cursor.acknowledge_cumulative(5979)  # two ledgers are left: it fits now
    owned.cursor.acknowledge([5984])
    inline = prepared(store, owned)
    assert inline.saved.marker is None
    owned.saves.refused(inline)
    owned.cursor.acknowledge(list(range(6001, 12_000, 2)))
    save = prepared(store, owned)
    assert save.saved.marker is not None
    assert state_of(store.recover(identity, save.commit, None, 0, DEADLINE).state) == state_of(owned.cursor)


@pytest.mark.parametrize("lost", ["marker", "segment"])
def test_a_missing_record_is_corrupt_and_says_where(lost: str) -> None:
    log, store, identity, owned = _with_segments()
    save = prepared(store, owned)
    partition = CURSORS.partition_for(TOPIC)
    end = log.end_offset(CURSORS, partition, DEADLINE)
    offset = end - 1 if lost == "marker" else end - 2
    key = next(record.key for record in _records(log) if record.offset == offset)
    log.append(CURSORS, partition, key, None, DEADLINE)
    log.compact(_Always())
    with pytest.raises(
        errors.Corrupt, match=rf"{Instance().state_topic(CURSORS)}-{partition} offset {offset} is gone"
    ) as raised:
        store.load_all(identity, store.recover(identity, save.commit, None, 0, DEADLINE), DEADLINE)
    assert str(identity) in str(raised.value)
    assert lost in str(raised.value)


def test_metadata_that_claims_to_be_ours_and_is_not_readable_is_corrupt() -> None:
    with pytest.raises(errors.Corrupt, match="committed offset 4"):
        CursorStore(MemoryStateLog()).recover(
            an_identity(), CommittedOffset(4, "pok1:not base 85 \x00"), None, 0, DEADLINE
        )


def test_a_commit_of_a_kafka_tool_is_a_seek() -> None:
    found = CursorStore(MemoryStateLog()).recover(an_identity(), CommittedOffset(17, ""), None, 0, DEADLINE)
    assert (found.source, found.state.next_unacked, found.saved) == ("seek", 17, None)


def test_state_of_another_life_of_the_topic_is_ignored() -> None:
    _log, store, _identity, owned = _with_segments()
    save = prepared(store, owned)
    other = an_identity(topic_id="zyxwvutsrqponmlkjihgfe")
    found = store.recover(other, save.commit, save.commit, 4, DEADLINE)
    assert (found.source, found.state.next_unacked, found.saved) == ("start", 4, None)


def test_what_a_former_life_wrote_is_cleaned_by_the_next_owner() -> None:
    log, store, identity, owned = _with_segments()
    save = prepared(store, owned)
    store.write_checkpoints([AcceptedSave(identity, save.commit, save.saved.lineage)], 0, DEADLINE)
    later = replace(identity, kafka_topic_id="zyxwvutsrqponmlkjihgfe", topic_incarnation=8)
    found = store.recover(later, None, save.commit, 4, DEADLINE)
    assert len(found.former) == 1
    for metadata in found.former:
        store.forget_former(later, metadata, DEADLINE)
        store.forget_former(later, metadata, DEADLINE)  # nothing is left to do
    assert _live_keys(log) == []


def test_what_a_later_life_wrote_is_left_alone() -> None:
    _log, store, identity, owned = _with_segments()
    save = prepared(store, owned)
    earlier = replace(identity, kafka_topic_id="zyxwvutsrqponmlkjihgfe", topic_incarnation=6)
    assert store.recover(earlier, save.commit, save.commit, 4, DEADLINE).former == ()


def test_without_a_commit_the_checkpoint_counts() -> None:
    _log, store, identity, owned = _with_segments()
    save = prepared(store, owned)
    found = store.recover(identity, None, save.commit, 4, DEADLINE)
    assert found.source == "checkpoint"
    assert state_of(found.state) == state_of(owned.cursor)


def test_a_checkpoint_stays_readable_until_the_next_one() -> None:
    """Kafka may forget the group's offsets at any time after a crash, and compaction takes what was tombstoned."""
    log, store, identity, owned = _with_segments()
    checkpoint = prepared(store, owned)
    store.clean(identity, owned.saves.accepted(checkpoint), DEADLINE)
    store.clean(identity, owned.saves.checkpoint_written(), DEADLINE)
    at_checkpoint = state_of(owned.cursor)
    for offset in (30, 40, 31, 5000, 32):
        owned.cursor.acknowledge([offset])
        save = prepared(store, owned)
        store.clean(identity, owned.saves.accepted(save), DEADLINE)
    log.compact(_Always())
    log.drop_tombstones(_Always(), EVERYTHING)
    assert state_of(store.recover(identity, None, checkpoint.commit, 0, DEADLINE).state) == at_checkpoint
    store.clean(identity, owned.saves.checkpoint_written(), DEADLINE)
    live = _live_keys(log)
    assert len([key for key in live if key.segment >= 0]) == len(owned.saves.saved.segments)
    assert len([key for key in live if key.segment == -1]) == 1


def test_an_empty_cursor_starts_where_its_creation_says() -> None:
    found = CursorStore(MemoryStateLog()).recover(an_identity(), None, None, 12, DEADLINE)
    assert (found.source, found.state.next_unacked) == ("start", 12)


class _StoreOfBefore(CursorStore):
    """One session for a process, however often it takes a cursor over."""

    session = b"s" * 16

    def take_over(self, identity: CursorIdentity, found: RecoveredCursor, deadline: Deadline) -> Save:
        lineage = identity.lineage(self.session, found.version + 1, 0)
        found.state.dirty_ledgers.clear()
        return self.prepare(identity, found.state, found.saved or SavedCursor(lineage), lineage, deadline)


def _damaged(rng: random.Random) -> tuple[MemoryStateLog, CursorIdentity, CursorState, CommittedOffset]:
    """What a process left that owned a cursor twice, before the log was compacted."""
    log, store, identity, owned = _with_segments()
    store = _StoreOfBefore(log)
    owned, save = taken_over(store, identity, RecoveredCursor(owned.cursor, None, "start"))
    for takeover in range(2):
        for _ in range(3):
            store.clean(identity, owned.saves.accepted(save), DEADLINE)
            if rng.random() < 0.5:
                store.clean(identity, owned.saves.checkpoint_written(), DEADLINE)
            owned.cursor.acknowledge([rng.randrange(1000 * takeover, 6000) for _ in range(20)])
            save = prepared(store, owned)
        found = store.recover(identity, save.commit, None, 0, DEADLINE)
        owned, save = taken_over(store, identity, found)
    return log, identity, owned.cursor, save.commit


@pytest.mark.parametrize("seed", first_of(6, range(20)))
def test_a_cursor_whose_segments_share_keys_is_written_anew_by_its_next_owner(seed: int) -> None:
    log, identity, cursor, commit = _damaged(random.Random(seed))
    wanted = state_of(cursor)
    store = CursorStore(log)
    found = store.recover(identity, commit, None, 0, DEADLINE)
    owned, save = taken_over(store, identity, found)
    store.clean(identity, owned.saves.accepted(save), DEADLINE)
    store.clean(identity, owned.saves.checkpoint_written(), DEADLINE)
    log.compact(random.Random(seed), thoroughly=True)
    every_reference_is_there(log, identity, save.commit)
    assert state_of(store.recover(identity, save.commit, None, 0, DEADLINE).state) == wanted
    (one,) = {name.session for name in _live_keys(log)}
    assert one == save.saved.lineage.session.hex()


def test_what_is_written_anew_once_is_not_written_again_by_the_owner_after() -> None:
    log, identity, _, commit = _damaged(random.Random(1))
    store = CursorStore(log)
    _, save = taken_over(store, identity, store.recover(identity, commit, None, 0, DEADLINE))
    assert len(save.new.segments) > 500
    _, again = taken_over(store, identity, store.recover(identity, save.commit, None, 0, DEADLINE))
    assert again.new.segments == ()


def test_a_damaged_cursor_that_was_compacted_says_what_is_gone() -> None:
    log, identity, _, commit = _damaged(random.Random(2))
    log.compact(random.Random(2), thoroughly=True)
    store = CursorStore(log)
    with pytest.raises(errors.Corrupt, match=r"gone, and with it which of the offsets \d+ to \d+ \(there were \d+"):
        taken_over(store, identity, store.recover(identity, commit, None, 0, DEADLINE))


class _Always(random.Random):
    """Compaction that leaves out nothing."""

    def random(self) -> float:
        return 0.0


def _with_segments() -> tuple[MemoryStateLog, CursorStore, CursorIdentity, OwnedPartition]:
    """A cursor whose 3,000 holes in 600 ledgers do not fit into a commit."""
    log = MemoryStateLog()
    identity = an_identity()
    owned = owned_by(identity, CursorState(0, 10))
    owned.cursor.acknowledge(list(range(1, 6000, 2)))
    return log, CursorStore(log), identity, owned


def _records(log: MemoryStateLog) -> Iterator[LogRecord]:
    partition = CURSORS.partition_for(TOPIC)
    for batch in log.read(CURSORS, partition, 0, log.end_offset(CURSORS, partition, DEADLINE), DEADLINE):
        yield from batch


def _live_keys(log: MemoryStateLog) -> list[CursorSegmentKey]:
    newest = {record.key: record.value for record in _records(log)}
    keys = [decode_key(key) for key, value in newest.items() if value is not None]
    return [key for key in keys if isinstance(key, CursorSegmentKey)]
