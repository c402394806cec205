"""Re-entry: a thread that comes back to a lock which it holds is refused, where it would wait for itself for ever.

A signal handler interrupts the main thread after any call, also inside this package, and may call this package again.
So do objects that the garbage collector ends.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pulsar_on_kafka.base.errors import Refused
from pulsar_on_kafka.base.forks import after_fork_in_child

_GUARDS: Final[set[weakref.ref[ReentryGuard]]] = set()
_INTERRUPTED: Final = (
    "a signal handler has interrupted a call of this package that it cannot interrupt here: set a flag in the handler,"
    " or make this call from another thread"
)


class Callbacks:
    """The callbacks of programs that one thread at a time makes, in a `with`. Callbacks may call this package: what
    they call waits for no other callback, of whatever producer, since two that do might wait for each other."""

    def __init__(self) -> None:
        self.waits_for_room = False
        """The thread that makes them waits until another producer has room."""

    def __enter__(self) -> None:
        _callbacks().append(self)

    def __exit__(self, *raised: object) -> None:
        if made := _callbacks():  # none in a child that was forked in a callback
            made.pop()

    def is_own_thread(self) -> bool:
        """The calling thread makes one of them."""
        return self in _callbacks()


_made_here: Final = threading.local()


def _callbacks() -> list[Callbacks]:
    """The callbacks of the calling thread; several where one has led to another."""
    try:
        found: list[Callbacks] = _made_here.callbacks
    except AttributeError:
        found = _made_here.callbacks = []
    return found


def in_callback() -> bool:
    """The calling thread makes a callback of a program."""
    return bool(_callbacks())


@contextmanager
def waiting_for_room(others: Callbacks) -> Iterator[bool]:
    """The calling thread waits for room that comes when `others` return. False where that might be never: it makes
    callbacks for which, perhaps by way of others, they wait."""
    own = tuple(_callbacks())
    for each in own:
        each.waits_for_room = True
    try:
        yield not (others in own or (own and others.waits_for_room))
    finally:
        for each in own:
            each.waits_for_room = False


class ReentryGuard:
    """A lock that refuses the thread which holds it. Thread-safe."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """A lock for a block without any call: no signal handler runs between its statements (CPython runs them after
        calls and at loops). Such a block needs no refusal."""
        _GUARDS.add(weakref.ref(self, _GUARDS.discard))

    def __enter__(self) -> None:
        """Raises Refused: the calling thread holds it."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            raise Refused(_INTERRUPTED)
        self.lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self.lock.release()


def check_may_wait() -> None:
    """Call it before the main thread waits for other threads of this package, which may need its locks.

    Raises:
        Refused: the main thread holds a `ReentryGuard`, so a signal handler has interrupted it there.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return
    for each in list(_GUARDS):
        guard = each()
        if guard is not None and guard.lock._is_owned():  # type: ignore[attr-defined]
            raise Refused(_INTERRUPTED)


after_fork_in_child(_GUARDS.clear)
after_fork_in_child(lambda: _made_here.__dict__.clear())
