"""One send in a transaction: it is an operation of the transaction until its sender has heard of it."""

from __future__ import annotations

import time
from typing import Final

from pulsar_on_kafka.base.errors import InvalidTxnStatus
from pulsar_on_kafka.client.values.transaction import Transaction
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.records.message_record import Headers, MessageMetadata, encode_headers
from pulsar_on_kafka.sending.in_flight import NO_ID, SendCallback, SendResult
from pulsar_on_kafka.sending.official_errors import as_pulsar, pulsar_errors

_OK: Final = Result.Ok


class TransactionalSend:
    """The callback of a send, instead of the program's. A send that fails makes the transaction's commit fail."""

    def __init__(self, txn: Transaction, callback: SendCallback | None) -> None:
        """Raises InvalidTxnStatus: the transaction is not open; nothing has begun then."""
        self._txn = txn
        self._inner = inner = txn._inner
        self._callback = callback
        self._ended = False
        inner.begin_operation()

    @property
    def txn_id(self) -> TxnId:
        return self._txn.txn_id

    def headers(self, metadata: MessageMetadata) -> Headers:
        """The headers for `metadata`; those that name the transaction alone are encoded once. Raises MappingError."""
        txn = self._txn
        return txn.plain_headers if metadata is txn.plain_metadata else encode_headers(metadata)

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if not self._ended:
            self._ended = True
            self._inner.end_operation(None if result is _OK else f"a send failed: {result.name}")
        if self._callback is not None:
            self._callback(result, message_id)

    def end(self, failure: str | None) -> None:
        """It is answered, or was refused; a second call does nothing."""
        if not self._ended:
            self._ended = True
            self._inner.end_operation(failure)

    def tell(self, refusal: PulsarException) -> bool:
        """The message is refused, which ends the operation. False when that is to be raised, because somebody waits for
        the answer."""
        if isinstance(self, SendResult):
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

        It is taken before the transaction's time is checked: brokers refuse records that are older than two minutes, so
        that none comes later than two minutes after that time, whatever holds this process up from here on.

        Raises:
            InvalidTxnStatus: the time is over.
        """
        stamp = time.time_ns() // 1_000_000
        if not self._inner.has_time():
            raise InvalidTxnStatus(f"transaction {self._txn} has timed out")
        return stamp


class SyncTransactionalSend(TransactionalSend, SendResult):
    """The same for a thread that waits in `send`, or for nobody."""

    def __init__(self, txn: Transaction, answer: SendResult) -> None:
        TransactionalSend.__init__(self, txn, answer)
        self.error = None
        self._answer = answer

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        self._answer.error = self.error
        TransactionalSend.__call__(self, result, message_id)


def taking_part(txn: Transaction, callback: SendCallback | None) -> TransactionalSend | None:
    """What to send with instead of `callback`; None when the sender was told that the transaction is not open.

    Raises:
        InvalidTxnStatusError: the same for one without a callback.
    """
    try:
        if callback is None or isinstance(callback, SendResult):
            return SyncTransactionalSend(txn, callback or SendResult())
        return TransactionalSend(txn, callback)
    except InvalidTxnStatus as refused:
        refusal = as_pulsar(refused)
        if callback is None or isinstance(callback, SendResult):
            raise refusal from refused
        callback(refusal.result, NO_ID)
        return None
