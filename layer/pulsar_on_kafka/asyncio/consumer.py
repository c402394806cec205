"""The asyncio `Consumer`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.asyncio.bridge import Bridge, as_asyncio, asyncio_errors, settle
from pulsar_on_kafka.asyncio.transaction import Transaction
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.client.consumer.consumer import Consumer as BlockingConsumer
from pulsar_on_kafka.client.consumer.draining import drain_deadline
from pulsar_on_kafka.client.consumer.transactional_acks import AckUnderWay
from pulsar_on_kafka.client.values.message import Message
from pulsar_on_kafka.client.values.message_id import MessageId, ReceivedId
from pulsar_on_kafka.exceptions import Result
from pulsar_on_kafka.schema.value_type import V
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId

_MESSAGES_A_TURN: Final = 16


class _Ahead(NamedTuple):
    message: Message
    forgotten: int
    """The value of `PartitionAcks.forgotten` when the message left the inbox. Once it is higher, the message is
    redelivered from the position to which the subscription was set; later messages have the new number, and are not
    lost."""


def _ahead(message: Message) -> _Ahead:
    return _Ahead(message, message.feed.slot.forgotten)


class Consumer(OfOneProcess, Generic[V]):
    """Receives and acknowledges from one event loop. Source: `pulsar.asyncio.Consumer`."""

    def __init__(self, consumer: BlockingConsumer, bridge: Bridge) -> None:
        self._consumer = consumer
        self._bridge = bridge
        self._waiting: deque[asyncio.Future[Message]] = deque()
        """Receives that wait, in the order of their calls; cancelled ones are passed over."""
        self._requested = 0
        """Messages that were requested from the blocking consumer and not delivered. Never more than receives waited at
        a time: a cancelled one leaves its request to the next."""
        self._ahead: deque[_Ahead] = deque()
        """Messages that came when their receives were cancelled, in order; at most `_requested` ever was."""
        self._at_once = 0
        self._closed = False

    async def receive(self) -> Message[V]:
        """The next message. A cancelled receive takes none: what comes for it goes to the next one.

        Raises:
            PulsarException: AlreadyClosed, also for a receive that waits while the consumer is closed.
        """
        message = self._at_hand()
        if message is not None:
            self._at_once += 1
            if self._at_once % _MESSAGES_A_TURN == 0:
                try:
                    await asyncio.sleep(0)  # with messages waiting this would otherwise never let another task run
                except asyncio.CancelledError:
                    self._put_back(_ahead(message))
                    raise
            return message
        completions = self._bridge.completions()
        received: asyncio.Future[Message] = completions.loop.create_future()
        self._waiting.append(received)
        try:
            if self._requested < len(self._waiting):
                with asyncio_errors():
                    self._consumer.receive_async(
                        lambda result, message: completions.put(
                            self._came, result, None if message is None else _ahead(message)
                        )
                    )
                self._requested += 1
            return await received
        except BaseException:  # also a cancelled task: what came for it goes to the next
            if not received.done() or received.cancelled():
                self._waiting.remove(received)
            elif received.exception() is None:  # it had come, and the task was cancelled before it ran again
                self._put_back(_ahead(received.result()))
            raise

    def _at_hand(self) -> Message | None:
        while self._ahead:
            message, forgotten = self._ahead.popleft()
            if message.feed.slot.forgotten == forgotten:
                return message
        if self._requested:  # the next message goes to an earlier request, or is on its way already
            return None
        try:
            return self._consumer.receive(0)
        except exceptions.Timeout:
            return None
        except exceptions.PulsarException as error:
            raise as_asyncio(error) from error

    def _came(self, result: Result, came: _Ahead | None) -> None:
        """Handles, on the loop, the message or failure of a request to the blocking consumer."""
        self._requested -= 1
        received = self._first_waiting()
        if received is not None:
            settle(received, result, None if came is None else came.message)
        elif came is not None and self._closed:  # its consumer drains; nothing receives this message
            self._consumer.negative_acknowledge(came.message)
        elif came is not None:
            self._ahead.append(came)

    def _put_back(self, ahead: _Ahead) -> None:
        """Passes it to a waiting receive, or puts it before later messages (several receives may be cancelled, the
        first one first)."""
        received = self._first_waiting()
        if received is not None:
            received.set_result(ahead.message)
            return
        later = []
        while self._ahead and self._ahead[-1].message.message_id() > ahead.message.message_id():
            later.append(self._ahead.pop())
        self._ahead.extend((ahead, *reversed(later)))

    def _first_waiting(self) -> asyncio.Future[Message] | None:
        """Take out the first receive that still waits. A cancelled one takes itself out once its task runs."""
        for received in self._waiting:
            if not received.done():
                self._waiting.remove(received)
                return received
        return None

    async def acknowledge(
        self, message: Message | MessageId | NativeMessageId, *, txn: Transaction | None = None
    ) -> None:
        """Acknowledge one message; it is durable as the blocking consumer's is. In a transaction with `txn`.

        Raises:
            PulsarException: AlreadyClosed, InvalidMessage; with `txn` as the blocking consumer's.
        """
        if txn is not None:
            await self._held(txn, partial(self._consumer.begin_acknowledging, message, txn._transaction))
            return
        try:
            self._consumer.acknowledge(message)
        except exceptions.PulsarException as error:
            raise as_asyncio(error) from error

    async def acknowledge_cumulative(
        self, message: Message | MessageId | NativeMessageId, *, txn: Transaction | None = None
    ) -> None:
        """Acknowledge this message and every one before it in its partition. In a transaction with `txn`.

        Raises:
            PulsarException: CumulativeAcknowledgementNotAllowedError on a Shared or Key_Shared subscription; with
                `txn` as the blocking consumer's.
        """
        if txn is not None:
            await self._held(txn, partial(self._consumer.begin_acknowledging_cumulative, message, txn._transaction))
            return
        with asyncio_errors():
            self._consumer.acknowledge_cumulative(message)

    async def _held(self, txn: Transaction, begin: Callable[[], AckUnderWay]) -> None:
        """Returns when a transaction holds the acknowledgement of `begin`. Only the request needs a thread: concurrent
        ones are answered together. A cancelled await does not withdraw the request."""
        under_way = await self._bridge.outcome(txn._begins(self._bridge.start(begin)))
        answer = asyncio.wrap_future(under_way.answer)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # `wait` raises it, if it is called
        await asyncio.wait([answer], timeout=under_way.deadline.remaining_s())
        with asyncio_errors():
            under_way.wait()

    async def negative_acknowledge(
        self, message: Message | MessageId | NativeMessageId, *, reason: str | None = None
    ) -> None:
        """Requests redelivery of this message after the negative-ack delay; does nothing on a closed consumer. `reason`
        is the blocking consumer's."""
        with asyncio_errors():
            found = message._msg_id if isinstance(message, MessageId) else message
            self._consumer.negative_acknowledge(found, reason=reason)

    async def reconsume_later(
        self,
        message: Message,
        delay_ms: int | None = None,
        properties: dict[str, str] | None = None,
        *,
        reason: str | None = None,
    ) -> None:
        """Sends a copy of this message that is delivered after `delay_ms`, by default after the consumer's
        `retry_letter_backoff`, and acknowledges the message. Not in the official client.

        Raises:
            PulsarException: see the blocking consumer's `reconsume_later`.
        """
        await self._bridge.call(lambda: self._consumer.reconsume_later(message, delay_ms, properties, reason=reason))

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests redelivery of all unacknowledged messages of this consumer, now."""
        self._ahead.clear()
        with asyncio_errors():
            self._consumer.redeliver_unacknowledged_messages()

    async def seek(self, messageid: MessageId | NativeMessageId | int) -> None:
        """Set the subscription to a message id, or to the first message published at or after a time (Unix ms).

        Raises:
            ValueError: neither an id nor an int.
            PulsarException: as the blocking consumer's `seek`.
        """
        await self._bridge.call(lambda: self._consumer.seek(messageid))

    async def get_last_message_id(self) -> ReceivedId:
        """Id of the last message of the topic; equal to `MessageId.earliest` in an empty one."""
        return await self._bridge.call(self._consumer.get_last_message_id)

    async def unsubscribe(self) -> None:
        """Delete the subscription with everything acknowledged on it, and close this consumer.

        Raises:
            PulsarException: BrokerMetadataError when it has other consumers.
        """
        await self._bridge.call(self._consumer.unsubscribe)

    async def close(self, *, drain_timeout_ms: int | None = None) -> None:
        """Save what was acknowledged and leave. A second call does nothing, as officially.

        `drain_timeout_ms` is the blocking consumer's, and not in the official client: tasks of the loop finish and
        acknowledge the messages that they received.

        Raises:
            ValueError: `drain_timeout_ms` is no int.
            PulsarException: `drain_timeout_ms` is out of range.
        """
        if self._closed:
            return
        with asyncio_errors():
            drains = drain_deadline(drain_timeout_ms) is not None
        self._closed = True
        while self._ahead:
            message, forgotten = self._ahead.pop()
            if drains and message.feed.slot.forgotten == forgotten:
                self._consumer.put_back(message)
        await self._bridge.call(partial(self._consumer.close, drain_timeout_ms=drain_timeout_ms))

    def topic(self) -> str:
        """The topic's full name."""
        return self._consumer.topic()

    def subscription_name(self) -> str:
        """The name of the subscription."""
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        """The name of the consumer, given or made up."""
        return self._consumer.consumer_name()
