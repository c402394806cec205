"""The pending-ack journal writes to `__transaction_pending_ack` and reads it back, for the owners of many cursors in
one go.

One thread of the process does it, from the first errand on, so that members go on dispatching meanwhile. It takes all
errands that wait, appends what they have of each partition of the state topic at once, and reads that partition to its
end once; every errand gets copies of what is on record for its cursors. Many owners share a partition, so it is no
`OwnedLog`: each cursor's machine judges by a fence of its own (`PendingAcks`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, LayerError
from pulsar_on_kafka.base.worker import QueueWorker
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.pending_acks.log import CursorAcks, PendingAckLog
from pulsar_on_kafka.broker.transactions.records.views import TransactionViews
from pulsar_on_kafka.statelog.view import LogEnd
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_PENDING_ACK

_log: Final = logging.getLogger(__name__)

Record = tuple[bytes, bytes | None]
T = TypeVar("T")

_ERRAND_S: Final = 10.0
_LOW_WATERS_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PendingAckReading:
    """The pending acks of one cursor at an end of the log that holds what was appended; the low-water marks (by
    coordinator) were read before."""

    acks: CursorAcks
    low_waters: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Errand:
    name: CursorName
    records: Sequence[Record]
    answer: Future[PendingAckReading] = field(default_factory=Future)


class PendingAckJournal:
    """Thread-safe. Memory: one errand for each cursor that is busy, and the coordinators' low-water marks."""

    def __init__(
        self,
        views: TransactionViews,
        clock: Clock,
        is_there: Callable[[Deadline], bool],
        hold_up: Callable[[Collection[TxnId]], None],
    ) -> None:
        """`is_there`: whether the state topic exists; the first transaction creates it. `hold_up` is called with open
        transactions that hold an ack, see `Abandoned`."""
        self.hold_up = hold_up
        self._is_there = is_there
        self._views = views
        self._clock = clock
        self._errands: QueueWorker[_Errand] = QueueWorker("pok-pending-acks", self._run)
        self._lock = threading.Lock()
        self._low_waters: dict[int, tuple[float, Mapping[int, int]]] = {}

    # Blocking -----------------------------------------------------------------------------------------------------

    def exchange(
        self, records: Mapping[CursorName, Sequence[Record]], deadline: Deadline
    ) -> dict[CursorName, PendingAckReading]:
        """Append these, and read what is on record of these cursors then, with fresh low-water marks.

        Raises:
            StoreError, Corrupt: something was not appended, or not read.
        """
        found: dict[CursorName, PendingAckReading] = {}
        for partition, names in _by_partition(records, lambda name: name).items():
            low_waters = self._read_low_waters(partition, names[0].topic, deadline)
            together = [record for name in names for record in records[name]]
            at = self._views.pending_acks.of(partition).append(together, deadline) if together else None
            found.update(self._read(partition, names, low_waters, deadline, at))
        return found

    def on_record(self, names: Sequence[CursorName], deadline: Deadline) -> dict[CursorName, CursorAcks]:
        """The pending acks of these cursors of one topic. Makes no state topic. Raises StoreError, Corrupt."""
        if not names or not self._is_there(deadline):
            return {name: CursorAcks() for name in names}

        def look(log: PendingAckLog) -> dict[CursorName, CursorAcks]:
            return {name: log.cursor(name).copy() for name in names}

        return self._views.pending_acks.query(names[0].topic, look, deadline)

    def knows_of(self, name: CursorName, deadline: Deadline) -> bool:
        """Whether any record of this cursor exists. Creates no state topic."""
        if not self._is_there(deadline):
            return False
        return self._views.pending_acks.query(name.topic, lambda log: bool(log.cursor(name)), deadline)

    # In the thread ------------------------------------------------------------------------------------------------

    def send(self, name: CursorName, records: Sequence[Record]) -> Future[PendingAckReading]:
        """Appends these records, then reads the cursor's records. The future fails with a LayerError when the append
        failed or its outcome is unknown, or when the result could not be read."""
        errand = _Errand(name, records)
        if not self._errands.put([errand]):
            errand.answer.set_exception(Closed("acknowledgements of transactions are over"))
        return errand.answer

    def close(self, deadline: Deadline) -> None:
        """Do what waits, then end the thread; a second call does nothing."""
        self._errands.close(deadline)

    def _run(self, errands: Sequence[_Errand]) -> None:
        for together in _by_partition(errands, lambda errand: errand.name).values():
            try:
                self._do(together)
            except Exception as failure:  # the future reports the failure
                if not isinstance(failure, LayerError):
                    _log.exception("acknowledgements of transactions")
                for errand in together:
                    if not errand.answer.done():
                        errand.answer.set_exception(failure)

    def _do(self, errands: list[_Errand]) -> None:
        """Errands of one partition of the state topic."""
        deadline = Deadline.after(_ERRAND_S)
        partition = TRANSACTION_PENDING_ACK.partition_for(errands[0].name.topic)
        records = [record for errand in errands for record in errand.records]
        low_waters = self._recent_low_waters(
            partition, errands[0].name.topic, deadline
        )  # before the log's end is known
        at: LogEnd | None = None
        if records:
            try:
                at = self._views.pending_acks.of(partition).append(records, deadline)
            except LayerError as failure:
                for errand in errands:
                    if errand.records:
                        errand.answer.set_exception(failure)
                errands = [errand for errand in errands if not errand.records]
        if errands:
            found = self._read(partition, [errand.name for errand in errands], low_waters, deadline, at)
            for errand in errands:
                errand.answer.set_result(found[errand.name])

    def _read(
        self,
        partition: int,
        names: Sequence[CursorName],
        low_waters: Mapping[int, int],
        deadline: Deadline,
        at: LogEnd | None,
    ) -> dict[CursorName, PendingAckReading]:
        def copied(log: PendingAckLog) -> dict[CursorName, PendingAckReading]:
            return {name: PendingAckReading(log.cursor(name).copy(), low_waters) for name in names}

        return self._views.pending_acks.of(partition).query(copied, deadline, at)

    def _recent_low_waters(self, partition: int, topic: str, deadline: Deadline) -> Mapping[int, int]:
        """Marks that are some time old are marks that were read before: they only let leftovers wait."""
        with self._lock:
            read_s, known = self._low_waters.get(partition, (0.0, None))
        if known is not None and self._clock.monotonic() - read_s < _LOW_WATERS_S:
            return known
        return self._read_low_waters(partition, topic, deadline)

    def _read_low_waters(self, partition: int, topic: str, deadline: Deadline) -> Mapping[int, int]:
        now_s = self._clock.monotonic()
        found = self._views.buffers.query(topic, lambda entries: entries.low_waters(), deadline)
        with self._lock:
            self._low_waters[partition] = (now_s, found)
        return found


def _by_partition(those: Iterable[T], name_of: Callable[[T], CursorName]) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for each in those:
        found.setdefault(TRANSACTION_PENDING_ACK.partition_for(name_of(each).topic), []).append(each)
    return found
