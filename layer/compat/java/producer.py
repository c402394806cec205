"""Java's producer with the calls of the official Python client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulsar_on_kafka.compat.java.bridge import Bridge, Handle, Options
from pulsar_on_kafka.compat.java.messages import JavaMessageId
from pulsar_on_kafka.compat.java.transaction import JavaTransaction

SendCallback = Callable[[Any, "JavaMessageId | None"], None]


class JavaProducer(Handle):
    def __init__(self, bridge: Bridge, native: Any) -> None:
        super().__init__(bridge, native)
        self._under_way: list[tuple[Any, SendCallback | None]] = []

    def producer_name(self) -> str:
        return str(self.native.getProducerName())

    def last_sequence_id(self) -> int:
        return int(self.native.getLastSequenceId())

    def send(self, content: bytes | None, txn: JavaTransaction | None = None, **options: Any) -> JavaMessageId:
        return JavaMessageId(self._bridge.call(self._message(content, txn, options).send))

    def send_async(
        self,
        content: bytes | None,
        callback: SendCallback | None,
        txn: JavaTransaction | None = None,
        **options: Any,
    ) -> None:
        """The callback is called by `flush`, with the result and the id: no Java thread calls into Python."""
        self._under_way.append((self._message(content, txn, options).sendAsync(), callback))

    def flush(self) -> None:
        self._bridge.call(self.native.flush)
        under_way, self._under_way = self._under_way, []
        for future, callback in under_way:
            result, sent = self._bridge.settled(future)
            if callback is not None:
                callback(result, None if sent is None else JavaMessageId(sent))

    def _message(self, content: bytes | None, txn: JavaTransaction | None, options: dict[str, Any]) -> Any:
        given = Options("send", options)
        make = self.native.newMessage
        message = make() if txn is None else self._bridge.call(make, txn.native)
        message.value(content).properties(given.take("properties") or {})
        key, ordering_key = given.take("partition_key"), given.take("ordering_key")
        event_time, sequence_id = given.take("event_timestamp"), given.take("sequence_id")
        deliver_after = given.take("deliver_after")
        given.done()
        if key is not None:
            message.key(key)
        if ordering_key is not None:
            message.orderingKey(ordering_key.encode())
        if event_time is not None:
            message.eventTime(event_time)
        if sequence_id is not None:
            message.sequenceId(sequence_id)
        if deliver_after is not None:
            message.deliverAfter(int(deliver_after.total_seconds() * 1000), self._bridge.ms)
        return message
