"""Local ports for brokers: a free one, or the wanted one if it is free."""

from __future__ import annotations

import random
import socket
from collections import deque

from pulsar_on_kafka.embedded.errors import PortBusy
from pulsar_on_kafka.embedded.settings import HOST

# Below the ports that systems give to outgoing connections. In that range a client that keeps knocking at a
# stopped broker's port can connect to itself, and the broker would find its port taken when it comes back.
_CHOICE = range(15_000, 32_000)
_ATTEMPTS = 200
_REMEMBERED = 100

_given: deque[int] = deque(maxlen=_REMEMBERED)


def free_port() -> int:
    """A port that nobody listens on now, and none of the last 100 given out. Somebody may take it before it is used."""
    for port in random.sample(_CHOICE, _ATTEMPTS):
        if port not in _given and is_free(port):
            _given.append(port)
            return port
    raise PortBusy(f"none of {_ATTEMPTS} random ports of {HOST} is free")


def require_free(port: int) -> None:
    if not is_free(port):
        raise PortBusy(f"port {port} of {HOST} is in use: stop what listens there, or choose another port")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the JVM does: a port whose last connections merely linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
