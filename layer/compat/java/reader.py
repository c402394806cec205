"""Java's reader with the calls of the official Python client's."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.compat.java.bridge import Bridge
from pulsar_on_kafka.compat.java.messages import JavaMessage, native_id


class JavaReader:
    """`native` is Java's."""

    def __init__(self, bridge: Bridge, native: Any) -> None:
        self._bridge = bridge
        self.native = native

    def topic(self) -> str:
        return str(self.native.getTopic())

    def read_next(self, timeout_millis: int) -> JavaMessage:
        """Raises the official Timeout. There is no waiting without an end here."""
        found = self._bridge.call(self.native.readNext, timeout_millis, self._bridge.ms)
        if found is None:
            raise self._bridge.timeout()
        return JavaMessage(found)

    def has_message_available(self) -> bool:
        return bool(self._bridge.call(self.native.hasMessageAvailable))

    def seek(self, where: Any) -> None:
        """`where` is an id or a time in ms."""
        target = where if isinstance(where, int) else native_id(self._bridge, where)
        self._bridge.call(self.native.seek, target)

    def is_connected(self) -> bool:
        return bool(self.native.isConnected())

    def close(self) -> None:
        self._bridge.call(self.native.close)
