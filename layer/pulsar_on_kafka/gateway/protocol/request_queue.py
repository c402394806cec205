"""The requests of one connection: how many wait, how many ask Kafka, and when the next one may begin."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.gateway.protocol.fair_pool import MAX_OF_CALLER, FairPool
from pulsar_on_kafka_mapping.wire.commands import ServerError

_log: Final = logging.getLogger(__name__)

MAX_REQUESTS: Final = 1_000
"""Requests of one connection that have no reply yet; one more is refused (TooManyRequests)."""


class _Waiting(NamedTuple):
    begin: Callable[[], None]
    is_end: bool
    """It ends what was opened, and its reply is small."""


Then = Callable[[Any], None]
Refused = Callable[[ServerError, str], None]


class RequestQueue:
    """Requests begin in their order, `MAX_OF_CALLER` at a time. While the client does not read its replies, only ends
    of what was opened begin.

    All methods are the loop's.

    Memory: `MAX_REQUESTS` commands, and the replies of `MAX_OF_CALLER` of them.
    """

    def __init__(
        self,
        pool: FairPool,
        soon: Callable[[Callable[[], None]], None],
        may_begin: Callable[[], bool],
        code_of: Callable[[Exception], tuple[ServerError, str]],
    ) -> None:
        """`soon` has the loop call something; any thread. `may_begin`: the client takes what is there for it. `code_of`
        gives code and text of a failure."""
        self._pool = pool
        self._code_of = code_of
        self._soon = soon
        self._may_begin = may_begin
        self.open = 0
        """Requests that have no reply."""
        self.working = 0
        """Those of them that ask Kafka."""
        self.waiting: deque[_Waiting] = deque()
        self._ended = False

    def is_full(self, refused: Refused) -> bool:
        """Whether there are as many as may be, which `refused` is told."""
        if self.open < MAX_REQUESTS:
            return False
        refused(ServerError.TOO_MANY_REQUESTS, f"{self.open} requests of this connection wait, {MAX_REQUESTS} may")
        return True

    def ask(self, work: Callable[[], Any], then: Then, refused: Refused, *, topic: str = "") -> None:
        """Do `work` aside; the loop goes on with its result, or with why it failed. `topic`: see `FairPool.submit`."""
        if not self.is_full(refused):
            self.open += 1
            self.waiting.append(_Waiting(partial(self._begin, work, then, refused, topic), is_end=False))
            self.begin_waiting()

    def do(self, work: Callable[[], Any], then: Then, refused: Refused, *, topic: str = "") -> None:
        """`ask` without its limit, for the end of what was opened: a close that is refused leaves it there for ever.
        What is open bounds how many there are.

        An end comes after the requests that wait, unless the client does not read: then others would wait for its
        messages and its place.
        """
        self.open += 1
        self.waiting.append(_Waiting(partial(self._begin, work, then, refused, topic), is_end=True))
        self.begin_waiting()

    def when(self, future: Future[Any], then: Then, refused: Refused) -> None:
        """Go on likewise with work of another part of the gateway."""
        self.open += 1

        def done(future: Future[Any]) -> None:
            self.open -= 1
            self._settle(future, then, refused)

        future.add_done_callback(lambda future: self._soon(partial(done, future)))

    def counted(self, then: Then) -> Then:
        """Count a request that is open until what this gives is called."""
        self.open += 1

        def done(found: Any) -> None:
            self.open -= 1
            then(found)

        return done

    def begin_waiting(self) -> None:
        """Begin as many of those that wait as may."""
        while (self._ended or self.working < MAX_OF_CALLER) and (waiting := self._next()) is not None:
            waiting.begin()

    def _next(self) -> _Waiting | None:
        """Take the first that may begin: of a client that does not read, the first end."""
        if self._ended or self._may_begin():
            return self.waiting.popleft() if self.waiting else None
        found = next((each for each in self.waiting if each.is_end), None)
        if found is not None:
            self.waiting.remove(found)
        return found

    def end(self) -> None:
        """The connection has ended: do what was asked all the same, since what was opened has to be closed."""
        self._ended = True
        self.begin_waiting()

    def close_aside(self, close: Callable[[], object], *, topic: str) -> Future[None]:
        """Close something that no request is about. A failure is logged."""
        return self._pool.submit(_closed, close, caller=self, topic=topic)

    def _begin(self, work: Callable[[], Any], then: Then, refused: Refused, topic: str) -> None:
        self.working += 1

        def done(future: Future[Any]) -> None:
            self.open -= 1
            self.working -= 1
            try:
                self._settle(future, then, refused)  # first: a large reply may be more than the client takes
            finally:
                self.begin_waiting()

        future = self._pool.submit(work, caller=self, topic=topic)
        future.add_done_callback(lambda future: self._soon(partial(done, future)))

    def _settle(self, future: Future[Any], then: Then, refused: Refused) -> None:
        failure = future.exception()
        if failure is None:
            then(future.result())
        elif isinstance(failure, Exception):
            refused(*self._code_of(failure))


def _closed(close: Callable[[], object]) -> None:
    try:
        close()
    except LayerError as failure:
        _log.warning("closing: %s", failure)
    except Exception:  # nothing else would tell of it
        _log.exception("closing")
