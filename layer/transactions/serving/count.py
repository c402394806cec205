"""The count of a cluster's transaction coordinators is the number of partitions of their topics, which only grow."""

from __future__ import annotations

import threading
from typing import Final, Protocol

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption, LayerError
from pulsar_on_kafka.kafka.records import TopicDescription
from pulsar_on_kafka.mapping.state.state_topics import (
    MOST_COORDINATORS,
    TRANSACTION_COORDINATOR_ASSIGN,
    TRANSACTION_LOG,
    TRANSACTION_REQUESTS,
)
from pulsar_on_kafka.statelog.api import StateLog

_FRESH_S: Final = 10.0
_ASK_S: Final = 5.0


class Admin(Protocol):
    """The calls of `KafkaAdmin` that counting uses."""

    def describe_topic(self, topic: str, deadline: Deadline) -> TopicDescription | None: ...
    def grow_topic(self, topic: str, partitions: int, deadline: Deadline) -> None: ...


class CoordinatorCount:
    """Thread-safe. Memory: one number."""

    def __init__(self, admin: Admin, log: StateLog, clock: Clock) -> None:
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
        if count > MOST_COORDINATORS:
            raise InvalidOption(f"coordinators of transactions are {MOST_COORDINATORS} at most, got {count}")
        # Whoever is assigned a coordinator finds its log and its requests.
        for topic in (TRANSACTION_LOG, TRANSACTION_REQUESTS, TRANSACTION_COORDINATOR_ASSIGN):
            self._log.end_offset(topic, 0, deadline)
            found = self._admin.describe_topic(self._log.kafka_name(topic), deadline)
            if found is not None and found.partitions < count:
                self._admin.grow_topic(self._log.kafka_name(topic), count, deadline)
        with self._lock:
            self._known = max(self._known, count)
