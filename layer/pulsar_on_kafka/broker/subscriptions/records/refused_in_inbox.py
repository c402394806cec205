"""Messages of an inbox that wait behind one that the application has just refused (`ordered_redelivery`).

The application's thread notes a refusal before the member receives it. Until the member has emptied the inbox of later
messages of the key, `receive` passes them over, and the member takes them back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

D = TypeVar("D")


class RefusedInInbox:
    """Thread-safe. `slot_of` returns the hash slot of a message in flight by partition and offset, from any thread;
    None for a message that no consumer here holds.

    Memory: a number for each refusal that the member has not applied yet.
    """

    def __init__(self) -> None:
        self.slot_of: Callable[[int, int], int | None] = lambda partition, offset: None
        self.wake: Callable[[], None] = lambda: None
        self._refused: dict[int, dict[int, int]] = {}
        """By partition, the slot of each refused offset. Inner dictionaries are replaced, never changed."""
        self.passed_over: deque[tuple[int, int]] = deque()
        """Partition and offset of messages that `receive` passed over: the member takes them back."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._refused)

    def refuse(self, partition: int, offset: int) -> None:
        """The application refuses this message. Call it before the member receives the refusal."""
        slot = self.slot_of(partition, offset)
        if slot is not None:
            with self._lock:
                self._refused[partition] = {**self._refused.get(partition, {}), offset: slot}

    def applied(self, partition: int, offsets: Iterable[int]) -> None:
        """The member has applied these refusals, and has emptied the inbox of later messages of their keys."""
        if self._refused:
            gone = frozenset(offsets)
            with self._lock:
                left = {o: slot for o, slot in self._refused.get(partition, {}).items() if o not in gone}
                if left:
                    self._refused[partition] = left
                else:
                    self._refused.pop(partition, None)

    def forget_partition(self, partition: int) -> None:
        """All messages of the partition are redelivered."""
        with self._lock:
            self._refused.pop(partition, None)

    def passes_over(self, partition: int, offset: int) -> bool:
        """Whether the application must not receive this message now; the member is to take it back."""
        refused = self._refused.get(partition)
        if not refused:
            return False
        slot = self.slot_of(partition, offset)
        if slot is None or not any(slot == of and at <= offset for at, of in refused.items()):
            return False
        self.passed_over.append((partition, offset))
        self.wake()
        return True

    def take_passed_over(self) -> dict[int, list[int]]:
        """The offsets that `receive` passed over since the last call, by partition."""
        found: dict[int, list[int]] = {}
        for _ in range(len(self.passed_over)):
            partition, offset = self.passed_over.popleft()
            found.setdefault(partition, []).append(offset)
        return found
