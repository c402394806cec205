"""A moving consumer goes with its tenant from cluster to cluster."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
from pulsar_on_kafka.client.connection.session import Session
from pulsar_on_kafka.client.consumer.consumer import Consumer, ConsumerOptions
from pulsar_on_kafka.client.consumer.consumer_opening import subscribed
from pulsar_on_kafka.client.consumer.transactional_acks import AckUnderWay
from pulsar_on_kafka.client.failover.preconnect import subscription_ahead
from pulsar_on_kafka.client.failover.redirected_acks import LateAcks
from pulsar_on_kafka.client.failover.switchable import Moving
from pulsar_on_kafka.client.failover.tenant_connection import TenantHome
from pulsar_on_kafka.client.receiving.receiving import ReceiveCallback
from pulsar_on_kafka.client.values.enums import ConsumerType
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId, ReceivedId, native
from pulsar_on_kafka.exceptions import (
    AlreadyClosed,
    InvalidMessage,
    NotConnected,
    PulsarException,
    Result,
)
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId, StoredMessageId

_log: Final = logging.getLogger(__name__)

GRACE_S: Final = 2.0
"""The time for the application, after the last message was handed out, to acknowledge its messages, so that they are
not redelivered: on the old cluster, and on the next one before that hands out messages."""
STILL_S: Final = 0.3
"""An application that calls for the next message, and has acknowledged nothing for this time, no longer delays the
departure from its cluster."""
_UNACKED_ARE_COUNTED: Final = (ConsumerType.Shared, ConsumerType.KeyShared)


class MovingConsumer(Moving[Consumer], Consumer):
    """The moving consumer receives through an inner consumer on the cluster that has the tenant. Thread-safe.

    When the tenant begins to switch, the consumer hands out no more messages, waits for acknowledgements, saves and
    leaves. The wait ends after two seconds, or when the application calls for the next message and, on Shared and
    Key_Shared, everything is acknowledged or nothing was acknowledged for 0.3 s. All other messages are delivered on
    the next cluster; not before the two seconds end, if the application has unacknowledged messages.

    Messages and ids of a cluster that was left: acknowledgements between two clusters are applied on the next one
    before it hands out messages. Later ones are applied as soon as possible: the message may have been redelivered
    before. A cumulative one acknowledges the messages first published on the cluster where the message was read, or on
    the origin of its copy; the rest is redelivered. Negative acknowledgements of such messages do nothing. A seek to
    one is InvalidMessage. Serialized ids do not contain their cluster: do not keep them over a switch.
    """

    def __init__(self, options: ConsumerOptions, home: TenantHome) -> None:
        # The parts of a Consumer are the inner one's.
        super().__init__(f"consumer of {options.subscription_name}", home, lambda inner: inner.leave())
        self._options = options
        self._attached: Consumer | None = None
        """Takes acknowledgements: the one that gives messages, and a little longer."""
        self._listener_paused = False
        self._unreceived = 0
        """The number of messages in the inbox when handing out ended."""
        self._grace = Deadline.after(0)
        self._in_hand = 0
        """The number of messages that the application has not acknowledged since before its cluster was left; 0 where
        they are not counted."""
        self._former: list[tuple[LedgerLayout, str]] = []
        """The layouts for ids of former clusters, distinguished by identity (one ledger id may exist on both), with the
        name of the cluster."""
        self._cluster = ""
        """The present or last cluster."""
        self._session: Session | None = None
        self._late = LateAcks(options.subscription_name)
        self._settling = threading.Lock()
        self._settles = False
        """A thread is about to settle what is acknowledged late."""
        self._requesting: deque[None] = deque()
        """An item for each thread that waits for a message; adding and taking one is atomic."""
        self._listening: deque[None] = deque()
        """An item for each call of the listener that has not returned."""
        self._unanswered: deque[ReceiveCallback] = deque()
        """Asynchronous receives that wait for the next cluster."""
        self.late_acknowledgements = 0
        """The number of acknowledgements of messages whose cluster was left; not in the official API."""
        home.join(self)

    # Moving -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        super().pause()
        self._grace = Deadline.after(GRACE_S)
        if (last := self._attached) is not None:
            self._unreceived = sum(len(endpoint.queue) for endpoint in last.endpoints())
            last.stop_receiving()

    def depart(self) -> None:
        last = self._attached
        if last is None or self._gone:
            return
        still = _Still(lambda: self._unacknowledged(last), STILL_S)
        wait_until(lambda: self._requires_more() and (self._unacknowledged(last) <= 0 or still.is_so()), self._grace)
        with self._changing:
            self._former += [(layout, self._cluster) for layout in last.layouts()]
            self._attached = None
            self._in_hand = self._unacknowledged(last)
        self._part(last)

    def _requires_more(self) -> bool:
        """Whether the application is not processing a message, as far as known."""
        return not self._listening and bool(self._requesting or self._unanswered or self._options.message_listener)

    def _unacknowledged(self, last: Consumer) -> int:
        """The number of unacknowledged messages of the application; 0 where they are not counted."""
        if self._options.consumer_type not in _UNACKED_ARE_COUNTED:
            return 0
        return max(0, sum(endpoint.unacked for endpoint in last.endpoints()) - self._unreceived)

    def look_ahead(self, session: Session) -> None:
        topics = self._options.topic
        for topic in [topics] if isinstance(topics, str) else topics if isinstance(topics, list) else []:
            subscription_ahead(topic, self._options.subscription_name, session)

    def arrive(self, session: Session) -> None:
        options = self._options
        if options.message_listener is not None:
            options = replace(options, message_listener=self._listened)
        with pulsar_errors():
            self._cluster = self._home.cluster_of(session)
        with self._changing:
            self._changing.wait_for(lambda: self._gone or self._in_hand <= 0, self._grace.remaining_s())
        self._settle_late(session)  # before anything is handed out here
        inner = subscribed(options, session)
        self._session = session
        if self._listener_paused:
            inner.pause_message_listener()
        self._attached = inner
        self._use(inner)
        with self._changing:
            waiting, self._unanswered = self._unanswered, deque()
        for callback in waiting:
            self.receive_async(callback)

    # Receiving ----------------------------------------------------------------------------------------------------

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message; between two clusters it is waited for as where there is none."""
        self._requesting.append(None)
        try:
            if timeout_millis is None:
                return self._call(lambda now: now.receive(), Deadline.never())
            deadline = Deadline.after_ms(timeout_millis)
            return self._call(lambda now: now.receive(int(1000 * deadline.remaining_s())), deadline)
        finally:
            self._requesting.pop()

    def batch_receive(self) -> list[Message]:
        """The next batch; one that a switch interrupts begins anew on the next cluster."""
        self._requesting.append(None)
        try:
            return self._call(lambda now: now.batch_receive(), Deadline.never())
        finally:
            self._requesting.pop()

    def receive_async(self, callback: ReceiveCallback) -> None:
        def on_message(result: Result, message: Message | None) -> None:
            if result is Result.AlreadyClosed and not self._gone:
                self._receive_on_the_next(callback)
            else:
                callback(result, message)

        inner = self._inner
        if inner is None:
            self._receive_on_the_next(callback)
        else:
            try:
                inner.receive_async(on_message)
            except AlreadyClosed:
                if self._inner is inner:
                    raise
                self._receive_on_the_next(callback)

    def _receive_on_the_next(self, callback: ReceiveCallback) -> None:
        with self._changing:
            if self._inner is None and not self._gone:
                self._unanswered.append(callback)
                return
        if self._gone:
            callback(Result.AlreadyClosed, None)
        else:
            self.receive_async(callback)

    def _listened(self, _: Consumer, message: Message) -> None:
        assert self._options.message_listener is not None  # noqa: S101 - it is only set where there is one
        self._listening.append(None)
        try:
            self._options.message_listener(self, message)
        finally:
            self._listening.pop()

    def put_back(self, message: Message) -> None:
        attached = self._attached
        if attached is not None and not self._is_former(message):
            attached.put_back(message)

    def pause_message_listener(self) -> None:
        self._call(lambda now: now.pause_message_listener(), self._patience())
        self._listener_paused = True

    def resume_message_listener(self) -> None:
        self._call(lambda now: now.resume_message_listener(), self._patience())
        self._listener_paused = False

    # Acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(
        self, message: Message | NativeMessageId | Any, *, txn: Transaction | None = None, wait: bool = False
    ) -> None:
        """Acknowledge a message; with `wait` that is durable on the message's own cluster. Raises as
        `Consumer.acknowledge`, and:

        Raises:
            NotConnected: in a transaction, when it comes too late: the transaction cannot hold it.
        """
        if txn is not None:
            self.begin_acknowledging(message, txn).wait()
            return
        attached = self._of(message)
        if attached is not None:
            try:
                attached.acknowledge(message, wait=wait)
                return
            except AlreadyClosed:
                if self._gone or self._attached is attached:
                    raise  # else its cluster was left just then
        self._acknowledge_late(message)

    def begin_acknowledging(self, message: Message | NativeMessageId | Any, txn: Transaction) -> AckUnderWay:
        return self._in_transaction(message).begin_acknowledging(message, txn)

    def begin_acknowledging_cumulative(self, message: Message | NativeMessageId | Any, txn: Transaction) -> AckUnderWay:
        return self._in_transaction(message).begin_acknowledging_cumulative(message, txn)

    def _in_transaction(self, message: object) -> Consumer:
        attached = self._of(message)
        if attached is None:
            raise NotConnected("the message is of a cluster that its tenant has left: it is delivered again")
        return attached

    def acknowledge_cumulative(
        self, message: Message | NativeMessageId | Any, *, txn: Transaction | None = None, wait: bool = False
    ) -> None:
        """Acknowledge this message and every one before it in its partition, on the message's own cluster.

        Raises:
            CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
            NotConnected: as `acknowledge` does.
        """
        if txn is not None:
            self.begin_acknowledging_cumulative(message, txn).wait()
            return
        attached = self._of(message)
        if attached is not None:
            attached.acknowledge_cumulative(message, wait=wait)
            return
        self._options.check_cumulative()
        self._acknowledge_late(message, cumulative=True)

    def negative_acknowledge(
        self, message: Message | NativeMessageId | MessageId, *, reason: str | None = None
    ) -> None:
        """Requests redelivery of the message; a message of a former cluster is redelivered anyway."""
        attached = self._attached
        if attached is not None and not self._is_former(message):
            attached.negative_acknowledge(message, reason=reason)

    def reconsume_later(
        self,
        message: Message,
        delay_ms: int | None = None,
        properties: dict[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Sends a copy that is delivered after `delay_ms`, and acknowledges the message; does nothing for a message of
        a former cluster: it is redelivered. Raises the errors of `Consumer.reconsume_later`."""
        attached = self._of(message)
        if attached is not None:
            attached.reconsume_later(message, delay_ms, properties, reason=reason)

    def redeliver_unacknowledged_messages(self) -> None:
        attached = self._attached
        if attached is not None:
            attached.redeliver_unacknowledged_messages()

    def flush(self, timeout_millis: int | None = None) -> None:
        """Return when everything acknowledged on the cluster in use is durable; leaving a cluster saves what is
        acknowledged there. Raises as `Consumer.flush`."""
        self._call(lambda now: now.flush(timeout_millis), self._patience())

    def _of(self, message: object) -> Consumer | None:
        """The consumer that takes the message's acknowledgement; None: it is too late. Raises AlreadyClosed."""
        if self._gone:
            raise self._is_closed()
        attached = self._attached
        if attached is not None and not self._is_former(message):
            return attached
        self.late_acknowledgements += 1
        if self.late_acknowledgements == 1:
            _log.info(
                "subscription=%s a message of a cluster that was left is acknowledged late, and may be delivered again",
                self._options.subscription_name,
            )
        return None

    def _is_former(self, message: object) -> bool:
        return self._left_with(message) is not None

    def _left_with(self, message: object) -> tuple[LedgerLayout, str] | None:
        if not self._former:
            return None
        if isinstance(message, Message):
            layout = message.feed.slot.layout
        elif isinstance(found := native(message), StoredMessageId):
            layout = found.layout
        else:
            return None
        return next((each for each in self._former if each[0] is layout), None)

    def _acknowledge_late(self, message: object, *, cumulative: bool = False) -> None:
        """Acknowledges the message on the present or next cluster of its tenant. Does not wait."""
        left = self._left_with(message)
        if left is None or not self._late.add(message, *left, cumulative=cumulative):
            return
        session = self._session
        with self._changing:
            self._in_hand -= 1
            self._changing.notify_all()
            begins = self._attached is not None and session is not None and not self._settles
            self._settles = self._settles or begins
        if begins and session is not None:
            aside("pok-late-acks", partial(self._settle_late, session))

    def _settle_late(self, session: Session) -> None:
        """Applies late acknowledgements; failed ones wait for the next attempt, and their messages are redelivered
        meanwhile."""
        with self._settling:
            with self._changing:
                self._settles = False
            if not self._late:
                return
            try:
                self._late.settle(session.node(), self._cluster, session.deadline())
            except (LayerError, PulsarException) as failure:
                _log.info("subscription=%s late acknowledgements: %s", self._options.subscription_name, failure)

    # Positions ----------------------------------------------------------------------------------------------------

    def seek(self, messageid: NativeMessageId | Any) -> None:
        """Seek on the cluster that has the tenant. Raises as `Consumer.seek`, and:

        Raises:
            InvalidMessage: an id of a cluster that was left.
        """
        if self._is_former(messageid):
            raise InvalidMessage(f"id {messageid} is of a cluster that its tenant has left")
        self._call(lambda now: now.seek(messageid), self._patience())

    def get_last_message_id(self) -> ReceivedId:
        return self._call(lambda now: now.get_last_message_id(), self._patience())

    # Itself -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        return self._known().topic()

    def subscription_name(self) -> str:
        return self._options.subscription_name

    def consumer_name(self) -> str:
        return self._known().consumer_name()

    def unsubscribe(self) -> None:
        self._call(lambda now: now.unsubscribe(), self._patience())
        self.leave()

    def begin_draining(self) -> None:
        """Drains on the present cluster, and moves no more."""
        self._home.leave(self)
        attached = self._attached
        if attached is not None:
            attached.begin_draining()

    def is_drained(self) -> bool:
        attached = self._attached
        return not self._listening and (attached is None or attached.is_drained())

    def leave(self) -> None:
        attached = self._attached
        super().leave()
        if attached is not None:
            attached.leave()

    def abandon(self) -> None:
        super().abandon()
        with self._changing:
            self._attached = None
            waiting, self._unanswered = self._unanswered, deque()
        for callback in waiting:
            callback(Result.AlreadyClosed, None)


class _Still:
    """A count is still when it has not changed for this many seconds. One thread calls it repeatedly."""

    def __init__(self, count: Callable[[], int], for_s: float) -> None:
        self._count = count
        self._for_s = for_s
        self._last = count()
        self._since = Deadline.after(for_s)

    def is_so(self) -> bool:
        now = self._count()
        if now != self._last:
            self._last, self._since = now, Deadline.after(self._for_s)
        return self._since.passed()
