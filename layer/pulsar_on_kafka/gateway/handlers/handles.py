"""Handles of one connection: the producers, or the consumers, that its client has opened or is opening. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from pulsar_on_kafka.exceptions import AlreadyClosed

T = TypeVar("T")
R = TypeVar("R")


class Opening(Generic[T]):
    """One request to open a handle, and the handle that it made."""

    __slots__ = ("handle", "is_lost", "is_required", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_required = True
        """False after the client closed the handle, or its connection ended. Any thread may read the attribute."""
        self.is_lost = False
        """The handle ended by itself while it was opening: its client has to open it anew."""
        self.handle: T | None = None

    def attempt(self, work: Callable[[], R]) -> R:
        """Raises AlreadyClosed: the client closed the handle while the work waited for a thread."""
        if not self.is_required:
            raise AlreadyClosed("closed before it was opened")
        return work()


class Handles(Generic[T]):
    """Handles by the id that the client gave them. An id is free, opening, open or leaving.

    A close while the id is opening gives the opening up: its handle, if one is still made, goes back to the caller of
    `opened`, who closes it. The id stays taken until then, so no id has two openings at once. An id is leaving while
    the gateway closes its handle and the client does not know: a handle that was opened meanwhile would seem closed to
    the client. Source: Pulsar's ServerCnx 4.0.7, which discards the consumer of a request that was closed before it
    was answered.
    """

    def __init__(self) -> None:
        self._openings: dict[int, Opening[T]] = {}
        self._open: dict[int, T] = {}
        self._leaving: set[int] = set()
        self._ended = False
        self.get: Callable[[int], T | None] = self._open.get
        """The open handle of an id."""

    def __len__(self) -> int:
        return len(self._openings) + len(self._open) + len(self._leaving)

    def __contains__(self, number: int) -> bool:
        return number in self._open or self.is_busy(number)

    def items(self) -> list[tuple[int, T]]:
        """The ids that are open, with their handles."""
        return list(self._open.items())

    def is_busy(self, number: int) -> bool:
        """The id is opening, also after the client gave that up, or leaving."""
        return number in self._openings or number in self._leaving

    def begin(self, number: int) -> Opening[T]:
        """Take a free id."""
        assert number not in self, f"id {number} is taken"  # noqa: S101 - the caller has looked
        opening = self._openings[number] = Opening[T](number)
        opening.is_required = not self._ended
        return opening

    def opened(self, opening: Opening[T], handle: T) -> bool:
        """End an opening with its handle. False: the client closed the handle meanwhile, and the
        caller closes what was opened."""
        opening.handle = handle
        if self.failed(opening):
            self._open[opening.number] = handle
            return True
        return False

    def failed(self, opening: Opening[T]) -> bool:
        """End an opening without a handle. Returns whether the client waits for the answer."""
        if self._openings.get(opening.number) is opening:
            del self._openings[opening.number]
        return opening.is_required

    def give_up(self, number: int) -> Opening[T] | None:
        """The client closes an id that is opening; None: the id is not opening."""
        opening = self._openings.get(number)
        if opening is not None:
            opening.is_required = False
        return opening

    def lost(self, opening: Opening[T]) -> T | None:
        """The handle of this opening ended by itself. Gives the handle where the client has it. While the id is opening
        the caller of `opened` finds the loss in `is_lost`."""
        opening.is_lost = True
        return opening.handle if opening.handle is self._open.get(opening.number) else None

    def remove(self, number: int, handle: T) -> bool:
        """Free an id if it still is that of this handle."""
        if self._open.get(number) is not handle:
            return False
        del self._open[number]
        return True

    def leave(self, number: int, handle: T) -> None:
        """Take an open handle away from the client, which learns of it before `left`."""
        if self.remove(number, handle):
            self._leaving.add(number)

    def left(self, number: int) -> None:
        """The client knows: the id is free."""
        self._leaving.discard(number)

    def end(self) -> list[T]:
        """The connection has ended: give all openings up, and give back the open handles, which the caller closes."""
        self._ended = True
        for opening in self._openings.values():
            opening.is_required = False
        left = list(self._open.values())
        self._open.clear()
        return left
