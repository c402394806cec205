"""Orphaned transactions block readers although they timed out or were decided: no process runs their coordinators,
since every program with transactions has ended. A process that only reads or acknowledges then runs the coordinators,
so that the transactions end.

Differs from Pulsar, where brokers serve coordinators: here any blocked process may serve them, and no process that ever
began a transaction needs to be alive. Until its time-out an open transaction is waited for without a check. After that
the process queries the group twice a second: Kafka keeps dead members for their session, and the wait lasts at most for
the rest of that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import aside
from pulsar_on_kafka.broker.transactions.coordinator.state import CoordinatorState
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TxnStatus

_log: Final = logging.getLogger(__name__)
HELD_UP_S: Final = 0.5
"""The time that a transaction blocks a process before the process reads its coordinator's log."""
_CHECK_INTERVAL_S: Final = 0.5
"""The check interval for a timed-out transaction while the group has members, which may be dead."""
_UNKNOWN_S: Final = 5.0
"""The check interval for a transaction that has ended in the log, never existed, or whose coordinator this process now
runs."""
_LONGEST_S: Final = 30.0
"""The check interval for a transaction within its time-out."""
_FORGOTTEN_S: Final = 10.0
_LOOKING_S: Final = 20.0
_MAX_HELD: Final = 1_000


class Logs(Protocol):
    """The call on `LookingOnly.coordinators` that reads coordinators' logs."""

    def query_each(
        self, partitions: Iterable[int], question: Callable[[CoordinatorState], list[float]], deadline: Deadline
    ) -> list[list[float]]: ...


@dataclass(slots=True)
class _Held:
    """A transaction that blocks this process: the time of the last report, and the time to read its coordinator's log,
    on the monotonic clock."""

    last_s: float
    look_s: float


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
        self._looking: threading.Thread | None = None
        self._closed = False

    def hold_up(self, txns: Collection[TxnId]) -> None:
        """Reports transactions that were just found open and block the caller. Returns at once; to be repeated while
        they block."""
        now_s = self._clock.monotonic()
        with self._lock:
            self._held = {txn: held for txn, held in self._held.items() if now_s - held.last_s < _FORGOTTEN_S}
            for txn in txns:
                if (held := self._held.get(txn)) is not None:
                    held.last_s = now_s
                elif len(self._held) < _MAX_HELD:
                    self._held[txn] = _Held(now_s, now_s + HELD_UP_S)
            if self._closed or self._looking is not None:
                return
            requested = [txn for txn, held in self._held.items() if now_s >= held.look_s]
            if not requested:
                return
            self._looking = aside("pok-abandoned-transactions", partial(self._look, requested))

    def close(self, deadline: Deadline) -> None:
        """Look no more; a second call does nothing."""
        with self._lock:
            self._closed = True
            looking = self._looking
        if looking is not None:
            looking.join(deadline.remaining_s())

    def _look(self, txns: list[TxnId]) -> None:
        deadline = Deadline.after(_LOOKING_S)
        again_s = dict.fromkeys(txns, _UNKNOWN_S)
        try:
            again_s = self._left_s(txns, deadline)
            late = [txn for txn, left_s in again_s.items() if left_s <= 0]
            if late and self._served(deadline):
                again_s.update(dict.fromkeys(late, _CHECK_INTERVAL_S))
            elif late and not self._closed:
                again_s.update(dict.fromkeys(late, _UNKNOWN_S))
                _log.warning(
                    "transaction=%s is due and no process runs its coordinator: this process does now", late[0]
                )
                self._serve(deadline)
        except LayerError as failure:
            _log.info("blocking transactions cannot be checked: %s", failure)
        finally:
            now_s = self._clock.monotonic()
            with self._lock:
                self._looking = None
                for txn, left_s in again_s.items():
                    if txn in self._held:
                        self._held[txn].look_s = now_s + min(max(left_s, _CHECK_INTERVAL_S), _LONGEST_S)

    def _left_s(self, txns: Collection[TxnId], deadline: Deadline) -> dict[TxnId, float]:
        """The time until each transaction times out; 0 also for a decided transaction that no process ends."""
        found: dict[TxnId, float] = {}
        now_ms = self._clock.now_ms()
        for coordinator in {txn.coordinator for txn in txns}:
            those = [txn for txn in txns if txn.coordinator == coordinator]
            question = partial(_left_of, those, now_ms)
            [left_s] = self._logs.query_each([coordinator], question, deadline)
            found.update(zip(those, left_s, strict=True))
        return found


def _left_of(txns: Collection[TxnId], now_ms: int, state: CoordinatorState) -> list[float]:
    left_s: list[float] = []
    for txn in txns:
        found = state.transaction(txn)
        if found is None or found.finished:
            left_s.append(_UNKNOWN_S)
        elif found.status is not TxnStatus.OPEN:
            left_s.append(0.0)
        else:
            left_s.append(max(0.0, (found.deadline_ms() - now_ms) / 1000))
    return left_s
