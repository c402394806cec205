"""Open transactions that hold somebody up although their time is over, or they were decided: nobody serves their
coordinators, since every program with transactions is gone. Then a process that only reads, or acknowledges, serves
them, so that they end.

Differs from Pulsar, where brokers serve coordinators: here nobody needs to be alive that ever began a transaction, only
somebody whom one holds up. In its time an open one is waited for without looking; after that the group is asked twice a
second: Kafka keeps dead members for their session, and nobody waits for more than the rest of that.
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
"""How long one holds somebody up before its coordinator's log is read."""
_CHECK_INTERVAL_S: Final = 0.5
"""How often that is done for one that is over its time while members, dead ones perhaps, are in the group."""
_UNKNOWN_S: Final = 5.0
"""How often for one that is over in the log, or was never there, or that this process came to serve."""
_LONGEST_S: Final = 30.0
"""How often for one that is in its time."""
_FORGOTTEN_S: Final = 10.0
_LOOKING_S: Final = 20.0
_MAX_HELD: Final = 1_000


class Logs(Protocol):
    """The call on `LookingOnly.coordinators` that reads coordinators' logs."""

    def ask_each(
        self, partitions: Iterable[int], question: Callable[[CoordinatorState], list[float]], deadline: Deadline
    ) -> list[list[float]]: ...


@dataclass(slots=True)
class _Held:
    """A transaction that holds somebody up: when that was said last, and when its coordinator's log is read, on the
    monotonic clock."""

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
        """These were just found to be open, and hold somebody up. Returns at once; to be said as long as they do."""
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
            wanted = [txn for txn, held in self._held.items() if now_s >= held.look_s]
            if not wanted:
                return
            self._looking = aside("pok-abandoned-transactions", partial(self._look, wanted))

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
                _log.warning("transaction=%s is due and nobody serves coordinators: this process does", late[0])
                self._serve(deadline)
        except LayerError as failure:
            _log.info("transactions that hold somebody up cannot be looked at: %s", failure)
        finally:
            now_s = self._clock.monotonic()
            with self._lock:
                self._looking = None
                for txn, left_s in again_s.items():
                    if txn in self._held:
                        self._held[txn].look_s = now_s + min(max(left_s, _CHECK_INTERVAL_S), _LONGEST_S)

    def _left_s(self, txns: Collection[TxnId], deadline: Deadline) -> dict[TxnId, float]:
        """Until each is beyond its time-out; 0 also for one that is decided, and nobody brings it to its end."""
        found: dict[TxnId, float] = {}
        now_ms = self._clock.now_ms()
        for coordinator in {txn.coordinator for txn in txns}:
            those = [txn for txn in txns if txn.coordinator == coordinator]
            question = partial(_left_of, those, now_ms)
            [left_s] = self._logs.ask_each([coordinator], question, deadline)
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
