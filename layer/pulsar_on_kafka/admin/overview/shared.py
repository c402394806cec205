"""One gatherer serves all pages of a process with overviews of a cluster: a caller takes the latest one that is new
enough, or makes a pass for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pulsar_on_kafka.admin.overview.gathering import Gatherer
from pulsar_on_kafka.admin.overview.records import Overview
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import DeadlineExceeded
from pulsar_on_kafka.broker.node.services import Services


class SharedGatherer:
    """The shared gatherer. Thread-safe; one pass at a time. Memory: see `Gatherer`, and the latest overview, from the
    first request until all users released it."""

    def __init__(
        self,
        services: Services,
        *,
        make: Callable[[Services], Gatherer] = Gatherer,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services = services
        self._make = make
        self._monotonic = monotonic
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        """The lock of `_callers` alone, which change during a pass."""
        self._callers: set[object] = set()
        self._gatherer: Gatherer | None = None
        self._seen: tuple[Overview, float] | None = None

    def latest(self, caller: object, deadline: Deadline, *, within_s: float) -> Overview:
        """An overview whose pass began within the last `within_s`. `caller` is kept until its release.

        Raises:
            StoreError: Kafka is not available now.
        """
        if not self._turn.acquire(timeout=min(deadline.remaining_s(), threading.TIMEOUT_MAX)):
            raise DeadlineExceeded("overview: the pass under way takes too long")
        try:
            with self._lock:
                self._callers.add(caller)
            if self._gatherer is None:
                self._gatherer = self._make(self._services)
            began_s = self._monotonic()
            if self._seen is None or began_s - self._seen[1] > within_s:
                self._seen = self._gatherer.gather(deadline), began_s
            return self._seen[0]
        finally:
            self._end_unless_requested()
            self._turn.release()

    def let_go(self, caller: object, deadline: Deadline) -> None:
        """Ends with a pass that is under way, for which this waits until the deadline; a second call does nothing."""
        with self._lock:
            self._callers.discard(caller)
        if self._turn.acquire(timeout=min(deadline.remaining_s(), threading.TIMEOUT_MAX)):
            try:
                self._end_unless_requested()
            finally:
                self._turn.release()

    def _end_unless_requested(self) -> None:
        with self._lock:
            if self._callers or self._gatherer is None:
                return
        gatherer, self._gatherer, self._seen = self._gatherer, None, None
        gatherer.close()
