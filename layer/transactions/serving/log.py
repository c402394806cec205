"""A coordinator's partition of `__transaction_log`, and the requests that come to it: read to the end, append."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.mapping.state.state_topics import TRANSACTION_LOG, StateTopic
from pulsar_on_kafka.statelog.api import StateLog
from pulsar_on_kafka.statelog.owned import OwnedLog, random_session
from pulsar_on_kafka.statelog.view import LogView
from pulsar_on_kafka.transactions.coordinator.state import CoordinatorState


class CoordinatorLog(OwnedLog[CoordinatorState]):
    """A coordinator's partition of `__transaction_log`. Every record has a key of its own, and what comes late finds
    ids given and decisions made, so an owner goes on that does not know what it wrote."""

    def __init__(
        self,
        log: StateLog,
        coordinator: int,
        clock: Clock,
        *,
        new_session: Callable[[], str] = random_session,
        topic: StateTopic = TRANSACTION_LOG,
    ) -> None:
        self.coordinator = coordinator
        partition = topic.partition_of_coordinator(coordinator)
        super().__init__(
            LogView(log, topic, partition, partial(CoordinatorState, coordinator, follow_changes=True), clock),
            f"coordinator {coordinator}",
            late_is_harmless=True,
            new_session=new_session,
        )
