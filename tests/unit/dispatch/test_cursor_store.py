"""What a crash between any two writes of a save leaves behind, on the state log in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from layer import errors
from layer.cursor import store as store_module
from layer.cursor.machine import CursorState
from layer.cursor.store import CursorIdentity, CursorStore, Save, Saved, new_session
from layer.deadline import Deadline
from layer.dispatch.delivery import PartitionSlot
from layer.dispatch.partition import OwnedPartition
from layer.kafka.records import CommittedOffset
from layer.statelog.api import LogRecord
from layer.statelog.memory_log import MemoryStateLog
from mapping.ledger import LedgerLayout
from mapping.state_keys import CursorSegmentKey, decode_key
from mapping.state_topics import CURSORS, StateTopic

TOPIC = "persistent://public/default/orders"
TOPIC_ID = "abcdefghijklmnopqrstuv"
DEADLINE = Deadline.never()
EVERYTHING = 10**9
HISTORIES = 4000
SEEDS = 40
LONGEST = 90


class LogThatBreaks(MemoryStateLog):
    """Fails the append call number `at` (from 1), before or after it was written; `None` never."""

    def __init__(self) -> None:
        super().__init__()
        self.at: int | None = None
        self.written_all_the_same = False

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        if self.at is not None:
            self.at -= 1
            if self.at == 0:
                self.at = None
                if self.written_all_the_same:
                    super().append_many(topic, partition, records, deadline)
                raise errors.AppendOutcomeUnknown("the broker went away")
        return super().append_many(topic, partition, records, deadline)


def an_identity(entries_per_ledger: int = 10, topic_id: str = TOPIC_ID) -> CursorIdentity:
    return CursorIdentity(TOPIC, 3, "audit", "public.default.orders", topic_id, 7, 9, entries_per_ledger)


def owned_by(identity: CursorIdentity, state: CursorState, saved: Saved | None, session: bytes) -> OwnedPartition:
    version = saved.lineage.version + 1 if saved is not None else 1
    slot = PartitionSlot(TOPIC, 3, 3, LedgerLayout(7, identity.entries_per_ledger))
    owned = OwnedPartition(slot, identity, state, saved or Saved(identity.lineage(session, version, 0)))
    owned.next_save = 1
    return owned


def prepared(store: CursorStore, owned: OwnedPartition, session: bytes, version: int) -> Save:
    lineage = owned.identity.lineage(session, version, owned.next_save)
    owned.next_save += 1
    return store.prepare(owned.identity, owned.cursor, owned.saved, lineage, DEADLINE)


def state_of(cursor: CursorState) -> tuple[int, list[int], dict[int, tuple[int, int]]]:
    return (
        cursor.next_unacked,
        list(cursor.deleted),
        {offset: (acks.batch_size, acks.acked) for offset, acks in cursor.batches.items()},
    )


def a_random_state(rng: random.Random, size: int) -> CursorState:
    state = CursorState(rng.randrange(50), size)
    for _ in range(rng.randrange(1, 40)):
        start = rng.randrange(size * rng.choice((1, 5, 30)))
        if rng.random() < 0.3:
            state.acknowledge_range(start, start + rng.randrange(1, 2 * size))
        elif rng.random() < 0.3:
            batch_size = 2 + start % 20
            state.acknowledge_batch(start, batch_size, [rng.randrange(batch_size) for _ in range(3)])
        else:
            state.acknowledge([start + step * 2 for step in range(rng.randrange(1, 300))])
    return state


@pytest.mark.parametrize("seed", range(60))
def test_what_was_prepared_is_what_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    identity = an_identity(rng.choice((1, 3, 10, 500, 50_000)))
    log = MemoryStateLog()
    store = CursorStore(log)
    state = a_random_state(rng, identity.entries_per_ledger)
    lineage = identity.lineage(new_session(), 1, 0)
    save = store.prepare(identity, state, Saved(lineage), lineage, DEADLINE)
    log.compact(rng)
    found = store.recover(identity, save.commit, None, 0, DEADLINE)
    assert state_of(found.state) == state_of(state), f"seed {seed}"
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
    lineage = identity.lineage(b"s" * 16, 1, 0)
    save = CursorStore(log).prepare(identity, state, Saved(lineage), lineage, DEADLINE)
    assert save.saved.marker is None
    assert log.end_offset(CURSORS, CURSORS.partition_for(TOPIC), DEADLINE) == 0
    assert save.commit.kafka_offset == 5


def test_only_changed_ledgers_are_written_again() -> None:
    _log, store, identity, owned, session = _with_segments()
    first = prepared(store, owned, session, 1)
    owned.save_accepted(first)
    assert len(first.new_segments) == 600
    owned.cursor.acknowledge([32])
    second = prepared(store, owned, session, 1)
    assert [ref.ledger_index for ref in second.new_segments] == [3]
    assert [ref.ledger_index for ref in second.obsolete] == [3]
    found = store.recover(identity, second.commit, None, 0, DEADLINE)
    assert state_of(found.state) == state_of(owned.cursor)


def test_shrinking_back_to_the_commit_tombstones_all_segments_and_the_marker() -> None:
    log, store, identity, owned, session = _with_segments()
    owned.save_accepted(prepared(store, owned, session, 1))
    owned.cursor.acknowledge_cumulative(5999)
    save = prepared(store, owned, session, 1)
    assert save.saved.marker is None
    store.clean(identity, *owned.save_accepted(save), DEADLINE)
    assert _live_keys(log) == []


def test_no_segments_are_left_behind_by_a_thousand_saves() -> None:
    log, store, identity, owned, session = _with_segments()
    rng = random.Random(1)
    for _ in range(300):
        owned.cursor.acknowledge([rng.randrange(6000)])
        save = prepared(store, owned, session, 1)
        if rng.random() < 0.2:
            owned.save_refused(save)
        else:
            store.clean(identity, *owned.save_accepted(save), DEADLINE)
    save = prepared(store, owned, session, 1)
    store.clean(identity, *owned.save_accepted(save), DEADLINE)
    live = _live_keys(log)
    assert len([key for key in live if key.segment >= 0]) == len(owned.saved.segments)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("broken_call", [1, 2])
def test_a_crash_between_two_writes_of_a_save_leaves_the_accepted_state(broken_call: int, written: bool) -> None:
    """Call 1 writes the segments, call 2 the marker."""
    session = b"s" * 16
    log = LogThatBreaks()
    store = CursorStore(log)
    identity = an_identity()
    owned = owned_by(identity, CursorState(0, 10), None, session)
    owned.cursor.acknowledge(list(range(1, 6000, 2)))
    accepted = prepared(store, owned, session, 1)
    owned.save_accepted(accepted)
    before = state_of(owned.cursor)
    owned.cursor.acknowledge([0, 2, 500])
    log.at, log.written_all_the_same = broken_call, written
    with pytest.raises(errors.AppendOutcomeUnknown):
        prepared(store, owned, session, 1)
    log.compact(random.Random(7))
    log.drop_tombstones(random.Random(7), EVERYTHING)
    found = CursorStore(log).recover(identity, accepted.commit, None, 0, DEADLINE)
    assert state_of(found.state) == before
    # The same owner goes on: nothing that the broken save took along is forgotten.
    again = prepared(store, owned, session, 1)
    assert state_of(store.recover(identity, again.commit, None, 0, DEADLINE).state) == state_of(owned.cursor)


def test_a_crash_after_the_marker_and_before_the_commit_leaves_the_accepted_state() -> None:
    log, store, identity, owned, session = _with_segments()
    accepted = prepared(store, owned, session, 1)
    owned.save_accepted(accepted)
    before = state_of(owned.cursor)
    owned.cursor.acknowledge([0, 2, 500])
    prepared(store, owned, session, 1)
    log.compact(random.Random(3))
    assert state_of(store.recover(identity, accepted.commit, None, 0, DEADLINE).state) == before


def test_a_successor_finishes_the_cleaning_that_a_crash_interrupted() -> None:
    log, store, identity, owned, session = _with_segments()
    owned.save_accepted(prepared(store, owned, session, 1))
    owned.cursor.acknowledge([0, 2, 500])
    second = prepared(store, owned, session, 1)  # accepted by Kafka, then the process dies
    found = store.recover(identity, second.commit, None, 0, DEADLINE)
    assert found.saved is not None
    live = _live_keys(log)
    assert sorted(key.segment for key in live if key.save == 1 and key.segment >= 0) == sorted(
        ref.segment for ref in found.saved.segments.values() if ref.save == 1
    )
    assert [key.save for key in live if key.segment == -1] == [2]


def test_a_refused_inline_save_forgets_no_ledger() -> None:
    """A save that fits the commit writes no segments; refused, the ledgers that it took must count as changed again."""
    _log, store, identity, owned, session = _with_segments()
    owned.save_accepted(prepared(store, owned, session, 1))
    owned.cursor.acknowledge_cumulative(5979)  # two ledgers are left: it fits now
    owned.cursor.acknowledge([5984])
    inline = prepared(store, owned, session, 1)
    assert inline.saved.marker is None
    owned.save_refused(inline)
    owned.cursor.acknowledge(list(range(6001, 12_000, 2)))
    save = prepared(store, owned, session, 1)
    assert save.saved.marker is not None
    assert state_of(store.recover(identity, save.commit, None, 0, DEADLINE).state) == state_of(owned.cursor)


@pytest.mark.parametrize("lost", ["marker", "segment"])
def test_a_missing_record_is_corrupt_and_says_where(lost: str) -> None:
    log, store, identity, owned, session = _with_segments()
    save = prepared(store, owned, session, 1)
    partition = CURSORS.partition_for(TOPIC)
    end = log.end_offset(CURSORS, partition, DEADLINE)
    offset = end - 1 if lost == "marker" else end - 2
    key = next(record.key for record in _records(log) if record.offset == offset)
    log.append(CURSORS, partition, key, None, DEADLINE)
    log.compact(_Always())
    with pytest.raises(errors.Corrupt, match=rf"{CURSORS.kafka_name}-{partition} offset {offset} is gone") as raised:
        store.recover(identity, save.commit, None, 0, DEADLINE)
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
    _log, store, _identity, owned, session = _with_segments()
    save = prepared(store, owned, session, 1)
    other = an_identity(topic_id="zyxwvutsrqponmlkjihgfe")
    found = store.recover(other, save.commit, save.commit, 4, DEADLINE)
    assert (found.source, found.state.next_unacked, found.saved) == ("start", 4, None)


def test_without_a_commit_the_checkpoint_counts() -> None:
    _log, store, identity, owned, session = _with_segments()
    save = prepared(store, owned, session, 1)
    found = store.recover(identity, None, save.commit, 4, DEADLINE)
    assert found.source == "checkpoint"
    assert state_of(found.state) == state_of(owned.cursor)


def test_a_checkpoint_stays_readable_until_the_next_one() -> None:
    """Kafka may forget the group's offsets at any time after a crash, and compaction takes what was tombstoned."""
    log, store, identity, owned, session = _with_segments()
    checkpoint = prepared(store, owned, session, 1)
    store.clean(identity, *owned.save_accepted(checkpoint), DEADLINE)
    store.clean(identity, *owned.checkpoint_written(), DEADLINE)
    at_checkpoint = state_of(owned.cursor)
    for offset in (30, 40, 31, 5000, 32):
        owned.cursor.acknowledge([offset])
        save = prepared(store, owned, session, 1)
        store.clean(identity, *owned.save_accepted(save), DEADLINE)
    log.compact(_Always())
    log.drop_tombstones(_Always(), EVERYTHING)
    assert state_of(store.recover(identity, None, checkpoint.commit, 0, DEADLINE).state) == at_checkpoint
    store.clean(identity, *owned.checkpoint_written(), DEADLINE)
    live = _live_keys(log)
    assert len([key for key in live if key.segment >= 0]) == len(owned.saved.segments)
    assert len([key for key in live if key.segment == -1]) == 1


def test_an_empty_cursor_starts_where_its_creation_says() -> None:
    found = CursorStore(MemoryStateLog()).recover(an_identity(), None, None, 12, DEADLINE)
    assert (found.source, found.state.next_unacked) == ("start", 12)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories_agree_with_a_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 histories in all; a failure names its seed and number."""
    for number in range(HISTORIES // SEEDS):
        rng = random.Random(f"{seed}/{number}")
        limit = rng.choice((100, 125, 130, 135, 140, 150, 170, 200, 4095))
        monkeypatch.setattr(store_module, "MAX_METADATA_CHARS", limit)
        history = _History(rng)
        try:
            for _ in range(rng.randrange(10, 70)):
                history.step()
            history.crash_and_recover()
        except Exception:
            print(f"seed {seed}/{number}, metadata limit {limit}: {history.told}")
            raise


class _History:
    """A cursor, what Kafka has of it, and beside both a plain set of acknowledged offsets."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log = LogThatBreaks()
        self.store = CursorStore(self.log)
        self.identity = an_identity(rng.choice((1, 2, 5, 16, 64)))
        self.committed: CommittedOffset | None = None
        self.durable: set[int] = set()
        self.checkpoint: CommittedOffset | None = None
        self.at_checkpoint: set[int] = set()
        self.acked: set[int] = set()
        self.told: list[str] = []
        self.version = 0
        self.session = b""
        self._take_over()

    def step(self) -> None:
        changes = (self.acknowledge, self.acknowledge, self.cumulative, self.range_, self.seek)
        saves = (self.save_accepted, self.save_accepted, self.save_refused, self.save_breaks)
        chosen = self.rng.choice((*changes, *saves, self.crash_and_recover, self.compact, self.forget_group))
        self.told.append(chosen.__name__)
        chosen()
        self._agree(self.owned.cursor, self.acked)

    def acknowledge(self) -> None:
        base = self.rng.randrange(LONGEST)
        offsets = [min(LONGEST, base + self.rng.randrange(20)) for _ in range(self.rng.randrange(1, 15))]
        self.owned.cursor.acknowledge(offsets)
        self.acked.update(offsets)

    def cumulative(self) -> None:
        upto = self.rng.randrange(LONGEST)
        self.owned.cursor.acknowledge_cumulative(upto)
        self.acked.update(range(upto + 1))

    def range_(self) -> None:
        start = self.rng.randrange(LONGEST)
        end = min(LONGEST, start + self.rng.randrange(1, 30))
        self.owned.cursor.acknowledge_range(start, end)
        self.acked.update(range(start, end))

    def seek(self) -> None:
        position = self.rng.randrange(LONGEST)
        self.owned.cursor.reset(position)
        self.acked = set(range(position))

    def save_accepted(self) -> None:
        save = prepared(self.store, self.owned, self.session, self.version)
        meanwhile = set(self.acked)
        if self.rng.random() < 0.5:
            self.acknowledge()  # while the commit is under way
        self.committed, self.durable = save.commit, meanwhile
        obsolete = self.owned.save_accepted(save)
        if self.rng.random() < 0.8:
            self.store.clean(self.identity, *obsolete, DEADLINE)
            if self.rng.random() < 0.3:
                self.write_checkpoint()
        else:
            self.told.append("(died before cleaning)")
            self.crash_and_recover()

    def save_refused(self) -> None:
        save = prepared(self.store, self.owned, self.session, self.version)
        if self.rng.random() < 0.5:
            self.acknowledge()
        self.owned.save_refused(save)

    def save_breaks(self) -> None:
        self.log.at = self.rng.choice((1, 2))
        self.log.written_all_the_same = self.rng.random() < 0.5
        try:
            self.owned.save_refused(prepared(self.store, self.owned, self.session, self.version))
        except errors.AppendOutcomeUnknown:
            self.told.append("(broke)")
        self.log.at = None

    def crash_and_recover(self) -> None:
        self._take_over()
        self.acked = set(self.durable)
        self._agree(self.owned.cursor, self.acked)

    def forget_group(self) -> None:
        """A crash, then nobody for so long that Kafka forgets the group's offsets."""
        self.committed, self.durable = None, set(self.at_checkpoint)
        self.crash_and_recover()

    def write_checkpoint(self) -> None:
        self.checkpoint, self.at_checkpoint = self.owned.last_commit, set(self.durable)
        self.store.clean(self.identity, *self.owned.checkpoint_written(), DEADLINE)

    def compact(self) -> None:
        self.log.compact(self.rng)
        self.log.drop_tombstones(self.rng, EVERYTHING)

    def _take_over(self) -> None:
        found = self.store.recover(self.identity, self.committed, self.checkpoint, 0, DEADLINE)
        self.session = self.rng.randbytes(16)
        self.owned = owned_by(self.identity, found.state, found.saved, self.session)
        self.version = found.saved.lineage.version + 1 if found.saved is not None else 1
        self.save_accepted_quietly()
        self.write_checkpoint()

    def save_accepted_quietly(self) -> None:
        save = prepared(self.store, self.owned, self.session, self.version)
        self.committed = save.commit
        self.store.clean(self.identity, *self.owned.save_accepted(save), DEADLINE)

    @staticmethod
    def _agree(cursor: CursorState, acked: set[int]) -> None:
        floor = next(offset for offset in range(2 * LONGEST) if offset not in acked)
        assert cursor.next_unacked == floor
        assert set(cursor.deleted) == {offset for offset in acked if offset > floor}


class _Always(random.Random):
    """Compaction that leaves out nothing."""

    def random(self) -> float:
        return 0.0


def _with_segments() -> tuple[MemoryStateLog, CursorStore, CursorIdentity, OwnedPartition, bytes]:
    """A cursor whose 3,000 holes in 600 ledgers do not fit into a commit."""
    log = MemoryStateLog()
    session = b"s" * 16
    identity = an_identity()
    owned = owned_by(identity, CursorState(0, 10), None, session)
    owned.cursor.acknowledge(list(range(1, 6000, 2)))
    return log, CursorStore(log), identity, owned, session


def _records(log: MemoryStateLog) -> Iterator[LogRecord]:
    partition = CURSORS.partition_for(TOPIC)
    for batch in log.read(CURSORS, partition, 0, log.end_offset(CURSORS, partition, DEADLINE), DEADLINE):
        yield from batch


def _live_keys(log: MemoryStateLog) -> list[CursorSegmentKey]:
    newest = {record.key: record.value for record in _records(log)}
    keys = [decode_key(key) for key, value in newest.items() if value is not None]
    return [key for key in keys if isinstance(key, CursorSegmentKey)]
