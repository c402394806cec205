"""Handles coordinator commands in two steps: records to append, then replies from the log as read back.

The owner writes by its last reading: only the owner decides in its log, and records of a replaced owner are void. It
replies by the next reading (`judge`), which contains its own records and everything before them. So a replaced owner
never replies.
"""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown, InvalidOption, Refused, TooManyTransactions
from pulsar_on_kafka.broker.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings
from pulsar_on_kafka.broker.transactions.coordinator.state import NO_ID, CoordinatorState, LoggedTransaction, txn_id
from pulsar_on_kafka.broker.transactions.effects.batched_effects import Effects
from pulsar_on_kafka.broker.transactions.serving.commands import CoordinatorCommands, WaitingCommand
from pulsar_on_kafka.broker.transactions.serving.log_writer import Writing
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import AddPartitions, AddSubscriptions, Begin, End


class Deciding:
    """Handles the commands of one turn, in the coordinator's thread. Memory: ids of the transactions written for in
    this turn."""

    def __init__(
        self,
        commands: CoordinatorCommands,
        writing: Writing,
        effects: Effects,
        settings: CoordinatorSettings,
        clock: Clock,
    ) -> None:
        self._commands = commands
        self._writing = writing
        self._effects = effects
        self._settings = settings
        self._clock = clock
        self.begin(NO_ID)

    def begin(self, highest_id: int) -> None:
        """A session begins, with the log's highest id."""
        self._last_id = highest_id
        self._answers: list[tuple[WaitingCommand, TxnId]] = []
        self._new_turn()

    def _new_turn(self) -> None:
        self._begun = 0
        self.added: set[int] = set()
        """Transactions that something is registered with in this turn."""
        self.ended: set[int] = set()

    def propose(self, state: CoordinatorState) -> None:
        """Writes the records of every command that needs some. `judge` answers the others and the refused ones."""
        self._new_turn()
        for waiting in self._commands:
            if waiting.request and (state.begun_by(waiting.request) or state.answer(waiting.request)):
                continue
            try:
                self._propose(state, waiting)
            except (Refused, MappingError):
                continue

    def _propose(self, state: CoordinatorState, waiting: WaitingCommand) -> None:
        command = waiting.command
        if waiting.refusal is not None or command is None:
            return
        if isinstance(command, Begin):
            # What was perhaps written may still arrive, under its id, which is not given again.
            if waiting.new_key is None or not (waiting.written or self._is_begun(state, waiting)):
                self._write_begin(state, waiting, command)
            return
        local_id = command.txn.least_bits
        if local_id in self.ended or (isinstance(command, End) and local_id in self.added):
            return  # what was written first is to be read back first
        decision = self._decision(state, command)
        if isinstance(decision, coordinator_machine.Write):
            self._writing.write(decision, waiting)
            (self.ended if isinstance(command, End) else self.added).add(local_id)

    def _write_begin(self, state: CoordinatorState, waiting: WaitingCommand, command: Begin) -> None:
        next_id = max(state.highest_id, self._last_id) + 1
        waiting.new_key = None
        write = self._new(state, waiting, command, next_id)
        self._begun += 1
        self._last_id = waiting.local_id = next_id
        waiting.new_key = self._writing.write(write, waiting)[0]

    def _new(
        self, state: CoordinatorState, waiting: WaitingCommand, command: Begin, next_id: int
    ) -> coordinator_machine.Write:
        if next_id > state.highest_id + self._settings.max_ids_ahead:
            unread = next_id - 1 - state.highest_id
            raise TooManyTransactions(
                f"coordinator {state.coordinator} has begun {unread} transactions of which it has not read"
                " that they are open"
            )
        return coordinator_machine.begin(
            state,
            command,
            self._writing.by,
            waiting.request,
            next_id,
            self._clock.now_ms(),
            self._settings,
            self._begun,
        )

    def _decision(
        self, state: CoordinatorState, command: End | AddPartitions | AddSubscriptions
    ) -> coordinator_machine.Decision:
        if isinstance(command, End):
            return coordinator_machine.end(state, command, self._writing.by)
        announced = self._effects.announced(command.txn.least_bits)
        return coordinator_machine.register(state, command, self._writing.by, announced, self._settings)

    @staticmethod
    def _is_begun(state: CoordinatorState, waiting: WaitingCommand) -> bool:
        transaction = state.transaction(txn_id(state.coordinator, waiting.local_id))
        return transaction is not None and transaction.new_key == waiting.new_key

    def judge(self, state: CoordinatorState) -> tuple[list[coordinator_machine.Announce], bool]:
        """Decides the replies to those commands, for `send_replies`; `state` was read to an end that was taken after
        the commands arrived and their records were written.

        Returns the announcements that must precede the replies, and whether there is more to write.
        """
        self._begun = 0
        announce: list[coordinator_machine.Announce] = []
        more = False
        for waiting in self._commands:
            if waiting.request and (state.begun_by(waiting.request) or state.answer(waiting.request)):
                self._commands.drop(waiting)  # the log is the answer
                continue
            try:
                left = self._judge(state, waiting)
                if isinstance(left, coordinator_machine.Announce):
                    refusal = self._effects.refusal(left)
                    if refusal is not None:
                        raise refusal
                    announce.append(left)
                more = more or isinstance(left, coordinator_machine.Write)
            except (Refused, MappingError) as refusal:
                known = refusal if isinstance(refusal, Refused) else InvalidOption(str(refusal))
                self._answer(waiting, known)
        return announce, more or bool(self._writing)

    def _judge(self, state: CoordinatorState, waiting: WaitingCommand) -> coordinator_machine.Decision | None:
        command = waiting.command
        if waiting.refusal is not None:
            raise waiting.refusal
        if command is None:
            return None
        if isinstance(command, Begin):
            return self._judge_begin(state, waiting, command)
        decision = self._decision(state, command)
        if not isinstance(decision, coordinator_machine.Done):
            return decision
        if waiting.request and not isinstance(command, End):
            self._writing.answer(waiting, None)
        else:
            self._settle_soon(waiting, command.txn)
        return None

    def _judge_begin(
        self, state: CoordinatorState, waiting: WaitingCommand, command: Begin
    ) -> coordinator_machine.Decision | None:
        txn = txn_id(state.coordinator, waiting.local_id)
        if waiting.new_key is not None and self._is_begun(state, waiting):
            self._settle_soon(waiting, txn)
            return None
        if waiting.written:  # a request is not executed twice
            if not waiting.request:
                waiting.fail(
                    AppendOutcomeUnknown(f"coordinator {state.coordinator}: perhaps transaction {txn} was opened")
                )
                self._commands.drop(waiting)
            return None
        return self._new(state, waiting, command, max(state.highest_id, self._last_id) + 1)

    def _answer(self, waiting: WaitingCommand, refusal: Refused) -> None:
        """Sends a refusal; the refusal of a request is written, since the log contains its reply."""
        if waiting.request:
            self._writing.answer(waiting, refusal)
        else:
            waiting.fail(refusal)
            self._commands.drop(waiting)

    def in_place(self, transactions: Iterable[LoggedTransaction]) -> bool:
        """Answers the commands of transactions whose outcome is everywhere. True when a caller waits for the log to
        contain the reply."""
        over = {transaction.id for transaction in transactions}
        requested = False
        for waiting in self._commands if over else ():
            if isinstance(waiting.command, End) and waiting.command.txn in over:
                requested = requested or bool(waiting.request)
                waiting.settle(waiting.command.txn)
                self._commands.drop(waiting)  # a request, too: the log's own records are its answer
        return requested

    def _settle_soon(self, waiting: WaitingCommand, txn: TxnId) -> None:
        self._answers.append((waiting, txn))
        self._commands.drop(waiting)

    def send_replies(self) -> None:
        """Sends the judged replies. Call it when all endings are everywhere: callers that continue a transaction take
        processor time from those that wait for a last step."""
        answers, self._answers = self._answers, []
        for waiting, txn in answers:
            waiting.settle(txn)
