"""A moving sender goes with its tenant from cluster to cluster."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.broker.publishing.in_flight import OwnCallback, SendCallback, fail, is_waited_for, report_refusal
from pulsar_on_kafka.broker.publishing.outlet import room_for_pending
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.failover.preconnect import producer_ahead
from pulsar_on_kafka.client.failover.switchable import Moving
from pulsar_on_kafka.client.failover.tenant_connection import TenantHome
from pulsar_on_kafka.client.producer.producer import Producer, ProducerOptions, open_producer
from pulsar_on_kafka.exceptions import ProducerQueueIsFull, PulsarException, Result, Timeout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

_log: Final = logging.getLogger(__name__)

_ENTERED_S: Final = 30.0
_NOTHING_SENT: Final = -1


@dataclass(frozen=True, slots=True)
class _Held:
    content: Any
    callback: SendCallback | None
    arguments: Sequence[Any]
    options: Mapping[str, Any]
    deadline: Deadline


class MovingSender(Moving[Producer]):
    """The moving sender sends through an inner producer on the cluster that has the tenant. Without a cluster, messages
    wait for `send_timeout_millis` at most, and go to the next cluster in order. Thread-safe.

    Each message is stored on one cluster, or reported as failed: the switch waits for messages under way. Where the
    cluster may be dead (`TenantHome.leave_s`) the wait is two seconds at most; unanswered messages are then sent to the
    next cluster, with the same number, and may be on both, as with Pulsar's client. Numbering continues. Memory:
    `max_pending_messages` waiting messages, beside those of the producer in use. A waiting message is encoded when it
    is sent, so a record must not be changed after `send_async`.
    """

    def __init__(self, options: ProducerOptions, home: TenantHome) -> None:
        super().__init__(f"producer of {options.topic}", home, Producer.close)
        self._options = options
        self._entered: deque[None] = deque()
        """An item for each call that may be inside the inner one: appending and taking is atomic."""
        self._held: deque[_Held] = deque()
        self._unanswered: dict[_Noted, None] | None = None if home.leave_s is None else {}
        """The unanswered messages, in order; None where every departure waits for the reply."""
        self._room = room_for_pending(
            options.max_pending_messages, options.max_pending_messages_across_partitions, partitions=1
        )
        self._sent_before = SendCounts(0, 0, 0)
        self._failed_waiting = 0
        home.join(self)

    def send(self, content: Any, callback: SendCallback | None, *args: Any, **options: Any) -> None:
        """Send one message, on whatever cluster. Arguments and answers as of `Producer.send_async`."""
        self._entered.append(None)
        inner = self._inner
        if inner is None:
            self._entered.pop()
            self._hold(_Held(content, callback, args, options, self._deadline()))
            return
        try:
            if self._unanswered is None:
                inner.sender.send(content, callback, *args, **options)
            else:
                self._send_noted(inner, _Held(content, callback, args, options, self._deadline()), self._unanswered)
        finally:
            self._entered.pop()

    def _send_noted(self, inner: Producer, sent: _Held, unanswered: dict[_Noted, None]) -> None:
        """Send so that it can be sent again on another cluster. Raises as `Producer.send_async`."""
        noted = _Noted(sent, self)
        with self._changing:
            unanswered[noted] = None
        try:
            inner.sender.send(sent.content, noted, *sent.arguments, **sent.options)
        except BaseException:
            if self.answered(noted):
                raise

    def answered(self, noted: _Noted) -> bool:
        """Whether this report counts for the message: the message was not taken to another cluster. Once."""
        assert self._unanswered is not None  # noqa: S101 - only then something is noted
        with self._changing:
            return self._unanswered.pop(noted, self) is not self

    def _deadline(self) -> Deadline:
        timeout_ms = self._options.send_timeout_millis
        return Deadline.after_ms(timeout_ms) if timeout_ms else Deadline.never()

    def _hold(self, held: _Held) -> None:
        with self._changing:
            if self._options.block_if_queue_full:
                self._changing.wait_for(
                    lambda: self._gone or self._inner is not None or len(self._held) < self._room,
                    held.deadline.remaining_s(),
                )
            arrived = self._inner is not None
            if not self._gone and not arrived and len(self._held) < self._room:
                self._held.append(held)
                return
        if self._gone:
            report_refusal(held.callback, self._is_closed())
        elif arrived:
            self.send(held.content, held.callback, *held.arguments, **held.options)
        else:
            report_refusal(
                held.callback,
                ProducerQueueIsFull(f"{self._room} messages to {self._options.topic} wait for their tenant to arrive"),
            )

    def _fail(self, held: _Held, failure: PulsarException) -> None:
        """Reports a failure without a caller to raise at: the sender waits, or has a callback."""
        self._failed_waiting += 1
        try:
            fail(held.callback, failure)
        except Exception:  # the application's; it must not end the thread that moves all travellers
            _log.exception("topic=%s a send callback failed", self._options.topic)

    def depart(self) -> None:
        """Return when everything that was sent is answered, has failed, or waits for the next cluster."""
        last = self._last
        if last is None or self._gone:
            return
        if self._unanswered is None:
            if not wait_until(lambda: not self._entered, Deadline.after(_ENTERED_S)):
                _log.warning("topic=%s a send has not returned for %g s", self._options.topic, _ENTERED_S)
        else:
            assert self._home.leave_s is not None  # noqa: S101 - it decides whether anything is noted
            deadline = Deadline.after(self._home.leave_s)
            wait_until(lambda: not self._entered, deadline)
            last.sender.wait_for_all(deadline)
            self._take_along(self._unanswered)
        self._part(last)

    def wait_for_all(self, deadline: Deadline) -> int:
        """`Sender.wait_for_all` on the cluster in use."""
        return self._known().sender.wait_for_all(deadline)

    def wait_for_callbacks(self) -> None:
        """`Sender.wait_for_callbacks` on the cluster in use."""
        self._known().sender.wait_for_callbacks()

    def _take_along(self, unanswered: dict[_Noted, None]) -> None:
        """Queues messages that the cluster did not answer for the next one, before those that wait already."""
        with self._changing:
            taken = [noted.sent for noted in unanswered]
            unanswered.clear()
            self._held.extendleft(reversed(taken))
        if taken:
            _log.warning("topic=%s %d unanswered messages go to the next cluster", self._options.topic, len(taken))

    def look_ahead(self, session: Session) -> None:
        producer_ahead(self._options, session)

    def arrive(self, session: Session) -> None:
        former, options = self._last, self._options
        if former is not None:
            numbered = former.last_sequence_id()
            options = replace(options, initial_sequence_id=numbered if numbered > _NOTHING_SENT else None)
        inner = open_producer(options, session)
        if former is not None:
            self._sent_before = replace(self._sent_before + former.send_counts(), pending=0)
        self._last = inner
        while (held := self._next_held(inner)) is not None:
            if held.deadline.passed():
                self._fail(held, self._too_late())
                continue
            try:
                self._forward(inner, held)
            except PulsarException as failure:
                self._fail(held, failure)
        if self._gone:
            inner.close()

    def _next_held(self, inner: Producer) -> _Held | None:
        """None: nothing waits any more, and `inner` is in use."""
        with self._changing:
            if self._held and not self._gone:
                return self._held.popleft()
            self._inner = None if self._gone else inner
            self._changing.notify_all()
            return None

    def _forward(self, inner: Producer, held: _Held) -> None:
        """Send what has waited. Raises as `Producer.send_async`."""
        unanswered = self._unanswered
        if unanswered is None:
            inner.sender.send(held.content, held.callback, *held.arguments, **held.options)
            return
        # What waited and what was taken along are more than the queue takes at once.
        wait_until(lambda: len(unanswered) < self._room, held.deadline)
        self._send_noted(inner, held, unanswered)

    def expire(self) -> None:
        while True:
            with self._changing:
                if not self._held or not self._held[0].deadline.passed():
                    return
                held = self._held.popleft()
                self._changing.notify_all()
            self._fail(held, self._too_late())

    def _too_late(self) -> Timeout:
        return Timeout(f"message to {self._options.topic}: its tenant was between two clusters until its time was over")

    def abandon(self) -> None:
        super().abandon()
        with self._changing:
            held, self._held = self._held, deque()
        for each in held:
            self._fail(each, self._is_closed())

    def topic(self) -> str:
        return self._known().topic()

    @property
    def name(self) -> str:
        """The name of the producer in use: a generated name differs on each cluster."""
        return self._known().producer_name()

    def last_sequence_id(self) -> int:
        """The last sequence id; numbering continues over all clusters."""
        return self._known().last_sequence_id()

    def send_counts(self) -> SendCounts:
        """Over all clusters; what waits is pending."""
        waiting = SendCounts(failed=self._failed_waiting, pending=len(self._held))
        return self._sent_before + self._known().send_counts() + waiting

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed), on whatever cluster."""
        self._call(lambda inner: inner.sender.flush(), Deadline.never())

    def close(self, reported: Callable[[], None]) -> None:
        """Wait for what is under way, then refuse further calls; what waits for the tenant to arrive fails with
        AlreadyClosed. Raises as `Producer.close`."""
        if self._gone:
            raise self._is_closed()
        self.leave()
        reported()


class _Noted(OwnCallback):
    """The callback of a send that may be taken to another cluster: the first cluster's report then does not count."""

    def __init__(self, sent: _Held, sender: MovingSender) -> None:
        self.sent = sent
        self._sender = sender
        self.waited_for = is_waited_for(sent.callback)

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if self._sender.answered(self) and self.sent.callback is not None:
            self.sent.callback(result, message_id)

    def fail(self, failure: PulsarException) -> None:
        if self._sender.answered(self):
            fail(self.sent.callback, failure)
