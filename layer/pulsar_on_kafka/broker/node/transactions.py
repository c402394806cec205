"""Transactions in a process: the coordinators that it serves, and the way to all others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.base.errors import Closed, NotAuthorized, Refused, StoreError
from pulsar_on_kafka.base.role_state import RoleName, RoleState
from pulsar_on_kafka.broker.metadata.policies import CLUSTER
from pulsar_on_kafka.broker.node.services import FETCH_QUEUE_KBYTES, Services
from pulsar_on_kafka.broker.transactions.client_transaction import TransactionClient
from pulsar_on_kafka.broker.transactions.coordinator.rules import CoordinatorSettings, coordinator_settings
from pulsar_on_kafka.broker.transactions.effects.kafka_partitions import KafkaDataPartitions
from pulsar_on_kafka.broker.transactions.effects.outcome_writer import LoggedOutcomes
from pulsar_on_kafka.broker.transactions.serving.coordinator import Coordinator
from pulsar_on_kafka.broker.transactions.serving.coordinator_client import ClusterAccess, RemoteCoordinator
from pulsar_on_kafka.broker.transactions.serving.coordinators import (
    CoordinatorGroup,
    Coordinators,
    RequestTail,
    coordinators_group,
)
from pulsar_on_kafka.broker.transactions.serving.log_writer import CoordinatorLog
from pulsar_on_kafka.broker.transactions.upkeep.sealing import Sealing
from pulsar_on_kafka.broker.transactions.upkeep.upkeep import Upkeep, UpkeepRounds
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.statelog.kafka_log import FETCH_QUEUE_KBYTES as STATE_FETCH_QUEUE_KBYTES
from pulsar_on_kafka.statelog.owned import random_session
from pulsar_on_kafka_mapping.ids.txn_id import TxnId
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import (
    TRANSACTION_BUFFER_SNAPSHOT,
    TRANSACTION_COORDINATOR_ASSIGN,
)
from pulsar_on_kafka_mapping.state.transactions.transaction_requests import End

_log: Final = logging.getLogger(__name__)
_ASSIGNED_S: Final = 10.0
_SERVING_S: Final = 5.0
_REQUESTS_WAIT_MS: Final = 500


class Transactions:
    """The transactions of a node. Thread-safe; it joins no group before the first client is requested.

    Memory: see `CoordinatorSettings` for each coordinator served here; the state of each other coordinator in use.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._data = KafkaDataPartitions(
            services.topics,
            services.admin,
            services.fetcher,
            services.state_producer,
            services.clock,
            services.settings.reader(fetch_queue_kbytes=FETCH_QUEUE_KBYTES),
        )
        self._outcomes = LoggedOutcomes(services.log, self._data, services.transaction_views)
        self._sealing = Sealing(services.log, services.transaction_views, self._data, services.clock, random_session())
        self._requests = RequestTail(services.log, self._request_reader())
        self._coordinators = Coordinators(self._coordinator)
        self._access = ClusterAccess(self._coordinators, self._remote, services.coordinator_count.known)
        self._group: CoordinatorGroup | None = None
        self._upkeep = Upkeep(
            services.log,
            services.transaction_views,
            services.topics,
            services.subscriptions,
            services.admin,
            services.clock,
        )
        self._rounds: UpkeepRounds | None = None
        self._closed = False
        self._lock = threading.Lock()
        self.limits: Mapping[str, Any] = {}
        """Policies of transactions that count for this process instead of the cluster's. To be set before it joins."""
        self.settings = CoordinatorSettings()
        """Settings of this process's coordinators, from `join` on."""

    def join(self, deadline: Deadline) -> None:
        """Make this process one of those that serve coordinators, and wait for its share, within `deadline`.

        Later calls return at once. Where it takes long, or rights are missing, others serve meanwhile.

        Raises:
            Closed: the node was closed.
        """
        with self._lock:
            if self._closed:
                raise Closed("transactions of this process were closed")
            if self._group is None:
                self.settings = self._settings_now(deadline)
                self._services.state_apart = True
                self._group = CoordinatorGroup(self._coordinators, self._services.settings.instance, self._open_member)
                self._rounds = UpkeepRounds(self._upkeep, self._sealing, self._cleaned)
            group = self._group
        if group.wait_until_assigned(deadline.at_most(_ASSIGNED_S)):
            wait_until(self._serves_its_share, deadline.at_most(_SERVING_S))

    def _settings_now(self, deadline: Deadline) -> CoordinatorSettings:
        """The current settings; the defaults without the right to read the cluster's policies, or without a reply."""
        try:
            return coordinator_settings(self.limits, self._services.namespaces.policies(CLUSTER, deadline))
        except (NotAuthorized, StoreError) as failure:
            _log.warning("the cluster's policies of transactions cannot be read, defaults count: %s", failure)
            return coordinator_settings(self.limits)

    def _cleaned(self) -> list[int]:
        """Partitions of buffers and pending acks: who serves the coordinator of that number sees to them."""
        return [number for number in self._coordinators.serving() if number < TRANSACTION_BUFFER_SNAPSHOT.partitions]

    def _serves_its_share(self) -> bool:
        return bool(self._coordinators.serving()) or not self._coordinators.owned()

    def client(self, deadline: Deadline) -> TransactionClient:
        """Begins transactions, with a coordinator of this process if it has one. Raises Closed."""
        self.join(deadline)
        return TransactionClient(self._access, self._services.clock, admit=self.admit)

    def admit(self, topic: str, deadline: Deadline) -> None:
        """Applies the policies of the cluster and of the topic's tenant; with "" that of the cluster. Source: Pulsar's
        ServerCnx.checkTransactionEnableAndSendError, whose words these are.

        Raises:
            Refused: there are no transactions.
        """
        tenant = TopicName.parse(topic).tenant if topic else ""
        if not self._services.namespaces.has_transactions(tenant, deadline):
            raise Refused(f"Transactions are not enabled.{f' Tenant: {tenant}' if tenant else ''}")

    def end(self, txn: TxnId, *, commit: bool, deadline: Deadline) -> None:
        """Ends a transaction that any program began. This process runs coordinators for it only when no other does.

        Raises the errors of `RemoteCoordinator.request`, and Closed.
        """
        if not self.served(deadline):
            self.join(deadline)
        self._access.request(txn.coordinator, End(txn, commit), deadline)

    def served(self, deadline: Deadline) -> bool:
        """Whether the group that serves coordinators has any member. Raises StoreErrors."""
        group = coordinators_group(self._services.settings.instance)
        return bool(self._services.admin.describe_group(group, deadline).members)

    def owned(self) -> list[int]:
        """The coordinators assigned to this process, in order."""
        return self._coordinators.owned()

    def state(self) -> RoleState:
        with self._lock:
            group, rounds, closed = self._group, self._rounds, self._closed
        dead = [] if closed else self._coordinators.dead_threads()
        if group is not None and not closed and not group.is_alive():
            dead.append("pok-coordinators")
        if rounds is not None and not closed and not rounds.is_alive():
            dead.append("pok-transaction-upkeep")
        turns = () if rounds is None else (("upkeep", rounds.turns.seen()),)
        joined = group is not None and group.answered
        return RoleState(RoleName.TRANSACTIONS.value, joined, len(self.owned()), tuple(dead), turns)

    def state_sizes(self) -> tuple[int, int]:
        """The number of buffer entries, and of acks and ENDs, in the partitions that this process cleans, at the last
        cleaning."""
        return self._upkeep.sizes.totals()

    def close(self, deadline: Deadline) -> None:
        """End the coordinators, then leave the group; a second call does nothing."""
        with self._lock:
            self._closed = True
            group, rounds = self._group, self._rounds
        if rounds is not None:
            rounds.close(deadline)
        self._coordinators.close(deadline)
        if group is not None:
            group.close(deadline)
        self._requests.close(deadline)
        self._data.close()

    def _coordinator(self, number: int) -> Coordinator:
        log = CoordinatorLog(self._services.followed_log, number, self._services.clock)
        requests = self._requests.feed(number)
        return Coordinator(
            log,
            self._outcomes,
            requests,
            settings=self.settings,
            clock=self._services.clock,
            meter=self._services.meters.coordinator(number),
        )

    def _remote(self, number: int) -> RemoteCoordinator:
        logs = self._services.transaction_views.coordinators
        return RemoteCoordinator(self._services.log, number, logs, self._services.clock)

    def _request_reader(self) -> AssignedReader:
        config = self._services.settings.tail(
            client_id="transaction-requests", fetch_queue_kbytes=STATE_FETCH_QUEUE_KBYTES, wait_ms=_REQUESTS_WAIT_MS
        )
        return AssignedReader(self._services.settings.of_state(config), "reader of transaction requests")

    def _open_member(self, callbacks: GroupCallbacks) -> GroupConsumer:
        group = coordinators_group(self._services.settings.instance)
        return self._services.member_sharing(TRANSACTION_COORDINATOR_ASSIGN, group, callbacks)
