"""Answers of the cluster are remembered for a while: however many browsers ask, the cluster is asked once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.exceptions import PulsarException

T = TypeVar("T")

FRESH_S: Final = 4.0
"""An answer is good for so long, or for ten times as long as it took: looking takes a tenth of a thread at most."""
_TIMES: Final = 10
_WAIT_S: Final = 20.0
"""How long a question waits for those before it."""


class Unanswered(Exception):
    """The cluster did not answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """An answer, when it was given (Unix time), and why there is no newer one; '' when it is as new as it should be."""

    value: T
    at_ms: int
    failure: str = ""


@dataclass(slots=True)
class _Known:
    good_until_s: float
    answer: Answer[Any] | None = None
    failure: str = ""


class Answers:
    """One question at a time is asked, by whichever thread wants it first; those who want the same wait for it.
    Thread-safe. Memory: the `most` answers that were used last."""

    def __init__(self, clock: Clock, most: int, turn: threading.Lock) -> None:
        """Those who share a `turn` ask one at a time together."""
        self._clock = clock
        self._most = most
        self._turn = turn
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()

    def to(self, key: Hashable, ask: Callable[[], T]) -> Answer[T]:
        """The answer to what `key` names, which is asked when it is not known well enough; an older one, with the
        reason, where that fails.

        Raises:
            Unanswered: it failed, and there is no older one.
        """
        known = self._fresh(key)
        if known is None:
            if not self._turn.acquire(timeout=_WAIT_S):
                return self._given(self._old(key), "too many questions wait for the cluster")
            try:
                known = self._fresh(key) or self._asked(key, ask)
            finally:
                self._turn.release()
        return self._given(known, known.failure)

    def forget(self) -> None:
        """What was answered is not true any more."""
        with self._lock:
            self._known.clear()

    def _asked(self, key: Hashable, ask: Callable[[], T]) -> _Known:
        began_s = self._clock.monotonic()
        answer: Answer[Any] | None
        try:
            answer, failure = Answer(ask(), self._clock.now_ms()), ""
        except PulsarException as reason:
            answer, failure = self._old(key).answer, str(reason) or type(reason).__name__
        now_s = self._clock.monotonic()
        known = _Known(now_s + max(FRESH_S, _TIMES * (now_s - began_s)), answer, failure)
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
    def _given(known: _Known, failure: str) -> Answer[T]:
        if known.answer is None:
            raise Unanswered(failure)
        return Answer(cast("T", known.answer.value), known.answer.at_ms, failure)
