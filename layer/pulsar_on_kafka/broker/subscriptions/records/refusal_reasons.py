"""Reasons of negative acknowledgements, which dead letters contain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyroaring import BitMap64

MAX_REASON_BYTES: Final = 500
"""The limit of one reason, in bytes of UTF-8."""
MAX_KEPT: Final = 10_000
"""The limit of messages with a reason, for each partition in a process."""
MAX_SAVED_BYTES: Final = 16 * 1024
"""The limit of one partition's reasons in a save."""
MAX_REPORTED_BYTES: Final = 64 * 1024
"""The limit of one partition's reasons in a report or lease."""
_KEY_BYTES: Final = 10
_INDEX_BITS: Final = 16
_WHOLE: Final = -1
"""The index of a message that is not in a batch."""

Texts = Mapping[str, BitMap64]
"""Messages by reason: each is `offset << 16 | batch index + 1`, with 0 for a message that is not in a batch."""


def bounded(reason: str) -> str:
    """The first `MAX_REASON_BYTES` of a reason, up to a whole character."""
    return reason.encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")


class RefusalReasons:
    """The last reasons that consumers gave for unacknowledged messages of one partition. Thread-safe.

    Consumers of this process put reasons here. A partition's owner also has those that other processes reported, and
    saves them with its cursor. A process has those of leased messages that it is to dead-letter. Messages above batch
    index 65,534 have none. Memory: reasons of the last `MAX_KEPT` messages, 6 MB at most.
    """

    def __init__(self) -> None:
        self._reasons: dict[int, dict[int, str]] = {}
        """By offset, the oldest first, then by batch index."""
        self._messages = 0
        self._changed = False
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def put(self, offset: int, batch_index: int, reason: str) -> None:
        """`batch_index` is -1 for a message that is not in a batch."""
        if batch_index + 1 >= 1 << _INDEX_BITS:
            return
        with self._lock:
            self._put(offset, batch_index, bounded(reason))

    def _put(self, offset: int, batch_index: int, reason: str) -> None:
        of_entry = self._reasons.pop(offset, {})
        self._messages += batch_index not in of_entry
        of_entry[batch_index] = reason
        self._reasons[offset] = of_entry
        self._changed = True
        while self._messages > MAX_KEPT and len(self._reasons) > 1:
            self._messages -= len(self._reasons.pop(next(iter(self._reasons))))

    def merge(self, reported: Texts) -> None:
        """Takes reasons of another process."""
        with self._lock:
            for reason, keys in reported.items():
                for key in keys:
                    self._put(key >> _INDEX_BITS, (key & (1 << _INDEX_BITS) - 1) - 1, reason)

    def get(self, offset: int, batch_index: int = _WHOLE) -> str:
        """'' without a reason."""
        with self._lock:
            return self._reasons.get(offset, {}).get(batch_index, "")

    def of(self, offsets: Iterable[int], limit_bytes: int = MAX_REPORTED_BYTES) -> dict[str, BitMap64]:
        """The reasons of these entries, the first ones that fit into the limit."""
        found: dict[str, BitMap64] = {}
        with self._lock:
            for offset in offsets:
                for batch_index, reason in self._reasons.get(offset, {}).items():
                    if reason not in found:
                        limit_bytes -= len(reason.encode())
                    limit_bytes -= _KEY_BYTES
                    if limit_bytes < 0:
                        return found
                    found.setdefault(reason, BitMap64()).add(offset << _INDEX_BITS | batch_index + 1)
        return found

    def to_save(self, is_acknowledged: Callable[[int], bool]) -> dict[str, BitMap64]:
        """The reasons for unacknowledged messages, the newest first, that fit into `MAX_SAVED_BYTES`. Forgets those of
        acknowledged messages."""
        with self._lock:
            offsets = list(self._reasons)
        self.forget(offset for offset in offsets if is_acknowledged(offset))
        return self.of(reversed(offsets), MAX_SAVED_BYTES)

    def take_changed(self) -> bool:
        """Whether a reason came since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def forget(self, offsets: Iterable[int]) -> None:
        """Forgets the reasons of acknowledged entries."""
        with self._lock:
            for offset in offsets:
                self._messages -= len(self._reasons.pop(offset, ()))

    def clear(self) -> None:
        with self._lock:
            self._reasons.clear()
            self._messages = 0
