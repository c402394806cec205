"""A thread that works in rounds until it is ended: it waits, works, tells of what failed, and waits again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, LayerError

_log: Final = logging.getLogger(__name__)


class RoundsThread:
    """Nothing that a round raises ends it."""

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        failed: str,
        *,
        first_s: float,
        again_s: float,
        again_most_s: float | None = None,
    ) -> None:
        """`work` is one round, and gives the seconds until the next; the first one begins after `first_s`. `failed` is
        what the log says when it raises. After that the next one begins `again_s` later, each time twice as late, up to
        `again_most_s` (by default always the same)."""
        self._work = work
        self._failed = failed
        self._first_s = first_s
        self._again_s = again_s
        self._again_most_s = again_s if again_most_s is None else again_most_s
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """To be called once, when everything is there that a round needs."""
        self._thread.start()

    @property
    def name(self) -> str:
        return self._thread.name

    @property
    def ended(self) -> bool:
        """Whether it was told to end; a long round looks at this now and then."""
        return self._ended.is_set()

    def is_alive(self) -> bool:
        """It ends with `close` only."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Begin the next round now, or right after the one under way."""
        self._wake.set()

    def end(self) -> None:
        """Begin no round any more; a second call does nothing."""
        self._ended.set()
        self._wake.set()

    def close(self, deadline: Deadline) -> None:
        """End, and wait for the round under way; a second call does nothing."""
        self.end()
        self._thread.join(deadline.remaining_s())

    def _run(self) -> None:
        pause_s, again_s = self._first_s, self._again_s
        while not self._waited(pause_s):
            try:
                pause_s = self._work()
            except Exception as failure:
                pause_s, again_s = again_s, min(2 * again_s, self._again_most_s)
                self._tell(failure, pause_s)
            else:
                again_s = self._again_s

    def _waited(self, seconds: float) -> bool:
        """For so long, or until it is woken; True when it was told to end."""
        self._wake.wait(seconds)
        self._wake.clear()
        return self.ended

    def _tell(self, failure: Exception, pause_s: float) -> None:
        if not isinstance(failure, LayerError):
            _log.error("%s, again in %.0f s", self._failed, pause_s, exc_info=failure)
            return
        level = logging.DEBUG if isinstance(failure, Closed) or self.ended else logging.WARNING
        _log.log(level, "%s, again in %.0f s: %s", self._failed, pause_s, failure)
