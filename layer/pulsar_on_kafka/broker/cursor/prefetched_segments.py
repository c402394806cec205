"""Cursor segments read in bulk, for callers that inspect many cursors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.cursor.segments import CursorSegments
from pulsar_on_kafka.statelog.api import LogRecord, StateLog


class NotAtHand(StoreError):
    """The segment has to be read first."""


class SegmentsAtHand(CursorSegments):
    """Missing segments are noted in `wanted`, and the call fails. Memory: the segments put `at_hand`."""

    def __init__(self, log: StateLog) -> None:
        super().__init__(log)
        self.required: set[tuple[int, int]] = set()
        """Partitions of `cursors`, and offsets."""
        self.at_hand: dict[tuple[int, int], LogRecord | None] = {}
        """The same with what is there; None where nothing is any more."""

    def records_at(self, partition: int, offsets: Sequence[int], deadline: Deadline) -> Mapping[int, LogRecord]:
        """Raises NotAtHand."""
        missing = {(partition, offset) for offset in offsets} - self.at_hand.keys()
        if missing:
            self.required |= missing
            raise NotAtHand(f"{len(missing)} records of cursors have to be read first")
        found = {offset: self.at_hand[partition, offset] for offset in offsets}
        return {offset: record for offset, record in found.items() if record is not None}

    def read_required(self, deadline: Deadline) -> None:
        """Reads all wanted segments. Raises StoreError."""
        requested, self.required = self.required, set()
        for partition, places in groupby(sorted(requested), itemgetter(0)):
            offsets = [offset for _, offset in places]
            found = super().records_at(partition, offsets, deadline)
            self.at_hand.update({(partition, offset): found.get(offset) for offset in offsets})
