"""`Transaction`: messages and acknowledgements that take effect together, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NotAuthenticated, NotAuthorized, StoreError
from pulsar_on_kafka.base.waiting import pause
from pulsar_on_kafka.client.values.errors import pulsar_errors
from pulsar_on_kafka.exceptions import InvalidConfiguration
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.records.message_record import MessageMetadata, encode_headers
from pulsar_on_kafka.transactions.client_transaction import ClientTransaction, TransactionState

_log: Final = logging.getLogger(__name__)
_AGAIN_S: Final = 0.05
_OVER: Final = (TransactionState.COMMITTED, TransactionState.ABORTED)


class Transaction:
    """A transaction makes messages and acknowledgements take effect together. Made by `Client.new_transaction`;
    thread-safe. Source: the Java client's Transaction.

    In a `with` it is committed at the end, and aborted when the block raises. Unless it is ended within its time-out it
    is aborted. Messages and acknowledgements in it are sent and held before it ends; nobody sees them before `commit`.
    """

    def __init__(self, inner: ClientTransaction, operation_timeout_s: float, cluster_id: str) -> None:
        """`cluster_id`: Kafka's, of the cluster whose coordinators serve it."""
        self._inner = inner
        self._operation_timeout_s = operation_timeout_s
        self.cluster_id = cluster_id
        self.plain_metadata = MessageMetadata(txn=inner.id)
        """Of its messages that say nothing else; for producers."""
        self.plain_headers = encode_headers(self.plain_metadata)

    @property
    def txn_id(self) -> TxnId:
        return self._inner.id

    @property
    def state(self) -> TransactionState:
        """TIME_OUT once its time is over without an end."""
        return self._inner.state

    def commit(self) -> None:
        """Make everything in it visible at once. Returns when it is; what is under way in it is waited for.

        Not from inside a callback of a send: other sends of the transaction would never be answered.

        Raises:
            InvalidTxnStatusError: it was or will be aborted: a send or an acknowledgement in it failed, its time is
                over, or it was ended before.
            TransactionNotFound: it ended so long ago that nobody knows how.
            Timeout: no answer in the client's operation timeout; it may be called again.
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
        except Exception as failure:  # what was raised in the block is what the program wants to hear of
            _log.warning("transaction=%s is left to its time-out: %s", self, failure)

    def __str__(self) -> str:
        return self._inner.id.to_bytes().decode()

    def __repr__(self) -> str:
        return f"Transaction({self}, {self.state.value})"

    # For producers and consumers ----------------------------------------------------------------------------------

    def check_cluster(self, cluster_id: str, what: str) -> None:
        """To be called before anything is begun for `what`, which is in this cluster. Another `Client` of the same
        cluster may take part, as in Pulsar. Differs from Pulsar: there another cluster's may, and waits for ever.

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
                pause(min(_AGAIN_S, deadline.remaining_s()))

    def _deadline(self) -> Deadline:
        return Deadline.after(self._operation_timeout_s)
