"""Open transactions that hold readers up although their time is over: nobody serves their coordinators, since every
program with transactions is gone. Then a process that only reads serves them, so that they are aborted.

Differs from Pulsar, where brokers serve coordinators: here nobody needs to be alive that ever began a transaction, only
somebody whom one holds up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from layer.clock import Clock
from layer.deadline import Deadline
from layer.errors import LayerError
from layer.transactions.coordinator_state import CoordinatorState
from mapping.txn_id import TxnId

_log: Final = logging.getLogger(__name__)
HELD_UP_S: Final = 5.0
"""How long one holds a reader up before its coordinator's log is read, and how often that is done at most."""
_FORGOTTEN_S: Final = 10.0
_LOOKING_S: Final = 20.0
_MOST: Final = 1_000


class Logs(Protocol):
    """What is asked of `LookingOnly`."""

    def ask_coordinator(
        self, coordinator: int, question: Callable[[CoordinatorState], bool], deadline: Deadline
    ) -> bool: ...


@dataclass(slots=True)
class _Held:
    """When a transaction was first said to hold a reader up, and last, on the monotonic clock."""

    first_s: float
    last_s: float


class Abandoned:
    """Thread-safe; a node has one. Memory: 1,000 ids of transactions at most, and a thread while it looks."""

    def __init__(
        self, logs: Logs, served: Callable[[Deadline], bool], serve: Callable[[Deadline], None], clock: Clock
    ) -> None:
        """`served`: whether any process serves coordinators. `serve` makes this one do so."""
        self._logs = logs
        self._served = served
        self._serve = serve
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[TxnId, _Held] = {}
        self._look_at_s = -inf
        self._looking: threading.Thread | None = None
        self._closed = False

    def hold_up(self, txns: Collection[TxnId]) -> None:
        """These were just found to be open, and hold a reader up. Returns at once; to be said as long as they do."""
        now_s = self._clock.monotonic()
        with self._lock:
            self._held = {txn: held for txn, held in self._held.items() if now_s - held.last_s < _FORGOTTEN_S}
            for txn in txns:
                if (held := self._held.get(txn)) is not None:
                    held.last_s = now_s
                elif len(self._held) < _MOST:
                    self._held[txn] = _Held(now_s, now_s)
            if self._closed or self._looking is not None or now_s < self._look_at_s:
                return
            wanted = [txn for txn, held in self._held.items() if now_s - held.first_s >= HELD_UP_S]
            if not wanted:
                return
            self._look_at_s = now_s + HELD_UP_S
            self._looking = threading.Thread(
                target=self._look, args=(wanted,), name="pok-abandoned-transactions", daemon=True
            )
            self._looking.start()

    def close(self, deadline: Deadline) -> None:
        """Look no more; a second call does nothing."""
        with self._lock:
            self._closed = True
            looking = self._looking
        if looking is not None:
            looking.join(deadline.remaining_s())

    def _look(self, txns: list[TxnId]) -> None:
        deadline = Deadline.after(_LOOKING_S)
        try:
            late = next((txn for txn in txns if self._is_overdue(txn, deadline)), None)
            if late is not None and not self._served(deadline) and not self._closed:
                _log.warning("transaction=%s is over its time and nobody serves coordinators: this process does", late)
                self._serve(deadline)
        except LayerError as failure:
            _log.info("transactions that hold readers up cannot be looked at: %s", failure)
        finally:
            with self._lock:
                self._looking = None

    def _is_overdue(self, txn: TxnId, deadline: Deadline) -> bool:
        """Beyond its time-out; or ending, and nobody brings it to its end."""

        def question(state: CoordinatorState) -> bool:
            found = state.transaction(txn)
            return found is not None and not found.finished and self._clock.now_ms() > found.deadline_ms()

        return self._logs.ask_coordinator(txn.coordinator, question, deadline)
