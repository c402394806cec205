"""One connection to a broker: requests are pipelined, responses come in the same order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeVar, cast

from pulsar_on_kafka.base.errors import ConnectFailed, DeadlineExceeded, StoreError
from pulsar_on_kafka.kafka.wire.cluster_messages import ApiVersionsRequest
from pulsar_on_kafka.kafka.wire.fields import NO_TAGS, Api, FieldReader, WireRequest, string
from pulsar_on_kafka_mapping.errors import CorruptRecord

_T = TypeVar("_T")

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""A larger response closes the connection. Kafka's own limit for requests."""
MAX_IN_FLIGHT: Final = 20_000
"""Requests of one connection that wait for responses; a further one is refused."""
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Bytes that the operating system has not taken yet; above, requests are refused."""
MIN_TOGETHER: Final = 4
"""With fewer waiting requests, `read_interval_s` does not delay the next response."""
_SIZE_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4

_header: Final = Struct(">ihhi").pack
_cached_string: Final = lru_cache(64)(string)


@lru_cache(64)
def _response_of(api: Api) -> str:
    return f"{api.name}Response version {api.version}"


class ConnectionLost(StoreError):
    """A connection ended before the response: the broker may have executed the request, or execute it yet."""


class _Waiting:
    """A request whose response is awaited."""

    __slots__ = ("api", "correlation_id", "decode", "due_s", "response")

    def __init__(
        self,
        api: Api,
        correlation_id: int,
        decode: Callable[[FieldReader], Any],
        response: asyncio.Future[Any],
        due_s: float,
    ) -> None:
        self.api = api
        self.correlation_id = correlation_id
        self.decode = decode
        self.response = response
        self.due_s = due_s


class BrokerConnection(asyncio.Protocol):
    """Used in the thread of its loop only. Opened by `wire.login`.

    A response that is malformed, overdue or of another request closes the connection. Every waiting request then fails
    with the reason. Memory: one response of `max_response_bytes`, and the requests that wait.
    """

    def __init__(
        self, address: str, on_closed: Callable[[], object], max_response_bytes: int = MAX_RESPONSE_BYTES
    ) -> None:
        """`address` is host:port, for messages. `on_closed` is called once."""
        self.address = address
        self._on_closed = on_closed
        self._max_response_bytes = max_response_bytes
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._closed: StoreError | None = None
        self.failure: Exception | None = None
        """The error of the socket or of TLS that ended the connection."""
        self.read_interval_s = 0.0
        """The pause after a read while `MIN_TOGETHER` requests wait: many small responses are then read together."""
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._out: list[bytes] = []
        self._held: list[tuple[_Waiting, bytes]] | None = None
        """Requests that wait for the end of a login; None without a login under way."""
        self._timer: asyncio.TimerHandle | None = None
        self._parts: list[bytes] = []
        """The beginning of a response, without its size."""
        self._missing = 0
        """Bytes that `_parts` lack."""
        self._size = b""
        """The beginning of a size."""

    # Requests ---------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._closed is None

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for a response."""
        return len(self._waiting) + len(self._held or ())

    def send(self, request: WireRequest[_T], client_id: str, timeout_s: float) -> asyncio.Future[_T]:
        """Sends the request under this client id. Requests of one turn of the loop go out together.

        The future fails with ConnectionLost, or with DeadlineExceeded if a response is overdue, which closes the
        connection. In both cases the broker may execute the request. A cancelled future's response is dropped.

        Raises:
            ConnectFailed: the connection is closed; the request was not sent.
            StoreError: the maximum of requests or bytes waits already; the request was not sent.
            MappingError: a string of the request is too long.
        """
        return self._send(request, client_id, timeout_s, self._held)

    def send_login(self, request: WireRequest[_T], client_id: str, timeout_s: float) -> asyncio.Future[_T]:
        """The same for a request of a login, ahead of those that are held. Raises as `send`."""
        return self._send(request, client_id, timeout_s, None)

    def _send(
        self,
        request: WireRequest[_T],
        client_id: str,
        timeout_s: float,
        held: list[tuple[_Waiting, bytes]] | None,
    ) -> asyncio.Future[_T]:
        if self._closed is not None or self._transport is None:
            raise ConnectFailed(f"no connection to {self.address}: {self._closed or 'it is not open'}")
        if self.in_flight >= MAX_IN_FLIGHT:
            raise StoreError(f"{self.address} has {MAX_IN_FLIGHT} requests to answer, the maximum of a connection")
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            raise StoreError(f"{self.address} does not read, and {MAX_UNSENT_BYTES} bytes wait, the maximum")
        api = request.API
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        body = _cached_string(client_id) + (NO_TAGS if api.is_flexible else b"") + request.encode()
        frame = _header(len(body) + 8, api.key, api.version, correlation_id) + body
        response: asyncio.Future[_T] = self._loop.create_future()
        due_s = self._loop.time() + timeout_s
        waiting = _Waiting(api, correlation_id, request.decode_response, response, due_s)
        if held is None:
            self._put(waiting, frame)
        else:
            held.append((waiting, frame))
        if self._timer is None or due_s < self._timer.when():
            self._check_at(due_s)
        return response

    def _put(self, waiting: _Waiting, frame: bytes) -> None:
        self._waiting.append(waiting)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and self._closed is None:
            self._transport.write(b"".join(out))

    def hold(self) -> None:
        """Keeps requests back while a login is under way: a broker accepts none in between."""
        self._held = self._held or []

    def release(self) -> None:
        """Sends the requests that were held."""
        held, self._held = self._held or (), None
        for waiting, frame in held:
            self._put(waiting, frame)

    def longest_wait_s(self) -> float:
        """Seconds until the last of the waiting requests is overdue; 0.0 without any."""
        now_s = self._loop.time()
        return max((each.due_s - now_s for each in self._waiting), default=0.0)

    # Time-outs --------------------------------------------------------------------------------------------------------

    def _check_at(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(due_s, self._check)

    def _check(self) -> None:
        self._timer = None
        every = [*self._waiting, *(each for each, _ in self._held or ())]
        if not every:
            return
        first = min(every, key=lambda each: each.due_s)
        if first.due_s <= self._loop.time():
            self.close(DeadlineExceeded(f"{self.address} did not answer {first.api.name} in time"))
        else:
            self._check_at(first.due_s)

    # Responses --------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._receive(data)
        except CorruptRecord as malformed:
            self.close(ConnectionLost(f"{self.address} does not speak Kafka's protocol: {malformed}"))
        is_paced = self.read_interval_s and len(self._waiting) >= MIN_TOGETHER
        if is_paced and self._transport is not None and self._closed is None:
            self._transport.pause_reading()
            self._loop.call_later(self.read_interval_s, self._resume)

    def _resume(self) -> None:
        if self._transport is not None and self._closed is None:
            self._transport.resume_reading()

    def _receive(self, data: bytes) -> None:
        at, end = 0, len(data)
        while at < end and self._closed is None:
            if self._missing:
                part = data[at : at + self._missing]
                at += len(part)
                self._missing -= len(part)
                self._parts.append(part)
                if not self._missing:
                    parts, self._parts = self._parts, []
                    self._complete(parts[0] if len(parts) == 1 else b"".join(parts))
                continue
            size = self._size + data[at : at + _SIZE_BYTES - len(self._size)]
            at += len(size) - len(self._size)
            if len(size) < _SIZE_BYTES:
                self._size = size
                return
            self._size = b""
            self._missing = self._checked(int.from_bytes(size, "big", signed=True))

    def _checked(self, size: int) -> int:
        if not _CORRELATION_BYTES <= size <= self._max_response_bytes:
            raise CorruptRecord(
                f"a response of {size} bytes, expected {_CORRELATION_BYTES} to {self._max_response_bytes}"
            )
        return size

    def _complete(self, frame: bytes) -> None:
        reader = FieldReader(frame, "response")
        correlation_id = reader.int32()
        if not self._waiting:
            raise CorruptRecord(f"a response with correlation id {correlation_id}, and no request waits for one")
        waiting = self._waiting[0]
        if correlation_id != waiting.correlation_id:
            raise CorruptRecord(
                f"a response with correlation id {correlation_id}, expected {waiting.correlation_id} of the oldest "
                f"request, {waiting.api.name}"
            )
        if not waiting.response.done():
            reader.what = _response_of(waiting.api)
            if waiting.api.is_flexible and waiting.api.key != ApiVersionsRequest.API.key:
                reader.skip_tagged()
            response = waiting.decode(reader)
            reader.expect_end()
            waiting.response.set_result(response)
        self._waiting.popleft()

    # The end ----------------------------------------------------------------------------------------------------------

    def connection_lost(self, failure: Exception | None) -> None:
        self.failure = failure
        self._fail(ConnectionLost(f"connection to {self.address} lost: {failure or 'the broker closed it'}"))

    def close(self, reason: StoreError | None = None) -> None:
        """Closes the connection at once; every waiting request fails with `reason`. A second call does nothing."""
        self._fail(reason or ConnectionLost(f"connection to {self.address} closed"))
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: StoreError) -> None:
        if self._closed is not None:
            return
        self._closed = reason
        if self._timer is not None:
            self._timer.cancel()
        every = [*self._waiting, *(each for each, _ in self._held or ())]
        self._waiting.clear()
        self._held = None
        self._out.clear()
        self._parts.clear()
        for waiting in every:
            if not waiting.response.done():
                kind = DeadlineExceeded if isinstance(reason, DeadlineExceeded) else ConnectionLost
                waiting.response.set_exception(kind(f"{waiting.api.name}: {reason}"))
                waiting.response.exception()  # it counts as retrieved: the caller may have left
        self._on_closed()
