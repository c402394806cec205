"""The coordinators that a process owns: a thread for each, as long as Kafka's group assigns it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, Corrupt, Fenced, LayerError, TransactionCoordinatorNotFound
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.shared_work import Assignment, SharedWork
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.mapping.state.instances import Instance
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_COORDINATOR_ASSIGN
from pulsar_on_kafka.mapping.state.transactions.transaction_requests import Wish
from pulsar_on_kafka.transactions.serving.owner import Coordinator

_log: Final = logging.getLogger(__name__)
_TURN_S: Final = 30.0
_FINISH_S: Final = 2.0
_AGAIN_LEAST_S: Final = 0.2
_AGAIN_MOST_S: Final = 10.0
_SETTLED_S: Final = 60.0


class _Served:
    """One coordinator and its thread."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        retry = Retry(_AGAIN_LEAST_S, _AGAIN_MOST_S)  # two that believe to own it must not take turns for long
        failing = f"coordinator={coordinator.id} does not serve"
        self._worker = Worker(
            f"pok-coordinator-{coordinator.id}", self._serve, failing, retry=retry, last=coordinator.resign
        )
        self._worker.start()

    def end(self) -> None:
        self._worker.end()
        self.coordinator.wake()

    def is_alive(self) -> bool:
        return self._worker.is_alive()

    def join(self, deadline: Deadline) -> None:
        self._worker.close(deadline)

    def _serve(self) -> float:
        """Until somebody else owns it, a record cannot be read, or it is to end."""
        settled = Deadline.after(_SETTLED_S)
        why: LayerError | None = None
        try:
            self.coordinator.take_over(Deadline.after(_TURN_S))
            self._turns()
        except Corrupt as failure:
            why = failure
            raise
        except LayerError:
            # Fenced: Kafka's group has not told this process yet that it lost the coordinator, or never will because
            # the other claim was made by one that wakes up: then this one claims again.
            raise
        except Exception as failure:  # those who wait are told; the worker logs it
            why = TransactionCoordinatorNotFound(f"coordinator {self.coordinator.id}: {failure}")
            raise
        finally:
            if settled.passed():
                self._worker.well()
            self.coordinator.resign(why)
        return 0.0

    def _turns(self) -> None:
        pause_s = _AGAIN_LEAST_S
        while not self._worker.ended:
            try:
                self.coordinator.turn(Deadline.after(_TURN_S))
            except (Fenced, Corrupt, Closed):
                raise
            except LayerError as failure:
                _log.warning("coordinator=%d: %s", self.coordinator.id, failure)
                self._worker.pause(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_MOST_S)
                continue
            pause_s = _AGAIN_LEAST_S
            self.coordinator.wait_for_work()
        self.coordinator.finish(Deadline.after(_FINISH_S))


class Coordinators:
    """Thread-safe. `on_assign`, `on_revoke` and `on_lost` are for the callbacks of the group of
    `transaction_coordinator_assign`, partition i being coordinator i; they return at once."""

    def __init__(self, make: Callable[[int], Coordinator]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._served: dict[int, _Served] = {}
        self._leaving: list[_Served] = []
        self._closed = False

    def on_assign(self, coordinators: Iterable[int]) -> None:
        """Serve these from now on; one that is served already goes on."""
        with self._lock:
            for number in coordinators:
                if not self._closed and number not in self._served:
                    self._served[number] = _Served(self._make(number))

    def on_revoke(self, coordinators: Iterable[int]) -> None:
        """Serve these no more. What waits hears that another process serves; what is decided the log keeps."""
        with self._lock:
            for number in coordinators:
                served = self._served.pop(number, None)
                if served is not None:
                    served.end()
                    self._leaving = [each for each in self._leaving if each.is_alive()] + [served]

    on_lost = on_revoke

    def owned(self) -> list[int]:
        """The coordinators assigned to this process, in order."""
        with self._lock:
            return sorted(self._served)

    def serving(self) -> list[int]:
        """Those of them that take wishes now, in order."""
        with self._lock:
            return sorted(number for number, served in self._served.items() if served.coordinator.serving)

    def dead_threads(self) -> list[str]:
        """Names of dead threads, of coordinators that are to be served."""
        with self._lock:
            return [f"pok-coordinator-{number}" for number, served in self._served.items() if not served.is_alive()]

    def submit(self, coordinator: int, wish: Wish, deadline: Deadline) -> Future[TxnId]:
        """Hand the wish to this process's coordinator. Raises TransactionCoordinatorNotFound when this process does not
        have it."""
        with self._lock:
            served = self._served.get(coordinator)
        if served is None:
            raise TransactionCoordinatorNotFound(f"coordinator {coordinator} is not assigned to this process")
        return served.coordinator.submit(wish, deadline)

    def close(self, deadline: Deadline) -> None:
        """End all threads and wait for them; a second call does nothing."""
        with self._lock:
            self._closed = True
        self.on_revoke(self.owned())
        with self._lock:
            leaving = list(self._leaving)
        for served in leaving:
            served.join(deadline)


def coordinators_group(instance: Instance) -> str:
    return instance.group(TRANSACTION_COORDINATOR_ASSIGN, "coordinators")


class CoordinatorGroup(SharedWork):
    """This process's membership in the group that shares the coordinators out: whoever is assigned partition i of its
    topic, which holds no data, is coordinator i."""

    def __init__(
        self, coordinators: Coordinators, instance: Instance, open_member: Callable[[GroupCallbacks], GroupConsumer]
    ) -> None:
        super().__init__(
            coordinators_group(instance),
            open_member,
            Assignment(coordinators.on_assign, coordinators.on_revoke),
            name="pok-coordinators",
            without="this process serves no transactions, it asks others to",
        )
