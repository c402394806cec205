"""The newest records of a partition that somebody follows, for whoever reads on from where he was. No Kafka in here."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.statelog.api import LogRecord

MOST_RECORDS: Final = 5_000
MOST_BYTES: Final = 4 * 1024 * 1024


class Window:
    """Every record that the log has in [base, reached). One thread puts, any may take.

    Memory: `most_records` records of `most_bytes` (keys and values), or one record that is larger; the oldest go.
    """

    def __init__(self, start: int, *, most_records: int = MOST_RECORDS, most_bytes: int = MOST_BYTES) -> None:
        """`start` is the offset that is read first."""
        self.start = start
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._base = start
        self._reached = -1
        """Nothing was heard yet: who would wait for the first record had better read by himself."""
        self._records: deque[LogRecord] = deque()
        self._bytes = 0
        self._over = False
        self._moved = threading.Condition()

    def put(self, records: Sequence[LogRecord], reached: int) -> None:
        """Add the records that follow in the log, and up to where (exclusive) it was read by now."""
        with self._moved:
            for record in records:
                self._records.append(record)
                self._bytes += _size(record)
            while len(self._records) > self._most_records or (
                self._bytes > self._most_bytes and len(self._records) > 1
            ):
                gone = self._records.popleft()
                self._bytes -= _size(gone)
                self._base = gone.offset + 1
            self._reached = max(self._reached, reached)
            self._moved.notify_all()

    def end(self) -> None:
        """Nothing is put any more."""
        with self._moved:
            self._over = True
            self._moved.notify_all()

    def take(self, start: int, end: int, patience: Deadline) -> list[LogRecord] | None:
        """The records in [start, end), as soon as all of them were read.

        None: they cannot be had here, because some are older than what is kept, nothing was read yet, reading has
        ended, or did not come that far within `patience`.
        """
        with self._moved:
            while True:
                if self._over or self._reached < 0 or start < self._base:
                    return None
                if self._reached >= end:
                    return self._between(start, end)
                if not self._moved.wait(patience.remaining_s()):
                    return None

    def _between(self, start: int, end: int) -> list[LogRecord]:
        """The records of [start, end), found by going back from the newest: a caller nearly always takes the last that
        came."""
        found: list[LogRecord] = []
        for record in reversed(self._records):
            if record.offset < start:
                break
            if record.offset < end:
                found.append(record)
        found.reverse()
        return found


def _size(record: LogRecord) -> int:
    return len(record.key) + len(record.value or b"")
