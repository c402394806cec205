"""A node is what all Clients of a process share for one cluster: its services, memberships, readers, coordinators and
timer."""

from __future__ import annotations

import atexit
from collections.abc import Collection
from functools import partial
from typing import Final

from pulsar_on_kafka.base import forks
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.role_state import RunsRoles
from pulsar_on_kafka.base.scheduler import Scheduler
from pulsar_on_kafka.base.worker import check_threads
from pulsar_on_kafka.broker.node import begin_standing_in
from pulsar_on_kafka.broker.node.fallback_roles import StandIn
from pulsar_on_kafka.broker.node.memberships import Memberships
from pulsar_on_kafka.broker.node.orphaned_transactions import Abandoned
from pulsar_on_kafka.broker.node.readers import Readers
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.broker.node.transactions import Transactions
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.ids.txn_id import TxnId

_CLOSE_S: Final = 10.0
_ROLES_S: Final = 5.0


class Node(Services, forks.OfOneProcess):
    """This process's presence in one cluster, by `acquire` and `release`; thread-safe."""

    def __init__(self, settings: KafkaSettings, deadline: Deadline) -> None:
        super().__init__(settings, deadline)
        self.memberships = Memberships(self)
        self.readers = Readers(self)
        self.transactions = Transactions(self)
        self.abandoned = Abandoned(
            self.looking.coordinators, self.transactions.served, self.transactions.join, self.clock
        )
        self.timer = Scheduler("pok-timer")
        self.users = 0
        self.stand_in = StandIn(self, partial(begin_standing_in, self))
        self.roles: list[RunsRoles] = []
        """The roles of this process in the cluster, beside its own producers and consumers."""

    def hold_up(self, txns: Collection[TxnId]) -> None:
        self.abandoned.hold_up(txns)

    def close(self, deadline: Deadline) -> None:
        """Leave every group (acknowledgements are saved), answer what is under way, end every thread."""
        self.memberships.close(deadline)
        self.readers.close(deadline)
        for roles in list(self.roles):
            roles.close(deadline.at_most(_ROLES_S))
        self.abandoned.close(deadline)
        self.transactions.close(deadline)
        self.timer.close(deadline.remaining_s())  # before the producers: it sends the batches that are still open
        self.close_services(deadline)


_nodes: dict[object, Node] = {}
_nodes_lock: Final = forks.process_lock()


def acquire(settings: KafkaSettings, deadline: Deadline) -> Node:
    """This process's node for a cluster; the first call creates it.

    Raises:
        ConnectFailed: no broker replies in time. NotSupportedYet: see `check_threads`.
    """
    check_threads()
    with _nodes_lock:
        node = _nodes.get(settings.identity)
        if node is None:
            node = _nodes[settings.identity] = Node(settings, deadline)
        node.users += 1
        return node


def live_nodes() -> list[Node]:
    with _nodes_lock:
        return list(_nodes.values())


def release(node: Node) -> None:
    """Give a node back; the last user closes it."""
    with _nodes_lock:
        node.users -= 1
        if node.users > 0:
            return
        if _nodes.get(node.settings.identity) is node:
            del _nodes[node.settings.identity]
    node.close(Deadline.after(_CLOSE_S))


def _close_all() -> None:
    """An interpreter that exits without `close()` still leaves its groups and keeps what was acknowledged."""
    with _nodes_lock:
        nodes = list(_nodes.values())
        _nodes.clear()
    for node in nodes:
        node.close(Deadline.after(_CLOSE_S))


atexit.register(_close_all)
forks.after_fork_in_child(_nodes.clear)
