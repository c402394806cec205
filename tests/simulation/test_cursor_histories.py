"""A cursor with its saves, crashes and successors beside a plain set of acknowledged offsets.

`make test` runs the same histories each time; the soak looks for new ones, and prints how to run a failure again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor import commit_metadata
from pulsar_on_kafka.broker.cursor import segments as segments_module
from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.cursor.orphaned_records import FoundSegments, SegmentName, orphans
from pulsar_on_kafka.broker.cursor.saved_cursor import Unneeded, checkpoint_beside
from pulsar_on_kafka.broker.cursor.segments import CursorSegments
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.state.cursors.cursor_marker import SegmentRef
from pulsar_on_kafka_mapping.state.state_keys import CursorSegmentKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import CURSORS
from tests.seeds import examples
from tests.simulation.cursors import (
    TOPIC,
    LogThatBreaks,
    an_identity,
    every_reference_is_there,
    prepared,
    send_away,
    taken_over,
)

DEADLINE = Deadline.never()
EVERYTHING = 10**9
LONGEST = 90

Truth = tuple[frozenset[int], dict[int, tuple[int, int]]]
"""Acknowledged offsets; of batch entries of which something is acknowledged, complete ones too, (size, bits)."""

offsets = st.integers(0, LONGEST)
some = st.integers(1, 2**20 - 1)
seeds = st.integers(0, 2**32 - 1).map(random.Random)


class CursorBesideASet(RuleBasedStateMachine):
    """Ledgers, records and commits are so small that segments, pages and everything between occur."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = commit_metadata.MAX_METADATA_CHARS, segments_module.LARGEST_RECORD_BYTES  # type: ignore[attr-defined]

    @initialize(
        entries_per_ledger=st.sampled_from((1, 2, 5, 16, 64)),
        metadata=st.sampled_from((100, 110, 125, 135, 150, 170, 200)),
        record=st.sampled_from((300, 320, 350, 900_000)),
    )
    def begin(self, entries_per_ledger: int, metadata: int, record: int) -> None:
        commit_metadata.MAX_METADATA_CHARS = metadata  # type: ignore[attr-defined]
        segments_module.LARGEST_RECORD_BYTES = record  # type: ignore[misc]
        self.log = LogThatBreaks()
        self.processes = CursorStore(self.log), CursorStore(self.log)
        self.store = self.processes[0]
        """Of the process that owns the partition: it may lose it and come to own it again."""
        self.identity = an_identity(entries_per_ledger)
        self.acked: set[int] = set()
        self.batches: dict[int, tuple[int, int]] = {}
        self.committed: CommittedOffset | None = None
        self.durable: Truth = (frozenset(), {})
        self.checkpoint: CommittedOffset | None = None
        self.at_checkpoint = self.durable
        self.former: OwnedPartition | None = None
        """An owner that was stopped, with what it holds."""
        self.uncleaned = Unneeded()
        """What it was about to clean."""
        self._take_over()

    def teardown(self) -> None:
        if hasattr(self, "owned"):
            self.crash()
            self.log.compact(random.Random(), thoroughly=True)
            every_reference_is_there(self.log, self.identity, self.committed, self.checkpoint)
        commit_metadata.MAX_METADATA_CHARS = self.limits[0]  # type: ignore[attr-defined]
        segments_module.LARGEST_RECORD_BYTES = self.limits[1]  # type: ignore[misc]

    # Acknowledgements ---------------------------------------------------------------------------------------------

    @rule(base=offsets, bits=some)
    def acknowledge(self, base: int, bits: int) -> None:
        self._acknowledge(base + step for step in range(20) if bits >> step & 1)

    def _acknowledge(self, positions: Iterable[int]) -> None:
        there = [min(LONGEST, position) for position in positions]
        self.owned.cursor.acknowledge(there)
        self.acked.update(there)

    @rule(upto=offsets, bits=some)
    def acknowledge_cumulatively(self, upto: int, bits: int) -> None:
        upto = upto // 4 if bits % 4 else upto
        self.owned.cursor.acknowledge_cumulative(upto)
        self.acked.update(range(upto + 1))

    @rule(start=offsets, length=st.integers(1, 30))
    def acknowledge_range(self, start: int, length: int) -> None:
        self.owned.cursor.acknowledge_range(start, start + length)
        self.acked.update(range(start, start + length))

    @rule(offset=offsets, size=st.integers(2, 6), bits=some)
    def acknowledge_in_a_batch(self, offset: int, size: int, bits: int) -> None:
        more = bits
        size, bits = self.batches.get(offset, (size, 0))
        more = 1 + more % ((1 << size) - 1)
        self.owned.cursor.acknowledge_batches({offset: BatchAckSet(size, more)})
        if offset not in self.acked:
            self.batches[offset] = (size, bits | more)
            if bits | more == (1 << size) - 1:
                self.acked.add(offset)

    def seek(self, position: int) -> None:
        self.owned.cursor.reset(position)
        self.acked = set(range(position))
        self.batches.clear()

    # Memory -------------------------------------------------------------------------------------------------------

    @rule(rng=seeds)
    def evict(self, rng: random.Random) -> None:
        send_away(self.owned, rng, 0.7)

    @rule(offset=offsets, which=st.integers(0, 3), rng=seeds)
    def acknowledge_while_unreadable(self, offset: int, which: int, rng: random.Random) -> None:
        """What cannot be read back leaves everything as it was."""
        send_away(self.owned, rng, 0.7)
        before = set(self.acked), dict(self.batches)
        changes: list[Callable[[], None]] = [
            lambda: self._acknowledge([offset, offset + 3]),
            lambda: self.acknowledge_cumulatively(offset, 0),
            lambda: self.acknowledge_range(offset, 20),
            lambda: self.acknowledge_in_a_batch(offset, 3, 1),
        ]
        self.log.unreadable = True
        try:
            changes[which]()
        except errors.ConnectFailed:
            self.acked, self.batches = before
        finally:
            self.log.unreadable = False
        self.owned.cursor.advance()  # the owner does it every second

    # Saves --------------------------------------------------------------------------------------------------------

    @rule(meanwhile=st.lists(offsets, max_size=3), checkpoint=st.booleans(), tidied=st.booleans())
    def save(self, meanwhile: list[int], checkpoint: bool, tidied: bool) -> None:
        """`meanwhile` is acknowledged, and maintenance may tidy, while the commit is under way."""
        self._save(meanwhile, tidied=tidied)
        if checkpoint:
            self._write_checkpoint()

    def save_and_die_before_cleaning(self) -> None:
        self.uncleaned = self._save([], clean=False)
        self.crash()

    @rule(meanwhile=st.lists(offsets, max_size=3))
    def save_that_is_refused(self, meanwhile: list[int]) -> None:
        save = prepared(self.store, self.owned)
        self._acknowledge(meanwhile)
        self.owned.saves.refused(save)

    @rule(call=st.integers(1, 3), written=st.booleans())
    def save_that_breaks(self, call: int, written: bool) -> None:
        """The append that fails may have been written: segments, then pages, then the marker."""
        self.log.at, self.log.written_all_the_same = call, written
        try:
            self.owned.saves.refused(prepared(self.store, self.owned))
        except errors.AppendOutcomeUnknown:
            pass
        finally:
            self.log.at = None

    @rule()
    def save_without_segments(self) -> None:
        """Nothing durable is given up, and nothing but what was acknowledged is claimed."""
        lineage = self.owned.saves.begin()
        was_dirty = self.owned.saves.dirty
        save = self.store.prepare_without_segments(
            self.identity, self.owned.cursor, self.owned.saves.saved, lineage, DEADLINE
        )
        if save is None:  # it does not fit
            return
        found = self.store.recover(self.identity, save.commit, None, 0, DEADLINE)
        self.store.load_all(self.identity, found, DEADLINE)
        held = frozenset((*range(found.state.next_unacked), *found.state.deleted))
        assert held <= self.acked
        if self.owned.cursor.resets == self.owned.saves.saved.resets:
            assert self.durable[0] <= held
        assert save.left_out is not None
        assert len(self.acked - held) <= save.left_out
        batches = {offset: (acks.batch_size, acks.acked) for offset, acks in found.state.batches.items()}
        self.committed, self.durable = save.commit, (held, batches)
        self.store.clean(self.identity, self.owned.saves.accepted(save), DEADLINE)
        assert self.owned.saves.dirty == was_dirty

    # Ends, and what comes after -------------------------------------------------------------------------------------

    @rule(position=offsets, which=st.integers(0, 6))
    def something_rare(self, position: int, which: int) -> None:
        (
            lambda: self.seek(position),
            self.forget_group,
            self.hand_over_before_a_late_commit,
            self.save_and_die_before_cleaning,
            self.former_owner_wakes_up_and_cleans,
            self._agree_thoroughly,
            lambda: self.crash(self.processes[position % 2]),
        )[which]()

    def crash(self, successor: CursorStore | None = None) -> None:
        """Another process or the same one takes over; who was stopped, not killed, may wake up later."""
        self.former, self.store = self.owned, successor or self.store
        self._take_over()
        self.acked, self.batches = set(self.durable[0]), dict(self.durable[1])
        self._agree_in_passing()
        self._agree_thoroughly()

    def hand_over_before_a_late_commit(self) -> None:
        """A save that was not there when it was read back comes behind the last one, and its checkpoint."""
        late = prepared(self.store, self.owned)
        self.owned.saves.refused(late)
        self._acknowledge([self._floor()])
        self._save([])
        self._write_checkpoint()
        self.committed = late.commit
        self.crash(self.processes[1])

    def forget_group(self) -> None:
        """A crash, then nobody for so long that Kafka forgets the group's offsets."""
        self.committed, self.durable = None, self.at_checkpoint
        self.crash()
        self.former = None

    @precondition(lambda self: self.former is not None)
    @rule(base=offsets, bits=some)
    def former_owner_wakes_up_and_saves(self, base: int, bits: int) -> None:
        """Kafka refuses its commit; what it wrote before that harms nobody."""
        assert self.former is not None
        owned = self.former
        try:
            owned.cursor.acknowledge([base + step for step in range(20) if bits >> step & 1])
            owned.saves.refused(prepared(self.store, owned))
        except errors.Corrupt:
            pass  # what it would have to read back is cleaned away

    def former_owner_wakes_up_and_cleans(self) -> None:
        self.store.clean(self.identity, self.uncleaned, DEADLINE)
        self.uncleaned = Unneeded()

    @rule(rng=seeds)
    def compact(self, rng: random.Random) -> None:
        self.log.compact(rng)
        self.log.drop_tombstones(rng, EVERYTHING)
        every_reference_is_there(self.log, self.identity, self.committed, self.checkpoint)

    @rule(owned=st.booleans())
    def tidy(self, owned: bool) -> None:
        """Maintenance removes what nothing refers to; nobody is taking the cursor over just then."""
        there = self._segments_there()
        assert self.committed is not None
        left = orphans(
            CursorSegments(self.log), self.identity, there, [self.committed], self.checkpoint, lambda: owned, DEADLINE
        )
        keys = [CursorSegmentKey(TOPIC, 3, "audit", *name) for name in left]
        partition = CURSORS.partition_for(TOPIC)
        self.log.append_many(CURSORS, partition, [(encode_key(key), None) for key in keys], DEADLINE)
        wanted = self._referred_to(self.committed, None) | self._referred_to(None, self.checkpoint)
        session = self.owned.saves.saved.lineage.session.hex()
        kept = {name for name in self._segments_there() if name.session != session}
        assert kept == {name for name in wanted if name.session != session}
        for seed in range(5):
            self.log.compact(random.Random(seed))

    def _segments_there(self) -> set[SegmentName]:
        fold = FoundSegments(before_ms=10**15)
        partition = CURSORS.partition_for(TOPIC)
        end = self.log.end_offset(CURSORS, partition, DEADLINE)
        for record in (each for batch in self.log.read(CURSORS, partition, 0, end, DEADLINE) for each in batch):
            fold.apply(record)
        return fold.by_cursor.get(CursorName(TOPIC, 3, "audit"), set())

    def _referred_to(self, commit: CommittedOffset | None, checkpoint: CommittedOffset | None) -> set[SegmentName]:
        saved = self.store.recover(self.identity, commit, checkpoint, 0, DEADLINE).saved
        names = set()
        for ref in saved.references() if saved is not None else ():
            if isinstance(ref, SegmentRef):
                names.add(SegmentName(ref.session.hex(), ref.save, ref.segment))
            else:
                names.update(SegmentName(ref.session.hex(), ref.save, -1 - page) for page in range(ref.pages + 1))
        return names

    # It agrees ----------------------------------------------------------------------------------------------------

    @invariant()
    def summaries_agree(self) -> None:
        self._agree_in_passing()

    @rule(offset=offsets)
    def a_place_agrees(self, offset: int) -> None:
        floor = self._floor()
        assert self.owned.cursor.is_acknowledged(offset) == (offset in self.acked)
        wanted = {place for place in range(offset, offset + 5) if place in self.acked and place > floor}
        assert self.owned.cursor.acknowledged_in(offset, offset + 5) == wanted

    def _agree_in_passing(self) -> None:
        cursor, floor = self.owned.cursor, self._floor()
        above = [offset for offset in self.acked if offset > floor]
        assert cursor.next_unacked == floor
        assert len(cursor.deleted) == len(above)
        assert cursor.deleted.count_gaps() == sum(offset - 1 not in self.acked for offset in above)
        assert cursor.backlog(2 * LONGEST) == 2 * LONGEST - len(self.acked)
        assert len(cursor.batches) == len(self._partial())

    def _agree_thoroughly(self) -> None:
        cursor, floor = self.owned.cursor, self._floor()
        assert list(cursor.deleted) == sorted(offset for offset in self.acked if offset > floor)
        found = {offset: (acks.batch_size, acks.acked) for offset, acks in cursor.batches.items()}
        assert found == self._partial()

    # Inside -------------------------------------------------------------------------------------------------------

    def _save(self, meanwhile: list[int], *, clean: bool = True, tidied: bool = False) -> Unneeded:
        save = prepared(self.store, self.owned)
        if tidied:
            self.tidy(owned=True)
        self.committed, self.durable = save.commit, (frozenset(self.acked), self._partial())
        self._acknowledge(meanwhile)
        obsolete = self.owned.saves.accepted(save)
        self._referred_to(save.commit, None)  # all of it is there
        if clean:
            self.store.clean(self.identity, obsolete, DEADLINE)
        return obsolete

    def _write_checkpoint(self) -> None:
        self.checkpoint, self.at_checkpoint = self.owned.saves.last_commit, self.durable
        self.store.clean(self.identity, self.owned.saves.checkpoint_written(), DEADLINE)

    def _take_over(self) -> None:
        checkpoint = checkpoint_beside(lambda: self.checkpoint, self.committed, None)
        found = self.store.recover(self.identity, self.committed, checkpoint, 0, DEADLINE)
        self.owned, save = taken_over(self.store, self.identity, found)
        self.committed = save.commit
        self.store.clean(self.identity, self.owned.saves.accepted(save), DEADLINE)
        self._write_checkpoint()

    def _partial(self) -> dict[int, tuple[int, int]]:
        return {offset: acks for offset, acks in self.batches.items() if offset not in self.acked}

    def _floor(self) -> int:
        return next(offset for offset in range(2 * LONGEST) if offset not in self.acked)


_LIMITLESS: dict[str, Any] = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}

TestCursorBesideASet = CursorBesideASet.TestCase
TestCursorBesideASet.settings = settings(
    max_examples=examples(100), stateful_step_count=40, derandomize=True, print_blob=True, **_LIMITLESS
)


@pytest.mark.long
class TestMoreOfTheSame(CursorBesideASet.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(max_examples=400, stateful_step_count=40, derandomize=True, print_blob=True, **_LIMITLESS)


@pytest.mark.soak
class TestNewHistories(CursorBesideASet.TestCase):  # type: ignore[valid-type, misc]
    settings = settings(max_examples=20_000, stateful_step_count=60, print_blob=True, **_LIMITLESS)
