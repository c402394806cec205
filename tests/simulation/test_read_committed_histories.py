"""Consumers and readers hand out a partition with transactions, over random histories, beside a naive truth.

The real `OwnedPartition` and `Readable` are given runs of any length, also some that they were given before; records
are missing; transactions end in any order, and what is on record of them comes later than their markers; cursors are
moved, and rewound. What is handed out is what was committed, each in its turn. `make soak` runs 20,000.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.batches import is_marker
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import PartitionAcks
from pulsar_on_kafka.broker.subscriptions.records.read_committed import ReadCommitted
from pulsar_on_kafka.broker.subscriptions.records.reader_filter import Readable, ReaderChunks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER, TXN, unpack
from pulsar_on_kafka_mapping.records.transaction_headers import marker_headers
from tests.unit.broker.transactions.buffer_records import HERE, Entries, aborted, opened, txn


@dataclass
class Record:
    at: int
    found: Headers | bytes

    def __len__(self) -> int:
        return 10

    def offset(self) -> int:
        return self.at

    def headers(self) -> Headers | bytes:
        return self.found if isinstance(self.found, bytes) else list(self.found)

    def set_headers(self, packed: bytes) -> None:
        assert unpack(packed) == self.found
        self.found = packed


@dataclass
class Transaction:
    """`steps`: 0 open, 1 its marker is there, 2 it is on record as over. `decided`: committed or not."""

    id: TxnId
    decided: bool = False
    steps: int = 0
    offsets: list[int] = field(default_factory=list)


class Log:
    """A data partition and what is on record of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.entries = Entries()
        self.records: dict[int, Record] = {}
        self.end = 0
        self.txns: list[Transaction] = []
        self.plain: set[int] = set()

    def append(self, found: Headers) -> int:
        if self.rng.random() < 0.1:
            self.end += 1  # what lay there is gone
        at, self.end = self.end, self.end + 1
        self.records[at] = Record(at, found)
        return at

    def step(self) -> None:
        draw = self.rng.random()
        live = [each for each in self.txns if each.steps == 0]
        if draw < 0.15 or not live:
            begun = Transaction(txn(len(self.txns)))
            self.txns.append(begun)
            self.entries.put(begun.id, opened(self.end))
        elif draw < 0.35:
            self.plain.add(self.append([(PRODUCER, b"0:0:p")]))
        elif draw < 0.8:
            chosen = self.rng.choice(live)
            for _ in range(self.rng.choice((1, 1, 2, 5))):
                chosen.offsets.append(self.append([(PRODUCER, b"0:0:p"), (TXN, chosen.id.to_bytes())]))
        else:
            self.go_on_with_the_end_of(self.rng.choice([each for each in self.txns if each.steps < 2]))

    def go_on_with_the_end_of(self, chosen: Transaction) -> None:
        chosen.steps += 1
        if chosen.steps == 1:
            chosen.decided = self.rng.random() < 0.6
            self.append(marker_headers(chosen.id, committed=chosen.decided))
            return
        if not chosen.decided:
            self.entries.put(chosen.id, aborted([*chosen.offsets, 0]))
        self.entries.drop(chosen.id, opened(0))

    def readable(self) -> set[int]:
        """What was decided to be committed."""
        return self.plain.union(*[set(each.offsets) for each in self.txns if each.decided])

    def held_up_at(self) -> int:
        """No record at or beyond it may be read, as far as is on record."""
        return min((each.offsets[0] for each in self.txns if each.offsets and each.steps < 2), default=self.end)

    def run(self, start: int) -> list[Record]:
        found = [self.records[at] for at in range(start, self.end) if at in self.records]
        return found[: self.rng.randint(1, 12)]


class Consumer:
    def __init__(self, log: Log) -> None:
        self.log = log
        identity = CursorIdentity(HERE.topic, 0, "s", "t", "x" * 22, HERE.incarnation, 2, 10)
        slot = PartitionAcks(HERE.topic, 0, -1, LedgerLayout(HERE.incarnation, 10))
        self.owned = OwnedPartition(slot, identity, CursorState(0, 10), SavedCursor(identity.lineage(b"", 1, 0)))
        self.acked: set[int] = set()
        self.out: list[int] = []
        self.fetched = 0

    def fetch(self) -> None:
        run = self.log.run(self.fetched)
        if run:
            self.fetched = run[-1].at + 1
            before = self.owned.read_position
            self.owned.intake.accept([record.at for record in run], list(run))
            self.check(before)

    def look(self) -> None:
        committed = self.owned.intake.committed
        if committed.waits_from is not None:
            before = self.owned.read_position
            committed.learn(committed.unsettled(), self.log.entries)
            self.owned.intake.release()
            self.check(before)
            waits_from = committed.waits_from
            assert waits_from is None or waits_from >= self.log.held_up_at()

    def check(self, before: int) -> None:
        readable = self.log.readable()
        found: list[int] = []
        while self.owned.buffered:
            found += self.owned.take(100)[0]
        after = self.owned.read_position
        assert found == [at for at in range(before, after) if at in readable and at not in self.acked]
        self.out += found
        for at in readable:
            assert self.owned.cursor.is_acknowledged(at) == (at in self.acked), at

    def step(self) -> None:
        rng, owned = self.log.rng, self.owned
        draw = rng.random()
        if draw < 0.5:
            self.fetch()
        elif draw < 0.7:
            self.look()
        elif draw < 0.85 and self.out:
            chosen = rng.sample(self.out, rng.randint(1, len(self.out)))
            self.acked.update(chosen)
            owned.slot.acks.extend(chosen)
            owned.drain_acknowledgements(lambda: self.log.end)
            self.out = [at for at in self.out if at not in self.acked]
        elif draw < 0.9:  # the cursor could not be asked: what was read comes again
            self.fetched = owned.read_position
        elif draw < 0.94:
            self.out.clear()
            self.fetched = owned.rewind()
        elif draw < 0.97:
            target = rng.randint(0, self.log.end)
            self.acked = set(range(target))
            self.out.clear()
            self.fetched = owned.seek(target)
        else:
            upto = rng.randint(0, self.log.end)
            if upto < self.log.end:
                self.acked.update(range(upto + 1))
                self.out = [at for at in self.out if at > upto]
                if owned.acknowledge_up_to(upto):
                    self.fetched = owned.read_position

    def finish(self) -> None:
        while self.log.run(self.fetched):
            self.fetch()
        self.look()
        assert self.owned.intake.committed.waits_from is None
        assert self.log.readable() <= self.acked | set(self.out)


class Reader:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.position = log.rng.randint(0, log.end)
        self.began = self.position
        self.out: list[int] = []
        chunks = ReaderChunks("r", lambda partition, offsets: {}, lambda partition: 0, lambda: 0.0)
        self.readable = Readable(lambda p: (), lambda p: ReadCommitted(HERE, lambda: 0), [0], chunks)

    def fetch(self) -> None:
        run = self.log.run(self.position)
        if run:
            self.position = run[-1].at + 1
            self.take(self.readable.of(0, list(run)))

    def look(self) -> None:
        committed = self.readable.committed.get(0)
        if committed is not None and committed.waits_from is not None:
            committed.learn(committed.unsettled(), self.log.entries)
            self.take(self.readable.release(0))

    def take(self, found: list[Record]) -> None:
        self.out += [record.at for record in found if not is_marker(record)]
        committed = self.readable.committed.get(0)
        waits_from = None if committed is None else committed.waits_from
        upto = self.position if waits_from is None else waits_from
        assert self.out == [at for at in range(self.began, upto) if at in self.log.readable()]

    def step(self) -> None:
        draw = self.log.rng.random()
        if draw < 0.6:
            self.fetch()
        elif draw < 0.9:
            self.look()
        else:
            self.began = self.position = self.log.rng.randint(0, self.log.end)
            self.out.clear()
            self.readable.forget([0])

    def finish(self) -> None:
        while self.log.run(self.position):
            self.fetch()
        self.look()
        assert self.out == [at for at in range(self.began, self.log.end) if at in self.log.readable()]


def play(seed: int, steps: int = 120) -> int:
    """Gives how many messages were readable."""
    log = Log(random.Random(seed))
    actors: list[Log | Consumer | Reader] = [log, log, Consumer(log), Reader(log)]
    try:
        for _ in range(steps):
            log.rng.choice(actors).step()
        for each in log.txns:
            while each.steps < 2:
                log.go_on_with_the_end_of(each)
        for actor in actors:
            if not isinstance(actor, Log):
                actor.finish()
    except AssertionError as failure:
        raise AssertionError(f"seed {seed}: {failure}") from failure
    return len(log.readable())


def test_what_is_handed_out_is_what_was_committed() -> None:
    assert sum(play(seed) for seed in range(400)) > 4_000


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_in_thousands_of_histories_what_is_handed_out_is_what_was_committed() -> None:
    assert sum(play(seed, steps=300) for seed in range(1_000, 21_000)) > 200_000
