"""Holds acknowledgements of transactions on the partitions that a member owns: the rounds of `PendingAcks`, on Kafka.

The member's thread checks a request. The thread of `PendingAckJournal` appends it and reads it back, and the next turn
replies. While transactions hold acknowledgements, that thread looks for outcomes, at growing intervals.

The first request takes a partition over. The owner makes a save with a mark (`pending_acks` in the commit's metadata),
and serves requests when Kafka's group has accepted the save. So a process that has lost the partition never does. A
later owner finds the mark in the commit that it recovers from, and takes over before it delivers messages. Without the
mark there are no records.

All of it runs in the member's thread. A member whose partitions no transaction acknowledges pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from math import inf
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.commands import settle
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.cursor.saved_cursor import Save
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.member.saving import CursorSaver
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.partition.transaction_holds import highest
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import has
from pulsar_on_kafka.broker.transactions.pending_acks.log import CursorAcks
from pulsar_on_kafka.broker.transactions.pending_acks.pending_acks_machine import PendingAckAnswer, PendingAcks, State
from pulsar_on_kafka.broker.transactions.records.pending_ack_journal import PendingAckJournal, PendingAckReading
from pulsar_on_kafka.statelog.owned import random_session
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)

_LOOK_FIRST_S: Final = 0.004
_MAX_LOOK_INTERVAL_S: Final = 0.2
_LOOK_SLOWER: Final = 1.5
_RETRY_INTERVAL_S: Final = 0.2


class _Served:
    """One partition that transactions acknowledge on."""

    def __init__(self, owned: OwnedPartition) -> None:
        self.owned = owned
        self.holds = owned.held
        self.saves = owned.saves
        identity = owned.identity
        self.pending = PendingAcks(identity.name, identity.life, random_session(), owned.version)
        self.answers: dict[int, Future[None]] = {}
        """By ticket."""
        self.requested: dict[int, TxnAck] = {}
        """Undecided requests, by ticket."""
        self.errand: Future[PendingAckReading] | None = None
        self.taken_over: PendingAckReading | None = None
        """The records after this process's TAKEOVER, until the group has confirmed the ownership."""
        self.acks = CursorAcks()
        """The records, as last read."""
        self.to_settle = False
        self.to_clean = False
        self.look_s = inf
        self.pause_s = _LOOK_FIRST_S
        self.gone: errors.LayerError | None = None
        """The reason why requests are rejected."""

    def answer(self, answers: Iterable[PendingAckAnswer]) -> None:
        for each in answers:
            self.requested.pop(each.ticket, None)
            settle(self.answers.pop(each.ticket), each.failure)

    def look_after(self, now_s: float, pause_s: float) -> None:
        self.look_s, self.pause_s = now_s + pause_s, pause_s


class TransactionAcks:
    """The held acknowledgements of one member. `owned` is the owner's own dictionary, seen from here; `wake` ends the
    member's wait, from any thread.

    Memory: that of PendingAcks, and one future for each request.
    """

    def __init__(
        self,
        name: str,
        journal: PendingAckJournal,
        clock: Clock,
        owned: Mapping[int, OwnedPartition],
        saver: CursorSaver,
        dispatcher: Dispatcher,
        reopen: Callable[[int], None],
        wake: Callable[[], None],
    ) -> None:
        """`reopen` recovers a partition again, if it is still this process's: another owner's TAKEOVER counts."""
        self._name = name
        self._journal = journal
        self._clock = clock
        self._owned = owned
        self._saver = saver
        self._dispatcher = dispatcher
        self._reopen = reopen
        self._wake = wake
        self._served: dict[int, _Served] = {}

    def request(self, partition: int, txn: TxnId, ack: TxnAck, answer: Future[None], *, again: bool = False) -> None:
        """`answer` is settled when the transaction holds the acknowledgement durably, or cannot hold it
        (TransactionConflict, TransactionNotFound, InvalidCursorPosition), or when the outcome is unknown (StoreError).
        `again`: the request is resent, and a former owner may have executed it.

        Raises:
            Fenced: this process does not own the partition.
            InvalidCursorPosition: there is no such entry.
            StoreError: the log's end cannot be read.
        """
        owned = self._owned.get(partition)
        if owned is None:
            raise errors.Fenced(f"subscription {self._name}: partition {partition} is another process's now")
        served = self._served.get(partition)
        if served is None:
            served = self._served[partition] = _Served(owned)
        if served.gone is not None:
            raise served.gone
        last = highest(ack)
        if last >= owned.read_position and last >= self._dispatcher.log_end(partition):
            raise errors.InvalidCursorPosition(f"cursor {owned.identity}: there is no entry at offset {last}")
        ack = served.holds.complete(served.pending.held, txn, ack)
        if again and served.pending.state is State.READY and has(served.pending.held.of(txn), ack):
            answer.set_result(None)
            return
        ticket = served.pending.request(txn, ack)
        served.answers[ticket] = answer
        served.requested[ticket] = ack

    # The member's loop --------------------------------------------------------------------------------------------

    def step(self) -> None:
        if not self._served:
            return
        now_s = self._clock.monotonic()
        for served in list(self._served.values()):
            self._step(served, now_s)

    def next_due(self, now_s: float) -> float:
        """The time of the next step on the monotonic clock. Replies of the journal wake the member before."""
        due_s = inf
        for served in self._served.values():
            if served.errand is not None:
                continue
            if served.taken_over is not None:
                due_s = min(due_s, self._saver.urgent_due(now_s))
            elif served.to_settle:
                due_s = min(due_s, now_s + _RETRY_INTERVAL_S)
            else:
                due_s = min(due_s, served.look_s)
        return due_s

    def _step(self, served: _Served, now_s: float) -> None:
        if served.errand is not None:
            if not served.errand.done():
                return
            errand, served.errand = served.errand, None
            self._returned(served, errand, now_s)
        match served.pending.state:
            case State.NONE:
                served.owned.cursor.let_transactions_acknowledge()
                self._send(served, [served.pending.take_over()])
            case State.INITIALIZING:
                self._begin(served, now_s)
            case State.READY:
                self._advance(served, now_s)
            case State.CLOSED if isinstance(served.gone, errors.Fenced):
                self._reopen(served.owned.number)
            case State.CLOSED:
                pass

    def _begin(self, served: _Served, now_s: float) -> None:
        if served.taken_over is None:
            if now_s >= served.look_s:
                self._send(served, [served.pending.take_over()])
        elif served.saves.saved.pending_acks:  # the group has accepted a save with the mark
            self._replayed(served, served.taken_over, served.saves.saved_revision)
        else:
            self._saver.save_urgently()

    def _replayed(self, served: _Served, reading: PendingAckReading, saved_revision: int) -> None:
        served.taken_over = None
        try:
            served.pending.replayed(reading.acks, reading.low_waters, saved_revision)
        except errors.Fenced as fenced:
            self._give_up(served, fenced)
            return
        served.holds.attach(served.pending.held)
        served.acks = reading.acks
        served.to_settle = served.to_clean = True
        served.look_after(self._clock.monotonic(), _LOOK_FIRST_S)

    def _advance(self, served: _Served, now_s: float) -> None:
        if served.to_settle:
            self._settle(served)
        records = self._decide(served)
        if served.to_clean:
            served.to_clean = False
            records += [(key, None) for key in served.pending.to_clean(served.acks)]
        if records or now_s >= served.look_s:
            self._send(served, records)

    def _decide(self, served: _Served) -> list[tuple[bytes, bytes | None]]:
        if not served.requested:
            return []
        decision = served.pending.decide(served.owned.cursor)
        served.answer(decision.answers)
        for ack in served.requested.values():
            served.owned.hold(ack)
        served.requested.clear()
        served.pause_s = _LOOK_FIRST_S
        return list(decision.records)

    def _settle(self, served: _Served) -> None:
        served.to_settle = False
        try:
            settled = served.owned.settle_transactions(served.pending)
        except errors.StoreError as failure:
            _log.warning("cursor=%s outcomes of transactions have to wait: %s", served.owned.identity, failure)
            served.to_settle = True
            return
        if settled:
            again = BitMap64()
            for each in settled:
                again |= each.redeliver
            served.pause_s = _LOOK_FIRST_S
            if again:
                self._dispatcher.redelivery.deliver_again(served.owned, again)

    def _send(self, served: _Served, records: list[tuple[bytes, bytes | None]] | list[tuple[bytes, bytes]]) -> None:
        served.look_s = inf
        served.errand = self._journal.send(served.pending.name, records)
        served.errand.add_done_callback(lambda _: self._wake())

    def _returned(self, served: _Served, errand: Future[PendingAckReading], now_s: float) -> None:
        failure = errand.exception()
        if failure is None:
            self._take(served, errand.result(), now_s)
            return
        if not isinstance(failure, errors.LayerError):
            failure = errors.StoreError(f"{type(failure).__name__}: {failure}")
        _log.warning("cursor=%s acknowledgements of transactions: %s", served.owned.identity, failure)
        served.answer(served.pending.failed(failure))
        if isinstance(failure, (errors.NotAuthorized, errors.Corrupt, errors.Closed)):
            self._give_up(served, failure)
        served.to_clean = True
        served.look_after(now_s, _RETRY_INTERVAL_S)

    def _take(self, served: _Served, reading: PendingAckReading, now_s: float) -> None:
        if served.pending.state is State.INITIALIZING:
            served.taken_over = reading
            return
        served.acks = reading.acks
        served.answer(served.pending.read_back(reading.acks, reading.low_waters))
        if served.pending.state is State.CLOSED:
            self._give_up(served, errors.Fenced(f"cursor {served.owned.identity} was taken over by another owner"))
            return
        served.to_settle = served.to_clean = True
        if served.pending.held:
            self._journal.hold_up(set(served.pending.held))
            served.look_after(now_s, min(_MAX_LOOK_INTERVAL_S, served.pause_s * _LOOK_SLOWER))

    def _give_up(self, served: _Served, why: errors.LayerError) -> None:
        """Forget these partitions; held acknowledgements stay on record."""
        _log.warning("cursor=%s takes no acknowledgements of transactions: %s", served.owned.identity, why)
        served.gone = why
        served.answer(served.pending.close(why))

    def saved(self, owned: OwnedPartition, save: Save) -> None:
        served = self._served.get(owned.number)
        if served is not None and save.left_out is None:
            served.pending.saved(save.revision)
            served.to_clean = True

    def take_over(self, opened: Mapping[int, OwnedPartition], deadline: Deadline) -> None:
        """Prepare partitions whose take-over the group has accepted: fence former owners, read held acknowledgements,
        and apply outcomes to the cursors. Partitions without transactions cost nothing.

        Raises:
            StoreError, Corrupt: the take-over failed; serve none of them.
        """
        marked = {number: _Served(owned) for number, owned in opened.items() if owned.cursor.pending_acks}
        if not marked:
            return
        readings = self._journal.exchange(
            {served.pending.name: [served.pending.take_over()] for served in marked.values()}, deadline
        )
        for served in marked.values():
            self._replayed(served, readings[served.pending.name], served.owned.cursor.revision)
            if served.gone is not None:
                raise served.gone
            served.owned.settle_transactions(served.pending)
            served.owned.intake.skip_to(served.owned.next_unacked)
        self._served.update(marked)

    def close(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            served = self._served.pop(number, None)
            if served is not None:
                served.answer(
                    served.pending.close(
                        errors.Fenced(f"cursor {served.owned.identity} belongs to another process now")
                    )
                )

    def finish(self, deadline: Deadline) -> None:
        """Save known outcomes and remove their records before the member leaves. Raises StoreError if that fails; then
        the next owner does it."""
        for served in list(self._served.values()):
            self.quiesce(served.owned, deadline)

    def quiesce(self, owned: OwnedPartition, deadline: Deadline) -> None:
        """Apply committed acknowledgements to the cursor, save it, and remove their records, before a seek. Otherwise a
        later owner would apply them after the seek.

        Raises:
            StoreError: a save or a removal failed.
        """
        served = self._served.get(owned.number)
        if served is None or served.pending.state is not State.READY:
            return
        if served.errand is not None:
            self._wait_for(served.errand, deadline)
            self._step(served, self._clock.monotonic())
        records: list[tuple[bytes, bytes | None]] = []
        while served.gone is None and (served.pending.held or served.pending.unclean or records):
            deadline.check(f"transactions of cursor {owned.identity} to be settled")
            if served.errand is not None:
                self._wait_for(served.errand, deadline)
                errand, served.errand = served.errand, None
                self._returned(served, errand, self._clock.monotonic())
            reading = self._journal.exchange({served.pending.name: records}, deadline)[served.pending.name]
            self._take(served, reading, self._clock.monotonic())
            again = owned.settle_transactions(served.pending)
            for each in again:
                self._dispatcher.redelivery.deliver_again(owned, each.redeliver)
            if not served.pending.unclean:
                return
            self._saver.settle()
            self._saver.save([owned.number])
            records = [(key, None) for key in served.pending.to_clean(served.acks)]

    def _wait_for(self, errand: Future[PendingAckReading], deadline: Deadline) -> None:
        try:
            errand.exception(deadline.remaining_s())
        except TimeoutError as late:
            raise errors.DeadlineExceeded("time ran out while outcomes of transactions were being read") from late
