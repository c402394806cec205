"""Ledgers that this process itself took off their lists: the deletion of their data needs no look-up.

The cache dies with the process, and forgets its oldest ledgers first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

MAX_TRUSTED: Final = 100_000


class TrustedLedgers:
    """Thread-safe. Memory: 100 bytes for each of `most` ledger ids, 10 MB at most by default."""

    def __init__(self, most: int = MAX_TRUSTED) -> None:
        self._most = most
        self._ids: dict[int, None] = {}
        self._lock = threading.Lock()

    def add(self, ledger_ids: Iterable[int]) -> None:
        """Adds ledgers that their owner read back as off the list."""
        with self._lock:
            for ledger_id in ledger_ids:
                self._ids.pop(ledger_id, None)
                self._ids[ledger_id] = None
            for ledger_id in list(self._ids)[: max(0, len(self._ids) - self._most)]:
                del self._ids[ledger_id]

    def __contains__(self, ledger_id: int) -> bool:
        with self._lock:
            return ledger_id in self._ids

    def forget(self, ledger_ids: Iterable[int]) -> None:
        """Their data is gone."""
        with self._lock:
            for ledger_id in ledger_ids:
                self._ids.pop(ledger_id, None)
