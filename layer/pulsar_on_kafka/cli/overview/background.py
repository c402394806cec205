"""Work of `pok top` beside its screen: the screen shows the age of its data, and follows keys, while Kafka does not
answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.cli.overview.rows import age_text
from pulsar_on_kafka.client.values.texts import time_text

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """One call at a time, each in a daemon thread. For one thread. Memory: the result of one call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._result: Future[T] | None = None

    @property
    def under_way(self) -> bool:
        """Whether a call has begun whose result was not taken."""
        return self._result is not None

    def begin(self, action: Callable[[], T]) -> None:
        """Begins a call; while one is under way this does nothing."""
        if self._result is None:
            result: Future[T] = Future()
            self._result = result
            aside(self._name, lambda: _settle(result, action))

    def taken(self) -> Future[T] | None:
        """The result of a call that has ended, once; None while there is none."""
        result = self._result
        if result is None or not result.done():
            return None
        self._result = None
        return result


def _settle(result: Future[T], action: Callable[[], T]) -> None:
    try:
        result.set_result(action())
    except Exception as failure:
        result.set_exception(failure)


@dataclass(frozen=True, slots=True)
class LatestOverview:
    """The data of the last good pass, and since when passes fail. Pure."""

    seen: Overview
    failure: str = ""
    """The reason of the last failed pass; '' after a good one."""
    failing_since_ms: int = 0
    """The begin of the first pass that failed, Unix time."""

    def failed(self, failure: str, began_ms: int) -> LatestOverview:
        """The same data after a pass that failed."""
        return replace(self, failure=failure, failing_since_ms=self.failing_since_ms or began_ms)

    def lines(self, now_ms: int) -> list[str]:
        """The time and age of the data; while passes fail also since when, and why."""
        age = f"as of {time_text(self.seen.gathered_ms)}, {age_text(now_ms - self.seen.gathered_ms)} ago"
        if not self.failure:
            return [age]
        since = f"{time_text(self.failing_since_ms)}, for {age_text(now_ms - self.failing_since_ms)}"
        return [age, f"Kafka does not answer since {since}: {self.failure}"]
