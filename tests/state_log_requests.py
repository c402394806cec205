"""Coordinators as other processes see them, and their requests without a thread that tails them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import OffsetOutOfRange, StoreError
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.views import LogViews
from pulsar_on_kafka_mapping.state.state_topics import TRANSACTION_LOG, TRANSACTION_REQUESTS

MAX_REQUESTS = 10_000
NEVER = Deadline.never()


def coordinator_logs(log: StateLog, clock: Clock) -> LogViews[CoordinatorState]:
    """What a process has that serves no coordinator."""
    return LogViews(log, TRANSACTION_LOG, CoordinatorState, clock)


class StateLogRequests:
    """Reads the coordinator's partition of `transaction_requests` from where it ended when it began, whenever it is
    asked."""

    def __init__(self, log: StateLog, coordinator: int) -> None:
        self._log = log
        self._partition = TRANSACTION_REQUESTS.partition_of_coordinator(coordinator)
        self._position: int | None = None

    def begin(self, wake: Callable[[], None], deadline: Deadline) -> None:
        with suppress(StoreError):
            self._position = self._log.end_offset(TRANSACTION_REQUESTS, self._partition, deadline)

    def take(self) -> list[LogRecord]:
        """What came; as with a tail nothing of what cannot be read."""
        try:
            return self._take()
        except StoreError:
            return []

    def _take(self) -> list[LogRecord]:
        end = self._log.end_offset(TRANSACTION_REQUESTS, self._partition, NEVER)
        if self._position is None or self._position > end:
            self._position = end
        found: list[LogRecord] = []
        try:
            for batch in self._log.read(TRANSACTION_REQUESTS, self._partition, self._position, end, NEVER):
                found.extend(batch)
                self._position = batch[-1].offset + 1
                if len(found) >= MAX_REQUESTS:
                    return found
            self._position = end
        except OffsetOutOfRange:  # retention took them; nobody waits for an answer that long
            self._position = self._log.start_offset(TRANSACTION_REQUESTS, self._partition, NEVER)
        return found

    def rest(self) -> None:
        self._position = None
