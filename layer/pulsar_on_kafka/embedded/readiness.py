"""Checks over a plain socket whether a broker serves: one Metadata request of Kafka's protocol, version 2.

    request   size i32 | api key i16 = 3 | version i16 = 2 | correlation i32 | client id string | topics i32 = 0
    response  size i32 | correlation i32 | brokers [id i32, host string, port i32, rack string?] | cluster id string?
              | ...
              string: length i16 (-1: null), bytes; [...]: count i32, elements

An open port is not enough (the socket is bound early), nor is a line in a log (its words change). Metadata names the
brokers that the controller has unfenced, and the cluster: so it also distinguishes the started broker from a stranger
on the port.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_CLIENT = b"pok"
_CORRELATION = 1
_REQUEST = struct.pack(f">hhih{len(_CLIENT)}si", 3, 2, _CORRELATION, len(_CLIENT), _CLIENT, 0)


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    cluster_id: str | None
    brokers: int  # alive and unfenced


def query_cluster(host: str, port: int, timeout_s: float) -> ClusterAnswer | None:
    """The reply; None without a Kafka broker's reply within `timeout_s` per socket operation."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            (size,) = struct.unpack(">i", _receive(connection, 4))
            return _parse(_receive(connection, size)) if 0 < size < 1_000_000 else None
    except (OSError, EOFError, struct.error):
        return None


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise EOFError
        received += piece
    return bytes(received)


def _parse(response: bytes) -> ClusterAnswer | None:
    correlation, brokers = struct.unpack_from(">ii", response)
    if correlation != _CORRELATION:
        return None
    at = 8
    for _ in range(brokers):
        _, at = _string(response, at + 4)  # id, host
        _, at = _string(response, at + 4)  # port, rack
    cluster_id, _ = _string(response, at)
    return ClusterAnswer(cluster_id, brokers)


def _string(response: bytes, at: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", response, at)
    end = at + 2 + max(0, length)
    return (None if length < 0 else response[at + 2 : end].decode("utf-8", "replace")), end
