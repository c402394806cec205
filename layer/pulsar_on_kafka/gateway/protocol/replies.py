"""Commands that one connection sends to its client, most of them replies to requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pulsar_on_kafka.gateway.protocol.frame_writer import FrameWriter
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command
from pulsar_on_kafka_mapping.wire.frames import frame

ANY_REQUEST: Final = 2**64 - 1
"""The request id of a command that replies to no request (-1 in Pulsar)."""


class Replies:
    """Thread-safe, as its `FrameWriter`."""

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer

    def send(self, kind: Type, **fields: Any) -> None:
        self.send_frame(frame(command(kind, **fields)))

    def send_frame(self, encoded: bytes) -> None:
        """`send` for a command that was encoded before, as one large enough to keep the loop busy."""
        self._writer.send((encoded,))

    def error(self, request_id: int, code: ServerError, reason: str) -> None:
        self.send(Type.ERROR, request_id=request_id, error=code, message=reason)

    def success(self, request_id: int) -> Callable[[object], None]:
        """A callback that sends SUCCESS for any result."""
        return lambda _: self.send(Type.SUCCESS, request_id=request_id)

    def failure(self, request_id: int) -> Callable[[ServerError, str], None]:
        return lambda code, reason: self.error(request_id, code, reason)
