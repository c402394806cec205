"""Java's consumer with the calls of the official Python client's."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.compat.java.bridge import Bridge
from pulsar_on_kafka.compat.java.messages import JavaMessage, JavaMessageId, native_id
from pulsar_on_kafka.compat.java.transaction import JavaTransaction


class JavaConsumer:
    """`native` is Java's."""

    def __init__(self, bridge: Bridge, native: Any) -> None:
        self._bridge = bridge
        self.native = native

    def topic(self) -> str:
        return str(self.native.getTopic())

    def subscription_name(self) -> str:
        return str(self.native.getSubscription())

    def consumer_name(self) -> str:
        return str(self.native.getConsumerName())

    def receive(self, timeout_millis: int) -> JavaMessage:
        """Raises the official Timeout. There is no waiting without an end here."""
        found = self._bridge.call(self.native.receive, timeout_millis, self._bridge.ms)
        if found is None:
            raise self._bridge.timeout()
        return JavaMessage(found)

    def acknowledge(self, message: JavaMessage | JavaMessageId, txn: JavaTransaction | None = None) -> None:
        if txn is None:
            self._bridge.call(self.native.acknowledge, message.native)
        else:
            which = message.native if isinstance(message, JavaMessageId) else message.native.getMessageId()
            self._bridge.call(lambda: self.native.acknowledgeAsync(which, txn.native).get())

    def acknowledge_cumulative(self, message: JavaMessage | JavaMessageId, txn: JavaTransaction | None = None) -> None:
        if txn is None:
            self._bridge.call(self.native.acknowledgeCumulative, message.native)
        else:
            which = message.native if isinstance(message, JavaMessageId) else message.native.getMessageId()
            self._bridge.call(lambda: self.native.acknowledgeCumulativeAsync(which, txn.native).get())

    def negative_acknowledge(self, message: JavaMessage | JavaMessageId) -> None:
        self._bridge.call(self.native.negativeAcknowledge, message.native)

    def reconsume_later(self, message: JavaMessage, delay_ms: int, properties: dict[str, str] | None = None) -> None:
        if properties is None:
            self._bridge.call(self.native.reconsumeLater, message.native, delay_ms, self._bridge.ms)
        else:
            self._bridge.call(self.native.reconsumeLater, message.native, properties, delay_ms, self._bridge.ms)

    def redeliver_unacknowledged_messages(self) -> None:
        self._bridge.call(self.native.redeliverUnacknowledgedMessages)

    def seek(self, where: Any) -> None:
        """`where` is an id or a time in ms."""
        self._bridge.call(self.native.seek, where if isinstance(where, int) else native_id(self._bridge, where))

    def get_last_message_id(self) -> JavaMessageId:
        return JavaMessageId(self._bridge.call(self.native.getLastMessageId))

    def is_connected(self) -> bool:
        return bool(self.native.isConnected())

    def unsubscribe(self) -> None:
        self._bridge.call(self.native.unsubscribe)

    def close(self) -> None:
        self._bridge.call(self.native.close)
