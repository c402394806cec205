"""A coordinator in its owner: accepts commands, appends records to the log, and replies and applies effects when the
records are read back.

One thread calls `take_over` and then `turn` repeatedly; any thread may `submit`. A turn first appends the records of
all commands at once, decided by the last reading. It reads these records back, with all that precede them, and stops if
another process took over. Then it replies to commands, applies the effects of transactions that are COMMITTING or
ABORTING in the log, and later writes their last status. So no reply and no effect precedes the reading of its valid
record. An owner that was paused for long can append when it wakes, but never decide.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from math import inf
from typing import Final, Protocol

from pulsar_on_kafka.base.clock import Clock, SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, TooManyTransactions, TransactionCoordinatorNotFound
from pulsar_on_kafka.base.meters import CoordinatorMeter
from pulsar_on_kafka.broker.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.broker.transactions.coordinator.counts import CoordinatorCounts, TransactionTimeouts
from pulsar_on_kafka.broker.transactions.coordinator.rules import (
    OPEN,
    CoordinatorSettings,
    GroupDelay,
    TransactionAdmission,
)
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState, LoggedTransaction, txn_id
from pulsar_on_kafka.broker.transactions.effects.batched_effects import Effects
from pulsar_on_kafka.broker.transactions.records.outcomes import Outcomes
from pulsar_on_kafka.broker.transactions.serving.command_handler import Deciding
from pulsar_on_kafka.broker.transactions.serving.commands import CoordinatorCommands, WaitingCommand
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog, Writing
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka.statelog.view import LogEnd
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import CoordinatorTakeoverKey, encode_key
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TakenOver, encode_log_value
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import Command

_log: Final = logging.getLogger(__name__)
_LONGEST_WAIT_S: Final = 60.0


class RequestFeed(Protocol):
    """Requests of other processes to one coordinator, as they come. For the coordinator's thread, which is woken when
    there is something to take."""

    def begin(self, wake: Callable[[], None], deadline: Deadline) -> None:
        """Starts reading: requests written from now on are received; where Kafka does not report the end offset, from
        the time it becomes readable."""

    def take(self) -> Sequence[LogRecord]:
        """The requests since the last call, in the order of the log, some thousands at most: the sender of a dropped
        one resends it."""

    def rest(self) -> None:
        """Stops reading until the next `begin`."""


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
        meter: CoordinatorMeter | None = None,
    ) -> None:
        self._log = log
        self._requests = requests
        self._settings = settings or CoordinatorSettings()
        self._clock = clock or SystemClock()
        self._commands = CoordinatorCommands(
            log.coordinator, self._settings.max_waiting, self._settings.finished_kept_ms, self._clock
        )
        self._effects = Effects(outcomes, log.coordinator, self._settings, self._clock)
        self._writing = Writing(log, self._settings, self._commands)
        self._deciding = Deciding(self._commands, self._writing, self._effects, self._settings, self._clock)
        self._counts = CoordinatorCounts(meter or CoordinatorMeter(), self._clock)
        self._admission = TransactionAdmission()
        self._arrived: list[WaitingCommand] = []
        self._arrival = threading.Condition()
        self._delay = GroupDelay(self._settings.group_records, self._settings.group_delay_ms / 1000)
        self._serving = False
        self._woken = False
        self._forget_session()

    @property
    def id(self) -> int:
        return self._log.coordinator

    @property
    def serving(self) -> bool:
        """Whether the coordinator accepts commands; for any thread."""
        return self._serving

    @property
    def unreadable_requests(self) -> int:
        """Requests that could neither be read nor answered, since this object was made."""
        return self._commands.unreadable_requests

    def _forget_session(self) -> None:
        self._log.owner = None
        self._state = CoordinatorState(self.id)
        self._counts.begin(-1)
        self._timeouts = TransactionTimeouts()
        self._overdue: set[int] = set()
        self._in_place: dict[int, LoggedTransaction] = {}
        """Transactions whose outcome is everywhere, and whose last status was not read yet."""
        self._last_status_at_s = inf
        self._clean_at_s = 0.0
        self._clean_pause_s = self._settings.clean_every_ms / 1000
        self._busy = False
        self._writing.drop()

    # Any thread ---------------------------------------------------------------------------------------------------

    def submit(self, command: Command, deadline: Deadline) -> Future[TxnId]:
        """Queues a command of this process; the future returns the transaction's id when the command is durably done.

        The future raises `InvalidTxnStatus`, `TransactionNotFound`, `InvalidOption`, `TooManyTransactions` (refused),
        `NoSuchTopic` (a registration where a topic was deleted), `TransactionCoordinatorNotFound`, `DeadlineExceeded`
        (certainly not done), `TransactionOutcomeUnknown` (an end), `AppendOutcomeUnknown` (a registration: submit it
        again; a begin: the perhaps opened transaction times out).

        Raises:
            TransactionCoordinatorNotFound: this process does not serve the coordinator now.
            TooManyTransactions: too many commands wait.
        """
        future: Future[TxnId] = Future()
        with self._arrival:
            waiting = len(self._arrived) + len(self._commands)
            if waiting >= self._settings.max_waiting:
                raise TooManyTransactions(f"coordinator {self.id} has {waiting} commands waiting, its limit")
            if not self._serving:
                raise TransactionCoordinatorNotFound(f"coordinator {self.id} is not served here")
            self._arrived.append(WaitingCommand(command, future=future, deadline=deadline))
            self._arrival.notify()
        return future

    def wake(self) -> None:
        """End a `wait_for_work`."""
        with self._arrival:
            self._woken = True
            self._arrival.notify()

    # Its own thread -----------------------------------------------------------------------------------------------

    def wait_for_work(self) -> None:
        """Return when a turn has something to do, or perhaps has."""
        with self._arrival:
            if not self._busy and not self._arrived and not self._woken:
                self._arrival.wait(max(0.0, min(_LONGEST_WAIT_S, self._next_s())))
            self._woken = False
            delay_s = self._delay.remaining_s(self._clock.monotonic())
            if delay_s and len(self._arrived) < self._settings.group_records and not self._busy:
                self._arrival.wait(delay_s)

    def _next_s(self) -> float:
        now_s = self._clock.monotonic()
        times = [self._clean_at_s, self._effects.next_s(), self._last_status_at_s]
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
        self._requests.begin(self.wake, deadline)  # first: a client that reads the claim resends at once
        state = self._state = self._log.take_over(self._takeover, deadline)
        claim = self._log.must_own()
        self._writing.begin(claim.session, claim.version)
        self._deciding.begin(state.highest_id)
        self._effects.begin(claim.session, claim.version)
        self._counts.begin(claim.version)
        for transaction in state.transactions():
            self._watch(transaction.id.least_bits, transaction)
        state.take_touched()
        self._busy = True
        with self._arrival:
            self._serving = True
        _log.info("coordinator=%d version=%d serves, %d unfinished", self.id, claim.version, state.unfinished)

    def _takeover(self, state: CoordinatorState, mine: Owner) -> tuple[bytes, bytes]:
        key = CoordinatorTakeoverKey(self.id, mine.session, mine.version)
        # The highest id that a former owner may have given, or still give in vain.
        taken = 0 if state.owner is None else max(0, state.highest_id) + self._settings.max_ids_ahead
        return encode_key(key), encode_log_value(TakenOver(taken))

    def resign(self, why: LayerError | None = None) -> None:
        """Stops serving and fails all waiting commands; a second call does nothing."""
        with self._arrival:
            self._serving = False
            arrived, self._arrived = self._arrived, []
        for waiting in arrived:
            self._commands.add(waiting)
        self._commands.resign(why)
        self._requests.rest()
        self._forget_session()

    def turn(self, deadline: Deadline) -> bool:
        """One turn as described above; False without any command.

        Raises:
            Fenced: another process owns the coordinator; `resign`, and take over only if Kafka's group still assigns it
                here.
            Corrupt: `resign`. Other LayerErrors pass: the next turn handles the waiting commands.
        """
        self._log.must_own()
        self._receive()
        self._take_arrived()
        wished = len(self._commands) > 0
        if not (self._busy or wished or self._next_s() <= 0):
            return False
        self._commands.drop_late()
        self._busy = self._commands.let_in(self._admission.begins)
        state = self._read_back(self._write(deadline), deadline)
        try:
            requested, more = self._deciding.judge(state)
            self._busy = self._busy or more
            self._take_effect(state, requested, deadline)
        finally:
            self._deciding.send_replies()
        # The replies rest on a later reading: a process that took over before the announcements were in the buffers did
        # not see them there, and may have ended the transaction.
        announced = self._effects.announce(requested, deadline)
        self._busy = self._busy or announced
        self._effects.publish_low_water(state.low_water, deadline, busy=self._busy or wished)
        return wished

    def _write(self, deadline: Deadline) -> LogEnd | None:
        self._deciding.propose(self._state)
        self._expire(self._state)
        if self._writing or self._clock.monotonic() >= self._last_status_at_s:
            self._write_last_statuses()
        self._clean(self._state)
        began_s = self._clock.monotonic()
        at = self._writing.flush(deadline)
        if at is not None:
            now_s = self._clock.monotonic()
            self._admission.appended(now_s - began_s, now_s)
        return at

    def _write_last_statuses(self) -> None:
        for transaction in self._in_place.values():
            self._writing.write(coordinator_machine.in_place(transaction, self._writing.by))

    def _read_back(self, at: LogEnd | None, deadline: Deadline) -> CoordinatorState:
        state = self._state = self._log.judged(deadline, at)
        touched = state.take_touched()
        for local_id, transaction in touched:
            self._watch(local_id, transaction)
        if touched:
            self._clean_soon()
        if not self._in_place:
            self._last_status_at_s = inf
        return state

    def _take_effect(
        self, state: CoordinatorState, required: Sequence[coordinator_machine.Announce], deadline: Deadline
    ) -> None:
        """Applies the outcomes of transactions, and replies to the callers that wait for them: their command is decided
        in the log and in effect everywhere. The last status only records that nothing is left to do; it goes with other
        records."""
        ending = [found for found in state.ending() if found.id.least_bits not in self._in_place]
        done = self._effects.put_in_place(ending, deadline, required)
        self._in_place.update((transaction.id.least_bits, transaction) for transaction in done)
        requested = self._deciding.in_place(self._in_place.values())
        if self._in_place:
            delay_s = 0.0 if requested else self._settings.last_status_delay_ms / 1000
            self._last_status_at_s = min(self._last_status_at_s, self._clock.monotonic() + delay_s)

    def finish(self, deadline: Deadline) -> None:
        """Call it before an orderly `resign`: writes the last statuses, or else the next owner repeats the effects.
        Raises LayerErrors; then the next owner does."""
        if self._log.owner is not None and self._in_place:
            self._write_last_statuses()
            self._writing.flush(deadline)

    def _receive(self) -> None:
        for record in self._requests.take():
            self._commands.receive(record)

    def _take_arrived(self) -> None:
        with self._arrival:
            if self._delay.due(len(self._arrived), self._clock.monotonic()):
                arrived, self._arrived = self._arrived, []
                for waiting in arrived:
                    self._commands.add(waiting)

    def _watch(self, local_id: int, transaction: LoggedTransaction | None) -> None:
        """Applies a change of a transaction to its time-out and its buffers."""
        self._counts.see(local_id, transaction)
        if transaction is None or transaction.status is not OPEN:
            self._timeouts.remove(local_id)
            self._overdue.discard(local_id)
            if transaction is None or transaction.finished:
                self._effects.forget(local_id)
                self._in_place.pop(local_id, None)
        elif local_id not in self._timeouts and local_id not in self._overdue:
            left_ms = transaction.deadline_ms() - self._clock.now_ms()  # another machine's clock may have begun it
            self._timeouts.add(local_id, self._monotonic_ms(), min(left_ms, transaction.new.timeout_ms))

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _expire(self, state: CoordinatorState) -> None:
        self._overdue.update(self._timeouts.expired(self._monotonic_ms()))
        for local_id in sorted(self._overdue - self._deciding.ended):
            transaction = state.transaction(txn_id(self.id, local_id))
            write = None if transaction is None else coordinator_machine.time_out(transaction, self._writing.by)
            if write is None:
                self._overdue.discard(local_id)
            elif local_id not in self._deciding.added:
                _log.info("coordinator=%d transaction=%d timed out", self.id, local_id)
                self._counts.timing_out(local_id)
                self._writing.write(write)
        self._busy = self._busy or bool(self._overdue)

    def _clean(self, state: CoordinatorState) -> None:
        """Tombstones go with other records, some at a time."""
        now_s = self._clock.monotonic()
        if now_s < self._clean_at_s:
            return
        keys = state.to_clean(self._log.must_own(), self._clock.now_ms(), self._settings)
        self._writing.clean(keys)
        self._clean_at_s = now_s + self._clean_pause_s
        if len(keys) >= self._settings.clean_at_once:
            self._clean_at_s = now_s
        elif keys:
            self._clean_soon()
        else:  # looking is a request to Kafka, for each coordinator: where nothing happens it is done less and less
            self._clean_pause_s = min(2 * self._clean_pause_s, self._settings.finished_kept_ms / 2000)

    def _clean_soon(self) -> None:
        self._clean_pause_s = self._settings.clean_every_ms / 1000
        self._clean_at_s = min(self._clean_at_s, self._clock.monotonic() + self._clean_pause_s)
