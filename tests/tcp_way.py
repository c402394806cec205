"""A way to a port of this machine that a test can close and open, as a network does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final

_HOST: Final = "127.0.0.1"


class TcpWay:
    """Whoever connects to `port` is connected to `target` as long as it is open."""

    def __init__(
        self,
        target: int,
        at: tuple[str, int] = (_HOST, 0),
        heard: Callable[[int, bytes], None] = lambda connection, said: None,
    ) -> None:
        """`heard` gets what is said by whoever connects to it, with the connection's number, before it is passed on."""
        self._target = target
        self._heard = heard
        self._numbers = count()
        self._open = True
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._server = socket.create_server(at)
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
            number = next(self._numbers)
            for one, other, heard in ((near, far, partial(self._heard, number)), (far, near, lambda said: None)):
                threading.Thread(target=self._pass_on, args=(one, other, heard), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, heard: Callable[[bytes], None]) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                heard(data)
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(one)
        one.close()
