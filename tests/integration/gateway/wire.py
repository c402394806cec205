"""A connection to a gateway, or to Pulsar, that says what no client says."""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Any, Protocol

from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command, parsed
from pulsar_on_kafka_mapping.wire.entries import WireEntry, read_entry, write_entry
from pulsar_on_kafka_mapping.wire.frames import Frame, FrameCutter, frame
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata, encode_metadata
from tests.waiting import until

COMMIT, ABORT = 0, 1
"""Pulsar's TxnAction."""


class Listens(Protocol):
    @property
    def port(self) -> int: ...


class Wire:
    """A client that says what no client says; closed at its `with`'s end. It connects when it first says something:
    the gateway closes who says nothing for ten seconds, in which no topics can be made on a busy machine."""

    def __init__(self, to: Listens) -> None:
        self._port = to.port
        self._socket: socket.socket | None = None
        self._cutter = FrameCutter()
        self._heard: deque[Frame] = deque()
        self.entry = b""
        """What came with the last command."""

    def open(self) -> socket.socket:
        """Connect, if nothing was said or heard yet."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 60)
        return self._socket

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def say(self, kind: Type, **fields: Any) -> None:
        self.write(frame(command(kind, **fields)))

    def write(self, data: bytes) -> None:
        self.open().sendall(data)

    def hear(self) -> tuple[Type | None, Any]:
        """The next command; None: the connection was closed."""
        while not self._heard:
            data = self.open().recv(65536)
            if not data:
                return None, None
            self._heard.extend(self._cutter.feed(data))
        heard = self._heard.popleft()
        self.entry = heard.entry
        return parsed(heard.command)

    def ask(self, kind: Type, **fields: Any) -> Any:
        """The message of what comes next."""
        self.say(kind, **fields)
        return self.hear()[1]

    def connect(self, **options: Any) -> tuple[Type | None, Any]:
        self.say(Type.CONNECT, client_version="wire", protocol_version=21, **options)
        return self.hear()

    def send(self, producer: int, sequence_id: int, payload: bytes, **fields: Any) -> None:
        """A plain message; `fields` are SEND's."""
        metadata = PulsarMetadata(
            producer_name="wire", sequence_id=sequence_id, publish_time_ms=time.time_ns() // 1_000_000
        )
        self.send_as(metadata, producer, payload, **fields)

    def send_as(self, metadata: PulsarMetadata, producer: int, payload: bytes, **fields: Any) -> None:
        sequence_id = metadata.sequence_id
        entry = write_entry(WireEntry(encode_metadata(metadata), payload))
        self.write(frame(command(Type.SEND, producer_id=producer, sequence_id=sequence_id, **fields), entry))

    def payload(self) -> bytes:
        """Of the message that was heard last."""
        return read_entry(self.entry).payload

    def limit_s(self, seconds: float) -> None:
        """Reading and writing raise TimeoutError after that."""
        self.open().settimeout(seconds)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def begun(wire: Wire, timeout_ms: int = 60_000, coordinator: int = 3) -> dict[str, int]:
    """A transaction's id, as commands name it."""
    assert wire.ask(Type.TC_CLIENT_CONNECT_REQUEST, request_id=1, tc_id=coordinator).HasField("error") is False
    answers: list[Any] = []

    def answered() -> bool:
        """As clients do it: while the coordinator's owner begins, they ask again."""
        answers.append(wire.ask(Type.NEW_TXN, request_id=2, tc_id=coordinator, txn_ttl_seconds=timeout_ms))
        return bool(answers[-1].error != ServerError.TRANSACTION_COORDINATOR_NOT_FOUND)

    until(answered, "the coordinator to answer")
    said = answers[-1]
    assert not said.HasField("error"), said.message
    assert said.txnid_most_bits == coordinator
    return {"txnid_most_bits": said.txnid_most_bits, "txnid_least_bits": said.txnid_least_bits}
