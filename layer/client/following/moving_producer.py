"""A moving producer goes with its tenant from cluster to cluster."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SendCounts
from pulsar_on_kafka.base.waiting import wait_until
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.following.home import TenantHome
from pulsar_on_kafka.client.following.metadata_ahead import producer_ahead
from pulsar_on_kafka.client.producer.producer import Producer
from pulsar_on_kafka.client.producer.producer_opening import ProducerOptions, open_producer
from pulsar_on_kafka.client.values.stats_log import StatsLine
from pulsar_on_kafka.exceptions import AlreadyClosed, ProducerQueueIsFull, PulsarException, Result, Timeout
from pulsar_on_kafka.mapping.ids.native_message_id import NativeMessageId
from pulsar_on_kafka.sending.in_flight import NO_ID, SendCallback, SendResult
from pulsar_on_kafka.sending.outlet import room_for_pending

_log: Final = logging.getLogger(__name__)

_ENTERED_S: Final = 30.0
_NOTHING_SENT: Final = -1


@dataclass(frozen=True, slots=True)
class _Held:
    content: Any
    callback: SendCallback | None
    arguments: Sequence[Any]
    options: dict[str, Any]
    deadline: Deadline


class MovingProducer(Producer):
    """The moving producer sends through an inner producer on the cluster that has the tenant; what is sent while it has
    none waits, for `send_timeout_millis` at most, and goes to the next one in order. Thread-safe.

    Each message is stored on one cluster, or reported as failed: what is under way when the tenant begins to switch is
    waited for. Where the cluster may be dead (`TenantHome.leave_s`) that takes two seconds at most; what is unanswered
    then is sent to the next cluster, with the same number, and may be on both, as with Pulsar's client. Numbering goes
    on. Memory: `max_pending_messages` that wait, beside those of the producer in use. What
    waits is encoded when it goes on its way, so a record must not be changed after `send_async`.
    """

    def __init__(self, options: ProducerOptions, home: TenantHome) -> None:  # its parts are the inner one's
        self._asked = options.topic
        self._options = options
        self._home = home
        self._inner: Producer | None = None
        self._last: Producer | None = None
        """The one in use, or that of the cluster that was left."""
        self._entered: deque[None] = deque()
        """An item for each call that may be inside the inner one: appending and taking is atomic."""
        self._held: deque[_Held] = deque()
        self._unanswered: dict[Noted, None] | None = None if home.leave_s is None else {}
        """What was sent and is not answered, in order; None where the answer is always waited for."""
        self._room = room_for_pending(
            options.max_pending_messages, options.max_pending_messages_across_partitions, partitions=1
        )
        self._changing = threading.Condition()
        self._gone = False
        self._sent_before = SendCounts(0, 0, 0)
        self._failed_waiting = 0
        home.join(self)

    # Sending ------------------------------------------------------------------------------------------------------

    def send_async(self, content: Any, callback: SendCallback | None, *args: Any, **options: Any) -> None:
        self._entered.append(None)
        inner = self._inner
        if inner is None:
            self._entered.pop()
            self._hold(content, callback, args, options)
            return
        try:
            if self._unanswered is None:
                inner.send_async(content, callback, *args, **options)
            else:
                self._send_noted(inner, _Held(content, callback, args, options, self._deadline()), self._unanswered)
        finally:
            self._entered.pop()

    def _send_noted(self, inner: Producer, sent: _Held, unanswered: dict[Noted, None]) -> None:
        """Send so that it can be sent again on another cluster. Raises as `Producer.send_async`."""
        noted = noted_send(sent, self)
        with self._changing:
            unanswered[noted] = None
        try:
            inner.send_async(sent.content, noted, *sent.arguments, **sent.options)
        except BaseException:
            if self.answered(noted):
                raise

    def answered(self, noted: Noted) -> bool:
        """Whether what became of it is what becomes of the message: it was not taken to another cluster. Once."""
        assert self._unanswered is not None  # noqa: S101 - only then something is noted
        with self._changing:
            return self._unanswered.pop(noted, self) is not self

    def _deadline(self) -> Deadline:
        timeout_ms = self._options.send_timeout_millis
        return Deadline.after_ms(timeout_ms) if timeout_ms else Deadline.never()

    def _hold(self, content: Any, callback: SendCallback | None, args: Sequence[Any], options: dict[str, Any]) -> None:
        deadline = self._deadline()
        refusal: PulsarException
        with self._changing:
            if self._options.block_if_queue_full:
                self._changing.wait_for(
                    lambda: self._gone or self._inner is not None or len(self._held) < self._room,
                    deadline.remaining_s(),
                )
            inner = self._inner
            if self._gone:
                refusal = AlreadyClosed(f"producer of {self._asked} is closed")
            elif inner is not None:
                refusal = AlreadyClosed("unused")
            elif len(self._held) < self._room:
                self._held.append(_Held(content, callback, args, options, deadline))
                return
            else:
                refusal = ProducerQueueIsFull(f"{self._room} messages to {self._asked} wait for their tenant to arrive")
        if inner is not None and not self._gone:
            self.send_async(content, callback, *args, **options)
            return
        self._refuse(callback, refusal)

    @staticmethod
    def _refuse(callback: SendCallback | None, refusal: PulsarException) -> None:
        if callback is None or isinstance(callback, SendResult):
            raise refusal
        callback(refusal.result, NO_ID)

    def _fail(self, held: _Held, failure: PulsarException) -> None:
        """Nobody is there to raise at: the sender waits, or has a callback."""
        self._failed_waiting += 1
        if isinstance(held.callback, SendResult):
            held.callback.error = failure
        if held.callback is not None:
            try:
                held.callback(failure.result, NO_ID)
            except Exception:  # the application's; it must not end the thread that moves everybody
                _log.exception("topic=%s a send callback failed", self._asked)

    # Moving -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        with self._changing:
            self._inner = None

    def depart(self) -> None:
        """Return when everything that was sent is answered, has failed, or waits for the next cluster."""
        last = self._last
        if last is None or self._gone:
            return
        if self._unanswered is None:
            if not wait_until(lambda: not self._entered, Deadline.after(_ENTERED_S)):
                _log.warning("topic=%s a send has not returned for %g s", self._asked, _ENTERED_S)
        else:
            assert self._home.leave_s is not None  # noqa: S101 - it decides whether anything is noted
            deadline = Deadline.after(self._home.leave_s)
            wait_until(lambda: not self._entered, deadline)
            last.sender.wait_for_all(deadline)
            self._take_along(self._unanswered)
        self._home.part(partial(self._leave_behind, last))

    def _take_along(self, unanswered: dict[Noted, None]) -> None:
        """Have what the cluster did not answer wait for the next one, before what waits already."""
        with self._changing:
            taken = [noted.sent for noted in unanswered]
            unanswered.clear()
            self._held.extendleft(reversed(taken))
        if taken:
            _log.warning("topic=%s %d unanswered messages go to the next cluster", self._asked, len(taken))

    def _leave_behind(self, last: Producer) -> None:
        try:
            last.close()
        except PulsarException as failure:
            _log.warning("topic=%s leaving its cluster: %s", self._asked, failure)

    def look_ahead(self, session: Session) -> None:
        producer_ahead(self._options, session)

    def arrive(self, session: Session) -> None:
        former, options = self._last, self._options
        if former is not None:
            numbered = former.last_sequence_id()
            options = replace(options, initial_sequence_id=numbered if numbered > _NOTHING_SENT else None)
        inner = open_producer(options, session)
        if former is not None:
            counts = former.send_counts()
            before = self._sent_before
            self._sent_before = SendCounts(before.sent + counts.sent, before.failed + counts.failed, 0)
        self._last = inner
        while True:
            with self._changing:
                if not self._held or self._gone:
                    self._inner = None if self._gone else inner
                    self._changing.notify_all()
                    break
                held = self._held.popleft()
            if held.deadline.passed():
                self._fail(held, _too_late(self._asked))
                continue
            try:
                self._forward(inner, held)
            except PulsarException as failure:
                self._fail(held, failure)
        if self._gone:
            inner.close()

    def _forward(self, inner: Producer, held: _Held) -> None:
        """Send what has waited. Raises as `Producer.send_async`."""
        unanswered = self._unanswered
        if unanswered is None:
            inner.send_async(held.content, held.callback, *held.arguments, **held.options)
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
            self._fail(held, _too_late(self._asked))

    def abandon(self) -> None:
        for each in self._end()[0]:
            self._fail(each, AlreadyClosed(f"producer of {self._asked} is closed"))

    def _end(self) -> tuple[list[_Held], Producer | None]:
        """What waited, and the producer that was in use."""
        with self._changing:
            self._gone = True
            held, self._held = list(self._held), deque()
            inner, self._inner = self._inner, None
            self._changing.notify_all()
        return held, inner

    # Itself -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        return self._known().topic()

    def producer_name(self) -> str:
        """That of the producer in use: without a name of your own another one on each cluster."""
        return self._known().producer_name()

    def last_sequence_id(self) -> int:
        """Sequence id of the message that was stored last, as `Producer.last_sequence_id` gives it; numbering goes on
        over all clusters."""
        return self._known().last_sequence_id()

    def send_counts(self) -> SendCounts:
        """Over all clusters; what waits is pending."""
        now, before = self._known().send_counts(), self._sent_before
        return SendCounts(
            before.sent + now.sent, before.failed + now.failed + self._failed_waiting, now.pending + len(self._held)
        )

    def stats_line(self) -> StatsLine:
        return self._known().stats_line()

    def is_connected(self) -> bool:
        """False while the tenant is between two clusters."""
        inner = self._inner
        return inner is not None and inner.is_connected()

    def flush(self) -> None:
        """Return when everything sent before this call was answered (stored or failed), on whatever cluster."""
        while True:
            with self._changing:
                self._changing.wait_for(lambda: self._gone or self._inner is not None)
                inner = self._inner
            if self._gone or inner is None:
                raise AlreadyClosed(f"producer of {self._asked} is closed")
            try:
                inner.flush()
            except AlreadyClosed:
                if self._gone:
                    raise
                continue  # it moved: what is left waits for the next one
            return

    def close(self) -> None:
        """Wait for what is under way, then refuse further calls; what waits for the tenant to arrive fails with
        AlreadyClosed. Raises as `Producer.close`."""
        if self._gone:
            raise AlreadyClosed(f"producer of {self._asked} is closed")
        held, inner = self._end()
        self._home.leave(self)
        for each in held:
            self._fail(each, AlreadyClosed(f"producer of {self._asked} is closed"))
        if inner is not None:
            inner.close()

    def _known(self) -> Producer:
        assert self._last is not None  # noqa: S101 - it was opened in the constructor
        return self._last


class Noted:
    """The callback of a send that may be taken to another cluster: what the first one says then counts no more."""

    def __init__(self, sent: _Held, producer: MovingProducer) -> None:
        self.sent = sent
        self._producer = producer

    def __call__(self, result: Result, message_id: NativeMessageId) -> None:
        if self._producer.answered(self):
            self._tell(result, message_id)

    def _tell(self, result: Result, message_id: NativeMessageId) -> None:
        if self.sent.callback is not None:
            self.sent.callback(result, message_id)


class NotedSendResult(Noted, SendResult):
    """The same for who hears of a refusal by an exception: a synchronous send, or one without a callback."""

    def __init__(self, sent: _Held, producer: MovingProducer) -> None:
        Noted.__init__(self, sent, producer)
        self.error = None

    def _tell(self, result: Result, message_id: NativeMessageId) -> None:
        if isinstance(self.sent.callback, SendResult):
            self.sent.callback.error = self.error
        Noted._tell(self, result, message_id)


def noted_send(sent: _Held, producer: MovingProducer) -> Noted:
    raised = sent.callback is None or isinstance(sent.callback, SendResult)
    return (NotedSendResult if raised else Noted)(sent, producer)


def _too_late(topic: str) -> Timeout:
    return Timeout(f"message to {topic}: its tenant was between two clusters until its time was over")
