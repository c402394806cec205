"""A client reaches coordinators here: its own process's by a call, others' by `transaction_requests`."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    InvalidOption,
    InvalidTxnStatus,
    NoSuchTopic,
    NotAuthenticated,
    NotAuthorized,
    RecordTooLarge,
    Refused,
    StoreError,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
    TransactionOutcomeUnknown,
)
from pulsar_on_kafka.broker.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.broker.transactions.serving.coordinators import Coordinators
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.state_keys import TransactionRequestKey, encode_key
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_REQUESTS
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    Command,
    End,
    TransactionRequest,
    encode_transaction_request,
)

REQUEST_LIFE_MS: Final = 30_000
"""No request is executed later than this after it was sent; coordinators remember outcomes for longer."""

_RESEND_INTERVAL_S: Final = 1.0
_MIN_LOOK_INTERVAL_S: Final = 0.005
_MAX_LOOK_INTERVAL_S: Final = 0.1
_REQUEST_BYTES: Final = 16
_REFUSALS: Final[dict[str, type[Refused]]] = {
    kind.__name__: kind
    for kind in (InvalidTxnStatus, TransactionNotFound, InvalidOption, TooManyTransactions, NoSuchTopic)
}

_TELL_AT_ONCE: Final = (TransactionCoordinatorNotFound, NotAuthenticated, NotAuthorized, RecordTooLarge)
"""Waiting changes nothing about these."""


def random_request() -> str:
    return secrets.token_hex(_REQUEST_BYTES)


class RemoteCoordinator:
    """A coordinator that another process owns. Requests go through `transaction_requests`; the replies are records of
    the coordinator's log. Thread-safe. Memory: the coordinator's state in `logs`, as its owner has it.

    The request is resent as soon as the log shows another owner, and every second in any case, until the log shows its
    outcome; it takes effect once. The reply to a begin is its NEW, to a registration its ANSWER, to an end the
    transaction's last status; or an ANSWER that refuses. Only records that are valid by the fence count: no former
    owner replies.
    """

    def __init__(
        self,
        log: StateLog,
        coordinator: int,
        logs: LogViews[CoordinatorState],
        clock: Clock,
        *,
        new_request: Callable[[], str] = random_request,
        wait: Callable[[float], None] = pause,
    ) -> None:
        self._log = log
        self.id = coordinator
        self._logs = logs
        self._partition = TRANSACTION_REQUESTS.partition_of_coordinator(coordinator)
        self._clock = clock
        self._new_request = new_request
        self._wait = wait

    def request(self, command: Command, deadline: Deadline) -> TxnId:
        """Requests the command from the owner, within `deadline` and `REQUEST_LIFE_MS`; returns the transaction's id.

        Raises:
            InvalidTxnStatus, TransactionNotFound, InvalidOption, TooManyTransactions, NoSuchTopic (a registration where
                the topic was deleted): refused.
            TransactionCoordinatorNotFound: no process owns the coordinator, or the request certainly was not sent.
            TransactionOutcomeUnknown: an end may be decided, now or later; request the same end again.
            AppendOutcomeUnknown: a registration may be done: request it again. A transaction may be open: it times out.
            NotAuthorized, NotAuthenticated, Corrupt: the log cannot be read, or requests not be written.
        """
        request = self._new_request()
        left_ms = int(min(REQUEST_LIFE_MS, deadline.remaining_s() * 1000))
        until_ms = self._clock.now_ms() + left_ms
        try:
            value = encode_transaction_request(TransactionRequest(until_ms, command))
        except MappingError as error:
            raise InvalidOption(str(error)) from error
        key = encode_key(TransactionRequestKey(self.id, request))
        requested = False
        sent_to: Owner | None = None
        send_at_s, look_s = self._clock.monotonic(), _MIN_LOOK_INTERVAL_S
        trouble: StoreError | None = None
        while True:
            try:
                found, owner = self._logs.query_partition(
                    self.id, lambda state: (self._outcome(state, command, request), state.owner), deadline
                )
                if found is not None:
                    return found
                now_s = self._clock.monotonic()
                if self._clock.now_ms() < until_ms and (owner != sent_to or now_s >= send_at_s):
                    send_at_s, sent_to = now_s + _RESEND_INTERVAL_S, owner
                    if owner is None and not requested:
                        raise TransactionCoordinatorNotFound(
                            f"coordinator {self.id} never had an owner: no process serves transactions"
                        )
                    requested = self._send(key, value, requested, deadline)
            except _TELL_AT_ONCE:
                raise
            except StoreError as failure:
                trouble = failure
            if self._clock.now_ms() >= until_ms or deadline.passed():
                raise self._gave_up(command, requested, trouble) from trouble
            self._wait(min(look_s, deadline.remaining_s()))
            look_s = min(2 * look_s, _MAX_LOOK_INTERVAL_S)

    def _send(self, key: bytes, value: bytes, requested: bool, deadline: Deadline) -> bool:
        """Sends the request; returns whether the owner may have received it."""
        try:
            self._log.append(TRANSACTION_REQUESTS, self._partition, key, value, deadline)
        except AppendOutcomeUnknown:
            return True
        except AppendFailed:
            return requested
        return True

    def _outcome(self, state: CoordinatorState, command: Command, request: str) -> TxnId | None:
        if isinstance(command, Begin):
            begun = state.begun_by(request)
            if begun is not None:
                return begun.id
        elif isinstance(command, End):
            transaction = state.transaction(command.txn)
            if (
                transaction is not None
                and transaction.finished
                and coordinator_machine.committed(transaction) == command.commit
            ):
                return command.txn
        answer = state.answer(request)
        if answer is None:
            return None
        if answer.refused:
            raise _REFUSALS.get(answer.refused, Refused)(answer.reason)
        if isinstance(command, AddPartitions | AddSubscriptions):
            return command.txn
        return None

    def _gave_up(self, command: Command, requested: bool, trouble: StoreError | None) -> StoreError:
        after = f" ({trouble})" if trouble else ""
        if not requested:
            return TransactionCoordinatorNotFound(f"coordinator {self.id} could not be reached in time{after}")
        if isinstance(command, End):
            return TransactionOutcomeUnknown(f"coordinator {self.id} did not end {command.txn} in time{after}")
        return AppendOutcomeUnknown(f"coordinator {self.id} did not answer in time{after}")


_LEEWAY_S: Final = 1.0
"""The extra wait of the caller beyond a command's deadline: the coordinator itself reports the outcome."""


class CoordinatorAccess(Protocol):
    """Thread-safe."""

    def candidates(self) -> Sequence[int]:
        """Coordinators that a new transaction may be given to, best first."""

    def request(self, coordinator: int, command: Command, deadline: Deadline) -> TxnId:
        """Executes the command. Raises the errors of `RemoteCoordinator.request`, and DeadlineExceeded when the command
        certainly was not done."""


class ClusterAccess:
    """The first coordinator that this process serves; without any, all of the cluster, in turns.

    Differs from Pulsar, whose client takes turns among all of them: a call within the process saves several appends,
    and transactions of one coordinator share appends and readings (measured with 64 at once: 465 a second, 75 when they
    were spread over 16). Memory: one `RemoteCoordinator` for each coordinator in use.
    """

    def __init__(
        self, local: Coordinators, make_remote: Callable[[int], RemoteCoordinator], count: Callable[[], int]
    ) -> None:
        """`count`: how many coordinators the cluster has now."""
        self._local = local
        self._make_remote = make_remote
        self._count = count
        self._remote: dict[int, RemoteCoordinator] = {}
        self._lock = threading.Lock()
        self._turn = 0

    def candidates(self) -> Sequence[int]:
        served = self._local.serving()
        others = [number for number in range(self._count()) if number not in served]
        with self._lock:
            turn, self._turn = self._turn, self._turn + 1
        start = turn % len(others) if others else 0
        return [*served, *others[start:], *others[:start]]

    def request(self, coordinator: int, command: Command, deadline: Deadline) -> TxnId:
        count = self._count()
        if not 0 <= coordinator < count:
            raise TransactionCoordinatorNotFound(f"coordinator is {coordinator}, expected 0 to {count - 1}")
        try:
            future = self._local.submit(coordinator, command, deadline)
        except TransactionCoordinatorNotFound:
            return self._other(coordinator).request(command, deadline)
        try:
            return future.result(deadline.remaining_s() + _LEEWAY_S)
        except FutureTimeout:
            kind = TransactionOutcomeUnknown if isinstance(command, End) else AppendOutcomeUnknown
            raise kind(f"coordinator {coordinator} of this process did not answer in time") from None

    def _other(self, coordinator: int) -> RemoteCoordinator:
        with self._lock:
            if coordinator not in self._remote:
                self._remote[coordinator] = self._make_remote(coordinator)
            return self._remote[coordinator]
