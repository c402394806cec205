"""The acknowledgements of open transactions on one cursor, as its owner keeps them. No I/O, no clock.

The owner's round: `request` accepts requests at any time. `decide` checks them and returns the records to append. After
the append and a reading of the log to its end, `read_back` returns the acks that are held now, and applies ENDs.
`settle` applies outcomes to the cursor. Once a save contains them (`saved`), `to_clean` names the records to tombstone.
Each step may be the last one of a process: the next owner continues from the log. Source: Pulsar's
PendingAckHandleImpl.

* An ack is held from `decide` until its transaction ends: also during the append, and when the outcome of the append is
  unknown. (Then the client gets a failure, and its transaction can only be aborted.)
* An acknowledgement of a held message outside transactions is accepted by the cursor, as in Pulsar: a later commit
  changes nothing, and after an abort the message is not redelivered.
* A transaction at or below its coordinator's low-water mark without an END was ended before the ack arrived: its
  remaining acks are aborted. So the marks must be read before the end of this log is taken.
* Cleaning waits for nothing but saves and readings, so an idle subscription gets clean. An END goes after the acks that
  it ended, in another round. Before a seek is saved, everything that was committed must be saved and cleaned
  (`unclean`): a successor would acknowledge it once more behind the seek.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyroaring import BitMap64

from pulsar_on_kafka.base.errors import Closed, Fenced, LayerError, Refused, StoreError, TransactionNotFound
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.cursor.identity import CursorName
from pulsar_on_kafka.broker.transactions.pending_acks.holdings import Holdings, apply_to, positions, together
from pulsar_on_kafka.broker.transactions.pending_acks.log import CursorAcks
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import CursorTakeoverKey, PendingAckEndKey, PendingAckKey, encode_key
from pulsar_on_kafka_mapping.state.transactions.pending_acks import (
    CursorIncarnation,
    PendingAck,
    TxnAck,
    TxnOutcome,
    encode_cursor_takeover,
    encode_pending_ack,
    split_ack,
)

MAX_WAITING: Final = 10_000
"""Requests that wait to be decided."""


class State(Enum):
    """States of Pulsar's pending-ack handle; requests wait until it is READY."""

    NONE = "None"
    INITIALIZING = "Initializing"
    READY = "Ready"
    CLOSED = "Close"


class Input(Enum):
    """Inputs that move the machine from state to state."""

    TAKE_OVER = "take over"
    REPLAYED = "replayed"
    CLOSE = "close"


TRANSITIONS: Final[Mapping[tuple[State, Input], State]] = {
    (State.NONE, Input.TAKE_OVER): State.INITIALIZING,
    (State.INITIALIZING, Input.TAKE_OVER): State.INITIALIZING,  # the append failed, or its outcome is unknown
    (State.INITIALIZING, Input.REPLAYED): State.READY,
    (State.NONE, Input.CLOSE): State.CLOSED,
    (State.INITIALIZING, Input.CLOSE): State.CLOSED,
    (State.READY, Input.CLOSE): State.CLOSED,
    (State.CLOSED, Input.CLOSE): State.CLOSED,
}


@dataclass(frozen=True, slots=True)
class PendingAckAnswer:
    """The reply to a request: `failure` is None when its transaction now durably holds the acknowledgement."""

    ticket: int
    failure: LayerError | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`records` are to be appended, in this order; `answers` can be given at once (refusals)."""

    records: list[tuple[bytes, bytes]]
    answers: list[PendingAckAnswer]


@dataclass(frozen=True, slots=True)
class SettledAck:
    """A transaction that is over for this cursor: `ack` was acknowledged (aborted: nothing); `redeliver` are entries
    that were held and have to be delivered again, all or part of them."""

    txn: TxnId
    outcome: TxnOutcome
    ack: TxnAck
    redeliver: BitMap64


@dataclass(frozen=True, slots=True)
class _Request:
    ticket: int
    txn: TxnId
    ack: TxnAck


@dataclass(frozen=True, slots=True)
class _Asked:
    txn: TxnId
    keys: tuple[bytes, ...]


class PendingAcks:
    """Pending acks of one owner: one session, one version of the cursor. Used by the thread that owns the cursor.

    Memory: see `Holdings`, at most 10,000 waiting requests, and compressed bitmaps of the transactions that ended here
    above their coordinators' low-water marks.
    """

    def __init__(self, name: CursorName, life: CursorIncarnation, session: str, version: int) -> None:
        """`version`: of the cursor, one above the highest that was met; above `fence.owner`'s, too."""
        self.name = name
        self.life = life
        self.owner = Owner(session, version)
        self.state = State.NONE
        self.held = Holdings()
        self._tickets = 0
        self._acks = 0
        self._waiting: list[_Request] = []
        self._requested: dict[int, _Asked] = {}
        self._outcomes: dict[TxnId, TxnOutcome] = {}
        """Ended and not settled."""
        self._counted: dict[TxnId, TxnAck] = {}
        """The parts of held acks that are to be acknowledged."""
        self._applied: dict[TxnId, int] = {}
        """Committed ones whose acks are still in the log, and the cursor's revision that has them."""
        self._saved = -1
        self._over: dict[int, BitMap64] = {}
        self._low_waters: Mapping[int, int] = {}

    def take_over(self) -> tuple[bytes, bytes]:
        """The TAKEOVER to append; after it, read the log to its end and call `replayed`."""
        self._move(Input.TAKE_OVER)
        key = CursorTakeoverKey(*self.name, self.owner.session, self.owner.version)
        return encode_key(key), encode_cursor_takeover(self.life)

    def replayed(self, acks: CursorAcks, low_waters: Mapping[int, int], saved_revision: int) -> None:
        """Go on from what is on record, at the log's end. The cursor is as it was saved, at `saved_revision`.

        Raises:
            Fenced: another owner is the newest, or our own TAKEOVER is not there: serve nothing.
        """
        found = acks.life(self.life)
        if found.fence.owner != self.owner:
            self._move(Input.CLOSE)
            raise Fenced(f"{self._text()}: {found.fence.owner} owns it, not {self.owner}")
        self._move(Input.REPLAYED)
        self._saved = saved_revision
        for txn in found.transactions():
            for ack in acks.counted(self.life, txn):
                self.held.hold(txn, ack)
        self._learn(acks, low_waters)

    def close(self, failure: LayerError | None = None) -> list[PendingAckAnswer]:
        """Ends the ownership of the cursor: replies to all waiting requests."""
        self._move(Input.CLOSE)
        why = failure or Closed(f"{self._text()} is closed")
        answers = [
            PendingAckAnswer(ticket, why)
            for ticket in (*self._requested, *(request.ticket for request in self._waiting))
        ]
        self._requested.clear()
        self._waiting.clear()
        return answers

    def _move(self, what: Input) -> None:
        after = TRANSITIONS.get((self.state, what))
        if after is None:
            raise Refused(f"{self._text()} is {self.state.value}: {what.value} is not possible now")
        self.state = after

    def request(self, txn: TxnId, ack: TxnAck) -> int:
        """Accepts the acknowledgement of a transaction; returns the number of the request, which its reply carries.

        Raises:
            Closed: no reply will come.
            Refused: 10,000 requests wait already.
        """
        if self.state is State.CLOSED:
            raise Closed(f"{self._text()} is closed")
        if len(self._waiting) >= MAX_WAITING:
            raise Refused(f"{self._text()} has {MAX_WAITING} acknowledgements of transactions waiting, try again later")
        self._tickets += 1
        self._waiting.append(_Request(self._tickets, txn, ack))
        return self._tickets

    def decide(self, cursor: CursorState) -> Decision:
        """Check what waits, once READY; what may be held is held from now on. After the append call `read_back`, or
        `failed`."""
        decision = Decision([], [])
        if self.state is not State.READY:
            return decision
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            try:
                if self._is_over(request.txn):
                    raise TransactionNotFound(f"{self._text()}: transaction {_name(request.txn)} has ended")
                self.held.check(request.txn, request.ack, cursor)
            except LayerError as failure:
                decision.answers.append(PendingAckAnswer(request.ticket, failure))
                continue
            self.held.hold(request.txn, request.ack)
            records = [self._record(request.txn, part) for part in split_ack(request.ack)]
            self._requested[request.ticket] = _Asked(request.txn, tuple(key for key, _ in records))
            decision.records.extend(records)
        return decision

    def failed(self, failure: LayerError) -> list[PendingAckAnswer]:
        """Handles an append that failed or whose outcome is unknown: these transactions have to be aborted."""
        answers = [PendingAckAnswer(ticket, failure) for ticket in self._requested]
        self._requested.clear()
        return answers

    def read_back(self, acks: CursorAcks, low_waters: Mapping[int, int]) -> list[PendingAckAnswer]:
        """Applies the records up to the log's end, which was taken after the last append; `low_waters` (by coordinator)
        were read before that. Closes this object when another owner is the newest: check `state`."""
        if self.state is not State.READY:
            return []
        owned = acks.life(self.life).fence.owner == self.owner
        lost = Fenced(f"{self._text()}: {acks.life(self.life).fence.owner} took over from {self.owner}")
        answers: list[PendingAckAnswer] = []
        for ticket, requested in list(self._requested.items()):
            if all(acks.counts(self.life, key) for key in requested.keys):
                answers.append(PendingAckAnswer(ticket))
            elif requested.txn in acks.ends and owned:
                answers.append(
                    PendingAckAnswer(
                        ticket, TransactionNotFound(f"{self._text()}: transaction {_name(requested.txn)} has ended")
                    )
                )
            elif owned:
                continue
            else:
                answers.append(PendingAckAnswer(ticket, lost))
            del self._requested[ticket]
        if not owned:
            return answers + self.close(lost)
        self._learn(acks, low_waters)
        return answers

    def _record(self, txn: TxnId, ack: TxnAck) -> tuple[bytes, bytes]:
        self._acks += 1
        key = PendingAckKey(*self.name, *txn, self.owner.session, self._acks)
        return encode_key(key), encode_pending_ack(PendingAck(self.life, self.owner.version, ack))

    def settle(self, cursor: CursorState, apply: Callable[[CursorState, TxnAck], None] = apply_to) -> list[SettledAck]:
        """Bring the outcomes that were learnt to the cursor.

        `apply` acknowledges what was committed, and may be called again with the same after a failure.

        Raises:
            StoreError: nothing could be settled: `apply` failed, or the cursor's state is out of memory and cannot be
                read back. What could not be waits for the next call.
        """
        settled: list[SettledAck] = []
        for txn, outcome in list(self._outcomes.items()):
            try:
                settled.append(self._settle(txn, outcome, cursor, apply))
            except StoreError:
                if not settled:
                    raise
                break  # who calls must learn of the others
        return settled

    def _settle(
        self, txn: TxnId, outcome: TxnOutcome, cursor: CursorState, apply: Callable[[CursorState, TxnAck], None]
    ) -> SettledAck:
        requested = self.held.of(txn)
        counted = self._counted.get(txn, TxnAck())
        if outcome is TxnOutcome.COMMITTED:
            apply(cursor, counted)
            self._applied[txn] = cursor.revision
            requested = _beyond(requested, counted)
        again = positions(requested, cursor)
        self.held.release(txn)
        again = BitMap64(offset for offset in again if not self.held.is_held(offset))
        del self._outcomes[txn]
        self._counted.pop(txn, None)
        self._is_now_over(txn)
        return SettledAck(txn, outcome, counted, again)

    def saved(self, revision: int) -> None:
        """A save that holds all of the cursor up to this revision was accepted."""
        self._saved = max(self._saved, revision)

    @property
    def unclean(self) -> bool:
        """There are outcomes that the cursor, or the log, still has to take in. `to_clean` until there are none."""
        return bool(self._outcomes or self._applied)

    def to_clean(self, acks: CursorAcks) -> list[bytes]:
        """Keys to tombstone now, at the log's end. Call it again after that was read back: an END comes last."""
        if self.state is not State.READY:
            return []
        mine = acks.life(self.life)
        on_record = {*mine.transactions(), *acks.ends}
        self._applied = {txn: revision for txn, revision in self._applied.items() if txn in on_record}
        found = [*mine.fence.to_clean(self.owner), *self._of_former_lives(acks)]
        named = set(found)
        in_flight = {requested.txn for requested in self._requested.values()}
        for txn in mine.transactions():
            if self._is_over(txn) and txn not in self.held and txn not in in_flight and self._is_saved(txn):
                found += [key for key in mine.keys_of(txn) if key not in named]
        for txn in acks.ends:
            if txn not in self.held and txn not in in_flight and not mine.keys_of(txn):
                found.append(encode_key(PendingAckEndKey(*self.name, *txn)))
        return found

    def _learn(self, acks: CursorAcks, low_waters: Mapping[int, int]) -> None:
        self._low_waters = dict(low_waters)
        for txn, end in acks.ends.items():
            if txn in self.held:
                self._outcomes.setdefault(txn, end.outcome)
            elif not any(requested.txn == txn for requested in self._requested.values()):
                self._is_now_over(txn)
        for txn in self.held:
            if txn not in self._outcomes and self._is_below_low_water(txn):
                self._outcomes[txn] = TxnOutcome.ABORTED
        for txn, outcome in self._outcomes.items():
            if outcome is TxnOutcome.COMMITTED and txn not in self._counted:
                self._counted[txn] = together(acks.counted(self.life, txn), txn)
        for most, over in self._over.items():
            over.remove_range(0, low_waters.get(most >> 48, -1) + 1)

    def _of_former_lives(self, acks: CursorAcks) -> list[bytes]:
        found: list[bytes] = []
        for life, log in acks.lives.items():
            if life < self.life:
                found += [key for txn in log.transactions() for key in log.keys_of(txn)] or sorted(log.takeovers)
        return found

    def _is_over(self, txn: TxnId) -> bool:
        over = self._over.get(txn.most_bits)
        ended = over is not None and txn.least_bits in over
        return ended or txn in self._outcomes or self._is_below_low_water(txn)

    def _is_now_over(self, txn: TxnId) -> None:
        self._over.setdefault(txn.most_bits, BitMap64()).add(txn.least_bits)

    def _is_below_low_water(self, txn: TxnId) -> bool:
        return txn.least_bits <= self._low_waters.get(txn.coordinator, -1)

    def _is_saved(self, txn: TxnId) -> bool:
        return self._applied.get(txn, -1) <= self._saved

    def _text(self) -> str:
        return f"pending acks of {self.name.topic}/{self.name.subscription}[{self.name.partition}]"


def _name(txn: TxnId) -> str:
    return f"{txn.most_bits}:{txn.least_bits}"


def _beyond(held: TxnAck, counted: TxnAck) -> TxnAck:
    """The held acks that do not count."""
    batches = {}
    for offset, (size, acked) in held.batches.items():
        left = acked & ~counted.batches.get(offset, (size, 0))[1]
        if left:
            batches[offset] = (size, left)
    cumulative = None if held.cumulative == counted.cumulative else held.cumulative
    return TxnAck(held.whole - counted.whole, batches, cumulative)
