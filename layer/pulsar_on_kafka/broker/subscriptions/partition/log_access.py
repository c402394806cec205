"""Access of one owned partition to its log: the end, as Kafka reports it, and single records."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.subscriptions.partition.partition_options import PartitionLog
from pulsar_on_kafka.broker.subscriptions.records.batches import report_beyond_end


class LogAccess:
    """Without a log, as for a partition that no process reads, offsets that other processes name are believed."""

    def __init__(self, identity: CursorIdentity, log: PartitionLog | None) -> None:
        self._identity = identity
        self._log = log
        self._known_end = 0

    def end(self) -> int:
        """Returns the log's end as Kafka reports it now, or as last known. Raises StoreError."""
        if self._log is not None:
            self._known_end = self._log.log_end(self._identity.partition)
        return self._known_end

    def record(self, offset: int) -> Any | None:
        """Reads the record of one entry again; None if it cannot be read now."""
        return None if self._log is None else self._log.record(self._identity.partition, offset)

    def bounded(self, position: int, read_position: int) -> int:
        """Limits a position that another process named to the log's end: offsets beyond it cannot be acknowledged.
        Requests the end from Kafka only if the position lies beyond what is known. Raises StoreError."""
        if position <= max(read_position, self._known_end) or self._log is None:
            return position
        end = self.end()
        if position > end:
            report_beyond_end(self._identity, position - 1, end)
        return min(position, max(end, read_position))
