"""A coordinator that another process owns, asked by `transaction_requests`; the answers are its log's own records.

The same request is sent again as soon as the log shows another owner, and every second in any case, until the log shows
its outcome; it takes effect once. What counts as an answer: to a begin its NEW, to a registration its ANSWER, to an end
the transaction's last status; or an ANSWER that refuses. All count only when they are valid by the fence: no former
owner answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, TypeVar

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.errors import (
    AppendFailed,
    AppendOutcomeUnknown,
    InvalidOption,
    InvalidTxnStatus,
    LayerError,
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
from pulsar_on_kafka.mapping.errors import MappingError
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.state_keys import TransactionRequestKey, encode_key
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_REQUESTS
from pulsar_on_kafka.mapping.state.transactions.transaction_log import Answered
from pulsar_on_kafka.mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    End,
    TransactionRequest,
    Wish,
    encode_transaction_request,
)
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka.transactions.coordinator import coordinator_machine
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState

REQUEST_LIFE_MS: Final = 30_000
"""No request is executed later than this after it was sent; coordinators remember outcomes for longer."""

_AGAIN_S: Final = 1.0
_LOOK_LEAST_S: Final = 0.005
_LOOK_MOST_S: Final = 0.1
_REQUEST_BYTES: Final = 16
_REFUSALS: Final[dict[str, type[Refused]]] = {
    kind.__name__: kind
    for kind in (InvalidTxnStatus, TransactionNotFound, InvalidOption, TooManyTransactions, NoSuchTopic)
}

_TELL_AT_ONCE: Final = (TransactionCoordinatorNotFound, NotAuthenticated, NotAuthorized, RecordTooLarge)
"""Waiting changes nothing about these."""

T = TypeVar("T")


def random_request() -> str:
    return secrets.token_hex(_REQUEST_BYTES)


class RemoteCoordinator:
    """Thread-safe. Memory: the coordinator's state in `logs`, as its owner has it."""

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

    def ask(self, wish: Wish, deadline: Deadline) -> TxnId:
        """Have the owner do it, within `deadline` and `REQUEST_LIFE_MS`; gives the transaction's id.

        Raises:
            InvalidTxnStatus, TransactionNotFound, InvalidOption, TooManyTransactions, NoSuchTopic (a registration where
                the topic was deleted): refused.
            TransactionCoordinatorNotFound: nobody owns the coordinator, or it certainly was not asked.
            TransactionOutcomeUnknown: an end may be decided, or still be; ask again for the same end.
            AppendOutcomeUnknown: a registration may be done: ask again. A transaction may be open: it times out.
            NotAuthorized, NotAuthenticated, Corrupt: the log cannot be read, or requests not be written.
        """
        request = self._new_request()
        left_ms = int(min(REQUEST_LIFE_MS, deadline.remaining_s() * 1000))
        until_ms = self._clock.now_ms() + left_ms
        try:
            value = encode_transaction_request(TransactionRequest(until_ms, wish))
        except MappingError as error:
            raise InvalidOption(str(error)) from error
        key = encode_key(TransactionRequestKey(self.id, request))
        asked = False
        sent_to: Owner | None = None
        send_at_s, look_s = self._clock.monotonic(), _LOOK_LEAST_S
        trouble: StoreError | None = None
        while True:
            try:
                found, owner = self._read(lambda state: (self._outcome(state, wish, request), state.owner), deadline)
                if found is not None:
                    return found
                now_s = self._clock.monotonic()
                if self._clock.now_ms() < until_ms and (owner != sent_to or now_s >= send_at_s):
                    send_at_s, sent_to = now_s + _AGAIN_S, owner
                    if owner is None and not asked:
                        raise TransactionCoordinatorNotFound(
                            f"coordinator {self.id} never had an owner: no process serves transactions"
                        )
                    asked = self._send(key, value, asked, deadline)
            except _TELL_AT_ONCE:
                raise
            except StoreError as failure:
                trouble = failure
            if self._clock.now_ms() >= until_ms or deadline.passed():
                raise self._gave_up(wish, asked, trouble) from trouble
            self._wait(min(look_s, deadline.remaining_s()))
            look_s = min(2 * look_s, _LOOK_MOST_S)

    def _read(self, question: Callable[[CoordinatorState], T], deadline: Deadline) -> T:
        return self._logs.ask_partition(self.id, question, deadline)

    def _send(self, key: bytes, value: bytes, asked: bool, deadline: Deadline) -> bool:
        """Whether the request may be with the owner now."""
        try:
            self._log.append(TRANSACTION_REQUESTS, self._partition, key, value, deadline)
        except AppendOutcomeUnknown:
            return True
        except AppendFailed:
            return asked
        return True

    def _outcome(self, state: CoordinatorState, wish: Wish, request: str) -> TxnId | None:
        if isinstance(wish, Begin):
            begun = state.begun_by(request)
            if begun is not None:
                return begun.id
        elif isinstance(wish, End):
            transaction = state.transaction(wish.txn)
            if (
                transaction is not None
                and transaction.finished
                and coordinator_machine.committed(transaction) == wish.commit
            ):
                return wish.txn
        answer = state.answer(request)
        if answer is None:
            return None
        if answer.refused:
            raise self._refusal(answer)
        if isinstance(wish, AddPartitions | AddSubscriptions):
            return wish.txn
        return None

    def _refusal(self, answer: Answered) -> LayerError:
        return _REFUSALS.get(answer.refused, Refused)(answer.reason)

    def _gave_up(self, wish: Wish, asked: bool, trouble: StoreError | None) -> StoreError:
        after = f" ({trouble})" if trouble else ""
        if not asked:
            return TransactionCoordinatorNotFound(f"coordinator {self.id} could not be asked in time{after}")
        if isinstance(wish, End):
            return TransactionOutcomeUnknown(f"coordinator {self.id} did not end {wish.txn} in time{after}")
        return AppendOutcomeUnknown(f"coordinator {self.id} did not answer in time{after}")
