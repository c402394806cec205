"""The housekeeping thread works partition by partition, for the state partitions that this process maintains."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, LayerError
from pulsar_on_kafka.base.worker import Retry, Worker

_log: Final = logging.getLogger(__name__)

FIRST_S: Final = 600.0
"""The delay after a partition was assigned."""
EVERY_S: Final = 21_600.0
_RETRY_INTERVAL_S: Final = 600.0
_PARTITION_S: Final = 300.0
_LOOK_S: Final = 30.0

DAY_MS: Final = 86_400_000
MAX_AT_ONCE: Final = 500
"""Tombstones of one append."""
MAX_TOMBSTONES: Final = 20_000
"""The limit of one call."""


class Work(Protocol):
    """One kind of housekeeping, for one thread. A failed part is logged once, and left to the next call."""

    @property
    def name(self) -> str:
        """Its name in metrics."""
        ...

    def run(self, partition: int, deadline: Deadline) -> int:
        """Do it; how many records were written, tombstones among them.

        Raises:
            LayerError: a state topic cannot be read or written.
        """
        ...


class HousekeepingRounds(Worker):
    """Each partition ten minutes after it was assigned, then every six hours; what fails, ten minutes later."""

    def __init__(
        self,
        work: Sequence[Work],
        owned: Callable[[], Sequence[int]],
        *,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
        look_s: float = _LOOK_S,
    ) -> None:
        failed = "what dead processes left could not be looked through"
        super().__init__("pok-housekeeping", self._round, failed, first_s=look_s, retry=Retry(look_s))
        self._kinds = work
        self._owned = owned
        self._after_s = first_s
        self._every_s = every_s
        self._look_s = look_s
        self._due_s: dict[int, float] = {}
        self.written = {each.name: 0 for each in work}
        """Records, by kind of work. Counts go up only."""
        self.start()

    def _round(self) -> float:
        for partition in self._due():
            pause_s = self._every_s if self._kept_house(partition) else min(_RETRY_INTERVAL_S, self._every_s)
            self._due_s[partition] = time.monotonic() + pause_s
            if self.ended:
                break
        return self._look_s

    def _due(self) -> list[int]:
        now_s, owned = time.monotonic(), self._owned()
        self._due_s = {number: self._due_s.get(number, now_s + self._after_s) for number in owned}
        return [number for number, due_s in self._due_s.items() if due_s <= now_s]

    def _kept_house(self, partition: int) -> bool:
        good = True
        for work in self._kinds:
            try:
                with self.turns.one():
                    self.written[work.name] += work.run(partition, Deadline.after(_PARTITION_S))
            except LayerError as failure:
                good = False
                level = logging.DEBUG if isinstance(failure, Closed) or self.ended else logging.WARNING
                _log.log(level, "partition=%d %s: housekeeping is put off: %s", partition, work.name, failure)
            except Exception:  # one work's fault keeps no other one from being done
                good = False
                _log.exception("partition=%d %s: housekeeping failed", partition, work.name)
        return good
