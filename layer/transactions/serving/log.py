"""A coordinator's partition of `__transaction_log`, and the requests that come to it: read to the end, append."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import OffsetOutOfRange
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_LOG, TRANSACTION_REQUESTS, StateTopic
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.view import LogEnd, LogView
from pulsar_on_kafka.transactions.coordinator.record_groups import Record
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState

_log: Final = logging.getLogger(__name__)
_MOST_REQUESTS: Final = 10_000


class CoordinatorLog:
    """For one thread: the state that `read` gives is the view's own, and stays the same until the next `read`."""

    def __init__(
        self,
        log: StateLog,
        coordinator: int,
        clock: Clock,
        *,
        follow_changes: bool = False,
        topic: StateTopic = TRANSACTION_LOG,
    ) -> None:
        self.coordinator = coordinator
        self._view: LogView[CoordinatorState] = LogView(
            log,
            topic,
            topic.partition_of_coordinator(coordinator),
            lambda: CoordinatorState(coordinator, follow_changes=follow_changes),
            clock,
        )

    def read(self, deadline: Deadline, at: LogEnd | None = None) -> CoordinatorState:
        """The state at an end that was asked for after this call was made, or, with `at`, where the records of that
        append have been read back. Raises Corrupt, and as `StateLog`."""
        return self._view.ask(lambda state: state, deadline, at)

    def append(self, records: Sequence[Record], deadline: Deadline) -> LogEnd:
        """Append in this order, and wait until all are durable. Raises as `StateLog.append_many`."""
        return self._view.append(records, deadline)


class RequestFeed(Protocol):
    """Requests of other processes to one coordinator, as they come. For the coordinator's thread."""

    @property
    def wakes(self) -> bool:
        """Whether somebody wakes the coordinator when there is something to take; otherwise it has to look."""
        ...

    def take(self, deadline: Deadline) -> Sequence[LogRecord]:
        """What came since the last call, in the order of the log, at most some thousands; the first call may begin at
        the end: who is not answered asks again."""
        ...

    def rest(self) -> None:
        """Nobody serves for now; the next `take` is like the first one."""
        ...


class StateLogRequests:
    """Reads the coordinator's partition of `transaction_requests` from where it ended at the first call, whenever it is
    asked: for tests, and where there is no thread to tail it."""

    wakes = False

    def __init__(self, log: StateLog, coordinator: int) -> None:
        self._log = log
        self._partition = TRANSACTION_REQUESTS.partition_of_coordinator(coordinator)
        self._position: int | None = None

    def take(self, deadline: Deadline) -> list[LogRecord]:
        end = self._log.end_offset(TRANSACTION_REQUESTS, self._partition, deadline)
        if self._position is None or self._position > end:
            self._position = end
        found: list[LogRecord] = []
        try:
            for batch in self._log.read(TRANSACTION_REQUESTS, self._partition, self._position, end, deadline):
                found.extend(batch)
                self._position = batch[-1].offset + 1
                if len(found) >= _MOST_REQUESTS:
                    return found
            self._position = end
        except OffsetOutOfRange as gone:  # retention took them; nobody waits for an answer that long
            _log.info("requests=%d position=%d starts over: %s", self._partition, self._position, gone)
            self._position = self._log.start_offset(TRANSACTION_REQUESTS, self._partition, deadline)
        return found

    def rest(self) -> None:
        self._position = None
