"""A producer that has a topic for itself confirms its receipts before it gives them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.reentry import Callbacks, in_callback
from pulsar_on_kafka.base.worker import QueueWorker, aside
from pulsar_on_kafka.broker.metadata.producers.membership import Membership
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.in_flight import (
    NO_ID,
    OwnCallback,
    SendCallback,
    SendResult,
    fail,
    is_prompt,
    is_waited_for,
)
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar
from pulsar_on_kafka.exceptions import AlreadyClosed, PulsarException, Result
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

_log = logging.getLogger(__name__)

_CONFIRM_TIMEOUT_S: Final = 30.0
_NAME_LENGTH: Final = 40


class Receipts:
    """The receipts of one producer. Another one may take the topic over at any time, and what this one writes after the
    other's first message is void. So a receipt is given only after the claims were read to the end and this one's still
    stood: one reading for all messages stored since the last one, by a thread of its own. Another one
    calls programs' callbacks. Thread-safe.

    Memory: an entry per message stored while one reading of the claims is under way.
    """

    def __init__(self, topic: Topic, name: str, membership: Membership) -> None:
        self._topic = topic
        self._name = name
        self._membership = membership
        self._fenced: set[int] = set()
        """Partitions where the beginning of this epoch is recorded."""
        self._unsure = False
        """A record may have been stored at an unknown offset: readers search for the beginning of the epoch."""
        self._callbacks = Callbacks()
        self._confirmed: QueueWorker[_Confirmed] = QueueWorker(f"pok-confirmed-{name[:_NAME_LENGTH]}", self._give)
        """Receipts for callbacks of programs, which may send and wait for another receipt."""
        self._stored: QueueWorker[_Confirmed] = QueueWorker(
            f"pok-receipts-{name[:_NAME_LENGTH]}",
            self._confirm,
            last=lambda: self._confirmed.close(Deadline.after(0)),
        )

    def taken(self, callback: SendCallback | None) -> Receipt:
        """The callback to send with instead of `callback`."""
        # The sender may not wait for it, but its place in the partition counts.
        return Receipt(self, SendResult() if callback is None else callback)

    def put(self, receipt: Receipt, message_id: NativeMessageId) -> None:
        """The message is stored; its receipt is given when that is confirmed."""
        if not self._stored.put([(receipt, None, message_id)]):
            closed = AlreadyClosed(f"producer {self._name} was closed before this was confirmed")
            self._give_outside((receipt, closed, message_id))

    def not_stored(self) -> None:
        """A send failed; after a time-out it may be stored nevertheless."""
        self._unsure = True

    def put_failed(self, receipt: Receipt, failure: PulsarException) -> None:
        """The failure is given after the receipts of earlier messages."""
        self.not_stored()
        failed = (receipt, failure, NO_ID)
        if not self._stored.put([failed]):
            self._give_outside(failed)

    def _give_outside(self, given: _Confirmed) -> None:
        """Give a receipt when the workers are closed; outside of librdkafka's `poll` if it is a program's."""
        if given[0].given_at_once:
            self._give([given])
        else:
            aside(f"pok-receipt-{self._name[:_NAME_LENGTH]}", lambda: self._give([given]))

    def confirm(self) -> None:
        """Return when it is certain that what was stored before this call is not void. Raises ProducerExcluded."""
        self._membership.confirm(Deadline.after(_CONFIRM_TIMEOUT_S))

    def wait_until_given(self, deadline: Deadline) -> int:
        """The number of receipts that were not given before the deadline; a callback does not wait for other
        callbacks."""
        left = self._stored.wait_until_idle(deadline)
        return left if in_callback() else left + self._confirmed.wait_until_idle(deadline)

    def wait_for_callbacks(self, deadline: Deadline) -> None:
        """Return when the callbacks of messages that are confirmed have returned; in a callback at once."""
        if not (in_callback() or self._confirmed.is_idle()):
            before = SendResult()
            if self._confirmed.put([(Receipt(self, before), None, NO_ID)]):
                before.settled.wait(deadline.remaining_s())

    def leave(self, pending: int) -> None:
        """Records, if it is certain, that no more records follow, so that readers need not search for the first
        ones."""
        if self._unsure or pending or not self._stored.is_idle():
            return
        try:
            self._membership.no_more_records(self._topic, Deadline.after(_CONFIRM_TIMEOUT_S))
        except errors.LayerError as failure:
            _log.warning("producer=%s readers will look for its first records: %s", self._name, failure)

    def close(self) -> None:
        self._stored.close(Deadline.after(0))

    def _confirm(self, stored: Sequence[_Confirmed]) -> None:
        unconfirmed = [message_id for _, failed, message_id in stored if failed is None]
        failure = self._failure(unconfirmed) if unconfirmed else None
        known = [(receipt, failed or failure, message_id) for receipt, failed, message_id in stored]
        later = [each for each in known if not each[0].given_at_once]
        if later:  # first: a send that returns waits for the callbacks before its own
            self._confirmed.put(later)
        for receipt, failed, message_id in known:
            if receipt.given_at_once:
                receipt.give(failed, message_id)

    def _give(self, confirmed: Sequence[_Confirmed]) -> None:
        with self._callbacks:
            for receipt, failure, message_id in confirmed:
                try:
                    receipt.give(failure, message_id)
                except Exception:  # the application's
                    _log.exception("a send callback failed")

    def _failure(self, stored: Sequence[NativeMessageId]) -> PulsarException | None:
        deadline = Deadline.after(_CONFIRM_TIMEOUT_S)
        try:
            self._fence(stored, deadline)
            self._membership.confirm(deadline)
        except errors.LayerError as failure:
            return as_pulsar(failure)
        return None

    def _fence(self, stored: Sequence[NativeMessageId], deadline: Deadline) -> None:
        """Record where this epoch begins in the partitions where these messages are the first ones."""
        try:
            for message_id in stored:
                self._unsure = self._unsure or message_id.entry_id() < 0
                partition = max(0, message_id.partition())
                if partition not in self._fenced and not self._unsure:
                    begins = message_id.first_chunk() or (message_id.ledger_id(), message_id.entry_id())
                    first = self._topic.layout.kafka_offset(partition, *begins)
                    self._membership.fence(self._topic, partition, first, deadline)
                    self._fenced.add(partition)
        except errors.LayerError:
            self._unsure = True
            raise


class Receipt(OwnCallback):
    """The callback of one send until its receipt is confirmed. Failures need no confirmation."""

    prompt = True
    """Callbacks of programs are called in a thread of their own."""

    def __init__(self, receipts: Receipts, callback: SendCallback) -> None:
        self._receipts = receipts
        self._callback = callback
        self.waited_for = is_waited_for(callback)
        self.given_at_once = is_prompt(callback)

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if result is Result.Ok:
            self._receipts.put(self, message_id)
        else:
            self._receipts.not_stored()
            self._callback(result, message_id)

    def fail(self, failure: PulsarException) -> None:
        self._receipts.put_failed(self, failure)

    def give(self, failure: PulsarException | None, message_id: NativeMessageId) -> None:
        """Completes the receipt: confirmed, or failed with a known reason."""
        if failure is None:
            self._callback(Result.Ok, message_id)
        else:
            fail(self._callback, failure)


_Confirmed = tuple[Receipt, PulsarException | None, NativeMessageId]
