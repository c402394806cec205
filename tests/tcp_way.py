"""A way to a port of this machine that a test can close and open, as a network does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Final

_HOST: Final = "127.0.0.1"


class TcpWay:
    """Whoever connects to `port` is connected to `target` as long as it is open."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._open = True
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._server = socket.create_server((_HOST, 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End every connection, and each new one at once."""
        with self._lock:
            self._open = False
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._open = True

    def close(self) -> None:
        self.cut()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                if not self._open:
                    near.close()
                    continue
                far = socket.create_connection((_HOST, self._target))
                self._sockets |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(one)
        one.close()
