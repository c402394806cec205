"""A thread that works in turns reports how long the present turn has lasted, and how the last one ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnsSeen:
    """`done` and `failed` count turns that ended; `under_way_s` is 0.0 between two; `last_s` is how long the last one
    took, and `failure` what it failed of ('' when it ended well, or none ended yet)."""

    done: int = 0
    failed: int = 0
    under_way_s: float = 0.0
    last_s: float = 0.0
    failure: str = ""


class Turns:
    """Written by the thread that works, read by any."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._begun_s: float | None = None
        self._seen = TurnsSeen()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Times a turn, which has failed when it ends with an exception; the caller gets the exception."""
        begun_s = self._now_s()
        with self._lock:
            self._begun_s = begun_s
        failure = ""
        try:
            yield
        except BaseException as failed:  # counted, and raised again
            failure = f"{type(failed).__name__}: {failed}"
            raise
        finally:
            with self._lock:
                seen, self._begun_s = self._seen, None
                done, failed_so_far = (seen.done, seen.failed + 1) if failure else (seen.done + 1, seen.failed)
                self._seen = TurnsSeen(done, failed_so_far, 0.0, self._now_s() - begun_s, failure)

    def seen(self) -> TurnsSeen:
        with self._lock:
            seen, begun_s = self._seen, self._begun_s
        if begun_s is None:
            return seen
        return TurnsSeen(seen.done, seen.failed, self._now_s() - begun_s, seen.last_s, seen.failure)
