"""Acknowledgements in transactions, from a consumer to the owner of the partition. Ours beyond the official client.

Source: the Java client's ConsumerImpl and TransactionImpl.registerAckOp: an acknowledgement that fails makes the
transaction fail.
"""

from __future__ import annotations

from pyroaring import BitMap64

from layer.client.errors import pulsar_errors
from layer.client.transaction import Transaction
from layer.deadline import Deadline
from layer.dispatch.commands import outcome
from layer.dispatch.member import SubscriptionMember
from mapping.state_records.pending_acks import CumulativeAck, TxnAck


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


def acknowledge_in(
    txn: Transaction,
    member: SubscriptionMember,
    topic: str,
    partition: int,
    subscription: str,
    ack: TxnAck,
    deadline: Deadline,
    cluster_id: str,
) -> None:
    """Return when the transaction holds this, durably. `topic` is the full name without a partition's suffix.

    Raises:
        TypeError: `txn` is no transaction.
        InvalidConfiguration: it is of another Kafka cluster than `cluster_id`. Nothing was begun.
        InvalidTxnStatusError: it is not open. All others make it fail: it can only be aborted then.
        TransactionConflict: some of it is acknowledged already, or another transaction holds it.
        TransactionNotFound: it has ended meanwhile.
        NotConnected: another process owns the partition now.
        Timeout: no answer within `deadline`.
    """
    if not isinstance(txn, Transaction):
        raise TypeError(f"expected a transaction, got {type(txn).__name__}: {txn!r:.60}")
    txn.check_cluster(cluster_id, f"subscription {subscription} of {topic}")
    inner = txn._inner
    with pulsar_errors():
        inner.begin_operation()
        failure: str | None = "an acknowledgement was interrupted"
        try:
            txn.register_subscription(topic, partition, subscription)
            outcome(member.acknowledge_in(inner.id, partition, ack), deadline, "the acknowledgement in a transaction")
            failure = None
        except Exception as reason:
            failure = f"an acknowledgement failed: {reason}"
            raise
        finally:
            inner.end_operation(failure)
