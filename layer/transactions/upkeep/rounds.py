"""The thread that seals and cleans, round by round, for the coordinators that this process serves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.turns import Turns
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka.transactions.upkeep.upkeep import Upkeep

_log: Final = logging.getLogger(__name__)

FIRST_S: Final = 60.0
EVERY_S: Final = 300.0
_ROUND_S: Final = 60.0


class UpkeepRounds:
    """A round a minute after it is made, then one every five minutes; nothing is read as long as nothing is served."""

    def __init__(
        self,
        upkeep: Upkeep,
        sealing: Sealing,
        served: Callable[[], Collection[int]],
        *,
        first_s: float = FIRST_S,
        every_s: float = EVERY_S,
    ) -> None:
        self._upkeep = upkeep
        self._sealing = sealing
        self._served = served
        self._every_s = every_s
        self.turns = Turns()
        failed = "state of transactions could not be cleaned"
        self._thread = Worker("pok-transaction-upkeep", self._round, failed, first_s=first_s, retry=Retry(every_s))
        self._thread.start()

    def is_alive(self) -> bool:
        """Its thread is; it ends with `close` only."""
        return self._thread.is_alive()

    def close(self, deadline: Deadline) -> None:
        """End it, after what it is doing; a second call does nothing."""
        self._thread.close(deadline)

    def _round(self) -> float:
        with self.turns.one():
            sealed = self._sealing.run(self._served(), Deadline.after(_ROUND_S))
            done = self._upkeep.run(self._served(), Deadline.after(_ROUND_S))
        level = logging.INFO if done or sealed else logging.DEBUG
        _log.log(level, "state of transactions: %d entries sealed, %d records cleaned", sealed, done)
        return self._every_s
