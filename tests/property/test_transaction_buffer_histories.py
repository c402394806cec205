"""Transaction buffers beside a naive truth: which offsets a reader may ever see, whatever happens in which order.

Two sessions speak for one coordinator; either may be late with anything that it ever had reason to write. Readers begin
anywhere, at any time; compaction takes what it may. `make soak` runs thousands of these histories.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.transactions.buffer.buffer_machine import TransactionBuffer
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition, MetRecord
from pulsar_on_kafka.broker.transactions.buffer.verify import compare, rebuild
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import LowWaterKey, TransactionBufferKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_BUFFER_SNAPSHOT as TOPIC
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferEntry,
    OpenEntry,
    VoidEntry,
    buffer_records,
    encode_low_water,
    kind_of,
)
from tests.memory_log import MemoryStateLog
from tests.seeds import examples

NEVER = Deadline.never()
HERE = DataPartition("persistent://public/default/orders", 0, 7)
SESSIONS = ("old", "new")
PICK = st.integers(0, 1 << 30)


@dataclass
class Txn:
    """The truth of one transaction: `decided` once and for all, then carried out step by step."""

    id: TxnId
    bound: int
    decided: bool | None = None
    steps: int = 0
    """Of carrying out: 1 marker, 2 ABORTED (or nothing), 3 OPENs tombstoned."""
    offsets: list[int] = field(default_factory=list)
    sealed: bool = False


@dataclass
class Reader:
    """One with headers. `position` is where it began, and how far it came."""

    began: int
    machine: TransactionBuffer = field(default_factory=lambda: TransactionBuffer(HERE))
    seen: list[int] = field(default_factory=list)
    position: int = 0


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryStateLog()
        self.view = LogView(self.log, TOPIC, 0, BufferEntries, SystemClock())
        self.data: list[MetRecord | None] = []
        """None is a plain record."""
        self.txns: list[Txn] = []
        self.readers: list[Reader] = []
        self.readable_once = BitMap64()
        self.late = BitMap64()

    @initialize()
    def begin(self) -> None:
        self.readers.append(Reader(0))

    # Writers ------------------------------------------------------------------------------------------------------

    def put(self, which: Txn, entry: BufferEntry, session: str) -> None:
        key = TransactionBufferKey(HERE.topic, 0, *which.id, kind_of(entry).value, session, 0)
        for part, value in buffer_records(key, entry):
            self.log.append(TOPIC, 0, encode_key(part), value, NEVER)

    def chosen(self, pick: int, candidates: list[Txn]) -> Txn:
        return candidates[pick % len(candidates)]

    def open_ones(self) -> list[Txn]:
        return [which for which in self.txns if which.decided is None]

    def ending(self) -> list[Txn]:
        return [which for which in self.txns if which.decided is not None and which.steps < 3]

    def over(self) -> list[Txn]:
        return [which for which in self.txns if which.steps == 3]

    @rule(pick=PICK)
    def register(self, pick: int) -> None:
        which = Txn(TxnId(0, len(self.txns)), len(self.data))
        self.txns.append(which)
        self.put(which, OpenEntry(HERE.incarnation, which.bound), SESSIONS[pick % 2])

    @rule()
    def send_plain(self) -> None:
        self.data.append(None)

    @precondition(lambda self: self.open_ones())
    @rule(pick=PICK, count=st.integers(1, 3))
    def send(self, pick: int, count: int) -> None:
        which = self.chosen(pick, self.open_ones())
        for _ in range(count):
            which.offsets.append(len(self.data))
            self.data.append(MetRecord(len(self.data), which.id))

    @precondition(lambda self: self.open_ones())
    @rule(pick=PICK, commit=st.booleans())
    def decide(self, pick: int, commit: bool) -> None:
        self.chosen(pick, self.open_ones()).decided = commit

    @precondition(lambda self: self.ending())
    @rule(pick=PICK)
    def carry_out(self, pick: int) -> None:
        which = self.chosen(pick, self.ending())
        which.steps += 1
        if which.steps == 1:
            self.data.append(MetRecord(len(self.data), which.id, which.decided))
        elif which.steps == 2 and not which.decided:
            self.put(which, self.aborted_entry(which), SESSIONS[pick % 2])
        elif which.steps == 3:
            entries = self.view.query(lambda found: list(found.entries(HERE, which.id)), NEVER)
            for key, entry in entries:
                if isinstance(entry, OpenEntry):
                    self.log.append(TOPIC, 0, encode_key(key), None, NEVER)

    def aborted_entry(self, which: Txn) -> AbortedEntry:
        return AbortedEntry(HERE.incarnation, which.bound, len(self.data), which.sealed, BitMap64(which.offsets))

    # What comes late, twice, or from a session that was paused --------------------------------------------------------

    @precondition(lambda self: self.repeatable())
    @rule(pick=PICK)
    def marker_again(self, pick: int) -> None:
        which = self.chosen(pick, self.repeatable())
        self.data.append(MetRecord(len(self.data), which.id, which.decided))

    def repeatable(self) -> list[Txn]:
        """A committed one only while nothing came late: see `TransactionBuffer`."""
        late = {met.txn for offset in self.late if (met := self.data[offset]) is not None}
        return [which for which in self.txns if which.steps and which.id not in late]

    @precondition(lambda self: self.txns)
    @rule(pick=PICK)
    def open_entry_late(self, pick: int) -> None:
        which = self.chosen(pick, self.txns)
        self.put(which, OpenEntry(HERE.incarnation, which.bound), SESSIONS[pick % 2])

    @precondition(lambda self: any(which.steps >= 2 and not which.decided for which in self.txns))
    @rule(pick=PICK, late=st.booleans())
    def abort_again(self, pick: int, late: bool) -> None:
        """A record of an aborted transaction comes late, or its entry is written again and sealed for good."""
        which = self.chosen(pick, [one for one in self.txns if one.steps >= 2 and not one.decided])
        if late and not which.sealed:
            which.offsets.append(len(self.data))
            self.data.append(MetRecord(len(self.data), which.id))
        elif not late:
            which.sealed = True
            self.put(which, self.aborted_entry(which), SESSIONS[pick % 2])

    @precondition(lambda self: any(which.steps and which.decided for which in self.txns))
    @rule(pick=PICK)
    def committed_and_late(self, pick: int) -> None:
        """Its writer finds out, and says so before anybody reads on."""
        which = self.chosen(pick, [one for one in self.txns if one.steps and one.decided])
        session = SESSIONS[pick % 2]
        known = self.view.query(lambda found: found.void_of_session(HERE, which.id, session), NEVER)
        self.late.add(len(self.data))
        self.put(which, VoidEntry(HERE.incarnation, known | BitMap64([len(self.data)])), session)
        self.data.append(MetRecord(len(self.data), which.id))

    @rule(pick=PICK)
    def publish_low_water(self, pick: int) -> None:
        unfinished = [which.id.least_bits for which in self.txns if which.steps < 3]
        mark = min(unfinished, default=len(self.txns)) - 1
        if mark >= 0:
            self.low_water(mark, SESSIONS[pick % 2])

    def low_water(self, mark: int, session: str) -> None:
        self.log.append(TOPIC, 0, encode_key(LowWaterKey(0, session)), encode_low_water(mark), NEVER)

    @rule(seed=PICK)
    def compact(self, seed: int) -> None:
        rng = random.Random(seed)
        self.log.compact(rng)
        if seed % 2:  # a view of its own, as if all others had been away: they start over anyway
            self.log.drop_tombstones(rng, self.log.end_offset(TOPIC, 0, NEVER))
            self.view = LogView(self.log, TOPIC, 0, BufferEntries, SystemClock())

    # Readers ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.readers) < 4)
    @rule(pick=PICK)
    def reader_begins(self, pick: int) -> None:
        start = pick % (len(self.data) + 1)
        self.readers.append(Reader(start, position=start))

    @rule(pick=PICK, length=st.integers(1, 8))
    def read(self, pick: int, length: int) -> None:
        self.step(self.readers[pick % len(self.readers)], length)

    @rule(pick=PICK)
    def rewind(self, pick: int) -> None:
        reader = self.readers[pick % len(self.readers)]
        reader.position = reader.began
        reader.seen.clear()
        reader.machine.rewind()

    def step(self, reader: Reader, length: int) -> None:
        end = min(reader.position + length, len(self.data))
        run = range(reader.position, end)
        met = [found for offset in run if (found := self.data[offset]) is not None]
        unsettled = reader.machine.unsettled(met)
        if unsettled:
            self.view.query(lambda found: reader.machine.learn(unsettled, found), NEVER)
        judged = reader.machine.judge(met, 0)
        upto = end if judged.upto is None else judged.upto
        visible = [o for o in range(reader.position, upto) if o not in judged.excluded and self.is_message(o)]
        assert BitMap64(visible).issubset(self.truth()), f"{visible} are not all in {self.truth()}"
        reader.seen += visible
        reader.position = upto

    def is_message(self, offset: int) -> bool:
        found = self.data[offset]
        return found is None or found.ended is None

    def truth(self) -> BitMap64:
        """What may ever be seen: plain records, and those of transactions that are decided to be committed."""
        committed = {which.id for which in self.txns if which.decided}
        return (
            BitMap64(
                o for o, met in enumerate(self.data) if met is None or (met.ended is None and met.txn in committed)
            )
            - self.late
        )

    # What must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def readers_missed_nothing(self) -> None:
        truth = self.truth()
        for reader in self.readers:
            assert reader.seen == [offset for offset in truth if reader.began <= offset < reader.position]

    @invariant()
    def readers_without_headers_see_the_same(self) -> None:
        end = len(self.data)
        snapshot = self.view.query(lambda found: found.snapshot(HERE), NEVER)
        bound = end if snapshot.bound is None else snapshot.bound
        upto = snapshot.readable_end(end, iter([met for met in self.data[bound:] if met is not None]))
        assert bound <= upto
        rows = [
            offset
            for offset, met in enumerate(self.data[:upto])
            if self.is_message(offset)
            and offset not in snapshot.excluded
            and snapshot.is_readable(offset, None if met is None else met.txn)
        ]
        reader = Reader(0)
        self.step(reader, end)
        assert rows == [offset for offset in reader.seen if offset < upto]
        if upto != reader.position:  # only who sees markers knows that it is over, or that it came late
            held_up = self.data[upto]
            assert held_up is not None
            assert upto in self.late or any(which.id == held_up.txn and which.steps for which in self.txns)
        assert self.readable_once.issubset(self.truth())
        self.readable_once |= BitMap64(rows)

    def teardown(self) -> None:
        """In the end everything that was committed is readable, and nothing else."""
        for which in self.txns:
            which.decided = bool(which.decided)
        while self.ending():
            self.carry_out(0)
        for which in self.txns[::2]:  # a coordinator that was paused wakes up
            self.put(which, OpenEntry(HERE.incarnation, which.bound), "paused")
        if self.txns:
            self.low_water(len(self.txns) - 1, "new")
        for reader in [*self.readers, Reader(0)]:
            self.step(reader, len(self.data))
            assert reader.position == len(self.data)
            assert reader.seen == [offset for offset in self.truth() if offset >= reader.began]
        met = [found for found in self.data if found is not None]
        assert self.view.query(lambda found: compare(HERE, rebuild(met), 0, found), NEVER) == []


@pytest.mark.hypothesis
def test_readers_see_what_was_committed_and_nothing_else() -> None:
    run_state_machine_as_test(
        Histories, settings=settings(max_examples=examples(60), stateful_step_count=40, derandomize=True)
    )


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_readers_see_what_was_committed() -> None:
    run_state_machine_as_test(Histories, settings=settings(max_examples=3000, stateful_step_count=60))
    print("\n    3,000 histories of up to 60 steps")
