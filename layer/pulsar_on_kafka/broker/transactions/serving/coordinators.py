"""The coordinators of a cluster: how many there are, those that this process owns (a thread for each, as long as
Kafka's group assigns it), and what other processes ask of these."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.errors import (
    Closed,
    Corrupt,
    Fenced,
    InvalidOption,
    LayerError,
    StoreError,
    TransactionCoordinatorNotFound,
)
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.kafka.admin import KafkaAdmin
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.work_assignment import Assignment, SharedWork
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.statelog.api import LogRecord, StateLog
from pulsar_on_kafka.statelog.tail import PartitionTail
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import (
    MAX_COORDINATORS,
    TRANSACTION_COORDINATOR_ASSIGN,
    TRANSACTION_LOG,
    TRANSACTION_REQUESTS,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import Wish

_log: Final = logging.getLogger(__name__)

_FRESH_S: Final = 10.0
_ASK_S: Final = 5.0


class CoordinatorCount:
    """The number of partitions of the coordinators' topics, which only grow. Thread-safe. Memory: one number."""

    def __init__(self, admin: KafkaAdmin, log: StateLog, clock: Clock) -> None:
        self._admin = admin
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._known = TRANSACTION_COORDINATOR_ASSIGN.partitions
        self._until_s = 0.0

    def known(self) -> int:
        """The count of ten seconds ago at most, or of when it could be asked last."""
        now_s = self._clock.monotonic()
        with self._lock:
            if now_s < self._until_s:
                return self._known
            self._until_s = now_s + _FRESH_S  # others go on with what is known meanwhile
        try:
            return self.now(Deadline.after(_ASK_S))
        except LayerError:
            return self._known

    def now(self, deadline: Deadline) -> int:
        """Asks the cluster. Raises StoreErrors, NotAuthorized."""
        found = self._admin.describe_topic(self._log.kafka_name(TRANSACTION_COORDINATOR_ASSIGN), deadline)
        with self._lock:
            self._known = max(self._known, 0 if found is None else found.partitions)
            return self._known

    def grow(self, count: int, deadline: Deadline) -> None:
        """Have so many. What an earlier call left undone is done; transactions keep their coordinators.

        Raises:
            InvalidOption: there are more now, or there may not be so many.
            StoreErrors, NotAuthorized (Alter on the three topics is needed): the same call may be made again.
        """
        there = self.now(deadline)
        if count < there:
            raise InvalidOption(
                f"there are {there} coordinators of transactions, which cannot become {count}: transactions keep theirs"
            )
        if count > MAX_COORDINATORS:
            raise InvalidOption(f"coordinators of transactions are {MAX_COORDINATORS} at most, got {count}")
        # Whoever is assigned a coordinator finds its log and its requests.
        for topic in (TRANSACTION_LOG, TRANSACTION_REQUESTS, TRANSACTION_COORDINATOR_ASSIGN):
            self._log.end_offset(topic, 0, deadline)
            found = self._admin.describe_topic(self._log.kafka_name(topic), deadline)
            if found is not None and found.partitions < count:
                self._admin.grow_topic(self._log.kafka_name(topic), count, deadline)
        # A broker hears of partitions later than they are made; the next call, of whatever process, counts these.
        if not wait_until(lambda: self.now(deadline) >= count, deadline):
            deadline.check(f"the cluster to tell of {count} coordinators")


_TURN_S: Final = 30.0
_FINISH_S: Final = 2.0
_MIN_RETRY_INTERVAL_S: Final = 0.2
_MAX_RETRY_INTERVAL_S: Final = 10.0
_SETTLED_S: Final = 60.0


class _Served(Worker):
    """One coordinator and its thread."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        retry = Retry(
            _MIN_RETRY_INTERVAL_S, _MAX_RETRY_INTERVAL_S
        )  # two that believe to own it must not take turns for long
        failing = f"coordinator={coordinator.id} does not serve"
        super().__init__(
            f"pok-coordinator-{coordinator.id}", self._serve, failing, retry=retry, last=coordinator.resign
        )
        self.start()

    def end(self) -> None:
        super().end()
        self.coordinator.wake()

    def _serve(self) -> float:
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
                self.well()
            self.coordinator.resign(why)
        return 0.0

    def _turns(self) -> None:
        pause_s = _MIN_RETRY_INTERVAL_S
        while not self.ended:
            try:
                self.coordinator.turn(Deadline.after(_TURN_S))
            except (Fenced, Corrupt, Closed):
                raise
            except LayerError as failure:
                _log.warning("coordinator=%d: %s", self.coordinator.id, failure)
                self.pause(pause_s)
                pause_s = min(2 * pause_s, _MAX_RETRY_INTERVAL_S)
                continue
            pause_s = _MIN_RETRY_INTERVAL_S
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
            served.close(deadline)


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


_MAX_WAITING: Final = 10_000


class RequestTail:
    """Requests of other processes to the coordinators that this process serves: one thread reads them as they come.
    Thread-safe. Memory: up to 10,000 requests for each coordinator, and what `PartitionTail` says."""

    def __init__(self, log: StateLog, reader: AssignedReader) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._feeds: dict[int, TailedRequests] = {}
        self._tail = PartitionTail(
            log, TRANSACTION_REQUESTS, reader, self._wanted, self._hand_on, name="pok-transaction-requests",
            without="this process does not hear other processes' wishes to begin and end transactions",
        )  # fmt: skip

    def feed(self, coordinator: int) -> TailedRequests:
        return TailedRequests(self, TRANSACTION_REQUESTS.partition_of_coordinator(coordinator))

    def close(self, deadline: Deadline) -> None:
        """End the thread; a second call does nothing."""
        self._tail.close(deadline)

    # Of feeds -----------------------------------------------------------------------------------------------------

    def listen(self, partition: int, feed: TailedRequests, deadline: Deadline) -> None:
        """Have it told of what is written from now on, or from when that can be read."""
        start = None
        with suppress(StoreError):
            start = self._log.end_offset(TRANSACTION_REQUESTS, partition, deadline)
        with self._lock:
            self._feeds[partition] = feed
        self._tail.look(partition, start)

    def unlisten(self, partition: int, feed: TailedRequests) -> None:
        with self._lock:
            if self._feeds.get(partition) is feed:
                del self._feeds[partition]
        self._tail.look()

    # The tail's thread --------------------------------------------------------------------------------------------

    def _wanted(self) -> set[int]:
        with self._lock:
            return set(self._feeds)

    def _hand_on(self, records: Sequence[tuple[int, LogRecord]]) -> None:
        by_partition: dict[int, list[LogRecord]] = {}
        for partition, record in records:
            by_partition.setdefault(partition, []).append(record)
        for partition, those in by_partition.items():
            with self._lock:
                feed = self._feeds.get(partition)
            if feed is not None:
                feed.put(those)


class TailedRequests:
    """Implements `RequestFeed` for one coordinator: `take` asks Kafka nothing, and `wake` is called when there is
    something to take. Of more than 10,000 that wait the oldest are dropped: who is not answered asks again."""

    def __init__(self, tail: RequestTail, partition: int) -> None:
        self._tail = tail
        self._partition = partition
        self._heard: deque[LogRecord] = deque(maxlen=_MAX_WAITING)
        self._listens = False
        self._wake: Callable[[], None] | None = None

    def begin(self, wake: Callable[[], None], deadline: Deadline) -> None:
        self._wake = wake
        self._tail.listen(self._partition, self, deadline)
        self._listens = True

    def take(self) -> list[LogRecord]:
        return [self._heard.popleft() for _ in range(len(self._heard))]

    def rest(self) -> None:
        if self._listens:
            self._listens = False
            self._tail.unlisten(self._partition, self)
            self._heard.clear()

    def put(self, records: Sequence[LogRecord]) -> None:
        """For the tail's thread."""
        self._heard.extend(records)
        if self._wake is not None:
            self._wake()
