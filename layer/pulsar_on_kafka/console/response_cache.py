"""Replies of the cluster are cached: any number of browsers cause one request to the cluster."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.exceptions import BrokerPersistenceError, ConnectError, NotConnected, PulsarException, Timeout

T = TypeVar("T")

FRESH_S: Final = 4.0
"""An answer is good for so long, or for ten times as long as it took: looking takes a tenth of a thread at most."""
_TIMES: Final = 10
MAX_WAIT_S: Final = 4.0
"""The longest wait of a page for one reply. The request continues, and a later page has the reply."""
_QUEUE_S: Final = 20.0
"""The longest wait of a request for those before it, while the cluster replies to them."""
_LATE: Final = f"no reply within {MAX_WAIT_S:g} s yet; this page shows the reply when it is loaded again"


class Unanswered(Exception):
    """No reply is available; the message has the reason. `away`: whether the cluster did not reply; otherwise it
    refused the request."""

    def __init__(self, reason: str, *, away: bool = True) -> None:
        super().__init__(reason)
        self.away = away


@dataclass(frozen=True, slots=True)
class CachedResponse(Generic[T]):
    """An answer, when it was given (Unix time), and why there is no newer one; '' when it is as new as it should be."""

    value: T
    at_ms: int
    failure: str = ""
    away: bool = False
    """The cluster did not answer a newer question."""


@dataclass(slots=True)
class _Known:
    good_until_s: float
    answer: CachedResponse[Any] | None = None
    failure: str = ""
    away: bool = False


AWAY: Final = (ConnectError, Timeout, BrokerPersistenceError, NotConnected)
"""Errors of a cluster that does not answer; all others are its answer."""


class QuestionTurn:
    """One request at a time. While the cluster is known to be unreachable no request is sent. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free = threading.Condition()
        self._held_since_s: float | None = None
        self._away = (float("-inf"), "")
        """The time until which the cluster counts as unreachable, and the reason."""
        self._ended = False

    def why_not(self) -> str:
        """The reason why no request is sent now; '' where the cluster is available."""
        if self._ended:
            return "the console ends"
        until_s, reason = self._away
        return reason if self._clock.monotonic() < until_s else ""

    def away(self, reason: str, for_s: float = FRESH_S) -> None:
        """Sends no request for this time, or until the cluster is `back`."""
        self._away = (self._clock.monotonic() + for_s, reason)

    def back(self) -> None:
        """The cluster answers."""
        self._away = (float("-inf"), "")

    def end(self) -> None:
        """No more questions."""
        self._ended = True

    def acquire(self) -> bool:
        """Waits for the turn. False: the cluster has not replied to the request before for `MAX_WAIT_S`, or too many
        requests wait."""
        queued = Deadline.after(_QUEUE_S)
        with self._free:
            while self._held_since_s is not None:
                left_s = self._held_since_s + MAX_WAIT_S - self._clock.monotonic()
                if left_s <= 0 or queued.passed():
                    return False
                self._free.wait(min(left_s, queued.remaining_s()))
            self._held_since_s = self._clock.monotonic()
            return True

    def release(self) -> None:
        with self._free:
            self._held_since_s = None
            self._free.notify()


class Answers:
    """The cache sends one request at a time, in a thread of its own; all callers wait for the same reply. Thread-safe.
    Memory: the `most` replies that were used last, and one thread.

    A caller waits for `MAX_WAIT_S` at most, and gets the older reply then. While the cluster is unreachable the first
    request waits for it, and later ones fail at once, for `FRESH_S`.
    """

    def __init__(self, clock: Clock, most: int, turn: QuestionTurn) -> None:
        """Caches that share a `turn` send one request at a time together."""
        self._clock = clock
        self._most = most
        self._turn = turn
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def to(self, key: Hashable, request: Callable[[], T]) -> CachedResponse[T]:
        """The reply for `key`, which is requested when the cached one is too old; the older one, with the reason, where
        that fails.

        Raises:
            Unanswered: the request failed, and there is no older reply.
        """
        known = self._fresh(key)
        if known is None:
            if not self._turn.acquire():
                return self._given(self._old(key), _LATE, away=True)
            known, reason = self._fresh(key), self._turn.why_not()
            if known is not None or reason:
                self._turn.release()
                if known is None:
                    return self._given(self._old(key), reason, away=True)
            else:
                sent: Future[_Known] = Future()
                aside("pok-console-question", lambda: self._reply(sent, key, request))
                try:
                    known = sent.result(MAX_WAIT_S)
                except FutureTimeout:
                    return self._given(self._old(key), _LATE, away=True)
        return self._given(known, known.failure, away=known.away)

    def _reply(self, sent: Future[_Known], key: Hashable, request: Callable[[], T]) -> None:
        """Sends the request, and ends the turn with its reply."""
        try:
            found = self._query(key, request)
        except BaseException as failure:
            self._turn.release()
            sent.set_exception(failure)
            raise
        self._turn.release()
        sent.set_result(found)

    def forget(self) -> None:
        """Forgets all replies: they do not hold any more."""
        with self._lock:
            self._known.clear()

    def _query(self, key: Hashable, request: Callable[[], T]) -> _Known:
        began_s = self._clock.monotonic()
        answer: CachedResponse[Any] | None
        away = False
        try:
            answer, failure = CachedResponse(request(), self._clock.now_ms()), ""
        except PulsarException as reason:
            answer, failure = self._old(key).answer, str(reason) or type(reason).__name__
            away = isinstance(reason, AWAY)
            if away:
                self._turn.away(failure)
        now_s = self._clock.monotonic()
        good_s = FRESH_S if away else max(FRESH_S, _TIMES * (now_s - began_s))
        known = _Known(now_s + good_s, answer, failure, away)
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return known

    def _fresh(self, key: Hashable) -> _Known | None:
        known = self._old(key)
        return known if self._clock.monotonic() < known.good_until_s else None

    def _old(self, key: Hashable) -> _Known:
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key, _Known(float("-inf")))

    @staticmethod
    def _given(known: _Known, failure: str, *, away: bool) -> CachedResponse[T]:
        if known.answer is None:
            raise Unanswered(failure, away=away)
        return CachedResponse(cast("T", known.answer.value), known.answer.at_ms, failure, away)
