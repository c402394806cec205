"""The sequence journal keeps the highest sequence ids of producer names: snapshots in `producers`, and the log's tail
behind them.

A snapshot contains the ids that a name has stored below an offset. A new holder of the name appends a marker with its
epoch, and reads the log from the snapshot to the marker. So it finds every valid record of the name, also those that a
killed process wrote without a reply: behind the marker, records of lower epochs are void for every reader. A name that
was closed in good order needs neither marker nor reading.

Records in transactions count when these are committed: records name them, the partition's buffer contains their
outcome, and a snapshot ends before the first open one. Snapshots are keyed by the epoch of the claim they were made
under, and only those of the highest epoch count: a paused former holder can write, but no process reads it. Without a
snapshot nothing was deduplicated yet: the name starts anew, as in Pulsar, whatever it sent before.

A name also starts anew after an absence of `FORGOTTEN_AFTER_MS`, and until then it retains the log. A live producer has
a claim, and writes a snapshot every `NOTED_EVERY_MS`, so a dead one died at most that long after its last snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.broker.deduplication.deduplication_machine import SequenceIds, Undecided
from pulsar_on_kafka.broker.metadata.producers.fences import Fences
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.kafka.appends import Group, NewRecord
from pulsar_on_kafka.kafka.records import headers_of
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.errors import CorruptRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.epoch_fences import Fence, name_origin, take_over_marker
from pulsar_on_kafka_mapping.records.message_record import Headers
from pulsar_on_kafka_mapping.records.stored_sequence import StoredSequence, stored_sequence
from pulsar_on_kafka_mapping.records.transaction_headers import MARKER_KEY, in_transaction
from pulsar_on_kafka_mapping.state.metadata.producer_records import SequenceSnapshot, decode_snapshot, encode_snapshot
from pulsar_on_kafka_mapping.state.state_keys import ProducerSequenceKey, decode_key, encode_key
from pulsar_on_kafka_mapping.state.state_topics import PRODUCERS

_log = logging.getLogger(__name__)

FORGOTTEN_AFTER_MS: Final = 6 * 3_600_000
"""Pulsar's default of `brokerDeduplicationProducerInactivityTimeoutMinutes`."""
NOTED_EVERY_MS: Final = 3_600_000
SCANNED_BETWEEN_SNAPSHOTS: Final = 1_000_000
"""Records after which reading a long tail leaves a snapshot: an attempt that runs out of time is not in vain."""

_MAX_HELD: Final = 10_000
"""The number of transactions that are collected before their outcomes are looked up."""

STRAGGLERS_S: Final = 0.2
"""The interval of readings of the log, after a send failed with an unknown outcome."""


class DataRecord(Protocol):
    def offset(self) -> int: ...
    def headers(self) -> Headers | bytes | None: ...


class Ends(Protocol):
    """`KafkaAdmin`, as far as it is needed here."""

    def start_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]: ...
    def end_offsets(self, topic: str, partitions: Sequence[int], deadline: Deadline) -> Mapping[int, int]: ...


class RecordSource(Protocol):
    """`Fetcher`, as far as it is needed here."""

    def read(
        self, topic: str, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[Sequence[DataRecord]]: ...


class NameFences(Protocol):
    """`ProducerRegistry`, as far as it is needed here."""

    def take_over_name(
        self,
        topic: Topic,
        name: str,
        epoch: int,
        partitions: Sequence[int],
        append: Callable[[Sequence[int]], Mapping[int, int]],
        deadline: Deadline,
    ) -> dict[int, int]: ...
    def fences_of(
        self, topic: Topic, partitions: Sequence[int], deadline: Deadline, *, name: str | None = None
    ) -> dict[int, list[Fence]]: ...


Append: TypeAlias = Callable[[Sequence[Group], Deadline], Sequence[Sequence[int]]]
"""Appends to data topics, and gives the offsets of each group. Source: `kafka.appends.append_apart`."""


class OutcomeLookup(Protocol):
    """Outcomes of transactions, as `LookingOnly` reads them."""

    def outcomes(
        self, topic: str, partition: int, incarnation: int, txns: Collection[TxnId], deadline: Deadline
    ) -> dict[TxnId, bool | None]:
        """Outcomes of these transactions, which have records in the partition: True for committed, None for open."""


@dataclass(frozen=True, slots=True)
class RecoveredSequence:
    """`highest` is the highest id below the offset `upto`, which was the log's end; -1 for none. `undecided`: those of
    transactions that are open, by transaction; they do not count in `highest`. `absent`: ids that failed, or are free
    again since their transaction was aborted; up to `forgotten_upto` some of these may be missing."""

    highest: int
    upto: int
    undecided: Mapping[TxnId, Undecided] = field(default_factory=dict)
    absent: BitMap64 = field(default_factory=BitMap64)
    forgotten_upto: int = -1

    @property
    def known_upto(self) -> int:
        """Below which offset everything is known."""
        return min([self.upto, *(held.offset for held in self.undecided.values())])


class Stored(NamedTuple):
    """A record: its ids, and its transaction if any, when it is one of the requested name."""

    offset: int
    ids: StoredSequence | None
    txn: TxnId | None


class SequenceJournal:
    """Sequence ids of one cluster. Thread-safe. Memory: a snapshot for each producer name and partition of the topics
    in use."""

    def __init__(
        self,
        log: StateLog,
        admin: Ends,
        fetcher: RecordSource,
        clock: Clock,
        transactions: OutcomeLookup,
        hold_up: Callable[[Collection[TxnId]], None],
        fences: NameFences,
        append: Append,
    ) -> None:
        """`hold_up` is called with open transactions that ids depend on, see `Abandoned`."""
        self._hold_up = hold_up
        self._fences = fences
        self._append = append
        self._log = log
        self._admin = admin
        self._fetcher = fetcher
        self._transactions = transactions
        self._clock = clock
        self._views = LogViews(log, PRODUCERS, lambda _: _Snapshots(), clock)

    def recover(
        self, topic: Topic, name: str, epoch: int, partitions: Iterable[int], deadline: Deadline
    ) -> dict[int, RecoveredSequence]:
        """The ids that `name` has stored in these partitions, for its new holder with this epoch; on record when it
        returns.

        Raises:
            DeadlineExceeded: a tail was too long for the time given. What was read counts for the next attempt.
        """
        place = str(topic.name)
        numbers = list(partitions)
        known = self._noted(place, name, deadline)
        newest = {p: noted.snapshot for p, noted in self._newest(topic, known).items() if not self._is_forgotten(noted)}
        left = [p for p in numbers if p in newest and not newest[p].final]
        recovered: dict[int, RecoveredSequence] = {}
        for partition, end in self.ends(topic, [p for p in numbers if p not in left], deadline).items():
            snapshot = newest.get(partition)
            recovered[partition] = RecoveredSequence(-1, end) if snapshot is None else _before(snapshot, end)
        if left:
            starts = self._admin.start_offsets(topic.kafka_topic, left, deadline)
            before = {p: _before(newest[p], max(newest[p].upto, starts[p])) for p in left}
            # Before the marker: later snapshots of a former holder count records that the marker makes void. From here
            # on no process reads them.
            self.save(topic, name, epoch, before, deadline, final=False)
            markers = self._take_over(topic, name, epoch, left, deadline)
            fences = self._fences.fences_of(topic, left, deadline, name=name)
            for p in left:
                recovered[p] = self._scan(topic, name, epoch, p, before[p], markers[p] + 1, fences[p], deadline)
        self.save(topic, name, epoch, recovered, deadline, final=False)
        former = [ProducerSequenceKey(place, p, name, e) for e, p in known if e != epoch and p in recovered]
        self._write(place, [(encode_key(key), None) for key in former], deadline)
        return recovered

    def _take_over(
        self, topic: Topic, name: str, epoch: int, partitions: Sequence[int], deadline: Deadline
    ) -> dict[int, int]:
        """Void what former holders of the name may still append; gives the offsets of the markers."""
        marker = NewRecord(MARKER_KEY, None, take_over_marker(name_origin(name), epoch))

        def append(numbers: Sequence[int]) -> dict[int, int]:
            offsets = self._append([(topic.kafka_topic, partition, [marker]) for partition in numbers], deadline)
            return {partition: first for partition, (first,) in zip(numbers, offsets, strict=True)}

        return self._fences.take_over_name(topic, name, epoch, partitions, append, deadline)

    def save(
        self,
        topic: Topic,
        name: str,
        epoch: int,
        known: Mapping[int, RecoveredSequence],
        deadline: Deadline,
        *,
        final: bool,
    ) -> None:
        place = str(topic.name)
        life = topic.layout.incarnation
        records: list[tuple[bytes, bytes | None]] = []
        for partition, found in known.items():
            key = encode_key(ProducerSequenceKey(place, partition, name, epoch))
            complete = final and not found.undecided
            snapshot = SequenceSnapshot(
                life, found.highest, found.known_upto, complete, found.absent, found.forgotten_upto
            )
            records.append((key, encode_snapshot(snapshot)))
        self._write(place, records, deadline)

    def known(self, topic: Topic, name: str, deadline: Deadline) -> dict[tuple[int, int], SequenceSnapshot]:
        """The snapshots of a name in this life of the topic, by epoch and partition, read to the end."""
        life = topic.layout.incarnation
        found = self._noted(str(topic.name), name, deadline)
        return {at: noted.snapshot for at, noted in found.items() if noted.snapshot.topic_incarnation == life}

    def supersede(self, topic: Topic, name: str, partition: int, epoch: int, deadline: Deadline) -> None:
        """Remove a name's snapshots of lower epochs in a partition: one of `epoch` is on record."""
        place = str(topic.name)
        former = [at for at in self.known(topic, name, deadline) if at[1] == partition and at[0] < epoch]
        keys = [ProducerSequenceKey(place, partition, name, number) for number, _ in former]
        self._write(place, [(encode_key(key), None) for key in keys], deadline)

    def forget(self, topic: Topic, name: str, deadline: Deadline) -> None:
        """`name` stores without deduplication from now on: what it had before does not count when that comes back."""
        place = str(topic.name)
        known = self._noted(place, name, deadline)
        keys = [ProducerSequenceKey(place, partition, name, epoch) for epoch, partition in known]
        self._write(place, [(encode_key(key), None) for key in keys], deadline)

    def needed(
        self, topic: Topic, partitions: Iterable[int], deadline: Deadline, living: Callable[[], Collection[str]]
    ) -> dict[int, list[int]]:
        """The offsets from which a new holder of any name would have to read these partitions now.

        `living` returns the names of the topic's producers; it is called only where one has no recent snapshot.
        """
        place = str(topic.name)
        requested: dict[int, list[int]] = {partition: [] for partition in partitions}
        alive: Collection[str] | None = None
        for name, known in self._views.query(place, lambda state: state.known(place), deadline).items():
            for partition, noted in self._newest(topic, known).items():
                if partition not in requested or noted.snapshot.final:
                    continue
                if self._is_forgotten(noted):
                    alive = living() if alive is None else alive
                    if name not in alive:
                        continue
                requested[partition].append(noted.snapshot.upto)
        return requested

    def ends(self, topic: Topic, partitions: Iterable[int], deadline: Deadline) -> dict[int, int]:
        return dict(self._admin.end_offsets(topic.kafka_topic, list(partitions), deadline))

    def firsts(
        self, topic: Topic, partition: int, name: str, start: int, deadline: Deadline
    ) -> tuple[frozenset[tuple[int, TxnId | None]], int]:
        """The first ids and transactions of the records of `name` from `start` to the end, once failed sends have
        settled; and that end.

        Raises: as `stored`, and DeadlineExceeded.
        """
        found: set[tuple[int, TxnId | None]] = set()
        fences = self._fences.fences_of(topic, [partition], deadline, name=name)[partition]
        for wait in (False, True):
            if wait:
                self._wait_for_stragglers()
            end = self.ends(topic, [partition], deadline)[partition]
            for _, ids, txn in self.stored(topic, partition, name, (start, end), fences, deadline):
                if ids is not None:
                    found.add((ids.first, txn))
            start = max(start, end)
        return frozenset(found), end

    @staticmethod
    def _wait_for_stragglers() -> None:
        """Waits for requests that a broker may still hold after their sender has abandoned them; no event reports their
        end."""
        pause(STRAGGLERS_S)

    def stored(
        self,
        topic: Topic,
        partition: int,
        name: str,
        span: tuple[int, int],
        fences: Iterable[Fence],
        deadline: Deadline,
    ) -> Iterator[Stored]:
        """Every record of these offsets. A void one is given as another producer's.

        Raises:
            Corrupt: a record's headers cannot be read.
            OffsetOutOfRange: the span begins below the log start.
        """
        requested = name.encode("utf-8")
        rules = Fences(fences)
        for batch in self._fetcher.read(topic.kafka_topic, partition, *span, deadline):
            void = set(rules.void_in([record.offset() for record in batch], batch)) if rules else ()
            for i, record in enumerate(batch):
                if i in void:
                    yield Stored(record.offset(), None, None)
                    continue
                try:
                    headers = headers_of(record)
                    ids = stored_sequence(headers, requested)
                    in_txn = None if ids is None else in_transaction(headers)
                except CorruptRecord as failure:
                    raise errors.Corrupt(
                        f"{topic.kafka_topic}-{partition} offset {record.offset()}: {failure}"
                    ) from failure
                yield Stored(record.offset(), ids, None if in_txn is None else in_txn.txn)

    def outcomes(
        self, topic: Topic, partition: int, txns: Collection[TxnId], deadline: Deadline
    ) -> dict[TxnId, bool | None]:
        """Outcomes of these transactions, which have records in the partition: True for committed, None for open."""
        if not txns:
            return {}
        life = topic.layout.incarnation
        found = self._transactions.outcomes(str(topic.name), partition, life, list(txns), deadline)
        if still_open := [txn for txn, committed in found.items() if committed is None]:
            self._hold_up(still_open)
        return found

    @staticmethod
    def _newest(topic: Topic, known: Mapping[tuple[int, int], _Noted]) -> dict[int, _Noted]:
        newest: dict[int, _Noted] = {}
        for (_, partition), noted in sorted(known.items()):
            if noted.snapshot.topic_incarnation == topic.layout.incarnation:
                newest[partition] = noted
        return newest

    def _is_forgotten(self, noted: _Noted) -> bool:
        """Whether its producer, if it is not alive, has been absent for too long. One that did not close in good order
        may have lived for `NOTED_EVERY_MS` after its last snapshot."""
        longest_ms = FORGOTTEN_AFTER_MS + (0 if noted.snapshot.final else NOTED_EVERY_MS)
        return self._clock.now_ms() - noted.at_ms > longest_ms

    def _scan(
        self, topic: Topic, name: str, epoch: int, partition: int, before: RecoveredSequence, end: int,
        fences: Iterable[Fence], deadline: Deadline,
    ) -> RecoveredSequence:  # fmt: skip
        """Read the log on, from `before` to `end`, and give the ids that are known then."""
        began_s = self._clock.monotonic()
        noted = start = before.upto
        met = _Met(before)
        for offset, ids, txn in self.stored(topic, partition, name, (start, end), fences, deadline):
            if ids is not None:
                if txn is not None and txn not in met.held and len(met.held) >= _MAX_HELD:
                    self._decide(topic, partition, met, deadline)
                met.add(offset, ids, txn)
            if offset - noted >= SCANNED_BETWEEN_SNAPSHOTS:
                noted = offset + 1
                self._decide(topic, partition, met, deadline)
                self.save(topic, name, epoch, {partition: met.recovered(noted)}, deadline, final=False)
        self._decide(topic, partition, met, deadline)
        _log.info(
            "topic=%s-%d producer=%s highest sequence id %d, read %d records in %.3f s",
            topic.name, partition, name, met.highest, max(0, end - start), self._clock.monotonic() - began_s,
        )  # fmt: skip
        return met.recovered(end)

    def _decide(self, topic: Topic, partition: int, met: _Met, deadline: Deadline) -> None:
        met.decide(self.outcomes(topic, partition, met.held, deadline))

    def _noted(self, place: str, name: str, deadline: Deadline) -> dict[tuple[int, int], _Noted]:
        return self._views.query(place, lambda state: dict(state.of.get((place, name), {})), deadline)

    def _write(self, place: str, records: list[tuple[bytes, bytes | None]], deadline: Deadline) -> None:
        if records:
            self._log.append_many(PRODUCERS, PRODUCERS.partition_for(place), records, deadline)


def _before(snapshot: SequenceSnapshot, upto: int) -> RecoveredSequence:
    return RecoveredSequence(snapshot.highest, upto, {}, snapshot.absent, snapshot.forgotten_upto)


class _Met:
    """Sequence ids of one name in a stretch of the log, behind what was known before it.

    Memory: bitmaps of the ids that were met since the first one in a transaction.
    """

    def __init__(self, before: RecoveredSequence) -> None:
        self.highest = before.highest
        self.held = dict(before.undecided)
        self._absent = SequenceIds(before.absent, before.forgotten_upto)
        self._stored = BitMap64()
        """Ids since the first one in a transaction: an aborted id counts only where no other record stored it."""

    def add(self, offset: int, ids: StoredSequence, txn: TxnId | None) -> None:
        record = SequenceIds()
        record.add(range(ids.first, ids.highest + 1))
        if not record.ids:  # a foreign client gave it the id -1
            return
        if txn is not None:
            self.held.setdefault(txn, Undecided(offset)).sequences.update(self._new_of(record))
        elif self.held or self._stored:
            self._stored |= record.ids
        self._absent.ids -= record.ids  # it came again
        if txn is None:
            self.highest = max(self.highest, ids.highest)

    def _new_of(self, record: SequenceIds) -> SequenceIds:
        """The record's ids that were not stored before it; its first one was not, or it had not been written."""
        again = record.ids & self._absent.ids
        again.add(record.ids.min())
        record.remove_range(0, self.highest)
        record.ids |= again
        return record

    def decide(self, outcomes: Mapping[TxnId, bool | None]) -> None:
        """The outcomes of what is `held`; what is open stays. The ids of an aborted one are free again."""
        given_back = SequenceIds()
        for txn, committed in outcomes.items():
            if committed is None:
                continue
            sequences = self.held.pop(txn).sequences
            if committed:
                self.highest = max(self.highest, int(sequences.ids.max()))
                self._stored |= sequences.ids
            else:
                given_back.update(sequences)
        given_back.ids -= self._stored
        for each in self.held.values():
            given_back.ids -= each.ids
        self._absent.update(given_back)
        self._absent.shrink()

    def recovered(self, upto: int) -> RecoveredSequence:
        return RecoveredSequence(self.highest, upto, self.held, self._absent.ids, self._absent.forgotten_upto)


class _Noted(NamedTuple):
    """`at_ms`: when it was written (Unix time)."""

    snapshot: SequenceSnapshot
    at_ms: int


class _Snapshots:
    """Fold of one partition of `producers`: by topic and producer name, the snapshots by (epoch, partition)."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], dict[tuple[int, int], _Noted]] = {}

    def known(self, place: str) -> dict[str, dict[tuple[int, int], _Noted]]:
        """The snapshots of each name on a topic."""
        return {name: dict(snapshots) for (topic, name), snapshots in self.of.items() if topic == place}

    def apply(self, record: LogRecord) -> None:
        key = decode_key(record.key)
        if not isinstance(key, ProducerSequenceKey):
            return
        if record.value is not None:
            noted = _Noted(decode_snapshot(record.value), record.timestamp_ms)
            self.of.setdefault((key.topic, key.producer_name), {})[key.epoch, key.partition] = noted
            return
        snapshots = self.of.get((key.topic, key.producer_name), {})
        snapshots.pop((key.epoch, key.partition), None)
        if not snapshots:
            self.of.pop((key.topic, key.producer_name), None)
