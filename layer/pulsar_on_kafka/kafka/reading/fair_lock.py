"""A lock for what one thread does for many: it goes to whoever waits longest, and who has been served leaves the queue.

Python's own locks go to a thread that takes them again at once, so one that works in short turns keeps all others out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pulsar_on_kafka.base.deadline import Deadline


class _Place:
    """In the queue."""

    def __init__(self, served: Callable[[], bool]) -> None:
        self.served = served
        self.granted = False
        self.asleep = threading.Lock()
        self.asleep.acquire()


class FairLock:
    """Whoever releases it wakes those who have been served and the next one, nobody else: on a busy machine thirty
    threads that all wake take longer to find out that they wait on than the work takes.

    Not reentrant; but a thread that holds it, or is in the middle of one of its methods, may call `take_if_free`
    (finalizers run anywhere). Memory: one entry for each thread that waits.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        """Held for short whenever what the holder knows and what those know who wait meet."""
        self._queue: deque[_Place] = deque()
        self._held = False

    def take_unless(self, served: Callable[[], bool], deadline: Deadline) -> bool:
        """Wait for the lock. False, without it: `served` says so (asked whenever somebody releases it, in that thread,
        with `mutex`), or the deadline passed."""
        with self.mutex:
            if served():
                return False
            if self.take_if_free():
                return True
            place = _Place(served)
            self._queue.append(place)
        try:
            place.asleep.acquire(timeout=min(deadline.remaining_s(), threading.TIMEOUT_MAX))
        except BaseException:  # a signal's, Ctrl-C for one: nobody would release what was granted to who has gone
            if self._leaves(place):
                self.release()
            raise
        return self._leaves(place)

    def _leaves(self, place: _Place) -> bool:
        """Whether the lock was granted to it."""
        with self.mutex:
            if place in self._queue:
                self._queue.remove(place)
            return place.granted

    def take_if_free(self) -> bool:
        with self.mutex:
            if self._held:
                return False
            self._held = True
            return True

    def release(self, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """False, and still held, when `unless` says so, which nobody can change meanwhile who has `mutex`."""
        with self.mutex:
            if unless():
                return False
            waiting, self._queue = self._queue, deque()
            for place in waiting:
                if place.served():
                    place.asleep.release()
                else:
                    self._queue.append(place)
            self._held = bool(self._queue)
            if self._held:
                following = self._queue.popleft()
                following.granted = True
                following.asleep.release()
            return True
