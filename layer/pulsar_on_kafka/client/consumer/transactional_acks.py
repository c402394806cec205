"""Acknowledgements in transactions, from a consumer to the owner of the partition. Ours beyond the official client.

Source: the Java client's ConsumerImpl and TransactionImpl.registerAckOp: an acknowledgement that fails makes the
transaction fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial

from pyroaring import BitMap64

from pulsar_on_kafka.base.commands import outcome
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.publishing.arguments import of_type
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.broker.subscriptions.member.member import SubscriptionMember
from pulsar_on_kafka_mapping.state.transactions.pending_acks import CumulativeAck, TxnAck


def individual(offset: int, place: tuple[int, int] | None, first_chunk: int | None = None) -> TxnAck:
    """One message; `place` is its index in a batch entry and how many messages that has."""
    if place is not None and place[1] > 1:
        index, size = place
        return TxnAck(batches={offset: (size, 1 << index)})
    return TxnAck(BitMap64((offset,) if first_chunk is None else (first_chunk, offset)))


def cumulative(offset: int, place: tuple[int, int] | None) -> TxnAck:
    """One message and everything before it."""
    if place is not None and place[0] + 1 < place[1]:
        index, size = place
        return TxnAck(cumulative=CumulativeAck(offset, size, (1 << index + 1) - 1))
    return TxnAck(cumulative=CumulativeAck(offset))


class AckUnderWay:
    """A requested acknowledgement in a transaction: an operation of the transaction until it is answered or given up.

    As many as a program likes may be under way at once, from one thread or several: those of one partition that wait
    while records are being appended go in the next append together.
    """

    def __init__(self, answer: Future[None], deadline: Deadline, end: Callable[[BaseException | None], None]) -> None:
        """`answer` is as `SubscriptionMember` gives it; `end` ends the operation, and gets what it failed of."""
        self._end_operation = end
        self._lock = threading.Lock()
        self._ended = False
        self.answer = answer
        self.deadline = deadline
        answer.add_done_callback(self._answered)

    def wait(self) -> None:
        """Returns when the transaction durably holds it. Raises the errors of `begin_acknowledging`."""
        with pulsar_errors():
            try:
                outcome(self.answer, self.deadline, "the acknowledgement in a transaction")
            except DeadlineExceeded as late:
                self.give_up(late)
                raise

    def give_up(self, reason: Exception) -> None:
        """Ends the wait: the transaction can only be aborted then."""
        self._end(reason)
        self.answer.cancel()

    def _answered(self, answer: Future[None]) -> None:
        self._end(CancelledError("no caller waited for it") if answer.cancelled() else answer.exception())

    def _end(self, reason: BaseException | None) -> None:
        with self._lock:
            ended, self._ended = self._ended, True
        if not ended:
            self._end_operation(reason)


def nothing_to_acknowledge() -> AckUnderWay:
    """An answered acknowledgement, without a transaction."""
    answer: Future[None] = Future()
    answer.set_result(None)
    return AckUnderWay(answer, Deadline.never(), lambda reason: None)


def _end_operation(txn: Transaction, reason: BaseException | None) -> None:
    txn._inner.end_operation(None if reason is None else f"an acknowledgement failed: {reason}")


def begin_acknowledging(
    txn: Transaction,
    member: SubscriptionMember,
    subscription: Subscription,
    partition: int,
    ack: TxnAck,
    deadline: Deadline,
    cluster_id: str,
) -> AckUnderWay:
    """Requests that the transaction holds this durably; the caller waits for the reply. The first one of a transaction
    on a subscription waits here for the coordinator.

    Raises:
        TypeError: `txn` is no transaction.
        InvalidConfiguration: it is of another Kafka cluster than `cluster_id`. Nothing was begun.
        InvalidTxnStatusError: it is not open. All others make it fail: it can only be aborted then.
        TransactionConflict: some of it is acknowledged already, or another transaction holds it.
        TransactionNotFound: it has ended meanwhile.
        NotConnected: another process owns the partition now (Exclusive; elsewhere its owner gets the request).
        Timeout: no reply within `deadline`.
    """
    of_type(Transaction, "txn", txn)
    txn.check_cluster(cluster_id, f"subscription {subscription.name} of {subscription.topic.name}")
    with pulsar_errors():
        txn._inner.begin_operation()
        try:
            txn.register_subscription(str(subscription.topic.name), partition, subscription.name)
            answer = member.acknowledge_in(txn._inner.id, partition, ack, deadline)
        except BaseException as reason:
            _end_operation(txn, reason)
            raise
    return AckUnderWay(answer, deadline, partial(_end_operation, txn))
