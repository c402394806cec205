"""Re-entry: a thread that comes back to a lock which it holds is refused, where it would wait for itself for ever.

A signal handler interrupts the main thread after any call, also inside this package, and may call this package again.
So do objects that the garbage collector ends.
"""

from __future__ import annotations

import threading
import weakref
from typing import Final

from pulsar_on_kafka.base.errors import Refused
from pulsar_on_kafka.base.forks import after_fork_in_child

_GUARDS: Final[set[weakref.ref[Guard]]] = set()
_INTERRUPTED: Final = (
    "a signal handler has interrupted a call of this package that it cannot interrupt here: set a flag in the handler,"
    " or make this call from another thread"
)


class Guard:
    """A lock that refuses the thread which holds it. Thread-safe."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """For a block without any call: no signal handler comes between its statements (CPython runs them after calls
        and at loops). Such a block needs no refusal."""
        _GUARDS.add(weakref.ref(self, _GUARDS.discard))

    def __enter__(self) -> None:
        """Raises Refused: the calling thread holds it."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise Refused(_INTERRUPTED)
        self.lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self.lock.release()


def check_may_wait() -> None:
    """To be called before the main thread waits for other threads of this package, which may need what it holds.

    Raises:
        Refused: it holds a `Guard`, so a signal handler has interrupted it there.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return
    for each in list(_GUARDS):
        guard = each()
        if guard is not None and guard.lock._is_owned():  # type: ignore[attr-defined]
            raise Refused(_INTERRUPTED)


after_fork_in_child(_GUARDS.clear)
