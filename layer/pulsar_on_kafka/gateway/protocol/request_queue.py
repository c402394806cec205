"""The requests of one connection: they wait, use Kafka in a thread, and get their reply."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.fair_pool import MAX_OF_CALLER, FairPool
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type

_log: Final = logging.getLogger(__name__)

MAX_REQUESTS: Final = 1_000
"""Requests of one connection without a reply; one more is refused (TooManyRequests)."""


_OPERATION_S: Final = 30.0

OnError = Callable[[ServerError, str], None]
Commands = Mapping[Type, Callable[..., None]]
"""The methods of a handler, by the command that each handles."""
T = TypeVar("T")


def operation_deadline() -> Deadline:
    """The deadline of one operation in Kafka."""
    return Deadline.after(_OPERATION_S)


class _Waiting(NamedTuple):
    begin: Callable[[], None]
    is_end: bool
    """It closes a producer or consumer, and its reply is small."""


class RequestQueue:
    """Requests begin in their order, `MAX_OF_CALLER` at a time. While the client does not read its replies, only
    closes of producers and consumers begin. For the event loop.

    Memory: `MAX_REQUESTS` commands, and the replies of `MAX_OF_CALLER` of them.
    """

    def __init__(
        self, pool: FairPool, soon: Callable[[Callable[[], None]], None], may_begin: Callable[[], bool]
    ) -> None:
        """`soon` has the loop call a function, from any thread. `may_begin`: the client reads its replies."""
        self._pool = pool
        self._soon = soon
        self._may_begin = may_begin
        self.open = 0
        """Requests without a reply."""
        self.working = 0
        """Requests that a thread works on."""
        self.waiting: deque[_Waiting] = deque()
        self._ended = False

    def is_full(self, refused: OnError) -> bool:
        """Whether `MAX_REQUESTS` are open. If so, `refused` is called."""
        if self.open < MAX_REQUESTS:
            return False
        refused(ServerError.TOO_MANY_REQUESTS, f"{self.open} requests of this connection wait, {MAX_REQUESTS} may")
        return True

    def begin(self, work: Callable[[], T], then: Callable[[T], None], refused: OnError, *, topic: str = "") -> None:
        """Do `work` in a thread. Then the loop calls `then` with its result, or `refused` with its failure. `topic`:
        see `FairPool.submit`."""
        if not self.is_full(refused):
            self.open += 1
            self.waiting.append(_Waiting(partial(self._begin, work, then, refused, topic), is_end=False))
            self.begin_waiting()

    def begin_close(
        self, work: Callable[[], T], then: Callable[[T], None], refused: OnError, *, topic: str = ""
    ) -> None:
        """`begin` without its limit, for closing a producer or consumer: a refused close would leave it open for ever.
        The number of open producers and consumers is the bound.

        A close begins after the requests that wait. If the client does not read, it overtakes them, because other
        clients may wait for the consumer's messages and place.
        """
        self.open += 1
        self.waiting.append(_Waiting(partial(self._begin, work, then, refused, topic), is_end=True))
        self.begin_waiting()

    def when(self, future: Future[T], then: Callable[[T], None], refused: OnError) -> None:
        """Continue likewise with the result of work that began elsewhere."""
        self.open += 1

        def done(future: Future[T]) -> None:
            self.open -= 1
            self._settle(future, then, refused)

        future.add_done_callback(lambda future: self._soon(partial(done, future)))

    def counted(self, then: Callable[[T], None]) -> Callable[[T], None]:
        """Count a request as open until the returned function is called."""
        self.open += 1

        def done(found: T) -> None:
            self.open -= 1
            then(found)

        return done

    def begin_waiting(self) -> None:
        """Begin as many waiting requests as may run."""
        while (self._ended or self.working < MAX_OF_CALLER) and (waiting := self._next()) is not None:
            waiting.begin()

    def _next(self) -> _Waiting | None:
        """Take the first request that may begin: the first close, if the client does not read."""
        if self._ended or self._may_begin():
            return self.waiting.popleft() if self.waiting else None
        found = next((each for each in self.waiting if each.is_end), None)
        if found is not None:
            self.waiting.remove(found)
        return found

    def end(self) -> None:
        """The connection has ended. Begin all requests, since what they open has to be closed."""
        self._ended = True
        self.begin_waiting()

    def close_aside(self, close: Callable[[], object], *, topic: str) -> Future[None]:
        """Close a producer or consumer that no request closes. A failure is logged."""
        return self._pool.submit(_closed, close, caller=self, topic=topic)

    def _begin(self, work: Callable[[], T], then: Callable[[T], None], refused: OnError, topic: str) -> None:
        self.working += 1

        def done(future: Future[T]) -> None:
            self.open -= 1
            self.working -= 1
            try:
                self._settle(future, then, refused)  # first: a large reply may be more than the client takes
            finally:
                self.begin_waiting()

        future = self._pool.submit(work, caller=self, topic=topic)
        future.add_done_callback(lambda future: self._soon(partial(done, future)))

    @staticmethod
    def _settle(future: Future[T], then: Callable[[T], None], refused: OnError) -> None:
        failure = future.exception()
        if failure is None:
            then(future.result())
        elif isinstance(failure, Exception):
            refused(*error_code_of(failure))


def _closed(close: Callable[[], object]) -> None:
    try:
        close()
    except LayerError as failure:
        _log.warning("closing: %s", failure)
    except Exception:  # nothing else would report it
        _log.exception("closing")
