"""Requests other owners to hold acknowledgements in transactions.

A request is a record in `deliveries`. It is resent until the reply, because the owner may change or miss it. A request
has an id, and a resent one is marked: a new owner may find on record that the transaction holds the message.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import settle
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.subscriptions.requests.channel import DeliveryChannel, DeliveryRecord, OutgoingRecord
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import (
    CursorLife,
    CursorReply,
    CursorTransactionRequest,
    encode_transaction,
)
from pulsar_on_kafka_mapping.state.cursors.cursor_state import REQUEST_ID_BYTES
from pulsar_on_kafka_mapping.state.state_keys import DeliveryKey
from pulsar_on_kafka_mapping.state.transactions.pending_acks import TxnAck

_log = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000
_RETRY_INTERVAL_S: Final = 0.5
_WRITE_S: Final = 5.0

_REASONS: Final[dict[str, type[errors.LayerError]]] = {
    kind.__name__: kind
    for kind in (
        errors.TransactionConflict,
        errors.TransactionNotFound,
        errors.InvalidCursorPosition,
        errors.NotAuthorized,
        errors.AppendOutcomeUnknown,
        errors.StoreError,
    )
}


def refusal(request: CursorTransactionRequest, failure: BaseException) -> CursorReply | None:
    """The reply to a request that failed; None if the caller has to resend it to the next owner."""
    if not isinstance(failure, errors.LayerError) or isinstance(failure, (errors.Fenced, errors.Closed)):
        return None
    kind = next((name for name, known in _REASONS.items() if isinstance(failure, known)), "Refused")
    return CursorReply(request.id, refused=str(failure), reason=kind)


@dataclass(slots=True)
class _Asked:
    key: DeliveryKey
    request: CursorTransactionRequest
    answer: Future[None]
    deadline: Deadline
    again: Deadline
    """The time to resend the request without a reply."""


class TransactionAcksElsewhere:
    """One for each process. Thread-safe; its thread starts with the first request.

    Memory: at most 10,000 requests without a reply, and a listener for each topic that had one.
    """

    def __init__(self, channel: DeliveryChannel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._new: deque[_Asked] = deque()
        self._requested: dict[bytes, _Asked] = {}
        self._topics: set[str] = set()
        self._look = Deadline.after(0)
        """The time of the next check of all requests."""
        failing = "acknowledgements of transactions have to wait"
        self._worker = Worker("pok-transaction-acks", self._send, failing, retry=Retry(_RETRY_INTERVAL_S))
        self._listener: Callable[[Sequence[DeliveryRecord]], None] = self._receive

    # Any thread ---------------------------------------------------------------------------------------------------

    def request(
        self, key: DeliveryKey, life: CursorLife, txn: TxnId, ack: TxnAck, answer: Future[None], deadline: Deadline
    ) -> None:
        """`answer` is settled when the transaction holds the acknowledgement durably, or the owner rejects it, or the
        deadline passes (DeadlineExceeded: the outcome is unknown). Cancelling `answer` ends the request.

        Raises:
            Refused: 10,000 requests wait already.
            Closed: this process leaves the cluster.
        """
        request = CursorTransactionRequest(secrets.token_bytes(REQUEST_ID_BYTES), life, txn, ack)
        with self._lock:
            if self._worker.ended:
                raise errors.Closed("this process leaves the cluster")
            if len(self._requested) >= MAX_WAITING:
                raise errors.Refused(f"{MAX_WAITING} acknowledgements of transactions wait already, try again later")
            requested = self._requested[request.id] = _Asked(key, request, answer, deadline, Deadline.after(0))
            self._new.append(requested)
        self._worker.start()
        self._worker.wake()

    def close(self) -> None:
        """Fail requests without a reply with Closed; a second call does nothing."""
        with self._lock:
            self._worker.end()
            left, self._requested = self._requested, {}
        for topic in self._topics:
            self._channel.unlisten(topic, self._listener)
        for requested in left.values():
            settle(requested.answer, errors.Closed("this process leaves the cluster"))

    # The channel's thread -----------------------------------------------------------------------------------------

    def _receive(self, records: Sequence[DeliveryRecord]) -> None:
        for _, found in self._channel.decoded(records):
            if not isinstance(found, CursorReply):
                continue
            with self._lock:
                requested = self._requested.pop(found.id, None)
            if requested is not None:
                kind = _REASONS.get(found.reason, errors.Refused)
                settle(requested.answer, kind(found.refused) if found.refused else None)

    # Its own thread -----------------------------------------------------------------------------------------------

    def _send(self) -> float:
        with self._lock:
            due: Sequence[_Asked] = list(self._new)
            self._new.clear()
            if self._look.passed():
                self._look = Deadline.after(_RETRY_INTERVAL_S)
                due = self._due()
        for topic in {requested.key.topic for requested in due}:
            self._write(topic, [requested for requested in due if requested.key.topic == topic])
        with self._lock:
            return self._look.remaining_s() if self._requested else math.inf

    def _due(self) -> list[_Asked]:
        """The requests to resend, without cancelled ones. Under the lock."""
        for id_, requested in list(self._requested.items()):
            if requested.answer.done():
                del self._requested[id_]
            elif requested.deadline.passed():
                del self._requested[id_]
                key = requested.key
                what = f"the owner of partition {key.partition} of {key.topic} to hold an acknowledgement"
                settle(requested.answer, errors.DeadlineExceeded(f"time ran out while waiting for {what}"))
        return [requested for requested in self._requested.values() if requested.again.passed()]

    def _write(self, topic: str, due: Sequence[_Asked]) -> None:
        deadline = Deadline.after(_WRITE_S)
        records: list[OutgoingRecord] = [(requested.key, encode_transaction(requested.request)) for requested in due]
        try:
            if topic not in self._topics:
                self._channel.listen(topic, self._listener, self._channel.end(topic, deadline))
                self._topics.add(topic)
            self._channel.write(records, deadline)
        except errors.NotAuthorized as failure:
            for requested in due:
                with self._lock:
                    self._requested.pop(requested.request.id, None)
                settle(requested.answer, failure)
            return
        except errors.LayerError as failure:
            _log.warning("topic=%s acknowledgements of transactions have to wait: %s", topic, failure)
        for requested in due:
            requested.again = Deadline.after(_RETRY_INTERVAL_S)
            requested.request = replace(requested.request, again=True)
