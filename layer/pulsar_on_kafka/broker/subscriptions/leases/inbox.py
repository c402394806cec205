"""A lease inbox holds the received records of one subscription's leases, in the order of the log, without a gap.

Another thread receives records, and the member's loop applies them. Records beyond the inbox's limit are read again
from the log. So a loop that is slow, or was stopped, misses only what retention deleted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from pulsar_on_kafka.broker.subscriptions.leases.lease_options import ReceivedLeaseRecord, RereadLeaseRecords

_RETRY_INTERVAL_S = 0.2

_log = logging.getLogger(__name__)


class LeaseInbox:
    """Memory: `max_records` records or `max_bytes` of their values, whatever is less, and one batch more."""

    def __init__(
        self,
        read: Callable[[int, int], Future[RereadLeaseRecords]],
        wake: Callable[[], None],
        can_wait: Callable[[bytes], bool],
        *,
        max_records: int,
        max_bytes: int,
    ) -> None:
        """`read` reads at most so many records again, from an offset on (`LeaseTraffic.read`). `can_wait` decides by a
        record's value that the member need not wake up for it; called by the receiving thread."""
        self._read = read
        self._wake = wake
        self._can_wait = can_wait
        self.is_urgent = False
        """A record must be applied at once."""
        self._most_records = max_records
        self._most_bytes = max_bytes
        self._lock = threading.Lock()
        self._records: deque[ReceivedLeaseRecord] = deque()
        self._bytes = 0
        self._upto = 0
        """Behind the last record that was stored."""
        self.applied_from: int | None = None
        """The offset of the first record that the member's loop got."""
        self.applied_upto = 0
        """Behind the last record that it applied."""
        self._behind: int | None = None
        """Records from this offset on are read again; received ones are not stored meanwhile."""
        self._passed_over = 0
        """Behind the last record that was received and not stored."""
        self._reading: Future[RereadLeaseRecords] | None = None
        self._again_s = 0.0

    # Any thread -------------------------------------------------------------------------------------------------------

    def receive(self, records: Sequence[ReceivedLeaseRecord]) -> None:
        with self._lock:
            for record in records:
                if record[0] < self._upto:
                    continue  # it was read again before it was received
                if self._behind is None and self._is_full():
                    self._behind = record[0]
                if self._behind is None:
                    self._let_in(record)
                else:
                    self._passed_over = record[0] + 1
        if not all(self._can_wait(value) for _, _, value in records):
            self.is_urgent = True
            self._wake()

    # The member's loop ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_behind(self) -> bool:
        return self._behind is not None

    def begin(self) -> int:
        """The number of records to be applied now."""
        self.is_urgent = False
        if self._records and self.applied_from is None:
            self.applied_from = self._records[0][0]
        return len(self)

    def first(self) -> ReceivedLeaseRecord:
        return self._records[0]

    def applied(self) -> None:
        with self._lock:
            offset, _, value = self._records.popleft()
            self._bytes -= len(value)
        self.applied_upto = offset + 1

    def catch_up(self, now_s: float) -> bool:
        """Read records beyond the inbox's limit again, a piece at a time. False if some of them are gone from the
        log."""
        if self._behind is None:
            return True
        if self._reading is None:
            if now_s >= self._again_s and 2 * len(self._records) <= self._most_records and not self._is_full():
                self._reading = self._read(self._behind, self._most_records - len(self._records))
                self._reading.add_done_callback(lambda _: self._wake())
            return True
        if not self._reading.done():
            return True
        reading, self._reading = self._reading, None
        failure = reading.exception()
        if failure is not None:
            _log.warning("cannot read records of other members again yet: %s", failure)
            self._again_s = now_s + _RETRY_INTERVAL_S
            return True
        return self._read_again(reading.result())

    # Inside -----------------------------------------------------------------------------------------------------------

    def _read_again(self, found: RereadLeaseRecords) -> bool:
        with self._lock:
            for record in found.records:
                self._let_in(record)
            self._upto = max(self._upto, found.upto)
            self._behind = None if self._upto >= self._passed_over else self._upto
        return found.is_whole

    def _is_full(self) -> bool:
        return len(self._records) >= self._most_records or self._bytes >= self._most_bytes

    def _let_in(self, record: ReceivedLeaseRecord) -> None:
        self._records.append(record)
        self._bytes += len(record[2])
        self._upto = record[0] + 1
