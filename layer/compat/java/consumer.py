"""Java's consumer and reader with the calls of the official Python client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulsar_on_kafka.compat.java.bridge import Handle
from pulsar_on_kafka.compat.java.messages import JavaMessage, JavaMessageId, native_id
from pulsar_on_kafka.compat.java.transaction import JavaTransaction


class _Receiver(Handle):
    """Both may wait for a message, and go to another place."""

    def _received(self, receive: Callable[..., Any], timeout_millis: int) -> JavaMessage:
        """Raises the official Timeout. There is no waiting without an end here."""
        found = self._bridge.call(receive, timeout_millis, self._bridge.ms)
        if found is None:
            raise self._bridge.timeout()
        return JavaMessage(found)

    def seek(self, where: Any) -> None:
        """`where` is an id or a time in ms."""
        self._bridge.call(self.native.seek, where if isinstance(where, int) else native_id(self._bridge, where))


class JavaConsumer(_Receiver):
    def subscription_name(self) -> str:
        return str(self.native.getSubscription())

    def consumer_name(self) -> str:
        return str(self.native.getConsumerName())

    def receive(self, timeout_millis: int) -> JavaMessage:
        return self._received(self.native.receive, timeout_millis)

    def acknowledge(self, message: JavaMessage | JavaMessageId, txn: JavaTransaction | None = None) -> None:
        self._acknowledge(self.native.acknowledge, self.native.acknowledgeAsync, message, txn)

    def acknowledge_cumulative(self, message: JavaMessage | JavaMessageId, txn: JavaTransaction | None = None) -> None:
        self._acknowledge(self.native.acknowledgeCumulative, self.native.acknowledgeCumulativeAsync, message, txn)

    def _acknowledge(
        self,
        plain: Callable[..., Any],
        transactional: Callable[..., Any],
        message: JavaMessage | JavaMessageId,
        txn: JavaTransaction | None,
    ) -> None:
        if txn is None:
            self._bridge.call(plain, message.native)
        else:
            which = message.native if isinstance(message, JavaMessageId) else message.native.getMessageId()
            self._bridge.call(lambda: transactional(which, txn.native).get())

    def negative_acknowledge(self, message: JavaMessage | JavaMessageId) -> None:
        self._bridge.call(self.native.negativeAcknowledge, message.native)

    def reconsume_later(self, message: JavaMessage, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        if properties is None:
            self._bridge.call(self.native.reconsumeLater, message.native, delay_ms, self._bridge.ms)
        else:
            self._bridge.call(self.native.reconsumeLater, message.native, properties, delay_ms, self._bridge.ms)

    def redeliver_unacknowledged_messages(self) -> None:
        self._bridge.call(self.native.redeliverUnacknowledgedMessages)

    def get_last_message_id(self) -> JavaMessageId:
        return JavaMessageId(self._bridge.call(self.native.getLastMessageId))

    def unsubscribe(self) -> None:
        self._bridge.call(self.native.unsubscribe)


class JavaReader(_Receiver):
    def read_next(self, timeout_millis: int) -> JavaMessage:
        return self._received(self.native.readNext, timeout_millis)

    def has_message_available(self) -> bool:
        return bool(self._bridge.call(self.native.hasMessageAvailable))
