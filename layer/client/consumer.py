"""`Consumer`: receives and acknowledges the messages of one subscription."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from layer import errors
from layer.client.enums import ConsumerType
from layer.client.errors import as_pulsar, pulsar_errors
from layer.client.listener import ListenerTask, ListenerThreads
from layer.client.message import Message
from layer.client.message_id import NativeMessageId, PartitionOrigin, StoredMessageId, native
from layer.client.options import check_range, check_type
from layer.deadline import Deadline
from layer.dispatch.delivery import PartitionSlot
from layer.dispatch.endpoint import Endpoint
from layer.dispatch.member import SubscriptionMember
from layer.exceptions import (
    AlreadyClosed,
    BrokerMetadataError,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    NotConnected,
    OperationNotSupported,
    Result,
)
from layer.metadata.subscriptions import Subscription
from layer.node import Node

_log = logging.getLogger(__name__)

MessageListener = Callable[["Consumer", Message], None]
ReceiveCallback = Callable[[Result, "Message | None"], None]

_MAX_PENDING_RECEIVES: Final = 10_000


class Consumer:
    """A consumer of one subscription. Thread-safe. Source: `pulsar.Consumer`.

    Memory: an inbox of `receiver_queue_size` messages, besides what its subscription's member holds.
    """

    def __init__(
        self,
        node: Node,
        subscription: Subscription,
        member: SubscriptionMember,
        endpoint: Endpoint,
        *,
        kind: ConsumerType,
        nack_delay_ms: int,
        operation_timeout_s: float,
        seek_inclusive: bool,
        listener: MessageListener | None,
        threads: ListenerThreads,
        on_close: Callable[[Consumer], None],
    ) -> None:
        self._node = node
        self._subscription = subscription
        self._member = member
        self._inbox = endpoint
        self._open_inbox: Endpoint | None = endpoint  # None once closed, so that the fast paths need no other check
        self._kind = kind
        self._nack_delay_s = nack_delay_ms / 1000
        self._operation_timeout_s = operation_timeout_s
        self._seek_inclusive = seek_inclusive
        self._on_close = on_close
        self._listener = listener
        self._listener_paused = False
        self._receives: deque[ReceiveCallback] = deque()
        self._threads = threads
        self._task: ListenerTask | None = None
        self._closed = False
        self._close_called = False
        self._losses_seen = member.losses()
        if listener is not None:
            endpoint.expect(1)  # with a queue of size 0 it takes one message at a time
            self._start_task(self._listen_once)

    # Receiving ----------------------------------------------------------------------------------------------------

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message, waited for (`timeout_millis` at most; None: for ever).

        Raises:
            Timeout: none came in time.
            Interrupted: SIGINT while waiting.
            AlreadyClosed: the consumer was closed.
            InvalidConfiguration: a message listener is set.
        """
        if timeout_millis is not None and type(timeout_millis) is not int:
            check_type(int, "timeout_millis", timeout_millis)
        inbox = self._inbox
        try:
            message = inbox.queue.popleft()
        except IndexError:
            return self._wait(timeout_millis)
        if inbox.starved and inbox.has_room_again():
            inbox.wake_member()
        if self._listener is not None:
            inbox.queue.appendleft(message)
            raise InvalidConfiguration("receive() cannot be used beside a message listener")
        return message  # type: ignore[return-value]  # this consumer's endpoint makes Messages

    def _wait(self, timeout_millis: int | None) -> Message:
        self._check_open()
        if self._listener is not None:
            raise InvalidConfiguration("receive() cannot be used beside a message listener")
        deadline = Deadline.never() if timeout_millis is None else Deadline.after_ms(timeout_millis)
        with pulsar_errors():
            return self._inbox.take(deadline)  # type: ignore[return-value]

    def receive_async(self, callback: ReceiveCallback) -> None:
        """Have `callback(result, message)` called with the next message, from a listener thread.

        At most 10,000 such calls wait at a time (`InvalidConfiguration` beyond).
        """
        self._check_open()
        if self._listener is not None:
            raise InvalidConfiguration("receive_async() cannot be used beside a message listener")
        if len(self._receives) >= _MAX_PENDING_RECEIVES:
            raise InvalidConfiguration(f"{_MAX_PENDING_RECEIVES} asynchronous receives are waiting already")
        self._receives.append(callback)
        self._inbox.expect(1)
        if self._task is None:
            self._start_task(self._answer_once)
        assert self._task is not None  # noqa: S101
        self._task.schedule()

    def _start_task(self, step: Callable[[], bool]) -> None:
        self._task = self._threads.task(step)
        self._inbox.on_available = self._task.schedule
        self._task.schedule()

    def _listen_once(self) -> bool:
        if self._listener_paused or self._closed or self._listener is None:
            return False
        message = self._inbox.take_now()
        if message is None:
            return False
        if self._inbox.capacity:
            self._listener(self, message)  # type: ignore[arg-type]
            return True
        self._inbox.expect(-1)
        try:
            self._listener(self, message)  # type: ignore[arg-type]
        finally:
            self._inbox.expect(1)
        return True

    def _answer_once(self) -> bool:
        if not self._receives:
            return False
        if self._closed:
            self._receives.popleft()(Result.AlreadyClosed, None)
            return True
        if self._inbox.failure is not None:
            self._receives.popleft()(as_pulsar(self._inbox.failure).result, None)
            return True
        message = self._inbox.take_now()
        if message is None:
            return False
        self._inbox.expect(-1)
        self._receives.popleft()(Result.Ok, message)  # type: ignore[arg-type]
        return True

    def pause_message_listener(self) -> None:
        """Stop calling the listener; messages wait in the inbox."""
        self._listener_paused = True

    def resume_message_listener(self) -> None:
        self._listener_paused = False
        if self._task is not None:
            self._task.schedule()

    # Acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(self, message: Message | NativeMessageId | Any, *, wait: bool = False) -> None:
        """Acknowledge one message. It is durable within `ack_persist_interval_ms`; with `wait` when this returns.

        Raises:
            AlreadyClosed: the consumer was closed.
            TypeError: neither a message nor an id.
            InvalidMessage: an id of another topic.
        """
        if type(message) is Message and message.feed.endpoint is self._open_inbox:
            message.feed.slot.ack(message.offset)
        else:
            slot, offset = self._locate(message)
            slot.ack(offset)
        if wait:
            self.flush()

    def acknowledge_cumulative(self, message: Message | NativeMessageId | Any, *, wait: bool = False) -> None:
        """Acknowledge this message and every one before it in its partition.

        Raises:
            CumulativeAcknowledgementNotAllowedError: on a Shared or Key_Shared subscription.
        """
        slot, offset = self._locate(message)
        if self._kind in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise CumulativeAcknowledgementNotAllowedError(
                f"subscription {self.subscription_name()} is {self._kind.name}: acknowledge messages one by one"
            )
        slot.cumulative.append(offset)
        if wait:
            self.flush()

    def negative_acknowledge(self, message: Message | NativeMessageId) -> None:
        """Have this message delivered again after the negative-ack delay.

        On Exclusive and Failover everything unacknowledged comes again then, as with the official client. On a closed
        consumer this does nothing: what it left comes again anyway.
        """
        if native(message) is not None and not isinstance(message, NativeMessageId):
            raise TypeError("negative_acknowledge takes a message or the id that message.message_id() gave")
        if self._closed:
            return
        slot, offset = self._locate(message)
        self._member.negative_acknowledge(slot, offset, self._inbox, self._nack_delay_s)

    def redeliver_unacknowledged_messages(self) -> None:
        """Have everything that this consumer has not acknowledged delivered again, now. Nothing on a closed one."""
        if not self._closed:
            self._member.redeliver_unacknowledged(self._inbox)

    def flush(self, timeout_millis: int | None = None) -> None:
        """Return when everything acknowledged so far is durable. Ours beyond the official client.

        Raises:
            Timeout: not in time (default: the client's operation timeout).
            NotConnected: the partition was lost to another process meanwhile.
        """
        self._check_open()
        deadline = self._deadline() if timeout_millis is None else Deadline.after_ms(timeout_millis)
        with pulsar_errors():
            losses = self._member.save(deadline)
        if losses > self._losses_seen:
            self._losses_seen = losses
            raise NotConnected(
                f"subscription {self.subscription_name()}: a partition went to another process before everything "
                "acknowledged on it was saved; those messages will be delivered again"
            )

    def _locate(self, message: object) -> tuple[PartitionSlot, int]:
        """Partition and offset of a message or an id."""
        self._check_open()
        message_id = message.message_id() if isinstance(message, Message) else native(message)
        if message_id is None:
            raise TypeError(f"expected a message or a message id, got {type(message).__name__}: {message!r:.60}")
        topic = self._subscription.topic
        partition = message_id.partition() if topic.partitioned else 0
        with pulsar_errors():
            if not 0 <= partition < topic.partitions:
                raise errors.InvalidCursorPosition(
                    f"id {message_id} names partition {partition} of {topic.name}, expected 0 to {topic.partitions - 1}"
                )
            offset = topic.layout.kafka_offset(partition, message_id.ledger_id(), message_id.entry_id())
        return self._member.slot(partition), offset

    # Positions ----------------------------------------------------------------------------------------------------

    def seek(self, messageid: NativeMessageId | Any) -> None:
        """Set the subscription to a message id, or to the first message published at or after a time (`int`, Unix ms).

        Everything before counts as acknowledged, everything after as not. After a seek to an id the next message is
        the one behind it, unless the consumer was made with `start_message_id_inclusive`.

        Raises:
            ValueError: neither an id nor an int.
        """
        self._check_open()
        deadline = self._deadline()
        with pulsar_errors():
            offsets = self._seek_targets(messageid, deadline)
            self._member.wait_until_assigned(deadline)
            self._member.seek(offsets, deadline)

    def _seek_targets(self, target: object, deadline: Deadline) -> Mapping[int, int]:
        topic = self._subscription.topic
        partitions = range(topic.partitions)
        admin = self._node.admin
        message_id = native(target)
        if message_id is None:
            check_type(int, "messageid", target)
            assert isinstance(target, int)  # noqa: S101 - checked
            ends = admin.end_offsets(topic.kafka_topic, partitions, deadline)
            times = {p: self._node.fetcher.offset_at_time(topic.kafka_topic, p, target, deadline) for p in partitions}
            return {p: ends[p] if offset is None else offset for p, offset in times.items()}
        if message_id == NativeMessageId.earliest:
            return admin.start_offsets(topic.kafka_topic, partitions, deadline)
        if message_id == NativeMessageId.latest:
            return admin.end_offsets(topic.kafka_topic, partitions, deadline)
        slot, offset = self._locate(message_id)
        end = admin.end_offsets(topic.kafka_topic, [slot.number], deadline)[slot.number]
        return {slot.number: min(end, offset if self._seek_inclusive else offset + 1)}

    def get_last_message_id(self) -> NativeMessageId:
        """Id of the last message of the topic; equal to `MessageId.earliest` in an empty one.

        Raises:
            OperationNotSupported: on a partitioned topic, as officially.
        """
        self._check_open()
        topic = self._subscription.topic
        if topic.partitioned:
            raise OperationNotSupported(f"get_last_message_id: {topic.name} has {topic.partitions} partitions")
        with pulsar_errors():
            end = self._node.admin.end_offsets(topic.kafka_topic, [0], self._deadline())[0]
        if end == 0:
            return NativeMessageId(-1, -1, -1, -1)
        return StoredMessageId(PartitionOrigin(topic.layout, -1, str(topic.name)), end - 1)

    # Itself -------------------------------------------------------------------------------------------------------

    def topic(self) -> str:
        return str(self._subscription.topic.name)

    def subscription_name(self) -> str:
        return self._subscription.name

    def consumer_name(self) -> str:
        return self._inbox.name

    def is_connected(self) -> bool:
        """True once Kafka has answered this process's membership, until close."""
        return not self._closed and self._member.is_assigned()

    def unsubscribe(self) -> None:
        """Delete the subscription with everything acknowledged on it, and close this consumer.

        Raises:
            BrokerMetadataError: it has other consumers.
        """
        self._check_open()
        try:
            with pulsar_errors():
                self._node.unsubscribe(self._subscription, self._inbox, self._deadline())
        except Exception as error:
            if isinstance(error.__cause__, errors.SubscriptionBusy):
                raise BrokerMetadataError(str(error)) from error
            raise
        self._mark_closed()

    def close(self) -> None:
        """Save what was acknowledged and leave; unacknowledged messages go to other consumers, or wait.

        After `unsubscribe` or the client's `close` it does nothing.

        Raises:
            ValueError: `close` was called before (as the official client does).
        """
        if self._close_called:
            raise ValueError(f"consumer {self._inbox.name} is closed already")
        self._close_called = True
        self.leave()

    def leave(self) -> None:
        """`close` on the client's behalf; a second call does nothing."""
        if self._closed:
            return
        self._mark_closed()
        with pulsar_errors():
            self._node.detach(self._subscription, self._inbox, self._deadline())

    def stop_receiving(self) -> None:
        """Take no more messages: the client is closing all of its consumers. Ours, for the client."""
        self._inbox.close()

    def _mark_closed(self) -> None:
        self._closed = True
        self._open_inbox = None
        self._inbox.close()
        if self._task is not None:
            self._task.schedule()
        self._on_close(self)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"consumer {self._inbox.name} of {self.subscription_name()} is closed")

    def _deadline(self) -> Deadline:
        return Deadline.after(self._operation_timeout_s)


def inbox_capacity(receiver_queue_size: int, max_total: int, partitions: int) -> int:
    """Messages the inbox of a consumer takes: the official sizes are per partition, bounded over all of them."""
    check_range("receiver_queue_size", receiver_queue_size, 0)
    check_range("max_total_receiver_queue_size_across_partitions", max_total, 0)
    if receiver_queue_size == 0:
        return 0
    return max(1, min(receiver_queue_size * partitions, max(max_total, receiver_queue_size)))
