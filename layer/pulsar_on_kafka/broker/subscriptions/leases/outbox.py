"""The lease outbox writes this process's leases and reports to `deliveries`.

All of it runs in the member's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from math import inf
from typing import Final, NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import LeaseTraffic
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import ALL_MEMBERS
from pulsar_on_kafka_mapping.state.cursors.lease_records import LeaseRecord

_RETRY_INTERVAL_S: Final = 0.2
_FORBIDDEN_RETRY_INTERVAL_S: Final = 30.0
_GATHER_LEASES_S: Final = 0.02
_FLUSH_TIMEOUT_S: Final = 2.0

_log = logging.getLogger(__name__)


class _Append(NamedTuple):
    reply: Future[list[int]]
    of_owner: bool
    """Some of its records are those of this process as an owner."""
    has_report: bool
    """Its last record is a report."""


class LeaseOutbox:
    """One append at a time, with all records that wait and the lessee's report. `owned` is the owner's own dictionary,
    seen from here.

    Memory: the records since the last append.
    """

    def __init__(
        self,
        name: str,
        traffic: LeaseTraffic,
        clock: Clock,
        lessee: Lessee,
        owned: Collection[int],
        wake: Callable[[], None],
    ) -> None:
        self._name = name
        self._traffic = traffic
        self._clock = clock
        self._lessee = lessee
        self._owned = owned
        self._wake = wake
        self._records: list[tuple[int, LeaseRecord]] = []
        self._urgent = False
        self._append: _Append | None = None
        self._retry_s = 0.0
        self._leases_s = 0.0
        """Records that are not urgent are written then."""
        self.is_forbidden = False
        """Kafka has refused an append by its access rights."""

    def __bool__(self) -> bool:
        """Records wait for an append."""
        return bool(self._records)

    @property
    def is_writing(self) -> bool:
        return self._append is not None

    def is_blocked(self) -> bool:
        """No append can begin now."""
        return self._append is not None or self._clock.monotonic() < self._retry_s

    def next_due(self, now_s: float) -> float:
        """The time of the next append, on the monotonic clock; infinite while one is under way, or no record waits."""
        if self._append is not None:
            return inf
        if now_s < self._retry_s:
            return self._retry_s
        return self._leases_s if self._records else inf

    def add(self, partition: int, record: LeaseRecord, *, urgent: bool = True) -> None:
        """Write this record about a partition (or ALL_MEMBERS) with the next append."""
        self._urgent = self._urgent or urgent
        self._records.append((partition, record))

    def send(self) -> bool:
        """Begin an append, unless one is under way. False: records of this process as an owner may be lost."""
        now_s = self._clock.monotonic()
        is_written = self._apply_reply(now_s)
        self._begin(now_s)
        return is_written

    def flush(self) -> bool:
        """Write everything that waits, in two seconds at most. False: as `send`."""
        deadline = Deadline.after(_FLUSH_TIMEOUT_S)
        self._urgent = True
        is_written = True
        while not deadline.passed():
            self._lessee.now_s = self._clock.monotonic()
            is_written = self.send() and is_written
            if self._append is None:
                break
            try:
                self._append.reply.result(deadline.remaining_s())
            except Exception as failure:  # the next owner of a partition finds out by itself
                _log.info("subscription=%s could not write all records to other members: %s", self._name, failure)
                break
        return is_written

    def _apply_reply(self, now_s: float) -> bool:
        if self._append is None or not self._append.reply.done():
            return True
        append, self._append = self._append, None
        failure = append.reply.exception()
        if failure is None:
            if append.has_report:
                self._lessee.written(append.reply.result()[-1], self._owned)
            return True
        forbidden = isinstance(failure, errors.NotAuthorized)
        self._retry_s = now_s + (_FORBIDDEN_RETRY_INTERVAL_S if forbidden else _RETRY_INTERVAL_S)
        level = logging.DEBUG if self.is_forbidden else logging.WARNING
        self.is_forbidden = self.is_forbidden or forbidden
        _log.log(level, "subscription=%s could not write to other members: %s", self._name, failure)
        return not append.of_owner

    def _begin(self, now_s: float) -> None:
        if self._append is not None or now_s < self._retry_s:
            return
        report = self._lessee.report()
        if report is None and (not self._records or (not self._urgent and now_s < self._leases_s)):
            return
        records, self._records, self._urgent = self._records, [], False
        self._leases_s = now_s + _GATHER_LEASES_S
        of_owner = bool(records)
        if report is not None:
            records.append((ALL_MEMBERS, report))
        reply = self._traffic.write(records)
        self._append = _Append(reply, of_owner, report is not None)
        reply.add_done_callback(lambda _: self._wake())
