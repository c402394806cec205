"""Roles run in this process, on one node."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.processes import STAND_IN
from pulsar_on_kafka.base.role_state import RoleName, RoleState
from pulsar_on_kafka.broker.managed_ledger.trusted import TrustedLedgers
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.client.client import Client
from pulsar_on_kafka.metrics.overview import Page
from pulsar_on_kafka.service.housekeeping.cursors import CursorHousekeeping
from pulsar_on_kafka.service.housekeeping.deleted_names import DeadNames, NonDurableHousekeeping
from pulsar_on_kafka.service.housekeeping.idle_groups import IdleGroups
from pulsar_on_kafka.service.housekeeping.past_incarnations import DeadLives, HeartbeatHousekeeping
from pulsar_on_kafka.service.housekeeping.rounds import HousekeepingRounds
from pulsar_on_kafka.service.ledgers.deletion_events import VISIBLE_AFTER_S, KafkaDeletionEvents
from pulsar_on_kafka.service.ledgers.log_use import KafkaLogUse
from pulsar_on_kafka.service.ledgers.maintenance import Maintenance
from pulsar_on_kafka.service.ledgers.open_trimming import OpenTrimming
from pulsar_on_kafka.service.ledgers.partition_state import PartitionLook
from pulsar_on_kafka.service.ledgers.retirement import Retirement
from pulsar_on_kafka.service.ledgers.topic_deletion import TopicDeletion
from pulsar_on_kafka.service.ledgers.worker import DeletionWorker
from pulsar_on_kafka.service.overview import OverviewRounds
from pulsar_on_kafka.service.replication.replication import Replication
from pulsar_on_kafka.service.replication.subscriptions.replicated_subscriptions import ReplicatedSubscriptions

_log: Final = logging.getLogger(__name__)


class LedgerDeletion:
    """`retirement`, `open_trimming` and `topics` are for the thread of `Maintenance`; the worker, once there is one,
    has its own. Close `Maintenance` first."""

    def __init__(
        self, client: Client, node: Node, *, visible_after_s: float = VISIBLE_AFTER_S, retry_s: float | None = None
    ) -> None:
        """`client` is of the same cluster as `node`; see `KafkaDeletionEvents` and `DeletionWorker`. Sends no request
        to Kafka."""
        self._client = client
        self._node = node
        self._retry_s = retry_s
        self._trusted = TrustedLedgers()
        self._use = KafkaLogUse(node, node.memberships.cursors.read)
        self._events = KafkaDeletionEvents(client, node, visible_after_s=visible_after_s)
        self.retirement = Retirement(self._use, self._events, self._trusted)
        self.open_trimming = OpenTrimming(self._use, node.clock)
        self.topics = TopicDeletion(node.topics, node.admin, self._events)
        self.worker: DeletionWorker | None = None

    def work(self) -> DeletionWorker:
        """Starts deleting, for requests from any process; once."""
        if self.worker is None:
            look = PartitionLook(self._node, self._use, self.topics)
            self.worker = DeletionWorker(self._client, self._node, look, self._trusted, retry_s=self._retry_s)
        return self.worker

    def close(self, deadline: Deadline) -> None:
        """A second call does nothing."""
        if self.worker is not None:
            self.worker.close(deadline)
        self._events.close()


_BRIEFLY_S: Final = 0.1

ROLES_OF_STAND_INS: Final[Collection[RoleName]] = frozenset(RoleName) - {
    RoleName.TRANSACTIONS,
    RoleName.SUBSCRIPTIONS,
    RoleName.REPLICATION,
}
"""Programs with transactions serve coordinators, and so does a process that an orphaned transaction blocks
(`node.orphaned_transactions`); a client has no access to other clusters."""


class RunningRole(Protocol):
    def state(self) -> RoleState: ...

    def close(self, deadline: Deadline) -> None: ...


class _Maintenance:
    """The maintainer of partition i of `ledgers` also does the housekeeping of partition i of the topics with the same
    partitioning. Services gather metrics, too (`gatherer`); a client that stands in is not scraped for metrics of the
    cluster."""

    def __init__(self, node: Node, deletion: LedgerDeletion, member: str, gatherer: SharedGatherer | None) -> None:
        self._maintenance = Maintenance(
            node,
            member=member,
            retirement=deletion.retirement,
            open_trimming=deletion.open_trimming,
            topic_deletion=deletion.topics,
        )
        work = (
            CursorHousekeeping(node.log, node.clock, node.topics, node.subscriptions, node.admin),
            IdleGroups(node.log, node.clock, node.topics, node.subscriptions, node.admin),
            HeartbeatHousekeeping(node.log, node.clock, node.producers),
            DeadLives(node.log, node.clock, node.topics),
            DeadNames(
                node.log,
                node.clock,
                node.topics.records,
                node.subscriptions,
                node.registrations,
                node.producers,
                node.has_state_topic,
            ),
            NonDurableHousekeeping(node.clock, node.topics, node.subscriptions, node.memberships),
        )
        self._housekeeping = HousekeepingRounds(work, self._maintenance.owned)
        self._overview = OverviewRounds(gatherer, self._maintenance.owned) if gatherer is not None else None
        self._closed = False

    def state(self) -> RoleState:
        state = self._maintenance.state()
        workers = {"housekeeping": self._housekeeping, **({"overview": self._overview} if self._overview else {})}
        dead = [worker.name for worker in workers.values() if not (self._closed or worker.is_alive())]
        turns = (*state.turns, *((name, worker.turns.seen()) for name, worker in workers.items()))
        return replace(state, dead=(*state.dead, *dead), turns=turns, written=tuple(self._housekeeping.written.items()))

    def page(self) -> Page:
        return self._overview.page if self._overview else Page()

    def close(self, deadline: Deadline) -> None:
        self._closed = True
        if self._overview:
            self._overview.end()
        self._maintenance.close(deadline)
        self._housekeeping.close(deadline)
        if self._overview:
            self._overview.close(deadline)


class RunningRoles:
    """The running roles of `names`, from the constructor until `close`. Thread-safe."""

    def __init__(
        self,
        node: Node,
        names: Collection[RoleName],
        member: str,
        secrets: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        gatherer: SharedGatherer | None = None,
    ) -> None:
        """`member` begins the client ids of its memberships (`base.processes`); `secrets` are more of
        librdkafka's options for registered clusters, by cluster. With a `gatherer` maintenance makes metrics of all
        subscriptions.

        Raises:
            LayerError: one of them cannot be begun; then none is.
        """
        self._node = node
        self._secrets = secrets
        self._gatherer = gatherer
        self._roles: list[RunningRole] = []
        self._client: Client | None
        self._client = client = Client.on(node)
        self._deletion = LedgerDeletion(client, node)
        try:
            for name in sorted(names):
                self._roles.append(self._begin(name, member))
        except LayerError:
            self.close(Deadline.after(_BRIEFLY_S))
            raise
        node.roles.append(self)

    def states(self) -> Sequence[RoleState]:
        return [role.state() for role in self._roles]

    def page(self) -> Page:
        """Metrics of all subscriptions, while this process gathers them; else nothing."""
        return next((role.page() for role in self._roles if isinstance(role, _Maintenance)), Page())

    def close(self, deadline: Deadline) -> None:
        if self in self._node.roles:
            self._node.roles.remove(self)
        roles, self._roles = self._roles, []
        for role in roles:
            role.close(deadline)
        client, self._client = self._client, None
        if client is not None:
            self._deletion.close(deadline)
            client.close()

    def _begin(self, name: RoleName, member: str) -> RunningRole:
        match name:
            case RoleName.MAINTENANCE:
                return _Maintenance(self._node, self._deletion, member, self._gatherer)
            case RoleName.DELETION:
                return self._deletion.work()
            case RoleName.TRANSACTIONS:
                self._node.transactions.join(Deadline.after(_BRIEFLY_S))
                return self._node.transactions  # which the node ends in any case
            case RoleName.SUBSCRIPTIONS:
                return ReplicatedSubscriptions(self._node, member=member, secrets=self._secrets)
            case RoleName.REPLICATION:
                return Replication(self._node, member, self._secrets)


def stand_in(node: Node) -> RunningRoles:
    """Begin what a client's process does while there is no service (`node.standing_in`). Raises as `RunningRoles`."""
    return RunningRoles(node, ROLES_OF_STAND_INS, STAND_IN)
