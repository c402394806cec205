"""A forked child refuses every object that its parent opened: the threads behind it exist in the parent alone.

The sockets, leases and heartbeats of such an object stay the parent's. The child closes and frees none of them, neither
by the garbage collector nor when the child ends. Each process opens a `Client` of its own, after the fork.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar
from weakref import WeakSet, ref

from pulsar_on_kafka.exceptions import AlreadyClosed

_T = TypeVar("_T")

_log: Final = logging.getLogger(__name__)

_OPENED: Final[dict[int, ref[Any]]] = {}
"""Objects by `id`: a program's subclass may have `__eq__` and no `__hash__`."""
_LOCKS: Final[WeakSet[Any]] = WeakSet()
_AFTER_FORK: Final[list[Callable[[], None]]] = []
_LEFT_TO_PARENT: Final[dict[type, type]] = {}
"""The class of an object in the child, by its class in the parent."""


class OfOneProcess:
    """Base of what uses threads, locks or sockets of its process. In a forked child each call on it raises
    `AlreadyClosed` at once, which costs the calls in the process itself nothing."""

    def __new__(cls: type[_T], *_: Any, **__: Any) -> _T:
        opened = object.__new__(cls)
        key = id(opened)
        _OPENED[key] = ref(opened, lambda _: _OPENED.pop(key, None))
        return opened


def process_lock() -> threading.Lock:
    """A lock of a module, or of an object that a child continues to use: it is free there, whichever thread held it at
    the fork."""
    lock = threading.Lock()
    _LOCKS.add(lock)
    return lock


def after_fork_in_child(action: Callable[[], None]) -> None:
    """Run `action` in every forked child, when the inherited objects are left to the parent."""
    _AFTER_FORK.append(action)


def pin(inherited: object) -> None:
    """Keep an object from ever being freed: what it would end belongs to the parent."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


def _leave_to_parent() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # as Python's own modules do
    for opened in list(_OPENED.values()):
        each = opened()
        if each is not None:
            pin(each)
            _refuse_calls(each)
    _OPENED.clear()
    for action in _AFTER_FORK:
        action()


def _refuse_calls(inherited: object) -> None:
    """Makes an object refuse all calls. A program's subclass that cannot be derived from is skipped."""
    for opened in type(inherited).__mro__:
        try:
            object.__setattr__(inherited, "__class__", _class_in_child(opened))
        except Exception:  # what the program's class raises
            _log.exception("an object of %s cannot have that class in a forked child", opened.__name__)
        else:
            return


def _class_in_child(opened: type) -> type:
    """A class whose objects refuse everything, and which `isinstance` takes for the former one."""
    found = _LEFT_TO_PARENT.get(opened)
    if found is None:
        members: dict[str, Any] = {"__slots__": (), "__getattribute__": _attribute, "__repr__": _text, "__str__": _text}
        if hasattr(opened, "__exit__"):
            members["__exit__"] = _exit
        if hasattr(opened, "__aexit__"):
            members["__aexit__"] = _aexit
        found = _LEFT_TO_PARENT[opened] = type(opened.__name__, (opened,), members)
    return found


def _refuse(inherited: object) -> NoReturn:
    raise AlreadyClosed(f"{_text(inherited)}: open a Client in each process, after the fork")


def _attribute(inherited: object, name: str) -> Any:
    if name.startswith("__") and name.endswith("__"):
        return object.__getattribute__(inherited, name)
    return _refuse(inherited)


def _text(inherited: object) -> str:
    return f"{type(inherited).__name__} of the parent of this forked process"


def _exit(inherited: object, kind: type[BaseException] | None, *_: object) -> None:
    """Passes an exception that leaves a `with`, such as the child's `SystemExit`, on unchanged."""
    if kind is None:
        _refuse(inherited)


async def _aexit(inherited: object, kind: type[BaseException] | None, *_: object) -> None:
    """The same for an `async with`."""
    _exit(inherited, kind)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
