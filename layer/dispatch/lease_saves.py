"""Which of a member's reports owners have saved: what a flush waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from layer.dispatch.leased_partition import LeasedPartition

_MOST_SAVES: Final = 1000


class UnsavedReports:
    """Reports that acknowledge something and are written, but not known to be saved. `partitions` are the member's.

    Memory: an entry for each of 1,000 reports; beyond that the newest ones share one, which is saved when all are.
    """

    def __init__(self, partitions: Mapping[int, LeasedPartition]) -> None:
        self._partitions = partitions
        self._saves: deque[tuple[int, dict[int, int]]] = deque()
        """The number of each report, and up to where owners' saves have to reach, by partition."""

    @property
    def newest(self) -> int:
        """The number of the last of them, 0 when there is none."""
        return self._saves[-1][0] if self._saves else 0

    @property
    def any_left(self) -> bool:
        """Some partition's owner has not saved all that is written of it."""
        return any(leased.durable_upto < leased.written_upto for leased in self._partitions.values())

    def written(self, number: int, offset: int, acknowledged: Collection[int]) -> None:
        """The report of this number is in the log at this offset, and acknowledges something of these partitions."""
        for partition in acknowledged:
            self._partitions[partition].written_upto = offset + 1
        if acknowledged:
            self._forget_saved()
            upto = dict.fromkeys(acknowledged, offset + 1)
            if len(self._saves) >= _MOST_SAVES:
                upto = {**self._saves.pop()[1], **upto}
            self._saves.append((number, upto))

    def are_saved(self, upto: int) -> bool:
        """All reports up to this number are, as far as their partitions are others' still."""
        self._forget_saved()
        return not self._saves or self._saves[0][0] > upto

    def _forget_saved(self) -> None:
        while self._saves and all(
            number not in self._partitions or self._partitions[number].durable_upto >= upto
            for number, upto in self._saves[0][1].items()
        ):
            self._saves.popleft()
