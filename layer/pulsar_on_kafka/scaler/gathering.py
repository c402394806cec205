"""Gathers the backlogs of all subscriptions for all triggers together, at most once an interval."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from typing import Final

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed
from pulsar_on_kafka.base.role_state import RoleState
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.scaler.backlog import Backlogs
from pulsar_on_kafka.scaler.due_backlog import DueBacklogs

INTERVAL_S: Final = 5.0
"""The default limit of the age of a reported backlog."""
_PASS_S: Final = 60.0
_RETRY: Final = Retry(1.0, 5.0)


class BacklogGatherer:
    """The gatherer. Thread-safe. Without requests it makes no passes.

    Memory: see `Gatherer` and `Backlogs`, from the first request on; and `DueBacklogs`.
    """

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        """Backlogs are at most `interval_s` and one pass old."""
        self.interval_s = interval_s
        self._lock = threading.Lock()
        self._gatherer: SharedGatherer | None = None
        self._due: DueBacklogs | None = None
        self._failure = "not connected yet"
        self._seen: tuple[Backlogs, float] | None = None
        """The last backlogs, and the end of their validity."""
        self._next: Future[Backlogs] | None = None
        """The result of the next pass; None without a request."""
        self._worker = Worker(
            "pok-scaler-gatherer", self._gather, "scaler=backlogs could not be gathered", retry=_RETRY
        )

    def waits_for(self, failure: str) -> None:
        """Why the cluster was not reached when that was last tried."""
        self._failure = failure

    def connect(self, gatherer: SharedGatherer, admin: AdminClient) -> None:
        """Uses these from now on, until `close`; the caller closes them later."""
        self._due = DueBacklogs(admin, self.interval_s)
        self._gatherer = gatherer
        self._failure = ""
        self._worker.start()

    @property
    def failure(self) -> str:
        """Why the last pass failed; '' after a successful one."""
        return self._failure

    def request(self) -> Future[Backlogs]:
        """Backlogs of the last interval, at once or after a pass that all present callers share. The caller must not
        cancel the result.

        The result raises LayerError: the pass failed.
        """
        with self._lock:
            answer: Future[Backlogs] = Future()
            if self._gatherer is None or self._worker.ended:
                answer.set_exception(ConnectFailed("it is stopping" if self._worker.ended else self._failure))
                return answer
            if self._seen is not None and time.monotonic() < self._seen[1]:
                answer.set_result(self._seen[0])
                return answer
            if self._next is None:
                self._next = answer
            requested = self._next
        self._worker.wake()
        return requested

    def request_due(self, topic: str, subscription: str) -> Future[int]:
        """See `DueBacklogs.request`; after a first result of `request`."""
        if self._due is None:
            raise ConnectFailed(self._failure)
        return self._due.request(topic, subscription)

    def fresh_for_s(self) -> float:
        """The time until a request causes a new pass, in seconds."""
        with self._lock:
            return 0.0 if self._seen is None else max(0.0, self._seen[1] - time.monotonic())

    def state(self) -> RoleState:
        dead = () if self._gatherer is None or self._worker.is_alive() else (self._worker.name,)
        return RoleState("scaler", joined=True, partitions=0, dead=dead, turns=(("passes", self._worker.turns.seen()),))

    def close(self, deadline: Deadline) -> None:
        """Ends requests to the cluster; a second call does nothing."""
        self._worker.close(deadline)
        if self._due is not None:
            self._due.close(deadline)
        if self._gatherer is not None:
            self._gatherer.let_go(self, deadline)

    def _gather(self) -> float:
        if self._next is None or self._gatherer is None:
            return math.inf
        half_s = self.interval_s / 2
        began_s = time.monotonic()
        try:
            with self._worker.turns.one():
                found = Backlogs(self._gatherer.latest(self, Deadline.after(_PASS_S), within_s=half_s))
        except Exception as failure:
            self._failure = str(failure) or type(failure).__name__
            self._settled().set_exception(failure)
            raise
        self._failure = ""
        self._settled((found, began_s + half_s)).set_result(found)
        return math.inf

    def _settled(self, seen: tuple[Backlogs, float] | None = None) -> Future[Backlogs]:
        """The result to complete, after which a request needs another pass."""
        with self._lock:
            self._seen = seen
            answer, self._next = self._next, None
        assert answer is not None  # noqa: S101 - only the worker's thread takes it
        return answer
