"""Each turn of a coordinator's owner appends records of many commands to its log together, each under a new key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, NotAuthorized, RecordTooLarge, Refused
from pulsar_on_kafka.broker.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings, Record, in_groups
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.broker.transactions.serving.commands import CoordinatorCommands, WaitingCommand
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.owned import OwnedLog, random_session
from pulsar_on_kafka.statelog.view import LogEnd, LogView
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionAnswerKey, TransactionLogKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_LOG, StateTopic
from pulsar_on_kafka_mapping.state.transactions.transaction_log import Answered, encode_log_value


class CoordinatorLog(OwnedLog[CoordinatorState]):
    """A coordinator's partition of `__transaction_log`. Every record has a key of its own, and a late record finds ids
    given and decisions made. So an owner continues after an append with an unknown outcome."""

    def __init__(
        self,
        log: StateLog,
        coordinator: int,
        clock: Clock,
        *,
        new_session: Callable[[], str] = random_session,
        topic: StateTopic = TRANSACTION_LOG,
    ) -> None:
        self.coordinator = coordinator
        partition = topic.partition_of_coordinator(coordinator)
        super().__init__(
            LogView(log, topic, partition, partial(CoordinatorState, coordinator, follow_changes=True), clock),
            f"coordinator {coordinator}",
            late_is_harmless=True,
            new_session=new_session,
        )


_REASON_CHARACTERS = 1000


class Writing:
    """The records of one turn, for the coordinator's thread. Memory: these records."""

    def __init__(self, log: CoordinatorLog, settings: CoordinatorSettings, commands: CoordinatorCommands) -> None:
        self._log = log
        self._settings = settings
        self._commands = commands
        self.begin("", 0)

    def begin(self, session: str, by: int) -> None:
        """The session before is over."""
        self._session = session
        self.by = by
        """The owner's version, which its records name."""
        self._ops = 0
        self._records: list[tuple[bytes, bytes | None, WaitingCommand | None]] = []

    def __bool__(self) -> bool:
        return bool(self._records)

    def drop(self) -> None:
        """Forget the records that were not appended: they are decided anew."""
        self._records = []

    def write(self, write: coordinator_machine.Write, waiting: WaitingCommand | None = None) -> list[bytes]:
        """Put it with what is appended next; gives the keys."""
        encoded = [encode_log_value(value) for value in write.values]
        keys = [self._next_key(write.txn) for _ in encoded]
        self._records.extend((key, value, waiting) for key, value in zip(keys, encoded, strict=True))
        return keys

    def _next_key(self, txn: TxnId) -> bytes:
        self._ops += 1
        return encode_key(
            TransactionLogKey(self._log.coordinator, txn.most_bits, txn.least_bits, self._session, self._ops)
        )

    def answer(self, waiting: WaitingCommand, refusal: Refused | None) -> None:
        """Writes the reply to a request: other processes read replies from the log."""
        name, reason = ("", "") if refusal is None else (type(refusal).__name__, str(refusal)[:_REASON_CHARACTERS])
        self._ops += 1
        key = TransactionAnswerKey(self._log.coordinator, waiting.request, self._session, self._ops)
        self._records.append((encode_key(key), encode_log_value(Answered(self.by, name, reason)), waiting))

    def flush(self, deadline: Deadline) -> LogEnd | None:
        """Append all of it; where the log ends then, None when there was nothing. Raises as `StateLog.append_many`:
        then some of it may be there."""
        records, self._records = self._records, []
        commands = {key: waiting for key, _, waiting in records if waiting is not None}
        pairs: list[Record] = [(key, value) for key, value, _ in records]
        end: LogEnd | None = None
        for group in in_groups(pairs, self._settings.group_records, self._settings.group_bytes):
            end = self._append(group, commands, deadline).since(end)
        return end

    def _append(self, group: Sequence[Record], commands: dict[bytes, WaitingCommand], deadline: Deadline) -> LogEnd:
        concerned = {commands[key]: None for key, _ in group if key in commands}
        before = {waiting: waiting.written for waiting in concerned}
        for waiting in concerned:
            waiting.written = True
        try:
            return self._log.append(group, deadline)
        except (AppendFailed, NotAuthorized, RecordTooLarge) as failure:  # certainly not written
            for waiting in concerned:
                waiting.written = before[waiting]
                if isinstance(failure, RecordTooLarge | NotAuthorized):
                    waiting.fail(failure)
                    self._commands.drop(waiting)
            raise

    def clean(self, keys: Sequence[bytes]) -> None:
        """Tombstone these, in this order, with what is appended next."""
        self._records.extend((key, None, None) for key in keys)
