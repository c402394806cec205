"""A listener accepts TCP connections for an event loop, and bounds those whose TLS handshake is not done."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

_log: Final = logging.getLogger(__name__)

MAX_HANDSHAKES: Final = 300
"""TLS handshakes under way, of about 0.3 MB each; with one more the oldest is given up."""
MAX_ACCEPTED_AT_ONCE: Final = 64
"""Connections that are accepted before the loop serves others."""
_RETRY_INTERVAL_S: Final = 1.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Failures that the next attempt meets as well; any other is of one connection, which has ended before it was open."""


class Listener:
    """Accepts from when it is made until `close`. For the loop's thread.

    asyncio's own servers neither count handshakes nor stop accepting. Memory: `MAX_HANDSHAKES`, and the connections.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        handshake_s: float,
        is_full: Callable[[], bool],
    ) -> None:
        """A connection is closed at once while `is_full`. Otherwise `make` gives its protocol."""
        listening.setblocking(False)
        self._loop = loop
        self._listening = listening
        self._make = make
        self._tls = {} if context is None else {"ssl": context, "ssl_handshake_timeout": handshake_s}
        self._is_full = is_full
        self._shaking: dict[asyncio.Task[None], socket.socket | None] = {}
        """The oldest first; with its socket until the task begins, which has it from then on."""
        self._accepting = loop.create_task(self._accept())

    @property
    def handshakes(self) -> int:
        """Connections that were accepted and are not open."""
        return len(self._shaking)

    def close(self) -> None:
        self._accepting.cancel()
        for task in self._shaking:
            task.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listening)
                self._take(connection)
                for _ in range(MAX_ACCEPTED_AT_ONCE - 1):
                    self._take(self._listening.accept()[0])
            except BlockingIOError:
                pass  # all that waited are accepted
            except OSError as failure:
                if failure.errno in _OUT_OF_RESOURCES:
                    _log.warning("no connection can be accepted for %g s: %s", _RETRY_INTERVAL_S, failure)
                    await asyncio.sleep(_RETRY_INTERVAL_S)
                else:
                    _log.info("a connection ended before it was accepted: %s", failure)
            await asyncio.sleep(0)  # others get their turn

    def _take(self, connection: socket.socket) -> None:
        """Open a connection that was accepted, unless there are too many."""
        connection.setblocking(False)
        if self._is_full():
            connection.close()
            return
        if len(self._shaking) >= MAX_HANDSHAKES:
            oldest = next(iter(self._shaking))
            self._forget(oldest)
            oldest.cancel()
        task = self._loop.create_task(self._open(connection))
        self._shaking[task] = connection
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        connection = self._shaking.pop(task, None)
        if connection is not None:
            connection.close()

    async def _open(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this runs in one
        self._shaking[task] = None
        try:
            await self._loop.connect_accepted_socket(self._make, connection, **self._tls)  # type: ignore[arg-type]
        except (OSError, asyncio.TimeoutError) as failure:  # an ssl.SSLError is an OSError
            _log.debug("a connection ended before it was open: %s", failure)
            connection.close()


def bound(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listening sockets of all addresses that a name has; '' is every address of the machine. Raises OSError."""
    found: list[socket.socket] = []
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, _, _, _, address in dict.fromkeys(infos):
            found.append(socket.create_server((str(address[0]), port), family=family, backlog=backlog))
    except OSError:
        for each in found:
            each.close()
        raise
    return found
