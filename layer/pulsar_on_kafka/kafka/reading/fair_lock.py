"""A lock for work that one thread does for many: it goes to the thread that waits longest, and served threads leave the
queue.

Python's own locks go to a thread that takes them again at once, so one that works in short turns blocks all others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from pulsar_on_kafka.base.deadline import Deadline


class _Place:
    """A place in the queue."""

    def __init__(self, served: Callable[[], bool]) -> None:
        self.served = served
        self.granted = False
        self.asleep = threading.Lock()
        self.asleep.acquire()


class FairLock:
    """A release wakes the served threads and the next one, no others: on a busy machine thirty threads that all wake
    take longer to go back to sleep than the work takes.

    Not reentrant; but a thread that holds it, or is in the middle of one of its methods, may call `take_if_free`
    (finalizers run anywhere). Memory: one entry for each thread that waits.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        """Held for short whenever what the holder knows and what those know who wait meet."""
        self._queue: deque[_Place] = deque()
        self._held = False

    def take_unless(self, served: Callable[[], bool], deadline: Deadline) -> bool:
        """Waits for the lock. False, without it: `served` returned True (called at each release, in the releasing
        thread, with `mutex`), or the deadline passed."""
        with self.mutex:
            if served():
                return False
            if self.take_if_free():
                return True
            place = _Place(served)
            self._queue.append(place)
        try:
            place.asleep.acquire(timeout=min(deadline.remaining_s(), threading.TIMEOUT_MAX))
        except BaseException:  # a signal's, Ctrl-C for example: the lock granted to this thread would never be released
            if self._leaves(place):
                self.release()
            raise
        return self._leaves(place)

    def _leaves(self, place: _Place) -> bool:
        """Removes the place; returns whether the lock was granted to it."""
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
        """Releases the lock. False, and still held, when `unless` returns True, which threads with `mutex` cannot
        change meanwhile."""
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
