"""A client reaches coordinators here: its own process's by a call, others' by `transaction_requests`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendOutcomeUnknown, TransactionCoordinatorNotFound, TransactionOutcomeUnknown
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.transactions.transaction_requests import End, Wish
from pulsar_on_kafka.transactions.serving.coordinators import Coordinators

_LEEWAY_S: Final = 1.0
"""How much longer than its deadline a wish is waited for: the coordinator itself says what became of it."""


class CoordinatorAccess(Protocol):
    """Thread-safe."""

    def candidates(self) -> Sequence[int]:
        """Coordinators that a new transaction may be given to, best first."""
        ...

    def ask(self, coordinator: int, wish: Wish, deadline: Deadline) -> TxnId:
        """Have it done. Raises as `RemoteCoordinator.ask`, and DeadlineExceeded when it certainly was not done."""
        ...


class RemoteAsker(Protocol):
    """The call of `RemoteCoordinator` that this module uses."""

    def ask(self, wish: Wish, deadline: Deadline) -> TxnId: ...


class ClusterAccess:
    """The first coordinator that this process serves; without any, all of the cluster, in turns.

    Differs from Pulsar, whose client takes turns among all of them: a call within the process saves several appends,
    and transactions of one coordinator share appends and readings (measured with 64 at once: 465 a second, 75 when
    they were spread over 16).
    Memory: one `RemoteCoordinator` for each coordinator that was asked for.
    """

    def __init__(
        self, local: Coordinators, make_remote: Callable[[int], RemoteAsker], count: Callable[[], int]
    ) -> None:
        """`count`: how many coordinators the cluster has now."""
        self._local = local
        self._make_remote = make_remote
        self._count = count
        self._remote: dict[int, RemoteAsker] = {}
        self._lock = threading.Lock()
        self._turn = 0

    def candidates(self) -> Sequence[int]:
        served = self._local.serving()
        others = [number for number in range(self._count()) if number not in served]
        with self._lock:
            turn, self._turn = self._turn, self._turn + 1
        return [*served, *_turned(others, turn)]

    def ask(self, coordinator: int, wish: Wish, deadline: Deadline) -> TxnId:
        count = self._count()
        if not 0 <= coordinator < count:
            raise TransactionCoordinatorNotFound(f"coordinator is {coordinator}, expected 0 to {count - 1}")
        try:
            future = self._local.submit(coordinator, wish, deadline)
        except TransactionCoordinatorNotFound:
            return self._other(coordinator).ask(wish, deadline)
        try:
            return future.result(deadline.remaining_s() + _LEEWAY_S)
        except FutureTimeout:
            kind = TransactionOutcomeUnknown if isinstance(wish, End) else AppendOutcomeUnknown
            raise kind(f"coordinator {coordinator} of this process did not answer in time") from None

    def _other(self, coordinator: int) -> RemoteAsker:
        with self._lock:
            if coordinator not in self._remote:
                self._remote[coordinator] = self._make_remote(coordinator)
            return self._remote[coordinator]


def _turned(numbers: Sequence[int], turn: int) -> list[int]:
    start = turn % len(numbers) if numbers else 0
    return [*numbers[start:], *numbers[:start]]
