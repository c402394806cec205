"""HTTP servers: clients that send their requests slowly, or never finish a handshake, keep no other client out."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pulsar_on_kafka.base import asgi_server, http_server, listener
from pulsar_on_kafka.base.asgi_server import Address, AsgiServer
from pulsar_on_kafka.base.http_server import MAX_WAITING, HttpServer, ServerTls
from tests.certificates import Authority
from tests.waiting import until

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


def says_ok(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def status_of(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status
    finally:
        connection.close()


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.fixture
def opened() -> Iterator[Callable[[int, bytes], socket.socket]]:
    with ExitStack() as stack:

        def connect(port: int, says: bytes) -> socket.socket:
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            made.sendall(says)
            return made

        yield connect


Opened = Callable[[int, bytes], socket.socket]


@pytest.fixture
def wsgi() -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, says_ok)
    yield server
    server.close()


@pytest.fixture
def asgi() -> Iterator[AsgiServer]:
    server = AsgiServer("test", Address("127.0.0.1", 0, "--port"), app, ServerTls())
    yield server
    server.close()


def test_a_thread_for_each_connection_is_had_by_so_many_at_most(wsgi: HttpServer, opened: Opened) -> None:
    before = threading.active_count()
    waiting = [opened(wsgi.port, HEAD) for _ in range(3 * MAX_WAITING)]
    assert status_of(wsgi.port) == 200
    until(lambda: threading.active_count() <= before + MAX_WAITING + 1, "the oldest to be closed")
    assert is_closed(waiting[0])
    assert not is_closed(waiting[-1])


def test_a_head_that_trickles_has_a_time(wsgi: HttpServer, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_ASKER_S", 0.5)
    slow = opened(wsgi.port, HEAD)

    def trickled() -> bool:
        try:
            slow.sendall(b"X")
        except OSError:
            return True
        return is_closed(slow)

    until(trickled, "the connection to be closed")


@pytest.mark.parametrize("first", [b"", HEAD + b"\r\n"], ids=["first request", "second request"])
@pytest.mark.parametrize(
    "slow", [HEAD, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx"], ids=["head", "body"]
)
def test_each_request_has_a_time(
    asgi: AsgiServer, opened: Opened, monkeypatch: pytest.MonkeyPatch, first: bytes, slow: bytes
) -> None:
    monkeypatch.setattr(asgi_server, "ASKER_S", 0.5)
    connection = opened(asgi.port, first)
    if first:
        assert connection.recv(10_000).startswith(b"HTTP/1.1 200")
    connection.sendall(slow)

    def trickled() -> bool:
        try:
            connection.sendall(b"X")
        except OSError:
            return True
        return is_closed(connection)

    until(trickled, "the connection to be closed")


def test_connections_that_wait_give_way_to_others(asgi: AsgiServer, opened: Opened) -> None:
    """They have asked once, and send a part of another request."""
    waiting = []
    for _ in range(asgi_server._MAX_CONNECTIONS + 5):
        waiting.append(opened(asgi.port, HEAD + b"\r\n"))
        assert waiting[-1].recv(10_000).startswith(b"HTTP/1.1 200")
        waiting[-1].sendall(HEAD)
    for _ in range(3):
        assert status_of(asgi.port) == 200
    until(lambda: is_closed(waiting[0]), "the oldest to be closed")
    assert not is_closed(waiting[-1])


def test_it_ends_without_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    server = AsgiServer("test", Address("127.0.0.1", 0, "--port"), app, ServerTls())
    assert status_of(server.port) == 200
    server.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_handshakes_are_bounded_and_the_oldest_gives_way(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    identity = Authority(tmp_path).issue("server", address="127.0.0.1")
    certificate = ServerTls(str(identity.certificate), str(identity.key))
    monkeypatch.setattr(listener, "MAX_HANDSHAKES", 20)
    loop, sockets = asyncio.new_event_loop(), listener.bound("127.0.0.1", 0, 128)
    port = sockets[0].getsockname()[1]

    async def serve() -> tuple[int, bool, bool]:
        listens = listener.Listener(loop, sockets[0], asyncio.Protocol, certificate.context(), 60.0, lambda: False)
        silent = [opened(port, b"") for _ in range(50)]
        while not is_closed(silent[29]):
            await asyncio.sleep(0.01)
        found = listens.handshakes, is_closed(silent[0]), is_closed(silent[30])
        listens.close()
        await asyncio.sleep(0.1)  # the loop closes what was aborted
        return found

    try:
        assert loop.run_until_complete(asyncio.wait_for(serve(), 60)) == (20, True, False)
    finally:
        loop.close()


class Failing(socket.socket):
    """A listening socket whose next accepts fail with these errors."""

    failures: list[OSError]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures:
            raise self.failures.pop(0)
        return super().accept()


@pytest.mark.parametrize("number", [errno.ECONNABORTED, errno.EPROTO, errno.EPERM])
def test_a_connection_that_ends_before_it_is_accepted_holds_up_no_other(
    opened: Opened, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_RETRY_INTERVAL_S", 3600.0)
    loop, made = asyncio.new_event_loop(), Failing()
    made.failures = [OSError(number, "simulated") for _ in range(20)]
    made.bind(("127.0.0.1", 0))
    made.listen(128)
    there: list[asyncio.Protocol] = []

    def protocol() -> asyncio.Protocol:
        there.append(asyncio.Protocol())
        return there[-1]

    async def serve() -> None:
        listens = listener.Listener(loop, made, protocol, None, 60.0, lambda: False)
        connected = [opened(made.getsockname()[1], b"") for _ in range(30)]
        while len(there) < len(connected):
            await asyncio.sleep(0.01)
        listens.close()
        for each in connected:
            each.close()
        await asyncio.sleep(0.1)  # the loop closes what was open

    try:
        loop.run_until_complete(asyncio.wait_for(serve(), 60))
    finally:
        loop.close()


def test_many_connections_are_accepted_in_one_turn_of_the_loop(opened: Opened) -> None:
    loop, sockets = asyncio.new_event_loop(), listener.bound("127.0.0.1", 0, 128)
    connected = [opened(sockets[0].getsockname()[1], b"") for _ in range(listener.MAX_ACCEPTED_AT_ONCE)]

    async def serve() -> int:
        listens = listener.Listener(loop, sockets[0], asyncio.Protocol, None, 60.0, lambda: False)
        while not listens.handshakes:
            await asyncio.sleep(0)
        found = listens.handshakes
        listens.close()
        for each in connected:
            each.close()
        await asyncio.sleep(0.1)
        return found

    try:
        assert loop.run_until_complete(asyncio.wait_for(serve(), 60)) > 1
    finally:
        loop.close()
