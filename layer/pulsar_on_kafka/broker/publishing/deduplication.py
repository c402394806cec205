"""Deduplication of one producer: stands between it and librdkafka's `produce` while its topic has the policy.

Without the policy nothing passes here, so that sending costs nothing. With it every send passes a lock, because ids are
judged in the order in which their records go out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, SequenceForgotten, TransactionConflict
from pulsar_on_kafka.base.reentry import ReentryGuard
from pulsar_on_kafka.broker.deduplication.deduplication_machine import DeduplicationVerdict, PartitionSequences
from pulsar_on_kafka.broker.deduplication.journal import NOTED_EVERY_MS, RecoveredSequence, SequenceJournal
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.in_flight import (
    OwnCallback,
    PartitionOut,
    SendCallback,
    SendsInFlight,
    is_prompt,
)
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka.kafka.errors import is_certainly_not_stored, local_failure
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId, PartitionOrigin
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.record_headers import PRODUCER, TXN, producer_suffix

_log = logging.getLogger(__name__)

ASSIGN: Final = -1
"""The sequence id of a message that gets one when it is its turn."""
NOTE_EVERY_S: Final = 5.0
NOTE_AFTER: Final = 10_000
"""The stored sequence ids are saved again after this number of records, of any producer, in a partition."""

_RECOVER_S: Final = 30.0
_POLL_MASK: Final = 127

_LOOKED: Final = (DeduplicationVerdict.UNKNOWN, DeduplicationVerdict.UNDECIDED)

Produce = Callable[..., None]


def _assign() -> int:
    return ASSIGN


_STORED_BEFORE: Final = SimpleNamespace(offset=lambda: None)
"""The report of a message that is stored already."""

Sendable = Callable[[Any, Any], None]
"""A `Ticket`, a `Batch` or a `WaitingMessage`: called with its delivery report."""


class _Waiting(NamedTuple):
    """A duplicate of a message under way: its transaction, its receiver of the result, the last failure of another
    duplicate."""

    sequence: int
    txn: TxnId | None
    sendable: Sendable
    failure: Any = None


class _Partition:
    __slots__ = ("noted", "noted_s", "sequences", "waiting")

    def __init__(self, recovered: RecoveredSequence) -> None:
        self.sequences = PartitionSequences(
            recovered.highest, recovered.upto, recovered.absent, recovered.forgotten_upto
        )
        for txn, held in recovered.undecided.items():
            self.sequences.hold(txn, held)
        self.noted = recovered.upto
        self.noted_s = time.monotonic()
        self.waiting: list[_Waiting] = []


class Deduplication:
    """The sequence ids of one producer in all partitions that it writes to. Thread-safe.

    Memory: see `PartitionSequences`, one for each partition; and the duplicates that wait for the answer of the message
    they repeat, which count among the producer's pending messages.
    """

    def __init__(
        self, topic: Topic, name: str, membership: Membership, journal: SequenceJournal, *, lasting: bool
    ) -> None:
        """`lasting`: the name may be opened again, so what it stored is kept on record."""
        self._topic = topic
        self._name = name
        self._membership = membership
        self._journal = journal
        self._lasting = lasting
        self._partitions: dict[int, _Partition] = {}
        self._lock = ReentryGuard()
        self._suffix = producer_suffix(membership.epoch, name)
        self._note_next_s = 0.0
        self.active = False
        """Otherwise every message goes through as it is."""
        self._next: dict[int, int] = {}
        """The next sequence id, by partition, of messages without one, for a producer without batching."""

    # Beginning and ending -----------------------------------------------------------------------------------------

    def open(self, partitions: Iterable[int], deadline: Deadline) -> None:
        """Find out what was stored in these partitions. Raises what `SequenceJournal.recover` does."""
        numbers = list(partitions)
        if self._lasting:
            found = self._journal.recover(self._topic, self._name, self._membership.epoch, numbers, deadline)
        else:
            ends = self._journal.ends(self._topic, numbers, deadline)
            found = {partition: RecoveredSequence(-1, end) for partition, end in ends.items()}
        with self._lock:
            self._suffix = producer_suffix(self._membership.epoch, self._name)
            self._partitions.update({partition: _Partition(recovered) for partition, recovered in found.items()})

    def reopen(self, partitions: Iterable[int], deadline: Deadline) -> None:
        """`open` for a producer that went on without deduplication: under an epoch of its own from now on. Its records
        of the former epoch are under way, so none is fenced: what the name stored before does not count.

        Raises:
            ProducerExcluded: it was thrown out.
        """
        self.end(deadline)
        if self._lasting and not self._membership.claim.exclusive:
            self._membership.renew(deadline)
        self.open(partitions, deadline)

    def stored(self, partition: int) -> int:
        """The highest id that is stored in a partition; -1 for none."""
        with self._lock:
            each = self._partitions.get(partition)
            return -1 if each is None else each.sequences.stored

    def count(self, partition: int, origin: PartitionOut) -> None:
        """Give messages of the partition that have no id theirs, from now on; `origin` gives `ASSIGN` to all."""
        with self._lock:
            following, origin.next_sequence_id = origin.next_sequence_id, _assign
            self._next[partition] = following()

    def note(self, deadline: Deadline, *, final: bool = False) -> None:
        """Put on record what is stored, where that saves a successor much reading. Looks at it every `NOTE_EVERY_S` at
        most. `final`: nothing will be sent any more."""
        now_s = time.monotonic()
        if not self._lasting or not (final or now_s >= self._note_next_s):
            return
        self._note_next_s = now_s + NOTE_EVERY_S
        if final:
            self._look_for_failed(deadline)
        self._decide(deadline)
        with self._lock:
            settled = {number: each for number, each in self._partitions.items() if each.sequences.settled}
        ends = self._journal.ends(self._topic, settled, deadline)
        known: dict[int, RecoveredSequence] = {}
        with self._lock:
            for number, each in settled.items():
                sequences, end = each.sequences, ends[number]
                # Records sent after the end was taken lie beyond it; all records before it are known.
                grown = sequences.known_upto(end) - each.noted >= NOTE_AFTER
                due = final or grown or now_s - each.noted_s >= NOTED_EVERY_MS / 1000
                if due and sequences.settled and sequences.read_from <= end:
                    upto = sequences.known_upto(end)
                    known[number] = RecoveredSequence(
                        sequences.stored, upto, {}, sequences.absent, sequences.forgotten_upto
                    )
        for last in (True, False) if final else (False,):
            some = {p: each for p, each in known.items() if (final and self._is_last(p, each, ends)) is last}
            self._journal.save(self._topic, self._name, self._membership.epoch, some, deadline, final=last)
        for number, recovered in known.items():
            settled[number].noted, settled[number].noted_s = recovered.upto, now_s

    def _is_last(self, partition: int, known: RecoveredSequence, ends: Mapping[int, int]) -> bool:
        """Nothing of this holder can be stored beyond what is known."""
        return known.upto == ends[partition] and not self._partitions[partition].sequences.gave_up

    def _look_for_failed(self, deadline: Deadline) -> None:
        """Read what became of sends that failed while later ones were stored: the next holder cannot know of these."""
        with self._lock:
            doubtful = [number for number, each in self._partitions.items() if each.sequences.doubtful]
        for number in doubtful:
            with self._lock:
                self._read_failed(number, self._partitions[number], deadline)

    def _read_failed(self, partition: int, each: _Partition, deadline: Deadline) -> None:
        begin = each.sequences.read_from
        found, end = self._journal.firsts(self._topic, partition, self._name, begin, deadline)
        _log.info("producer=%s partition=%d looked for failed sends, read to %d", self._name, partition, end)
        each.sequences.found(found, end)

    def _decide(self, deadline: Deadline) -> None:
        """Look up what became of transactions, before what is on record of them goes with their records."""
        with self._lock:
            requested = {number: list(each.sequences.undecided) for number, each in self._partitions.items()}
        for number, txns in requested.items():
            if txns:
                outcomes = self._journal.outcomes(self._topic, number, txns, deadline)
                with self._lock:
                    _take_in(self._partitions[number].sequences, outcomes)

    def end(self, deadline: Deadline) -> None:
        """The policy is off: what was stored does not count any more."""
        if self._lasting:
            self._journal.forget(self._topic, self._name, deadline)

    def has_to_look(self, partition: int, sequence: int, txn: TxnId | None) -> bool:
        """Whether judging this message requires a read from Kafka. Callers that may not wait let another thread `look`
        first."""
        if not self.active:
            return False
        with self._lock:
            return (
                not self._membership.is_sure() or self._partitions[partition].sequences.judge(sequence, txn) in _LOOKED
            )

    def look(self, partition: int, sequence: int, txn: TxnId | None) -> None:
        """Raises as `admit`, and ProducerExcluded."""
        with self._lock:
            self._membership.make_sure(_RECOVER_S)
            self._judge(partition, self._partitions[partition], sequence, txn)

    # One record for each message ----------------------------------------------------------------------------------

    def over(self, produce: Produce) -> Produce:
        """`produce` for the reports of tickets, as it is called by position. A message without id (`ASSIGN`) gets the
        next one."""

        def produce_new(
            topic: str, value: bytes | None, key: Any, partition: int, report: Any, alias: Any, timestamp: int,
            headers: list[tuple[str, Any]],
        ) -> None:  # fmt: skip
            ticket = report.__self__
            with self._lock:
                given = ticket.sequence
                sequence = self._next[partition] if given == ASSIGN else given
                ticket.sequence = sequence
                each = self._partitions[partition] if self.active else None
                try:
                    if each is not None:
                        self._membership.make_sure(_RECOVER_S)
                    txn = None if each is None else _transaction_of(headers)
                    verdict = DeduplicationVerdict.NEW if each is None else self._judge(partition, each, sequence, txn)
                    if verdict is DeduplicationVerdict.NEW:
                        headers[0] = (PRODUCER, f"{sequence}{self._suffix}")
                        reported = report
                        if each is not None:
                            ids = each.sequences.new_in(sequence, _highest(ticket, sequence), txn)
                            reported = partial(self._answered, each, ticket, ids)
                        produce(topic, value, key, partition, reported, alias, timestamp, headers)
                except BaseException:
                    ticket.sequence = given
                    raise
                if each is not None and verdict is DeduplicationVerdict.NEW:
                    each.sequences.taken_together(ids, txn)
                elif each is not None and verdict is DeduplicationVerdict.PENDING:
                    each.waiting.append(_Waiting(sequence, txn, ticket))
                if given == ASSIGN:
                    self._next[partition] = sequence + 1
            if verdict is DeduplicationVerdict.DUPLICATE:
                answer_duplicate(ticket)
            elif sequence & _POLL_MASK == 0:
                ticket.in_flight.kafka.poll_inline()

        return produce_new

    # Batches ------------------------------------------------------------------------------------------------------

    def admit(self, partition: int, sequence: int, txn: TxnId | None) -> DeduplicationVerdict:
        """Judges whether a message may join a batch: NEW, and then it counts as under way, or DUPLICATE, or PENDING.

        Raises:
            StoreError: a send had failed with an unknown outcome, and the log cannot be read.
            TransactionConflict: that depends on another transaction, which is open.
            SequenceForgotten: the state of the id is no longer known.
        """
        if not self.active:
            return DeduplicationVerdict.NEW
        with self._lock:
            each = self._partitions[partition]
            verdict = self._judge(partition, each, sequence, txn)
            if verdict is DeduplicationVerdict.NEW:
                each.sequences.taken(sequence, txn)
            return verdict

    def wait_for_answer(self, partition: int, sequence: int, waiting: Sendable, txn: TxnId | None) -> bool:
        """Answers a PENDING message with the result of the message that it repeats; False when that result came
        meanwhile."""
        with self._lock:
            each = self._partitions[partition]
            if each.sequences.judge(sequence, txn) is not DeduplicationVerdict.PENDING:
                return False
            each.waiting.append(_Waiting(sequence, txn, waiting))
            return True

    def over_batches(self, produce: Produce) -> Produce:
        """`produce` for batches, whose messages were admitted."""

        def produce_batch(
            topic: str, value: bytes | None, key: Any, partition: int, batch: Any, alias: Any, timestamp: int,
            headers: list[tuple[str, Any]],
        ) -> None:  # fmt: skip
            report: Sendable = batch
            if self.active:
                self._membership.make_sure(_RECOVER_S)
                report = partial(self._answered, self._partitions[partition], batch, batch.sequence_ids())
            produce(topic, value, key, partition, report, alias, timestamp, headers)

        return produce_batch

    def refused(self, partition: int, sequences: Sequence[int]) -> None:
        """Admitted messages that librdkafka did not take."""
        if self.active:
            with self._lock:
                self._partitions[partition].sequences.failed(sequences, certainly=True)

    # Messages of several records ----------------------------------------------------------------------------------

    def admit_chunked(self, partition: int, given: int, txn: TxnId | None) -> tuple[DeduplicationVerdict, int, bool]:
        """Judges whether a message that is sent in chunks may go; returns the verdict, its id (the next one for
        `ASSIGN`), and whether it counts as under way until `chunked_answered`.

        Raises: as `admit`.
        """
        with self._lock:
            sequence = self._next[partition] if given == ASSIGN else given
            verdict, judged = DeduplicationVerdict.NEW, self.active
            if judged:
                each = self._partitions[partition]
                self._membership.make_sure(_RECOVER_S)
                verdict = self._judge(partition, each, sequence, txn)
                if verdict is DeduplicationVerdict.NEW:
                    each.sequences.taken(sequence, txn)
            if given == ASSIGN:
                self._next[partition] = sequence + 1
            return verdict, sequence, judged and verdict is DeduplicationVerdict.NEW

    def chunked_answered(self, partition: int, sequence: int, offset: int | None, *, stored: bool) -> None:
        """Every chunk of an admitted message was answered; `offset` is the last one's, where it is known."""
        with self._lock:
            each = self._partitions[partition]
            error = None
            if stored:
                each.sequences.stored_at((sequence,), offset)
            else:
                each.sequences.failed((sequence,), certainly=False)
                error = local_failure("the message that this one repeats failed")
            released = _released(each, error) if each.waiting else []
        for waiting, failure in released:
            waiting(failure, _STORED_BEFORE)

    # Answers ------------------------------------------------------------------------------------------------------

    def why_void(self) -> LayerError | None:
        """The reason for which a record that Kafka has stored may be void: the process was paused, and the next holder
        of the name has fenced it, or may have. None, without a look at Kafka, while the last heartbeat counts."""
        try:
            self._membership.make_sure_of_report()
        except LayerError as failure:
            return failure
        return None

    def _answered(
        self, each: _Partition, sendable: Sendable, sequences: Sequence[int], error: Any, record: Any
    ) -> None:
        """Applies librdkafka's report of one record; waiting duplicates get it after the record's own sender, with the
        same error."""
        if error is None and (failure := self.why_void()) is not None:
            error = local_failure(str(failure))
        with self._lock:
            if error is None:
                each.sequences.stored_at(sequences, record.offset())
            else:
                each.sequences.failed(sequences, certainly=is_certainly_not_stored(error))
            released = _released(each, error) if each.waiting else []
        sendable(error, record)
        for waiting, failure in released:
            waiting(failure, _STORED_BEFORE)

    def _judge(self, partition: int, each: _Partition, sequence: int, txn: TxnId | None) -> DeduplicationVerdict:
        """Raises StoreError or Corrupt: what failed sends left in the log has to be read, or the outcome of a
        transaction, and cannot be. TransactionConflict: that transaction is open. SequenceForgotten."""
        verdict = each.sequences.judge(sequence, txn)
        if verdict is DeduplicationVerdict.UNKNOWN:
            self._read_failed(partition, each, Deadline.after(_RECOVER_S))
            verdict = each.sequences.judge(sequence, txn)
        if verdict is DeduplicationVerdict.UNDECIDED:
            undecided = each.sequences.depends_on(sequence)
            outcomes = self._journal.outcomes(self._topic, partition, undecided, Deadline.after(_RECOVER_S))
            _take_in(each.sequences, outcomes)
            verdict = each.sequences.judge(sequence, txn)
        if verdict is DeduplicationVerdict.UNDECIDED:
            raise TransactionConflict(_conflict(sequence, each.sequences.depends_on(sequence)))
        if verdict is DeduplicationVerdict.FORGOTTEN:
            raise SequenceForgotten(_forgotten(sequence, each.sequences.forgotten_upto))
        return verdict


def _highest(ticket: Any, sequence: int) -> int:
    """The last id of a record, which is judged by its first."""
    callback = ticket.callback
    highest = callback.highest_sequence_id if isinstance(callback, OwnCallback) else None
    return sequence if highest is None else max(sequence, highest)


def _take_in(sequences: PartitionSequences, outcomes: Mapping[TxnId, bool | None]) -> None:
    for txn, committed in outcomes.items():
        if committed is not None and txn in sequences.undecided:
            sequences.decided(txn, committed=committed)


def _conflict(sequence: int, txns: Iterable[TxnId]) -> str:
    names = ", ".join(map(str, txns))
    return f"whether sequence id {sequence} is stored depends on transaction {names}: send again when it has ended"


def _forgotten(sequence: int, upto: int) -> str:
    return (
        f"whether sequence id {sequence} is stored is not known: too many ids up to {upto} failed, or were in"
        " transactions that were aborted; send the message with an id above those, or by another producer name"
    )


def _transaction_of(headers: Sequence[tuple[str, Any]]) -> TxnId | None:
    if len(headers) > 1:
        for name, value in headers:
            if name == TXN:
                return TxnId.from_bytes(value)
    return None


def _released(each: _Partition, error: Any) -> list[tuple[Sendable, Any]]:
    released: list[tuple[Sendable, Any]] = []
    still: list[_Waiting] = []
    for one in each.waiting:
        verdict = each.sequences.judge(one.sequence, one.txn)
        failure = one.failure if error is None else error
        if verdict is DeduplicationVerdict.DUPLICATE:
            released.append((one.sendable, None))
        elif verdict is DeduplicationVerdict.UNDECIDED:
            depends_on = each.sequences.depends_on(one.sequence)
            released.append((one.sendable, local_failure(_conflict(one.sequence, depends_on))))
        elif verdict is DeduplicationVerdict.FORGOTTEN:
            reason = _forgotten(one.sequence, each.sequences.forgotten_upto)
            released.append((one.sendable, local_failure(reason)))
        elif verdict is DeduplicationVerdict.PENDING or failure is None:
            still.append(one._replace(failure=failure))
        else:
            released.append((one.sendable, failure))
    each.waiting = still
    return released


class WaitingMessage:
    """A message of a batching producer that repeats one that is under way; it counts among `in_flight.taken`."""

    def __init__(self, in_flight: Any, callback: SendCallback | None, sequence: int, origin: PartitionOut) -> None:
        self._in_flight = in_flight
        self._origin = origin
        self._callback = callback
        self._sequence = sequence
        self._error: Any = None
        self.reported = False
        """See `Batch.reported`."""

    def __call__(self, error: Any, record: Any, /) -> None:
        self._in_flight.release(1)
        self._error, self.reported = error, True
        if error is None:
            self._origin.last_sequence_id = self._sequence
        if is_prompt(self._callback):
            self._call_back()
        else:
            self._in_flight.kafka.call_later(self._call_back)

    def _call_back(self) -> None:
        try:
            if self._error is None:
                report_duplicate(self._callback, self._origin, 0)
            else:
                self._in_flight.failed(self._error, self._callback)
        except Exception:  # the application's
            _log.exception("a send callback failed")
        finally:
            self._in_flight.answered(self, 1)


def answer_duplicate(ticket: Any) -> None:
    """Reports to the sender that the message was stored before, and sends nothing."""
    in_flight: SendsInFlight = ticket.in_flight
    callback: SendCallback | None = ticket.callback
    ticket.callback = None
    ticket.origin.last_sequence_id = ticket.sequence
    in_flight.give_back(ticket)
    report_duplicate(callback, ticket.origin)


def report_duplicate(callback: SendCallback | None, origin: PartitionOrigin, batch_index: int = -1) -> None:
    """Reports the message as stored, without an id, as Pulsar's broker does for a duplicate."""
    try:
        if callback is not None:
            callback(Result.Ok, NativeMessageId(origin.partition, -1, -1, batch_index))
    except Exception:  # the application's
        _log.exception("a send callback failed")
