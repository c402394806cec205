"""A transaction, and one send in it, which is an operation of the transaction until its sender got the report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.errors import InvalidTxnStatus, NotAuthenticated, NotAuthorized, StoreError
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.broker.publishing.in_flight import (
    NO_ID,
    OwnCallback,
    SendCallback,
    fail,
    is_waited_for,
    report_refusal,
)
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar, pulsar_errors
from pulsar_on_kafka.broker.transactions.client_transaction import ClientTransaction, TransactionState
from pulsar_on_kafka.exceptions import InvalidConfiguration, PulsarException, Result
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.records.message_record import MessageMetadata, encode_headers

_log: Final = logging.getLogger(__name__)

_OK: Final = Result.Ok
_RETRY_INTERVAL_S: Final = 0.05


class Transaction(OfOneProcess):
    """A transaction makes messages and acknowledgements take effect together. Made by `Client.new_transaction`;
    thread-safe. Source: the Java client's Transaction.

    A `with` block commits it at the end, and aborts it when the block raises. Unless it is ended within its time-out it
    is aborted. Messages and acknowledgements in it are sent and held before it ends; they are invisible before
    `commit`.
    """

    def __init__(self, inner: ClientTransaction, operation_timeout_s: float, cluster_id: str) -> None:
        """`cluster_id`: Kafka's, of the cluster whose coordinators serve it."""
        self._inner = inner
        self._operation_timeout_s = operation_timeout_s
        self.cluster_id = cluster_id
        self.plain_metadata = MessageMetadata(txn=inner.id)
        """Metadata of messages of the transaction without metadata of their own."""
        self.plain_headers = encode_headers(self.plain_metadata)

    @property
    def txn_id(self) -> TxnId:
        """The transaction's id."""
        return self._inner.id

    def __str__(self) -> str:
        return self._inner.id.to_bytes().decode()

    def check_cluster(self, cluster_id: str, what: str) -> None:
        """Call it before an operation on `what`, which is in this cluster, begins. Another `Client` of the same cluster
        may take part, as in Pulsar. Differs from Pulsar: there a client of another cluster may take part, and waits for
        ever.

        Raises:
            InvalidConfiguration: it is in another cluster than the transaction's coordinator.
        """
        if cluster_id != self.cluster_id:
            raise InvalidConfiguration(
                f"transaction {self} is of Kafka cluster {self.cluster_id}, it cannot be used for {what} in cluster "
                f"{cluster_id}: begin one with a Client of that cluster"
            )

    def register_partition(self, topic: str, partition: int, partitions: int = 1) -> None:
        """Register a partition before its first record; a failure that may pass is tried again for the operation
        timeout."""
        self._registered(lambda deadline: self._inner.register_partition(topic, partition, deadline, partitions))

    def register_subscription(self, topic: str, partition: int, subscription: str) -> None:
        """The same of a subscription, before its first acknowledgement."""
        self._registered(lambda deadline: self._inner.register_subscription(topic, partition, subscription, deadline))

    def _registered(self, register: Callable[[Deadline], None]) -> None:
        deadline = self._deadline()
        while True:
            try:
                register(deadline)
                return
            except (NotAuthorized, NotAuthenticated):
                raise
            except StoreError:
                if deadline.passed():
                    raise
                pause(min(_RETRY_INTERVAL_S, deadline.remaining_s()))

    @property
    def state(self) -> TransactionState:
        """TIME_OUT once its time is over without an end."""
        return self._inner.state

    def commit(self) -> None:
        """Makes everything in the transaction visible at once, and returns when it is. The call first waits for
        operations under way.

        Do not call it inside a callback of a send: other sends of the transaction would never be answered.

        Raises:
            InvalidTxnStatusError: it was or will be aborted: a send or an acknowledgement in it failed, it timed out,
                or it was ended before.
            TransactionNotFound: it ended so long ago that its outcome is forgotten.
            Timeout: no reply within the client's operation timeout; it may be called again.
        """
        with pulsar_errors():
            self._inner.commit(self._deadline())

    def abort(self) -> None:
        """Undo everything in it: its messages are never seen, its acknowledgements are given back.

        Raises:
            InvalidTxnStatusError: it was ended before. TransactionNotFound, Timeout: as `commit`.
        """
        with pulsar_errors():
            self._inner.abort(self._deadline())

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state in _OVER:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except Exception as failure:  # the program needs the exception of the block
            _log.warning("transaction=%s is left to its time-out: %s", self, failure)

    def __repr__(self) -> str:
        return f"Transaction({self}, {self.state.value})"

    def _deadline(self) -> Deadline:
        return Deadline.after(self._operation_timeout_s)


class TransactionalSend(OwnCallback):
    """The callback of a send, instead of the program's. A send that fails makes the transaction's commit fail."""

    def __init__(self, txn: Transaction, callback: SendCallback | None) -> None:
        """Raises InvalidTxnStatus: the transaction is not open; nothing has begun then."""
        self._txn = txn
        self._inner = inner = txn._inner
        self._callback = callback
        self._ended = False
        self.waited_for = is_waited_for(callback)
        inner.begin_operation()

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        self.end(None if result is _OK else f"a send failed: {result.name}")
        if self._callback is not None:
            self._callback(result, message_id)

    def fail(self, failure: PulsarException) -> None:
        self.end(f"a send failed: {failure.result.name}")
        fail(self._callback, failure)

    def end(self, failure: str | None) -> None:
        """Ends the send after its reply or refusal; a second call does nothing."""
        if not self._ended:
            self._ended = True
            self._inner.end_operation(failure)

    def report_refusal(self, refusal: PulsarException) -> bool:
        """Handles a refusal of the message, which ends the operation. False when the refusal is to be raised, because
        the sender waits."""
        if self.waited_for:
            self.end(f"a send failed: {refusal}")
            return False
        self(refusal.result, NO_ID)
        return True

    def register(self, topic: str, partition: int, partitions: int) -> None:
        """Must return before the message goes there. Raises PulsarException, of what `Transaction.register_partition`
        does."""
        if self._inner.has_registered(topic, partition):
            return
        with pulsar_errors():
            self._txn.register_partition(topic, partition, partitions)

    def stamp(self) -> int:
        """The record's timestamp, in milliseconds.

        It is taken, by the brokers' clock, before the transaction's time is checked. So a topic that refuses old
        records takes none long after that time, whatever holds this process up from here on.

        Raises:
            InvalidTxnStatus: the time is over.
        """
        stamp = self._inner.now_ms()
        if not self._inner.has_time():
            raise InvalidTxnStatus(f"transaction {self._txn} has timed out")
        return stamp


def taking_part(txn: Transaction, callback: SendCallback | None) -> TransactionalSend | None:
    """The callback to send with instead of `callback`; None when the sender got the error that the transaction is not
    open.

    Raises:
        InvalidTxnStatusError: the same for a sender that waits, or has no callback.
    """
    try:
        return TransactionalSend(txn, callback)
    except InvalidTxnStatus as refused:
        report_refusal(callback, as_pulsar(refused))
        return None


_OVER: Final = (TransactionState.COMMITTED, TransactionState.ABORTED)
