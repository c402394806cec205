"""Sizes of the state of transactions in the partitions that this process cleans; a warning tells when one is large."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Final

_log: Final = logging.getLogger(__name__)

WARN_AT: Final = 100_000
"""Records of one partition of a state topic; told again each time it doubles. Every process with transactions keeps
these in memory, some 500 bytes each."""


class StateSizes:
    """Thread-safe. Memory: two numbers for each partition of two state topics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffers: dict[int, int] = {}
        self._pending_acks: dict[int, int] = {}
        self._warned: dict[str, int] = {}

    def buffer(self, partition: int, entries: int) -> None:
        """So many entries are in one partition of `__transaction_buffer_snapshot`."""
        with self._lock:
            self._buffers[partition] = entries
        self._warn(
            f"__transaction_buffer_snapshot-{partition}",
            entries,
            "open and aborted transactions whose messages are still kept: retention lets them go",
        )

    def pending_acks(self, partition: int, records: int) -> None:
        """So many acks and ENDs are in one partition of `__transaction_pending_ack`."""
        with self._lock:
            self._pending_acks[partition] = records
        self._warn(
            f"__transaction_pending_ack-{partition}",
            records,
            "acknowledgements of transactions that their subscriptions have not taken in: have they consumers?",
        )

    def keep(self, partitions: Collection[int]) -> None:
        """Forget the others: another process cleans them."""
        with self._lock:
            for sizes in (self._buffers, self._pending_acks):
                for partition in sizes.keys() - set(partitions):
                    del sizes[partition]

    def totals(self) -> tuple[int, int]:
        """Sums over buffers, and over pending acks, in all partitions that are cleaned here."""
        with self._lock:
            return sum(self._buffers.values()), sum(self._pending_acks.values())

    def _warn(self, where: str, records: int, why: str) -> None:
        with self._lock:
            told = self._warned.get(where, WARN_AT // 2)
            if records < WARN_AT:
                self._warned.pop(where, None)
                return
            if records < 2 * told:
                return
            self._warned[where] = records
        _log.warning("partition=%s has %d records of %s", where, records, why)
