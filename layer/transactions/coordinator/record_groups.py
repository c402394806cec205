"""Records go to the log in groups: at most so many, of so many bytes, and none waits longer than a delay. Pure.

Source: Pulsar's TxnLogBufferedWriter; there a group is one entry, here it is one pipelined append.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Record = tuple[bytes, bytes | None]


def in_groups(records: Sequence[Record], most_records: int, most_bytes: int) -> Iterator[list[Record]]:
    """`records` in their order, in groups within both limits; one that is larger by itself is a group of its own."""
    group: list[Record] = []
    size = 0
    for key, value in records:
        added = len(key) + len(value or b"")
        if group and (len(group) == most_records or size + added > most_bytes):
            yield group
            group, size = [], 0
        group.append((key, value))
        size += added
    if group:
        yield group


class GroupDelay:
    """A group is due when it is full, or when its first record has waited long enough.

    Times are in seconds of a monotonic clock.
    """

    def __init__(self, most: int, delay_s: float) -> None:
        self._most = most
        self._delay_s = delay_s
        self._since_s: float | None = None

    def due(self, waiting: int, now_s: float) -> bool:
        """Whether `waiting` things go now. Once they went, the next one's delay begins anew."""
        if waiting == 0:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        if waiting >= self._most or now_s >= self._since_s + self._delay_s:
            self._since_s = None
            return True
        return False

    def remaining_s(self, now_s: float) -> float | None:
        """Until the delay of what waits is over; None while nothing does."""
        return None if self._since_s is None else max(0.0, self._since_s + self._delay_s - now_s)
