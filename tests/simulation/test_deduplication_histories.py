"""The real journal and the real rule under random histories: crashes at every point, late requests, lost answers,
retries.

A producer of one name sends the ids 0, 1, 2 ... in order, repeats some, and sends again what failed. The next holder of
the name after a crash goes on behind the id that it is told, while the broker still executes what the dead one sent
(`SimulatedBroker`). In the end readers must see every id once, wherever they begin.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from pyroaring import BitMap64

from pulsar_on_kafka.base.clock import ClusterClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.deduplication.deduplication_machine import DeduplicationVerdict, PartitionSequences
from pulsar_on_kafka.broker.deduplication.journal import RecoveredSequence, SequenceJournal
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.producers.registry import ProducerRegistry
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.transactions.buffer.entries import BufferEntries
from pulsar_on_kafka.broker.transactions.buffer.model import DataPartition
from pulsar_on_kafka.kafka.appends import Group
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.epoch_fences import begun_by
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.record_headers import HIGHEST_SEQUENCE, PRODUCER, TXN
from pulsar_on_kafka_mapping.state.state_keys import ProducerSequenceKey, TransactionBufferKey, decode_key, encode_key
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS
from pulsar_on_kafka_mapping.state.transactions.transaction_buffer import (
    AbortedEntry,
    BufferKind,
    OpenEntry,
    buffer_records,
)
from tests.memory_log import MemoryStateLog
from tests.seeds import first_of
from tests.simulation.broker import SimulatedBroker
from tests.simulation.turns import ManualClock

NAME = "author"


@pytest.fixture(autouse=True)
def no_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a holder gives up itself is refused from then on: see `Produce`."""
    monkeypatch.setattr("pulsar_on_kafka.broker.deduplication.journal.STRAGGLERS_S", 0.0)


LIFE = 7
TOPIC = Topic(TopicName.parse("orders"), "public.default.orders", "id", 1, False, LedgerLayout(LIFE, 50_000))


class Record:
    def __init__(
        self, offset: int, sequence: int, name: str, txn: TxnId | None, highest: int | None = None, epoch: int = 0
    ) -> None:
        self._offset = offset
        self._highest = highest
        self.sequence = sequence
        self.name = name
        self.txn = txn
        self.epoch = epoch
        self.begins: Headers = []
        """Of a marker, whose epoch is the record's."""

    def offset(self) -> int:
        return self._offset

    def headers(self) -> Headers:
        if self.begins:
            return self.begins
        named: Headers = [(PRODUCER, f"{self.sequence}:{self.epoch}:{self.name}".encode())]
        if self._highest is not None:
            named.append((HIGHEST_SEQUENCE, b"%d" % self._highest))
        return named if self.txn is None else [*named, (TXN, self.txn.to_bytes())]


class Died(Exception):
    """The process that opens the name is killed."""


class DataLog:
    """One partition in memory, and what is on record of its transactions."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.buffer = BufferEntries()
        self.open: set[TxnId] = set()
        self.aborted: set[TxnId] = set()
        self.between: Callable[[], None] = lambda: None
        """Called before each answer of the broker."""

    def append(self, sequence: int, name: str, txn: TxnId | None = None, *, epoch: int = 0) -> int:
        self.records.append(Record(len(self.records), sequence, name, txn, epoch=epoch))
        return len(self.records) - 1

    def append_markers(self, groups: Sequence[Group], deadline: Deadline) -> list[list[int]]:
        self.between()
        ((_, _, (marker,)),) = groups
        assert marker.headers is not None
        begun = begun_by(marker.headers)
        assert begun is not None
        offset = self.append(-1, "", epoch=begun.epoch)
        self.records[offset].begins = list(marker.headers)
        self.between()
        return [[offset]]

    def valid(self) -> list[Record]:
        """The author's records, without those of a lower epoch behind the marker of a higher one."""
        found, highest = [], 0
        for record in self.records:
            if record.begins:
                highest = max(highest, record.epoch)
            elif record.name == NAME and record.epoch >= highest:
                found.append(record)
        return found

    def ids(self) -> list[int]:
        """What readers see of the author."""
        hidden = self.open | self.aborted
        return [record.sequence for record in self.valid() if record.txn not in hidden]

    def given_back(self) -> set[int]:
        """Ids that are free again, since only aborted transactions of the author have them."""
        own = self.valid()
        taken = {record.sequence for record in own if record.txn not in self.aborted}
        return {record.sequence for record in own} - taken

    def put(self, txn: TxnId, entry: OpenEntry | AbortedEntry | None) -> None:
        key = TransactionBufferKey(str(TOPIC.name), 0, *txn, BufferKind.OPEN.value, "s", 0)
        if isinstance(entry, AbortedEntry):
            key = TransactionBufferKey(str(TOPIC.name), 0, *txn, BufferKind.ABORTED.value, "s", 0)
        for part, value in [(key, None)] if entry is None else buffer_records(key, entry):
            self.buffer.apply(LogRecord(0, encode_key(part), value, 0))

    def begin(self, txn: TxnId) -> None:
        self.open.add(txn)
        self.put(txn, OpenEntry(LIFE, len(self.records)))

    def end(self, txn: TxnId, *, commit: bool) -> None:
        self.open.remove(txn)
        if not commit:
            self.aborted.add(txn)
            self.put(txn, AbortedEntry(LIFE, 0, len(self.records), False, BitMap64()))
        self.put(txn, None)

    def outcomes(
        self, topic: str, partition: int, incarnation: int, txns: Collection[TxnId], deadline: Deadline
    ) -> dict[TxnId, bool | None]:
        return self.buffer.outcomes(DataPartition(topic, partition, incarnation), txns)

    def start_offsets(self, topic: str, partitions: Iterable[int], deadline: Deadline) -> Mapping[int, int]:
        self.between()
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, topic: str, partitions: Iterable[int], deadline: Deadline) -> Mapping[int, int]:
        self.between()
        return dict.fromkeys(partitions, len(self.records))

    def watermarks(self, topic: str, partition: int, deadline: Deadline) -> tuple[int, int]:
        return 0, len(self.records)

    def read(self, topic: str, partition: int, start: int, end: int, deadline: Deadline) -> Iterator[list[Record]]:
        for first in range(start, end, 3):
            self.between()
            yield self.records[first : min(first + 3, end)]


class Produce:
    """One record on its way. Kafka appends it once, whatever connections it comes over (`enable.idempotence`).

    `refused`: its sender has given it up and gone on with another epoch of its id at Kafka, which refuses it.
    """

    def __init__(self, log: DataLog, sequence: int, txn: TxnId | None, epoch: int) -> None:
        self._log = log
        self.sequence, self.txn, self.epoch = sequence, txn, epoch
        self.offset: int | None = None
        self.refused = False

    def execute(self) -> None:
        if self.offset is None and not self.refused:
            self.offset = self._log.append(self.sequence, NAME, self.txn, epoch=self.epoch)


@dataclass
class History:
    """`transactions`: the program sends some of its messages in transactions, one after the other. They are committed
    when all was stored, aborted, by the program or because their time is over, or left behind by a crash."""

    seed: int
    wanted: int = 40
    log: DataLog = field(default_factory=DataLog)
    epoch: int = 0
    transactions: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.broker = SimulatedBroker(self.rng)
        self.log.between = self.come_between
        self.opening = False
        self.state = MemoryStateLog(ManualClock())
        self.start_process()
        self.readers: list[tuple[int, Fences]] = []
        """Where they began to read, and the fences that they knew then."""
        self.given_up: list[Produce] = []
        """Since the holder sent the last record."""
        self.begun = 0
        self.left: dict[TxnId, bool] = {}
        """Transactions of programs that died, and whether they are going to be committed."""
        self.conflicts = 0
        self.paused: int | None = None
        """The epoch of a holder that did not close."""
        self.refused: set[int] = set()
        """Ids that were not stored, and that it was not known of any more."""

    def start_process(self) -> None:
        clock = ManualClock()
        self.registry = ProducerRegistry(self.state, ClusterClock(clock), self.log, self.log)
        self.journal = SequenceJournal(
            self.state, self.log, self.log, clock, self.log, lambda txns: None, self.registry, self.log.append_markers
        )

    def come_between(self) -> None:
        """Requests of dead holders arrive, and the process that opens the name may die."""
        while self.broker.waiting and self.rng.random() < 0.3:
            self.broker.execute_one()
        if self.opening and self.rng.random() < 0.03:
            raise Died

    def recover(self) -> RecoveredSequence:
        """By the first one whose process lives long enough."""
        while True:
            self.epoch += 1
            if self.rng.random() < 0.5:  # another process
                self.start_process()
            self.opening = True
            try:
                return self.journal.recover(TOPIC, NAME, self.epoch, [0], Deadline.never())[0]
            except Died:
                self.start_process()
            finally:
                self.opening = False
            self.wake()

    def wake(self) -> None:
        """The former holder was only paused, if it did not close. It hears of its requests, and notes what it believes:
        records behind the marker of one that died while opening are void, but it does not know that."""
        if self.paused is None or self.transactions:
            return
        while self.under_way and self.under_way[0].offset is not None:
            produce = self.under_way.pop(0)
            self.known.stored_at((produce.sequence,), produce.offset)
        if self.known.settled:
            self.note(final=False, epoch=self.paused)

    def open(self) -> None:
        """What aborted transactions gave back is known to the next holder. Requests that the former one gave up arrive
        at any time from now on, unless it sent anything after them: then Kafka refuses them."""
        late = self.broker.connect()
        for produce in self.given_up:
            late.send(Produce(self.log, produce.sequence, produce.txn, produce.epoch).execute)
        self.given_up = []
        self.connection = self.broker.connect()
        found = self.recover()
        self.paused = None
        assert found.highest == max(self.log.ids(), default=-1), f"seed {self.seed}"
        free = {each for each in self.log.given_back() if found.forgotten_upto < each < found.highest}
        assert free <= set(found.absent), f"seed {self.seed}: {free} are free, {found.absent} are known to be"
        self.known = PartitionSequences(found.highest, found.upto, found.absent, found.forgotten_upto)
        for txn, held in found.undecided.items():
            self.known.hold(txn, held)
        self.next = found.highest + 1
        self.under_way: list[Produce] = []
        # A program tries again what it heard no success of; above that it goes on.
        tried = {*found.absent, *(each for held in found.undecided.values() for each in held.ids)}
        tried |= set(range(found.forgotten_upto + 1)) - set(self.log.ids())
        self.failed = sorted(each for each in tried if each < self.next)
        self.txn: TxnId | None = None
        self.in_txn: list[int] = []

    # Sending ------------------------------------------------------------------------------------------------------

    def send(self, sequence: int) -> None:
        """Send one message, by the steps of `Deduplication._judge`."""
        verdict = self.known.judge(sequence, self.txn)
        if verdict is DeduplicationVerdict.UNKNOWN:
            self.look_for_failed()
            verdict = self.known.judge(sequence, self.txn)
        if verdict is DeduplicationVerdict.UNDECIDED:
            self.look_up(self.known.depends_on(sequence))
            verdict = self.known.judge(sequence, self.txn)
        if verdict is DeduplicationVerdict.DUPLICATE:
            stored = sequence in self.log.ids() or sequence in self.in_txn
            assert stored, f"seed {self.seed}: {sequence} was taken for a duplicate"
        elif verdict is DeduplicationVerdict.FORGOTTEN:
            assert sequence <= self.known.forgotten_upto, f"seed {self.seed}: {sequence} is refused"
            if sequence not in self.log.ids():
                self.refused.add(sequence)
        elif verdict is DeduplicationVerdict.PENDING and sequence not in {each.sequence for each in self.under_way}:
            assert sequence <= self.known.forgotten_upto, f"seed {self.seed}: {sequence} waits for nothing"
            self.failed = sorted({*self.failed, sequence})
        elif verdict is DeduplicationVerdict.UNDECIDED:
            assert self.known.depends_on(sequence) <= self.log.open, f"seed {self.seed}: {sequence}"
            self.conflicts += 1
            self.failed = sorted({*self.failed, sequence})
        elif verdict is DeduplicationVerdict.NEW:
            self.known.taken(sequence, self.txn)
            produce = Produce(self.log, sequence, self.txn, self.epoch)
            self.under_way.append(produce)
            self.given_up = []
            self.connection.send(produce.execute)

    def look_for_failed(self) -> None:
        if self.known.doubtful:
            found, end = self.journal.firsts(TOPIC, 0, NAME, self.known.read_from, Deadline.never())
            self.known.found(found, end)

    def look_up(self, txns: Iterable[TxnId]) -> None:
        for txn, committed in self.journal.outcomes(TOPIC, 0, list(txns), Deadline.never()).items():
            if committed is not None:
                self.known.decided(txn, committed=committed)

    def answered(self) -> None:
        produce = self.under_way.pop(0)
        while produce.offset is None:
            self.connection.execute_next()
        sequence, txn = produce.sequence, produce.txn
        self.known.stored_at((sequence,), produce.offset if self.rng.random() < 0.9 else None)
        if txn is not None and txn == self.txn:
            self.in_txn.append(sequence)
        elif txn is not None:  # it was aborted meanwhile
            self.failed = sorted({*self.failed, sequence})

    @property
    def waits(self) -> bool:
        """For answers of a transaction that was aborted."""
        return any(each.txn is not None and each.txn != self.txn for each in self.under_way)

    def fail(self, *, certainly: bool) -> None:
        """All that is under way fails; without certainty some of it may have been stored."""
        stored = 0 if certainly else self.rng.randint(0, len(self.under_way))
        for at, produce in enumerate(self.under_way):
            self.give_up(produce, stored=at < stored or produce.offset is not None, certainly=certainly)
        self.under_way = []
        if self.txn is not None:  # as its commit would
            self.end(commit=False)

    def fail_some(self, what: str) -> None:
        if what != "p":
            self.fail(certainly=what == "f")
        elif not self.transactions:
            self.fail_first(certainly=self.rng.random() < 0.5)

    def fail_first(self, *, certainly: bool) -> None:
        """What comes behind it may be stored."""
        produce = self.under_way.pop(0)
        stored = produce.offset is not None or (not certainly and self.rng.random() < 0.5)
        self.give_up(produce, stored=stored, certainly=certainly)

    def give_up(self, produce: Produce, *, stored: bool, certainly: bool) -> None:
        if stored:
            produce.execute()
        produce.refused = True
        if not stored and not certainly:
            self.given_up.append(produce)
        self.known.failed((produce.sequence,), certainly=certainly and not stored)
        self.failed = sorted({*self.failed, produce.sequence})

    @property
    def passed_over(self) -> bool:
        """Something failed, or is under way again, and something behind it is stored, or may be before it; but for what
        an aborted transaction gave back."""
        free = self.log.given_back()
        sent = [each.sequence for each in self.under_way if each.offset is None and each.sequence not in free]
        late = [] if sent else [each.sequence for each in self.given_up]
        order = [max(self.log.ids(), default=-1), *sent, *late]
        gone = {*self.failed, *self.refused} - set(self.log.ids()) - set(late)
        unknown = [each for each in gone if each not in free]
        return order != sorted(order) or min(unknown, default=self.wanted) < order[-1]

    # Transactions -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.begun += 1
        self.txn = TxnId(3 << 48, self.begun)
        self.log.begin(self.txn)

    def end(self, *, commit: bool) -> None:
        assert self.txn is not None
        self.log.end(self.txn, commit=commit)
        if not commit:
            self.failed = sorted({*self.failed, *self.in_txn})
        self.txn, self.in_txn = None, []

    def step_of_transactions(self) -> None:
        if self.txn is None and not self.waits:
            self.begin()
        elif self.txn is not None and self.rng.random() < 0.3:
            self.end(commit=False)
        elif self.txn is not None and not self.under_way and not self.failed:
            self.end(commit=True)
        if self.left and self.rng.random() < 0.3:
            self.end_one_left()

    def end_one_left(self) -> None:
        txn = self.rng.choice(list(self.left))
        self.log.end(txn, commit=self.left.pop(txn))

    # Everything ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        what = self.rng.choice("sssssrraaaaaaanoftpcx" + "bbb" * self.transactions)
        if what == "b":
            self.step_of_transactions()
        elif what == "s" and not self.waits:
            self.send_one()
        elif what == "r" and self.next:
            self.repeat(self.rng.randrange(self.next))
        elif what == "a" and self.under_way:
            self.answered()
        elif what == "o":
            self.log.append(self.rng.randrange(self.wanted), self.rng.choice(["other", "co-" + NAME]))
        elif what == "n" and self.known.settled:
            self.note(final=False)
        elif what in "ftp" and self.under_way:
            self.fail_some(what)
        elif what == "c" and not self.passed_over:  # it would hide these, as in Pulsar
            self.crash()
        elif what == "x":
            self.close()
        if self.rng.random() < 0.1:
            self.state.compact(self.rng)
        if self.rng.random() < 0.1:
            known = self.registry.fences_of(TOPIC, [0], Deadline.never())[0]
            self.readers.append((self.rng.randint(0, len(self.log.records)), Fences(known)))

    def send_one(self) -> None:
        """What failed comes first; but what an aborted transaction gave back may wait."""
        waits = self.rng.random() < 0.3 and self.next < self.wanted and self.log.given_back().issuperset(self.failed)
        if self.failed and not waits:
            self.send(self.failed.pop(0))
        elif self.next < self.wanted:
            self.send(self.next)
            self.next += 1

    def repeat(self, sequence: int) -> None:
        if sequence not in self.failed:  # or a crash right after it would hide what failed below it, as in Pulsar
            self.send(sequence)

    def note(self, *, final: bool, epoch: int | None = None) -> None:
        if self.rng.random() < 0.8:
            self.look_up(list(self.known.undecided))
        end = len(self.log.records)
        upto, known = self.known.known_upto(end), self.known
        noted = RecoveredSequence(known.stored, upto, {}, known.absent, known.forgotten_upto)
        last = final and noted.upto == end and not known.gave_up
        epoch = self.epoch if epoch is None else epoch
        self.journal.save(TOPIC, NAME, epoch, {0: noted}, Deadline.never(), final=last)

    def close(self) -> None:
        """In good order, unless somebody waits: the next holder hears of what failed, too."""
        if self.under_way or self.txn is not None or (self.transactions and self.failed):
            return
        self.look_for_failed()
        self.note(final=True)
        failed = self.failed
        self.open()
        if not self.transactions:
            tried = {*failed, *range(self.known.forgotten_upto + 1)}
            missing = sorted(each for each in tried if each < self.next and each not in self.log.ids())
            assert self.failed == missing, f"seed {self.seed}: {self.failed}, not {missing}"

    def crash(self) -> None:
        """What was under way arrives at any time from now on, perhaps over two connections."""
        if self.txn is not None:
            complete = not self.under_way and not self.failed
            self.left[self.txn] = complete and self.rng.random() < 0.5
        if self.rng.random() < 0.3:
            self.connection.send_again()
        self.paused = self.epoch
        self.open()

    def play(self) -> int:
        self.open()
        for _ in range(200):
            self.step()
        while self.left:
            self.end_one_left()
        if self.txn is not None:
            self.end(commit=False)
        for _ in range(3):
            while self.failed or self.under_way or self.next < self.wanted:
                while self.under_way:
                    self.answered()
                if self.failed or self.next < self.wanted:
                    sequence = self.failed.pop(0) if self.failed else self.next
                    self.next = max(self.next, sequence + 1)
                    self.send(sequence)
        stored = [*self.log.ids(), *(self.refused - set(self.log.ids()))]
        assert sorted(stored) == list(range(self.wanted)), f"seed {self.seed}: {self.log.ids()}"
        assert self.known.settled
        self.broker.execute_all()
        self.check_readers()
        return self.conflicts

    def check_readers(self) -> None:
        """Wherever and whenever a reader began, the same records are valid."""
        valid = {record.offset() for record in self.log.valid()}
        of_author = {record.offset() for record in self.log.records if record.name == NAME}
        for start, fences in self.readers:
            records = self.log.records[start:]
            odd = [i for i, record in enumerate(records) if record.begins]
            seen = {record.offset() for record in fences.valid(records, odd)}
            assert seen & of_author == {offset for offset in valid if offset >= start}, f"seed {self.seed}"


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_every_id_is_stored_once_whatever_crashes(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        History(seed).play()


@pytest.mark.parametrize("block", first_of(1, range(4)))
def test_ids_of_aborted_transactions_are_free_again_and_those_of_committed_ones_are_not(block: int) -> None:
    assert sum(History(seed, transactions=True).play() for seed in range(block * 100, block * 100 + 100)) > 20


@pytest.mark.parametrize("bytes_of_absent", [30, 34])
def test_what_was_forgotten_is_refused_and_never_taken_for_stored(
    bytes_of_absent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the ids that may be sent again a few are remembered."""
    monkeypatch.setattr("pulsar_on_kafka.broker.deduplication.deduplication_machine.MAX_ABSENT_BYTES", bytes_of_absent)
    refused = 0
    for seed in range(25):
        for transactions in (False, True):
            history = History(seed, transactions=transactions)
            history.play()
            refused += len(history.refused)
    assert refused > 0, "the limit is reached"


@pytest.mark.soak
def test_many_more_histories() -> None:
    for seed in range(1_000, 20_000):
        History(seed).play()
        History(seed, transactions=True).play()


def test_a_paused_former_holder_does_not_disturb_the_next_one() -> None:
    history = History(1)
    history.open()
    for sequence in range(5):
        history.log.append(sequence, NAME)
    history.open()
    # The former holder wakes up and writes down what it believes.
    former = {0: RecoveredSequence(99, len(history.log.records) + 10)}
    history.journal.save(TOPIC, NAME, history.epoch - 1, former, Deadline.never(), final=True)
    history.open()
    assert history.known.stored == 4


def test_a_name_that_went_on_without_deduplication_begins_anew() -> None:
    history = History(1)
    history.open()
    history.log.append(5, NAME)
    history.journal.forget(TOPIC, NAME, Deadline.never())
    history.log.append(77, NAME)
    found = history.journal.recover(TOPIC, NAME, 9, [0], Deadline.never())
    assert found == {0: RecoveredSequence(-1, 2)}


def test_each_next_holder_knows_all_ids_that_an_aborted_transaction_gave_back() -> None:
    history, count = History(1), 20_000
    history.open()
    aborted = TxnId(3 << 48, 1)
    history.log.begin(aborted)
    for sequence in range(count):
        history.log.append(sequence, NAME, aborted)
    history.log.append(count, NAME)
    history.log.end(aborted, commit=False)
    for epoch, final in ((2, False), (3, True), (4, True)):
        found = history.journal.recover(TOPIC, NAME, epoch, [0], Deadline.never())[0]
        assert (found.highest, found.absent, found.forgotten_upto) == (count, BitMap64(range(count)), -1)
        history.journal.save(TOPIC, NAME, epoch, {0: found}, Deadline.never(), final=final)


def test_a_request_of_a_dead_holder_that_arrives_after_the_next_one_began_is_void() -> None:
    history = History(1)
    history.open()
    first = history.epoch
    for sequence in range(5):
        history.log.append(sequence, NAME, epoch=first)
    history.open()
    history.log.append(5, NAME, epoch=first)  # the dead holder's last request
    history.send(5)
    history.answered()
    assert history.log.ids() == list(range(6))
    history.open()
    assert history.known.stored == 5
    late, marker = history.log.records[6:8]
    assert late.begins or marker.begins
    fences = Fences(history.registry.fences_of(TOPIC, [0], Deadline.never())[0])
    epochs = [record.epoch for record in fences.valid(history.log.records[6:], []) if record.name == NAME]
    assert first not in epochs, "also to a reader that begins behind the marker"


def test_only_the_newest_snapshot_stays() -> None:
    history = History(1)
    for _ in range(5):
        history.open()
    partition = PRODUCERS.partition_for(str(TOPIC.name))
    end = history.state.end_offset(PRODUCERS, partition, Deadline.never())
    left: dict[bytes, bytes | None] = {}
    for batch in history.state.read(PRODUCERS, partition, 0, end, Deadline.never()):
        left.update((record.key, record.value) for record in batch)
    on_record = [decode_key(key) for key, value in left.items() if value is not None]
    assert len([key for key in on_record if isinstance(key, ProducerSequenceKey)]) == 1


def test_a_client_may_say_any_number_of_its_records() -> None:
    history = History(1)
    history.open()
    most = 2**63 - 1
    left, aborted = TxnId(3 << 48, 1), TxnId(3 << 48, 2)
    for txn in (left, aborted):
        history.log.begin(txn)
    for sequence, sent_in in ((7, left), (5, aborted), (8, None)):
        history.log.records.append(Record(len(history.log.records), sequence, NAME, sent_in, most))
    history.log.end(aborted, commit=False)
    found = history.journal.recover(TOPIC, NAME, 2, [0], Deadline.never())[0]
    assert (found.highest, set(found.absent), found.forgotten_upto) == (most, {5}, most - 1)
    assert list(found.undecided[left].ids) == [7, most]


def test_a_transaction_s_record_without_a_sequence_id_frees_nothing() -> None:
    history = History(1)
    history.open()
    left, aborted = TxnId(3 << 48, 1), TxnId(3 << 48, 2)
    for txn in (left, aborted):
        history.log.begin(txn)
        history.log.append(-1, NAME, txn)
    history.log.append(4, NAME)
    history.log.end(aborted, commit=False)
    found = history.journal.recover(TOPIC, NAME, 2, [0], Deadline.never())[0]
    assert (found.highest, set(found.absent), dict(found.undecided)) == (4, set(), {})
