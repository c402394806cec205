"""A transaction in the program that began it: each participant is registered once, then the transaction is ended.

Statuses and rules are those of the Java client's TransactionImpl: a send or acknowledgement that failed makes `commit`
abort; commit and abort wait for operations under way; after a lost reply the caller may request the same end again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from itertools import islice
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline, pause
from pulsar_on_kafka.base.errors import (
    Corrupt,
    DeadlineExceeded,
    InvalidTxnStatus,
    LayerError,
    NotAuthenticated,
    NotAuthorized,
    StoreError,
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionHasFailed,
    TransactionNotFound,
    TransactionOutcomeUnknown,
)
from pulsar_on_kafka.broker.transactions.serving.coordinator_client import CoordinatorAccess
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition, TopicSubscription
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import (
    AddPartitions,
    AddSubscriptions,
    Begin,
    Command,
    End,
)

DEFAULT_TIMEOUT_MS: Final = 60_000
_RETRY_INTERVAL_S: Final = 0.05
_A_MILLISECOND_S: Final = 0.001
_A_COORDINATOR_S: Final = 8.0
"""Time-out of a begin request to one coordinator; longer than Kafka takes to notice that the coordinator's owner
died."""
_AHEAD_FROM: Final = 4
_MAX_AHEAD: Final = 256


class TransactionState(str, Enum):
    """States of a transaction, named as in Pulsar's Java client."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    ABORTING = "ABORTING"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    ERROR = "ERROR"
    TIME_OUT = "TIME_OUT"


_OPEN: Final = TransactionState.OPEN
Admit = Callable[[str, Deadline], None]
"""Raises Refused: the topic with this name (its tenant) takes part in no transaction; with "", none may be begun."""


def _admit_all(topic: str, deadline: Deadline) -> None:
    """Applies no policy."""


class ClientTransaction:
    """Thread-safe. Memory: what is registered, at most what the coordinator allows a transaction."""

    def __init__(
        self,
        id: TxnId,  # noqa: A002 - Pulsar's name
        timeout_ms: int,
        access: CoordinatorAccess,
        clock: Clock,
        wait: Callable[[float], None] = pause,
        owner: str = "",
        admit: Admit = _admit_all,
    ) -> None:
        """Constructed by `TransactionClient`. The time-out counts from now, which must not be later than the
        coordinator's clock."""
        self.id = id
        self.owner = owner
        """The role that began the transaction; "" without authentication."""
        self.timeout_ms = timeout_ms
        self._access = access
        self._clock = clock
        self._wait = wait
        self._admit = admit
        self._over_at_s = clock.monotonic() + timeout_ms / 1000
        self._lock = threading.RLock()  # taken by itself in what is done for each message
        self._changed = threading.Condition(self._lock)
        self._state = TransactionState.OPEN
        self._registered: set[Hashable] = set()
        self._registering: set[Hashable] = set()
        self._known: dict[str, int] = {}
        """The number of registered partitions, by topic."""
        self._operations = 0
        self._failure: str | None = None

    @property
    def state(self) -> TransactionState:
        """TIME_OUT once its time is over without an end: the coordinator aborts it."""
        with self._changed:
            if self._state is TransactionState.OPEN and self._clock.monotonic() >= self._over_at_s:
                self._state = TransactionState.TIME_OUT
            return self._state

    def remaining_ms(self) -> int:
        """The time until the transaction times out; never negative."""
        return max(0, int((self._over_at_s - self._clock.monotonic()) * 1000))

    def now_ms(self) -> int:
        """The brokers' time."""
        return self._clock.now_ms()

    def has_time(self) -> bool:
        return self._over_at_s - self._clock.monotonic() >= _A_MILLISECOND_S

    def has_registered(self, topic: str, partition: int) -> bool:
        """Whether `register_partition` has returned for the partition."""
        return (topic, partition) in self._registered

    def register_partition(self, topic: str, partition: int, deadline: Deadline, partitions: int = 1) -> None:
        """Must return before the first record of the transaction goes to this partition; later calls cost nothing.

        `partitions`: how many the topic has. From its fourth partition on, a transaction registers as many more with
        the same request, so that one over hundreds of partitions does not wait for hundreds of replies in sequence.

        Raises:
            InvalidTxnStatus: it is not open (any more). NoSuchTopic: the topic was deleted. Refused: its tenant has no
                transactions. StoreErrors that `CoordinatorAccess.request` raises: call again.
        """
        each = TopicPartition(topic, partition)
        with self._lock:
            ahead = self._worth_registering(each, partitions)
            self._registering.update(ahead)
        try:
            self._register(each, AddPartitions(self.id, (each, *ahead)), deadline, ahead)
        finally:
            with self._changed:
                self._registering.difference_update(ahead)
                self._changed.notify_all()

    def _worth_registering(self, each: TopicPartition, partitions: int) -> list[TopicPartition]:
        """The partitions behind this one that are not registered, as many as there are at most."""
        known = self._known.get(each.topic, 0)
        if known < _AHEAD_FROM or known >= partitions or each in self._registered or each in self._registering:
            return []
        behind = (TopicPartition(each.topic, (each.partition + step) % partitions) for step in range(1, partitions))
        free = (one for one in behind if one not in self._registered and one not in self._registering)
        return list(islice(free, min(known, _MAX_AHEAD)))

    def register_subscription(self, topic: str, partition: int, subscription: str, deadline: Deadline) -> None:
        """Must return before the first acknowledgement there. Raises as `register_partition`."""
        each = TopicSubscription(topic, partition, subscription)
        self._register(each, AddSubscriptions(self.id, (each,)), deadline)

    def _register(
        self,
        each: TopicPartition | TopicSubscription,
        command: Command,
        deadline: Deadline,
        ahead: Sequence[TopicPartition] = (),
    ) -> None:
        with self._changed:
            while True:
                self._check_open()
                if each in self._registered:
                    return
                if each not in self._registering:
                    break
                if not self._changed.wait(deadline.remaining_s()):
                    raise DeadlineExceeded(f"time ran out while {each} was being registered")
            self._registering.add(each)
        try:
            self._admit(each.topic, deadline)
            self._access.request(self.id.coordinator, command, deadline)
            with self._changed:
                self._registered.update((each, *ahead))
                if isinstance(each, TopicPartition):
                    self._known[each.topic] = self._known.get(each.topic, 0) + 1 + len(ahead)
        except (TransactionNotFound, InvalidTxnStatus):
            with self._changed:
                if self._state is TransactionState.OPEN:
                    self._state = TransactionState.ERROR
            raise
        finally:
            with self._changed:
                self._registering.discard(each)
                self._changed.notify_all()

    def begin_operation(self) -> None:
        """A send or acknowledgement is on its way. Raises InvalidTxnStatus when the transaction is not open."""
        with self._lock:
            if self._state is not _OPEN or self._clock.monotonic() >= self._over_at_s:
                self._check_open()
            self._operations += 1

    def end_operation(self, failure: str | None = None) -> None:
        """Ends an operation; with a `failure` the transaction can no longer be committed."""
        with self._lock:
            self._operations -= 1
            if failure is not None and self._failure is None:
                self._failure = failure
            if self._operations == 0:
                self._changed.notify_all()

    def _check_open(self) -> None:
        state = self.state
        if state is not TransactionState.OPEN:
            raise InvalidTxnStatus(f"transaction {self._text()} is {state.value}, expected OPEN")

    def _text(self) -> str:
        return self.id.to_bytes().decode()

    def commit(self, deadline: Deadline) -> None:
        """Makes everything in the transaction visible at once, and returns when it is. The call first waits for
        operations under way.

        After `TransactionOutcomeUnknown`, call it again: a repeated commit does no harm, even if the first request was
        never sent.

        Raises:
            InvalidTxnStatus: it was aborted, by any process, or has timed out; nothing takes effect.
            TransactionHasFailed: an operation in it failed, so it was aborted.
            TransactionNotFound: the coordinator has forgotten it. After an earlier unknown outcome it may be committed.
            TransactionOutcomeUnknown: no answer within `deadline`.
            DeadlineExceeded: operations under way took longer. It is open still.
        """
        self._start_end(TransactionState.COMMITTING, deadline)
        with self._changed:
            failure = self._failure
        if failure is not None:
            self._set(TransactionState.ABORTING)
            self._end(commit=False, deadline=deadline)
            raise TransactionHasFailed(f"transaction {self._text()} was aborted: {failure}")
        self._end(commit=True, deadline=deadline)

    def abort(self, deadline: Deadline) -> None:
        """Undo everything in it. Raises as `commit`; here InvalidTxnStatus means that it is committed."""
        self._start_end(TransactionState.ABORTING, deadline)
        self._end(commit=False, deadline=deadline)

    def _start_end(self, ending: TransactionState, deadline: Deadline) -> None:
        with self._changed:
            before = self.state
            if before is not TransactionState.OPEN and before is not ending:
                raise InvalidTxnStatus(f"transaction {self._text()} is {before.value}, expected OPEN or {ending.value}")
            self._state = ending  # so that nothing new begins
            if not self._changed.wait_for(lambda: self._operations == 0, deadline.remaining_s()):
                self._state = before
                raise DeadlineExceeded(f"{self._operations} operations of transaction {self._text()} are under way")

    def _end(self, *, commit: bool, deadline: Deadline) -> None:
        while True:
            try:
                self._access.request(self.id.coordinator, End(self.id, commit), deadline)
            except (TransactionNotFound, InvalidTxnStatus):
                self._set(TransactionState.ERROR)
                raise
            except StoreError as failure:  # ending twice the same way does no harm
                self._again(failure, deadline)
            else:
                self._set(TransactionState.COMMITTED if commit else TransactionState.ABORTED)
                return

    def _again(self, failure: LayerError, deadline: Deadline) -> None:
        if deadline.passed():
            raise TransactionOutcomeUnknown(f"ending transaction {self._text()}: {failure}") from failure
        self._wait(min(_RETRY_INTERVAL_S, deadline.remaining_s()))

    def _set(self, state: TransactionState) -> None:
        with self._changed:
            self._state = state
            self._changed.notify_all()


class TransactionClient:
    """Begins transactions for one client. Thread-safe."""

    def __init__(
        self,
        access: CoordinatorAccess,
        clock: Clock,
        wait: Callable[[float], None] = pause,
        admit: Admit = _admit_all,
    ) -> None:
        self._admit = admit
        self._access = access
        self._clock = clock
        self._wait = wait

    def begin(self, timeout_ms: int, deadline: Deadline) -> ClientTransaction:
        """A new transaction of the next coordinator that replies, aborted unless it is ended within `timeout_ms`. The
        client retries with all coordinators until the deadline.

        A transaction that an unresponsive coordinator may have begun has no client, and times out.

        Raises:
            Refused: there are no transactions, by policy.
            InvalidOption: no coordinator takes such a time-out.
            TransactionCoordinatorNotFound: none could be reached. TooManyTransactions: the last one has no room.
            Corrupt: the log of the last one cannot be read.
            NotAuthorized, NotAuthenticated: a right or credentials are missing.
        """
        failure: LayerError = TransactionCoordinatorNotFound("there is no coordinator of transactions")
        requested: set[int] = set()
        while True:
            # Evaluated in each round: this process may have become the owner of a coordinator while another was being
            # tried.
            coordinator = next((each for each in self._access.candidates() if each not in requested), None)
            if coordinator is None:
                if isinstance(failure, TooManyTransactions):
                    raise failure
                requested.clear()
                self._wait(min(_RETRY_INTERVAL_S, deadline.remaining_s()))
            else:
                requested.add(coordinator)
                try:
                    return self.begun_by(coordinator, timeout_ms, deadline.at_most(_A_COORDINATOR_S))
                except (NotAuthenticated, NotAuthorized):
                    raise
                except (StoreError, TooManyTransactions, Corrupt) as missed:
                    failure = missed
            if deadline.passed():
                if isinstance(failure, TooManyTransactions | Corrupt):
                    raise failure
                raise TransactionCoordinatorNotFound(f"no transaction was begun in time: {failure}") from failure

    def begun_by(self, coordinator: int, timeout_ms: int, deadline: Deadline, owner: str = "") -> ClientTransaction:
        """A new transaction of this coordinator, which gets one request. Raises the errors of
        `CoordinatorAccess.request`; Refused: there are no transactions, by policy."""
        self._admit("", deadline)
        began_s = self._clock.monotonic()
        txn = self._access.request(coordinator, Begin(timeout_ms, owner), deadline)
        spent_ms = int((self._clock.monotonic() - began_s) * 1000)
        return self.begun_elsewhere(txn, max(0, timeout_ms - spent_ms), owner)

    def begun_elsewhere(self, txn: TxnId, remaining_ms: int, owner: str) -> ClientTransaction:
        """An open transaction of another client that times out after `remaining_ms`, to take part in it here."""
        return ClientTransaction(txn, remaining_ms, self._access, self._clock, self._wait, owner, self._admit)
