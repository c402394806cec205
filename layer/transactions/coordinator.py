"""A coordinator as its owner serves it: wishes in, records into the log, answers and effects when they are read back.

One thread calls `take_over` and then `turn` again and again; any thread may `submit`. A turn reads the log to its end,
stops if somebody else took over, and decides every wish on what it read: each is answered, or records are written for
it, in one append for all, and it is decided again in the next turn. Transactions that the log shows as COMMITTING or
ABORTING get their effects, then their last status. So nothing is answered or done before the record that says so was
read back as valid, and an owner that was stopped for long can append when it wakes, but never decide.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from layer.clock import Clock, SystemClock
from layer.deadline import Deadline
from layer.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    Fenced,
    InvalidOption,
    LayerError,
    NotAuthorized,
    RecordTooLarge,
    Refused,
    StoreError,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
)
from layer.meters import CoordinatorMeter
from layer.statelog.take_over import Owner
from layer.transactions import coordinator_machine as machine
from layer.transactions.coordinator_counts import CoordinatorCounts
from layer.transactions.coordinator_effects import Effects
from layer.transactions.coordinator_log import CoordinatorLog, RequestFeed
from layer.transactions.coordinator_rules import OPEN, CoordinatorSettings
from layer.transactions.coordinator_state import NO_ID, CoordinatorState, txn_id
from layer.transactions.coordinator_timeouts import TransactionTimeouts
from layer.transactions.coordinator_wishes import Waiting, Wishes
from layer.transactions.outcomes import Outcomes
from layer.transactions.record_groups import GroupDelay, Record, in_groups
from mapping.errors import MappingError
from mapping.state_keys import CoordinatorTakeoverKey, TransactionAnswerKey, TransactionLogKey, encode_key
from mapping.state_records.transaction_log import Answered, TakenOver, encode_log_value
from mapping.state_records.transaction_requests import AddPartitions, AddSubscriptions, Begin, End, Wish
from mapping.txn_id import TxnId

_log: Final = logging.getLogger(__name__)
_SESSION_BYTES: Final = 16
_HEARING_S: Final = 2.0
_LONGEST_WAIT_S: Final = 60.0


def random_session() -> str:
    return secrets.token_hex(_SESSION_BYTES)


class Coordinator:
    """Memory: see `CoordinatorSettings`."""

    def __init__(
        self,
        log: CoordinatorLog,
        outcomes: Outcomes,
        requests: RequestFeed,
        *,
        settings: CoordinatorSettings | None = None,
        clock: Clock | None = None,
        new_session: Callable[[], str] = random_session,
        meter: CoordinatorMeter | None = None,
    ) -> None:
        """`log` must follow changes."""
        self._log = log
        self._requests = requests
        self._settings = settings or CoordinatorSettings()
        self._clock = clock or SystemClock()
        self._new_session = new_session
        self._wishes = Wishes(log.coordinator, self._settings.max_waiting, self._settings.finished_kept_ms, self._clock)
        self._effects = Effects(outcomes, log.coordinator, self._settings, self._clock)
        self._counts = CoordinatorCounts(meter or CoordinatorMeter(), self._clock)
        self._arrived: list[Waiting] = []
        self._arrival = threading.Condition()
        self._delay = GroupDelay(self._settings.group_records, self._settings.group_delay_ms / 1000)
        self._serving = False
        self._woken = False
        self._hear_at_s = 0.0
        self._deaf = ""
        self._forget_session()

    @property
    def id(self) -> int:
        return self._log.coordinator

    @property
    def serving(self) -> bool:
        """Whether it takes wishes; for any thread."""
        return self._serving

    @property
    def unreadable_requests(self) -> int:
        """Requests that could neither be read nor answered, since this object was made."""
        return self._wishes.unreadable_requests

    def _forget_session(self) -> None:
        self._owner: Owner | None = None
        self._counts.begin(-1)
        self._session = ""
        self._by = 0
        self._ops = 0
        self._last_id = NO_ID
        self._timeouts = TransactionTimeouts()
        self._overdue: set[int] = set()
        self._records: list[tuple[bytes, bytes, Waiting | None]] = []
        self._begun_now = 0
        self._ended_now: set[int] = set()
        self._added_now: set[int] = set()
        self._clean_at_s = 0.0
        self._clean_pause_s = self._settings.clean_every_ms / 1000
        self._busy = False

    # Any thread ---------------------------------------------------------------------------------------------------

    def submit(self, wish: Wish, deadline: Deadline) -> Future[TxnId]:
        """See to `wish` of this process; the future gives the transaction's id when it is done, durably.

        The future raises `InvalidTxnStatus`, `TransactionNotFound`, `InvalidOption`, `TooManyTransactions` (refused),
        `NoSuchTopic` (a registration where a topic was deleted),
        `TransactionCoordinatorNotFound`, `DeadlineExceeded` (certainly not done), `TransactionOutcomeUnknown` (an end),
        `AppendOutcomeUnknown` (a registration: ask again; a begin: what was perhaps opened times out).

        Raises:
            TransactionCoordinatorNotFound: this process does not serve the coordinator now.
            TooManyTransactions: too many wishes wait.
        """
        future: Future[TxnId] = Future()
        with self._arrival:
            waiting = len(self._arrived) + len(self._wishes)
            if waiting >= self._settings.max_waiting:
                raise TooManyTransactions(f"coordinator {self.id} has {waiting} wishes waiting, its limit")
            if not self._serving:
                raise TransactionCoordinatorNotFound(f"coordinator {self.id} is not served here")
            self._arrived.append(Waiting(wish, future=future, deadline=deadline))
            self._arrival.notify()
        return future

    def wake(self) -> None:
        """End a `wait_for_work`."""
        with self._arrival:
            self._woken = True
            self._arrival.notify()

    # Its own thread -----------------------------------------------------------------------------------------------

    def wait_for_work(self, look_s: float) -> None:
        """Return when a turn has something to do, or perhaps has: requests are looked for after `look_s` where the feed
        does not wake."""
        most_s = _LONGEST_WAIT_S if self._requests.wakes else look_s
        with self._arrival:
            if not self._busy and not self._arrived and not self._woken:
                self._arrival.wait(max(0.0, min(most_s, self._next_s())))
            self._woken = False
            delay_s = self._delay.remaining_s(self._clock.monotonic())
            if delay_s and len(self._arrived) < self._settings.group_records and not self._busy:
                self._arrival.wait(delay_s)

    def _next_s(self) -> float:
        """Seconds until something is due by itself."""
        now_s = self._clock.monotonic()
        times = [self._clean_at_s, self._effects.next_s()]
        if (expiry_ms := self._timeouts.next_ms()) is not None:
            times.append(expiry_ms / 1000)
        return min(times) - now_s

    def take_over(self, deadline: Deadline) -> None:
        """Become the owner, with a session of its own: what a former one left is taken up from the log.

        Raises:
            Fenced: another one claimed at the same time.
            Corrupt: a record of the log cannot be read. And what `StateLog` raises.
        """
        self._forget_session()
        self._hear_at_s = 0.0
        self._hear(deadline)
        state = self._log.read(deadline)
        claim = Owner(self._new_session(), state.next_version)
        key = encode_key(CoordinatorTakeoverKey(self.id, claim.session, claim.version))
        value = encode_log_value(TakenOver(max(0, state.highest_id)))
        try:
            self._log.append([(key, value)], deadline)
        except AppendOutcomeUnknown as unknown:
            _log.info("coordinator=%d version=%d outcome unknown, reading: %s", self.id, claim.version, unknown)
        state = self._log.read(deadline)
        if state.owner != claim:
            raise Fenced(f"coordinator {self.id}: version {claim.version} was claimed, {state.owner} owns it")
        self._owner, self._session, self._by = claim, claim.session, claim.version
        self._last_id = state.highest_id
        self._effects.begin(claim.session)
        self._counts.begin(claim.version)
        for transaction in state.transactions():
            self._watch(state, transaction.id.least_bits)
        state.take_touched()
        self._busy = True
        with self._arrival:
            self._serving = True
        _log.info("coordinator=%d version=%d serves, %d unfinished", self.id, claim.version, state.unfinished)

    def resign(self, why: LayerError | None = None) -> None:
        """Serve no more, and tell everybody who waits; a second call does nothing."""
        with self._arrival:
            self._serving = False
            arrived, self._arrived = self._arrived, []
        for waiting in arrived:
            self._wishes.add(waiting)
        self._wishes.resign(why)
        self._requests.rest()
        self._forget_session()

    def turn(self, deadline: Deadline) -> bool:
        """One round of what is described above; False when nobody wished for anything.

        Raises:
            Fenced: somebody else owns the coordinator; `resign`, and take over only if it is still this process's.
            Corrupt: `resign`. Other LayerErrors pass: what waits is seen to in the next turn.
        """
        if self._owner is None:
            raise Fenced(f"coordinator {self.id} was not taken over")
        self._hear(deadline)
        self._take_arrived()
        wished = len(self._wishes) > 0
        if not (self._busy or wished or self._next_s() <= 0):
            return False
        state = self._log.read(deadline)
        if state.owner != self._owner:
            raise Fenced(f"coordinator {self.id}: {state.owner} took over from version {self._by}")
        self._busy = False
        self._begun_now, self._ended_now, self._added_now = 0, set(), set()
        self._records = []
        touched = state.take_touched()
        for local_id in touched:
            self._watch(state, local_id)
        if touched:
            self._clean_soon()
        self._wishes.drop_late()
        announce = self._decide_all(state)
        self._expire(state)
        self._flush(deadline)
        self._busy = self._effects.announce(announce, deadline) or self._busy
        for transaction in self._effects.put_in_place(state.ending(), deadline):
            self._write(machine.in_place(transaction, self._by))
        self._flush(deadline)
        self._effects.publish_low_water(state.low_water, deadline)
        self._clean(state, deadline)
        return wished

    def _hear(self, deadline: Deadline) -> None:
        """Take in requests. Wishes of this process are seen to also when there is trouble with those."""
        now_s = self._clock.monotonic()
        if now_s < self._hear_at_s and not self._requests.wakes:
            return
        self._hear_at_s = now_s + self._settings.requests_every_ms / 1000
        try:
            for record in self._requests.take(Deadline.after(min(_HEARING_S, deadline.remaining_s()))):
                self._wishes.hear(record)
        except StoreError as failure:
            level = logging.DEBUG if self._deaf == type(failure).__name__ else logging.WARNING
            self._deaf = type(failure).__name__
            self._hear_at_s = now_s + _HEARING_S
            _log.log(level, "coordinator=%d does not hear other processes: %s", self.id, failure)
        else:
            self._deaf = ""

    def _take_arrived(self) -> None:
        with self._arrival:
            if self._delay.due(len(self._arrived), self._clock.monotonic()):
                arrived, self._arrived = self._arrived, []
                for waiting in arrived:
                    self._wishes.add(waiting)

    def _watch(self, state: CoordinatorState, local_id: int) -> None:
        """What a change of a transaction means for its time-out and for its buffers."""
        transaction = state.transaction(txn_id(self.id, local_id))
        self._counts.see(local_id, transaction)
        if transaction is None or transaction.status is not OPEN:
            self._timeouts.remove(local_id)
            self._overdue.discard(local_id)
            self._effects.forget(local_id)
        elif local_id not in self._timeouts and local_id not in self._overdue:
            left_ms = transaction.deadline_ms() - self._clock.now_ms()  # another machine's clock may have begun it
            self._timeouts.add(local_id, self._monotonic_ms(), min(left_ms, transaction.new.timeout_ms))

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # Deciding -----------------------------------------------------------------------------------------------------

    def _decide_all(self, state: CoordinatorState) -> list[machine.Announce]:
        """Answer, or write for, every wish; gives what buffers must hear of first."""
        announce: list[machine.Announce] = []
        for waiting in self._wishes:
            if waiting.request and (state.begun_by(waiting.request) or state.answer(waiting.request)):
                self._wishes.drop(waiting)  # the log is the answer
                continue
            try:
                if waiting.refusal is not None:
                    raise waiting.refusal
                if isinstance(waiting.wish, Begin):
                    self._begin(state, waiting, waiting.wish)
                elif waiting.wish is not None and (found := self._decide(state, waiting, waiting.wish)) is not None:
                    announce.append(found)
            except (Refused, MappingError) as refusal:
                known = refusal if isinstance(refusal, Refused) else InvalidOption(str(refusal))
                self._answer(state, waiting, known)
        return announce

    def _begin(self, state: CoordinatorState, waiting: Waiting, wish: Begin) -> None:
        if waiting.new_key is not None:
            txn = txn_id(self.id, waiting.local_id)
            transaction = state.transaction(txn)
            if transaction is not None and transaction.new_key == waiting.new_key:
                waiting.settle(txn)
                self._wishes.drop(waiting)
                return
            if waiting.written:
                # It may still arrive, under its id, which is not given again. A request is not executed twice.
                if not waiting.request:
                    waiting.fail(AppendOutcomeUnknown(f"coordinator {self.id}: perhaps transaction {txn} was opened"))
                    self._wishes.drop(waiting)
                return
        next_id = max(state.highest_id, self._last_id) + 1
        now_ms = self._clock.now_ms()
        write = machine.begin(state, wish, self._by, waiting.request, next_id, now_ms, self._settings, self._begun_now)
        self._begun_now += 1
        self._last_id = next_id
        waiting.local_id = next_id
        waiting.new_key = self._write(write, waiting)[0]

    def _decide(self, state: CoordinatorState, waiting: Waiting, wish: Wish) -> machine.Announce | None:
        decision: machine.Decision
        if isinstance(wish, End):
            if wish.txn.least_bits in self._added_now or wish.txn.least_bits in self._ended_now:
                return None  # what was written first is to be read back first
            decision = machine.end(state, wish, self._by)
        elif isinstance(wish, AddPartitions | AddSubscriptions):
            if wish.txn.least_bits in self._ended_now:
                return None
            announced = self._effects.announced(wish.txn.least_bits)
            decision = machine.register(state, wish, self._by, announced, self._settings)
        match decision:
            case machine.Write(txn=txn):
                self._write(decision, waiting)
                (self._ended_now if isinstance(wish, End) else self._added_now).add(txn.least_bits)
            case machine.Announce():
                refusal = self._effects.refusal(decision)
                if refusal is not None:
                    raise refusal
                return decision
            case machine.Done(txn=txn):
                if isinstance(wish, End):  # of a request the log's own records are the answer
                    waiting.settle(txn)
                    self._wishes.drop(waiting)
                else:
                    self._answer(state, waiting, None)
            case machine.Wait():
                pass
        return None

    def _answer(self, state: CoordinatorState, waiting: Waiting, refusal: Refused | None) -> None:
        """Tell a refusal, or that a registration is done; a request's answer is written until it is read back."""
        if not waiting.request:
            if refusal is not None:
                waiting.fail(refusal)
            elif isinstance(waiting.wish, AddPartitions | AddSubscriptions):
                waiting.settle(waiting.wish.txn)
            self._wishes.drop(waiting)
        else:
            name, reason = ("", "") if refusal is None else (type(refusal).__name__, str(refusal)[:1000])
            self._ops += 1
            key = TransactionAnswerKey(self.id, waiting.request, self._session, self._ops)
            self._records.append((encode_key(key), encode_log_value(Answered(self._by, name, reason)), waiting))

    def _expire(self, state: CoordinatorState) -> None:
        self._overdue.update(self._timeouts.expired(self._monotonic_ms()))
        for local_id in sorted(self._overdue - self._ended_now):
            transaction = state.transaction(txn_id(self.id, local_id))
            write = None if transaction is None else machine.time_out(transaction, self._by)
            if write is None:
                self._overdue.discard(local_id)
            elif local_id not in self._added_now:
                _log.info("coordinator=%d transaction=%d timed out", self.id, local_id)
                self._counts.timing_out(local_id)
                self._write(write)
        self._busy = self._busy or bool(self._overdue)

    # Writing ------------------------------------------------------------------------------------------------------

    def _write(self, write: machine.Write, waiting: Waiting | None = None) -> list[bytes]:
        """Put it with what this turn appends; gives the keys."""
        encoded = [encode_log_value(value) for value in write.values]
        keys = [self._next_key(write.txn) for _ in encoded]
        self._records.extend((key, value, waiting) for key, value in zip(keys, encoded, strict=True))
        return keys

    def _next_key(self, txn: TxnId) -> bytes:
        self._ops += 1
        return encode_key(TransactionLogKey(self.id, txn.most_bits, txn.least_bits, self._session, self._ops))

    def _flush(self, deadline: Deadline) -> None:
        records, self._records = self._records, []
        self._busy = self._busy or bool(records)
        wishes = {key: waiting for key, _, waiting in records if waiting is not None}
        pairs: list[Record] = [(key, value) for key, value, _ in records]
        for group in in_groups(pairs, self._settings.group_records, self._settings.group_bytes):
            self._append(group, wishes, deadline)

    def _append(self, group: Sequence[Record], wishes: dict[bytes, Waiting], deadline: Deadline) -> None:
        concerned = {wishes[key]: None for key, _ in group if key in wishes}
        before = {waiting: waiting.written for waiting in concerned}
        for waiting in concerned:
            waiting.written = True
        try:
            self._log.append(group, deadline)
        except (AppendFailed, NotAuthorized, RecordTooLarge) as failure:  # certainly not written
            for waiting in concerned:
                waiting.written = before[waiting]
                if isinstance(failure, RecordTooLarge | NotAuthorized):
                    waiting.fail(failure)
                    self._wishes.drop(waiting)
            raise

    def _clean(self, state: CoordinatorState, deadline: Deadline) -> None:
        now_s = self._clock.monotonic()
        if self._owner is None or now_s < self._clean_at_s:
            return
        self._clean_at_s = now_s + self._clean_pause_s
        keys = state.to_clean(self._owner, self._clock.now_ms(), self._settings)
        for group in in_groups([(key, None) for key in keys], self._settings.group_records, self._settings.group_bytes):
            self._log.append(group, deadline)
        if keys:
            self._clean_soon()
        else:  # looking is a request to Kafka, for each coordinator: where nothing happens it is done less and less
            self._clean_pause_s = min(2 * self._clean_pause_s, self._settings.finished_kept_ms / 2000)

    def _clean_soon(self) -> None:
        self._clean_pause_s = self._settings.clean_every_ms / 1000
        self._clean_at_s = min(self._clean_at_s, self._clock.monotonic() + self._clean_pause_s)
