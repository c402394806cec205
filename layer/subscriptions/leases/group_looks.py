"""Looks at Kafka's group: who is in it still. Runs in the member's thread.

Whoever leaves in good order writes its last report first. So before somebody who is missed is given up, everything that
stood in the log when the group was looked at is taken in: what a member acknowledged last does not come again, and its
leaving is not taken for a death.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from pulsar_on_kafka.subscriptions.leases.terms import HeardAgain

_LOOK_S: Final = 1.0
_LOOK_WHILE_ASKING_S: Final = 0.1
_MOST_READ: Final = 1000


class Asks(Protocol):
    """A `LeaseTraffic`, as far as it matters here."""

    def group(self) -> Future[Collection[str]]: ...

    def read(self, start: int, most: int) -> Future[HeardAgain]: ...


class Seen(NamedTuple):
    """The client ids of the group's live members at `asked_s` (monotonic) or after."""

    client_ids: Collection[str]
    asked_s: float


class GroupLooks:
    """One look at a time. Memory: the client ids, and 1,000 records while they are read."""

    def __init__(self, traffic: Asks) -> None:
        self._traffic = traffic
        self._asked: tuple[Future[Collection[str]], float] | None = None
        self._seen: Seen | None = None
        self._reading: Future[HeardAgain] | None = None
        self._upto = 0
        """Everything below is to be taken in before what was seen counts."""
        self._is_all = True
        """There was no more to be read."""
        self._next_s = 0.0

    def ask(self, now_s: float, *, hurries: bool) -> None:
        """Begin a look if it is time for one: every second, ten times a second where somebody `hurries`."""
        due_s = self._next_s - (_LOOK_S - _LOOK_WHILE_ASKING_S if hurries else 0.0)
        if self._asked is None and self._seen is None and now_s >= due_s:
            self._asked = (self._traffic.group(), now_s)
            self._next_s = now_s + _LOOK_S

    def seen(self) -> Seen | None:
        """What the last look has found, once.

        Raises:
            StoreError: the group could not be asked.
        """
        if self._asked is None or not self._asked[0].done():
            return None
        (answer, asked_s), self._asked = self._asked, None
        return Seen(answer.result(), asked_s)

    def hear_first(self, seen: Seen, since: int) -> None:
        """Somebody is missed: what was `seen` counts when all that stands in the log by now, from offset `since` on, is
        taken in (`counts`)."""
        self._seen, self._upto = seen, 0
        self._reading = self._traffic.read(since, _MOST_READ)

    def counts(self, taken_in: int) -> Seen | None:
        """What was seen, once everything that stood in the log then is below `taken_in`.

        Raises:
            StoreError: the log could not be read; the next look comes in time.
        """
        if self._seen is None:
            return None
        if self._reading is not None:
            if not self._reading.done():
                return None
            reading, self._reading = self._reading, None
            if reading.exception() is not None:
                self._seen = None
            found = reading.result()
            self._upto = found.records[-1][0] + 1 if found.records else 0
            self._is_all = len(found.records) < _MOST_READ
        if taken_in < self._upto:
            return None
        if not self._is_all:
            self._reading = self._traffic.read(taken_in, _MOST_READ)
            return None
        seen, self._seen = self._seen, None
        return seen
