"""An owned log: a partition of a state topic, owned by the process that took it over last.

Command, decide, append, apply and reply meet here (docs/architecture.md). An owner's round has one order: by the state
that it read last it decides, and appends; then it reads the log to its end, or to the end of its own records, and stops
if another process took over before that; only the result of this reading is acted upon, and answered. So no action
precedes the reading of its valid record, and an owner that was paused for long can append when it wakes, but never
decide. Taking over has one order too: read to the end, append TAKEOVER, read it back, serve.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown, Fenced
from pulsar_on_kafka.statelog.take_over import Owner
from pulsar_on_kafka.statelog.view import LogEnd, LogFold, LogView

_log: Final = logging.getLogger(__name__)


def random_session() -> str:
    return secrets.token_hex(16)


class OwnedFold(LogFold, Protocol):
    """A fold that judges by a `TakeOverFence`."""

    @property
    def owner(self) -> Owner | None: ...

    @property
    def next_version(self) -> int: ...


S = TypeVar("S", bound=OwnedFold)


class OwnedLog(Generic[S]):
    """An owned log, for one thread: the returned state is the view's own, and does not change until the next call."""

    def __init__(
        self,
        view: LogView[S],
        name: str,
        *,
        late_is_harmless: bool,
        new_session: Callable[[], str] = random_session,
    ) -> None:
        """`name` is what the owner owns, for messages. `late_is_harmless`: whatever the owner writes next, a record of
        its own that arrives behind that changes nothing. Otherwise it owns nothing any more once it does not know what
        it wrote: only a higher version makes void what is on its way."""
        self._view = view
        self._name = name
        self._late_is_harmless = late_is_harmless
        self._new_session = new_session
        self.owner: Owner | None = None
        """The owner identity; None before the take-over, and after it was fenced."""

    def read(self, deadline: Deadline, at: LogEnd | None = None) -> S:
        """The state at an end that was taken after this call began, or, with `at`, after the records of that append
        were read back; with any owner. Raises Corrupt, and the errors of `StateLog`."""
        return self._view.query(lambda state: state, deadline, at)

    def take_over(self, claim: Callable[[S, Owner], tuple[bytes, bytes]], deadline: Deadline) -> S:
        """Become the owner, with a session of its own, by the TAKEOVER that `claim` makes of the state before it; gives
        the state behind it.

        Raises:
            Fenced: another one claimed at the same time.
            Corrupt: a record of the log cannot be read. And what `StateLog` raises.
        """
        self.owner = None
        before = self.read(deadline)
        mine = Owner(self._new_session(), before.next_version)
        at: LogEnd | None = None
        try:
            at = self._view.append([claim(before, mine)], deadline)
        except AppendOutcomeUnknown as unknown:
            _log.info("%s version=%d outcome unknown, reading: %s", self._name, mine.version, unknown)
        state = self.read(deadline, at)
        mine.check(state.owner, self._name)
        self.owner = mine
        return state

    def judged(self, deadline: Deadline, at: LogEnd | None = None) -> S:
        """The result of `read` where no other process took over: the owner may act on it. Raises Fenced."""
        state = self.read(deadline, at)
        owner = self.must_own()
        try:
            owner.check(state.owner, self._name)
        except Fenced:
            self.owner = None
            raise
        return state

    def append(self, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline) -> LogEnd:
        """Appends in this order, and waits until all are durable; `judged` shows whether they count.

        Raises:
            Fenced: nothing is owned; or, unless `late_is_harmless`, the outcome is unknown.
            AppendOutcomeUnknown, and the errors of `StateLog.append_many`.
        """
        owner = self.must_own()
        try:
            return self._view.append(records, deadline)
        except AppendOutcomeUnknown as unknown:
            if self._late_is_harmless:
                raise
            self.owner = None
            raise Fenced(f"{self._name}: {owner} does not know what it wrote: {unknown}") from unknown

    def must_own(self) -> Owner:
        """The owner identity. Raises Fenced: it has not taken over, or was fenced."""
        if self.owner is None:
            raise Fenced(f"{self._name} was not taken over")
        return self.owner
