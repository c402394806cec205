"""The coordinators of a cluster: their number, those that this process owns (a thread for each, as long as Kafka's
group assigns it), and the requests of other processes to these."""

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
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import Command

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
        """The last known count: ten seconds old at most, or from the last successful query."""
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
        """The count from the cluster. Raises StoreErrors, NotAuthorized."""
        found = self._admin.describe_topic(self._log.kafka_name(TRANSACTION_COORDINATOR_ASSIGN), deadline)
        with self._lock:
            self._known = max(self._known, 0 if found is None else found.partitions)
            return self._known

    def grow(self, count: int, deadline: Deadline) -> None:
        """Raises the number of coordinators. It completes an interrupted earlier call; transactions keep their
        coordinators.

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
        # The log and the requests exist before a coordinator can be assigned.
        for topic in (TRANSACTION_LOG, TRANSACTION_REQUESTS, TRANSACTION_COORDINATOR_ASSIGN):
            self._log.end_offset(topic, 0, deadline)
            found = self._admin.describe_topic(self._log.kafka_name(topic), deadline)
            if found is not None and found.partitions < count:
                self._admin.grow_topic(self._log.kafka_name(topic), count, deadline)
        # A broker receives new partitions with a delay; the next call, of any process, counts these.
        if not wait_until(lambda: self.now(deadline) >= count, deadline):
            deadline.check(f"the cluster to report {count} coordinators")


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
            # Fenced: Kafka's group has not reported the loss of the coordinator to this process yet, or the other claim
            # came from a process that woke up: then this process claims again.
            raise
        except Exception as failure:  # the waiting callers get the failure; the worker logs it
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
        """Serves these from now on; one that is served already continues."""
        with self._lock:
            for number in coordinators:
                if not self._closed and number not in self._served:
                    self._served[number] = _Served(self._make(number))

    def on_revoke(self, coordinators: Iterable[int]) -> None:
        """Stops serving these. Waiting callers get the error that another process serves; the log keeps all
        decisions."""
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
        """The coordinators that accept commands now, in order."""
        with self._lock:
            return sorted(number for number, served in self._served.items() if served.coordinator.serving)

    def dead_threads(self) -> list[str]:
        """Names of dead threads, of coordinators that are to be served."""
        with self._lock:
            return [f"pok-coordinator-{number}" for number, served in self._served.items() if not served.is_alive()]

    def submit(self, coordinator: int, command: Command, deadline: Deadline) -> Future[TxnId]:
        """Passes the command to a coordinator of this process. Raises
        TransactionCoordinatorNotFound: it runs elsewhere."""
        with self._lock:
            served = self._served.get(coordinator)
        if served is None:
            raise TransactionCoordinatorNotFound(f"coordinator {coordinator} is not assigned to this process")
        return served.coordinator.submit(command, deadline)

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
    """This process's membership in the group that assigns the coordinators: the owner of partition i of its topic,
    which holds no data, runs coordinator i."""

    def __init__(
        self, coordinators: Coordinators, instance: Instance, open_member: Callable[[GroupCallbacks], GroupConsumer]
    ) -> None:
        super().__init__(
            coordinators_group(instance),
            open_member,
            Assignment(coordinators.on_assign, coordinators.on_revoke),
            name="pok-coordinators",
            without="this process coordinates no transactions and uses the coordinators of other processes",
        )


_MAX_WAITING: Final = 10_000


class RequestTail:
    """Requests of other processes to the coordinators that this process serves: one thread reads them as they come.
    Thread-safe. Memory: up to 10,000 requests for each coordinator; see `PartitionTail`."""

    def __init__(self, log: StateLog, reader: AssignedReader) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._feeds: dict[int, TailedRequests] = {}
        self._tail = PartitionTail(
            log, TRANSACTION_REQUESTS, reader, self._required_partitions, self._hand_on,
            name="pok-transaction-requests",
            without="this process receives no requests of other processes to begin and end transactions",
        )  # fmt: skip

    def feed(self, coordinator: int) -> TailedRequests:
        return TailedRequests(self, TRANSACTION_REQUESTS.partition_of_coordinator(coordinator))

    def close(self, deadline: Deadline) -> None:
        """End the thread; a second call does nothing."""
        self._tail.close(deadline)

    # Of feeds -----------------------------------------------------------------------------------------------------

    def listen(self, partition: int, feed: TailedRequests, deadline: Deadline) -> None:
        """Passes the records written from now on to `feed`, or from the time when the end can be read."""
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

    def _required_partitions(self) -> set[int]:
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
    """Implements `RequestFeed` for one coordinator: `take` sends no request to Kafka, and `wake` is called when
    requests are ready. Of more than 10,000 waiting requests the oldest are dropped: their senders resend them."""

    def __init__(self, tail: RequestTail, partition: int) -> None:
        self._tail = tail
        self._partition = partition
        self._received: deque[LogRecord] = deque(maxlen=_MAX_WAITING)
        self._listens = False
        self._wake: Callable[[], None] | None = None

    def begin(self, wake: Callable[[], None], deadline: Deadline) -> None:
        self._wake = wake
        self._tail.listen(self._partition, self, deadline)
        self._listens = True

    def take(self) -> list[LogRecord]:
        return [self._received.popleft() for _ in range(len(self._received))]

    def rest(self) -> None:
        if self._listens:
            self._listens = False
            self._tail.unlisten(self._partition, self)
            self._received.clear()

    def put(self, records: Sequence[LogRecord]) -> None:
        """Appends requests; for the tail's thread."""
        self._received.extend(records)
        if self._wake is not None:
            self._wake()
