"""A reader that keeps entries as a broker sends them: enough of Pulsar's protocol to read one topic from its start."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Final

from pulsar_on_kafka_mapping.encoding.varint import ByteReader
from pulsar_on_kafka_mapping.wire.message_metadata import Field, encode_fields

_CONNECT, _CONNECTED, _SUBSCRIBE, _MESSAGE, _FLOW, _SUCCESS, _PING, _PONG = 2, 3, 4, 9, 11, 13, 18, 19
_VERSION: Final = 21
_EARLIEST: Final = 1


class RawReader:
    """Raises OSError where the broker says nothing for ten seconds, or something else than it should."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 10)
        self._say(_CONNECT, [(1, b"pulsar-on-kafka tests"), (4, _VERSION)])
        self._until(_CONNECTED)

    def entries(self, topic: str, count: int) -> list[bytes]:
        """The first `count` entries of a topic that the broker has loaded."""
        self._say(_SUBSCRIBE, [(1, topic.encode()), (2, b"raw"), (3, 0), (4, 1), (5, 1), (13, _EARLIEST)])
        self._until(_SUCCESS)
        self._say(_FLOW, [(1, 1), (2, 100_000)])
        return [self._until(_MESSAGE) for _ in range(count)]

    def _say(self, kind: int, command: list[Field]) -> None:
        body = encode_fields([(1, kind), (kind, encode_fields(command))])
        self._socket.sendall((len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body)

    def _until(self, wanted: int) -> bytes:
        """What follows the next command of a kind."""
        while True:
            frame = self._take(int.from_bytes(self._take(4), "big"))
            size = int.from_bytes(frame[:4], "big")
            fields: dict[int, Any] = dict(ByteReader(frame[4 : 4 + size], "a command").fields())
            if fields[1] == wanted:
                return frame[4 + size :]
            if fields[1] == _PING:
                self._say(_PONG, [])
            elif fields[1] not in (35,):  # who of several consumers is the active one
                raise OSError(f"the broker said {fields}, expected {wanted}")

    def _take(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise OSError(f"the broker went after {len(found)} of {size} bytes")
            found += part
        return bytes(found)

    def __enter__(self) -> RawReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()
