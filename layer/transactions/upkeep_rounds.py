"""The thread that seals and cleans, round by round, for the coordinators that this process serves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from layer.deadline import Deadline
from layer.errors import Closed, LayerError
from layer.transactions.sealing import Sealing
from layer.transactions.upkeep import Upkeep
from layer.turns import Turns

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
        self._first_s = first_s
        self._every_s = every_s
        self.turns = Turns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pok-transaction-upkeep", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Its thread is; it ends with `close` only."""
        return self._thread.is_alive()

    def close(self, deadline: Deadline) -> None:
        """End it, after what it is doing; a second call does nothing."""
        self._ended.set()
        self._thread.join(deadline.remaining_s())

    def _run(self) -> None:
        pause_s = self._first_s
        while not self._ended.wait(pause_s):
            pause_s = self._every_s
            try:
                with self.turns.one():
                    sealed = self._sealing.run(self._served(), Deadline.after(_ROUND_S))
                    done = self._upkeep.run(self._served(), Deadline.after(_ROUND_S))
            except LayerError as failure:
                level = logging.DEBUG if isinstance(failure, Closed) else logging.WARNING
                _log.log(level, "state of transactions could not be cleaned, again in %.0f s: %s", pause_s, failure)
            except Exception:
                _log.exception("state of transactions could not be cleaned, again in %.0f s", pause_s)
            else:
                level = logging.INFO if done or sealed else logging.DEBUG
                _log.log(level, "state of transactions: %d entries sealed, %d records cleaned", sealed, done)
