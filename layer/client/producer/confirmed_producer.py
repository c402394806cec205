"""The producer that has a topic for itself: its receipts are confirmed before they are given."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.producer.transactional_sends import TransactionalSend, taking_part
from pulsar_on_kafka.client.values.transaction import Transaction
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.sending.in_flight import NO_ID, SendCallback, SendResult
from pulsar_on_kafka.sending.official_errors import as_pulsar, pulsar_errors

_log = logging.getLogger(__name__)

_CONFIRM_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.05


class ConfirmedProducer(Producer):
    """Another producer may take the topic over at any time, and what this one writes after the other's first message
    is void. So a receipt is given only after the claims were read to the end and this one's still stood: one reading
    for all messages stored since the last one.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._fenced: set[int] = set()
        """Partitions where the beginning of this epoch is recorded."""
        self._unsure = False
        """Something may have been stored without us knowing where: whoever reads looks for where the epoch begins."""
        self._receipts = Receipts(self._confirm, self._not_stored, f"pok-receipts-{options['name'][:40]}")
        super().__init__(*args, **options)

    def _confirm(self, stored: Sequence[NativeMessageId], deadline: Deadline) -> None:
        try:
            for message_id in stored:
                self._fence(message_id, deadline)
        except errors.LayerError:
            self._unsure = True
            raise
        self._membership.confirm(deadline)

    def _fence(self, message_id: NativeMessageId, deadline: Deadline) -> None:
        """Record where this epoch begins in the message's partition, if it is the first one there."""
        self._unsure = self._unsure or message_id.entry_id() < 0
        partition = max(0, message_id.partition())
        if partition not in self._fenced and not self._unsure:
            layout = self._topic.layout
            begins = message_id.first_chunk() or (message_id.ledger_id(), message_id.entry_id())
            first = layout.kafka_offset(partition, *begins)
            self._membership.fence(self._topic, partition, first, deadline)
            self._fenced.add(partition)

    def _not_stored(self) -> None:
        self._unsure = True  # after a time-out it may be stored nevertheless

    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **options: Any) -> None:
        super().send_async(content, self._receipts.taken(callback), *args, **options)

    def _taking_part(
        self, txn: Transaction, callback: SendCallback | None
    ) -> tuple[TransactionalSend, SendCallback] | None:
        """The send as an operation of the transaction, which hears of it when the receipt is confirmed."""
        assert isinstance(callback, Receipt)  # noqa: S101 - `send_async` saw to that
        part = taking_part(txn, callback.sender)
        return None if part is None else (part, self._receipts.taken(part))

    def flush(self) -> None:
        """Return when everything sent before this call was answered.

        Raises:
            ProducerFenced: another producer has the topic now; some of it may be void.
        """
        super().flush()
        with pulsar_errors():
            self._membership.confirm(Deadline.after(_CONFIRM_TIMEOUT_S))

    def _wait_for_all(self, deadline: Deadline) -> int:
        return super()._wait_for_all(deadline) + self._receipts.wait_until_empty(deadline)

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._receipts.close()

    def _leave(self) -> None:
        if not self._unsure and self.send_counts().pending == 0 and self._receipts.all_given():
            try:
                self._membership.no_more_records(self._topic, Deadline.after(_CONFIRM_TIMEOUT_S))
            except errors.LayerError as failure:
                _log.warning("producer=%s readers will look for its first records: %s", self._name, failure)
        super()._leave()


class Receipts:
    """Receipts that wait to be confirmed, and the thread that does it.

    Memory: an entry per message stored while one reading of the claims is under way.
    """

    def __init__(
        self,
        confirm: Callable[[Sequence[NativeMessageId], Deadline], None],
        not_stored: Callable[[], None],
        name: str,
    ) -> None:
        """`not_stored` is called for each send that failed."""
        self._confirm = confirm
        self.not_stored = not_stored
        self._waiting: deque[tuple[Receipt, NativeMessageId]] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def taken(self, callback: SendCallback | None) -> Receipt:
        """The callback to send with instead of `callback`."""
        if callback is None:
            callback = SendResult()  # nobody waits for it, but its place in the partition counts
        return SyncReceipt(self, callback) if isinstance(callback, SendResult) else Receipt(self, callback)

    def put(self, receipt: Receipt, message_id: NativeMessageId) -> None:
        with self._changed:
            self._waiting.append((receipt, message_id))
            self._changed.notify_all()

    def wait_until_empty(self, deadline: Deadline) -> int:
        """How many the deadline left."""
        with self._changed:
            while (self._waiting or self._busy) and not deadline.passed():
                if threading.current_thread() is self._thread:  # a callback closes its own producer
                    break
                self._changed.wait(min(_LOOK_S, deadline.remaining_s()))
            return len(self._waiting)

    def all_given(self) -> bool:
        """No receipt waits or is being confirmed."""
        with self._changed:
            return not self._waiting and (not self._busy or threading.current_thread() is self._thread)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                batch = list(self._waiting)
                self._waiting.clear()
                self._busy = True
            failure = self._failure([message_id for _, message_id in batch])
            for receipt, message_id in batch:
                try:
                    receipt.give(failure, message_id)
                except Exception:  # the application's
                    _log.exception("a send callback failed")

    def _failure(self, stored: Sequence[NativeMessageId]) -> PulsarException | None:
        try:
            self._confirm(stored, Deadline.after(_CONFIRM_TIMEOUT_S))
        except errors.LayerError as failure:
            return as_pulsar(failure)
        return None


class Receipt:
    """The callback of one send until its receipt is confirmed. Failures need no confirmation."""

    def __init__(self, receipts: Receipts, callback: SendCallback) -> None:
        self._receipts = receipts
        self._callback = callback

    @property
    def sender(self) -> SendCallback:
        """The callback that it was made for."""
        return self._callback

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is Result.Ok:
            self._receipts.put(self, message_id)
        else:
            self._receipts.not_stored()
            self._callback(result, message_id)

    def give(self, failure: PulsarException | None, message_id: NativeMessageId) -> None:
        if failure is None:
            self._callback(Result.Ok, message_id)
        else:
            self._callback(failure.result, NO_ID)


class SyncReceipt(Receipt, SendResult):
    """The same for a thread that waits in `send`: what goes wrong is raised there."""

    def __init__(self, receipts: Receipts, answer: SendResult) -> None:
        Receipt.__init__(self, receipts, answer)
        self.error = None
        self._answer = answer

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        self._answer.error = self.error
        Receipt.__call__(self, result, message_id)

    def give(self, failure: PulsarException | None, message_id: NativeMessageId) -> None:
        self._answer.error = failure
        Receipt.give(self, failure, message_id)
