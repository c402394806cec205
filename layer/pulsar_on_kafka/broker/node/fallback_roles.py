"""Stand-ins are clients' processes that take a service's roles while there is no service.

There are at most two of them, so that one may die, and only processes that live long enough. The client ids in the
maintenance group show which members are services and which are stand-ins. Once a service joins, the clients' processes
leave within a minute.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Closed, LayerError, NotAuthorized
from pulsar_on_kafka.base.processes import is_over, process_of, stands_in, this_process
from pulsar_on_kafka.base.role_state import RunsRoles
from pulsar_on_kafka.broker.managed_ledger.deletion_topics import maintenance_group
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka_mapping.state.state_topics import LEDGERS

_log: Final = logging.getLogger(__name__)

MAX_STAND_INS: Final = 2
"""Processes that stand in at once, of a cluster."""
FIRST_S: Final = 90.0
"""The age below which a client sends no requests; a random delay of up to as much is added."""
EVERY_S: Final = 300.0
SURE_S: Final = 30.0
"""The time without a service before a take-over: a restarted service is back sooner."""
WHILE_S: Final = 30.0
FORBIDDEN_S: Final = 3_600.0
LOOK_S: Final = 10.0
"""The interval of `look` calls; it queries Kafka when a query is due."""
_ASK_S: Final = 5.0
_LEAVE_S: Final = 5.0


class StandInMove(Enum):
    WAIT = "wait"
    JOIN = "join"
    STAY = "stay"
    LEAVE = "leave"


def move(members: Iterable[str], own: str, *, standing: bool) -> StandInMove:
    """The move of process `own`, by the client ids of the group's members that are not known to be dead."""
    there = list(members)
    if not all(stands_in(client_id) for client_id in there):
        return StandInMove.LEAVE if standing else StandInMove.WAIT
    processes = sorted({process_of(client_id) for client_id in there})
    if not standing:
        return StandInMove.JOIN if len(processes) < MAX_STAND_INS else StandInMove.WAIT
    return StandInMove.STAY if own not in processes or processes.index(own) < MAX_STAND_INS else StandInMove.LEAVE


class StandIn:
    """The stand-in of a node, shared by its Clients, as long as one of them calls `look`. Thread-safe.

    A process that does not stand in queries Kafka every five minutes, and never in its first 90 s. A stand-in queries
    it every half a minute, and has the threads, connections and memory of its roles
    (layer/pulsar_on_kafka/service/README.md).
    """

    def __init__(
        self,
        services: Services,
        begin: Callable[[], RunsRoles],
        chance: Callable[[float, float], float] = random.uniform,
    ) -> None:
        """`begin` starts the roles. Sends no request to Kafka."""
        self._services = services
        self._begin = begin
        self._chance = chance
        self._lock = threading.Lock()
        self._users = 0
        self._running: RunsRoles | None = None
        self._sure = False
        self._forbidden = ""
        self._next_s = services.clock.monotonic() + chance(FIRST_S, 2 * FIRST_S)

    def __repr__(self) -> str:
        return f"StandIn(standing={self.standing})"

    @property
    def standing(self) -> bool:
        return self._running is not None

    def use(self) -> None:
        with self._lock:
            self._users += 1

    def let_go(self) -> None:
        """Removes one user of the stand-in; after the last one the roles are left."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._leave("no client of this process requires it")

    def look(self) -> None:
        """Look who has the roles, when that is due, and take them or leave them. Takes seconds at most, and nothing
        while another thread looks."""
        if self._services.clock.monotonic() < self._next_s or not self._lock.acquire(blocking=False):
            return
        try:
            pause_s = self._look() if self._users else EVERY_S
            self._next_s = self._services.clock.monotonic() + pause_s
        finally:
            self._lock.release()

    def _look(self) -> float:
        try:
            requested = move(self._members(), this_process(), standing=self.standing)
            if requested is StandInMove.JOIN and not self._sure:
                self._sure = True
                return self._chance(SURE_S, 2 * SURE_S)
            self._sure = False
            if requested is StandInMove.JOIN and self._may():
                self._running = self._begin()
                _log.info("cluster=%s no service is there: this process does its roles", self._services.cluster_id)
        except NotAuthorized as refused:
            return self._is_forbidden(str(refused))
        except LayerError as failure:
            _log.log(logging.DEBUG if isinstance(failure, Closed) else logging.INFO, "roles: %s", failure)
            return WHILE_S if self.standing else EVERY_S
        if requested is StandInMove.LEAVE:
            self._leave("others have the roles")
        if self._forbidden:
            return FORBIDDEN_S
        return WHILE_S if self.standing else self._chance(0.75 * EVERY_S, 1.25 * EVERY_S)

    def _members(self) -> list[str]:
        group = maintenance_group(self._services.settings.instance)
        described = self._services.admin.describe_group(group, Deadline.after(_ASK_S))
        return [member.client_id for member in described.members if not is_over(member.client_id)]

    def _may(self) -> bool:
        """Whether this process has the rights that keeping lists requires; without them it leaves the role to
        others."""
        deadline = Deadline.after(_ASK_S)
        instance = self._services.settings.instance
        group, lists = maintenance_group(instance), instance.state_topic(LEDGERS)
        access = self._services.admin.access
        allowed = access.allowed_on_topics([lists], deadline).get(lists)
        missing = "Read of the group" if "Read" not in access.allowed_on_group(group, deadline) else ""
        if allowed is not None and not {"Read", "Write"} <= allowed:
            missing = f"Read and Write of topic {lists}"
        if missing:
            self._is_forbidden(f"this process lacks {missing}")
        else:
            self._forbidden = ""
        return not missing

    def _is_forbidden(self, why: str) -> float:
        if why != self._forbidden:
            self._forbidden = why
            _log.info("cluster=%s a service's roles are left to others: %s", self._services.cluster_id, why)
        return FORBIDDEN_S

    def _leave(self, why: str) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.close(Deadline.after(_LEAVE_S))
            _log.info("cluster=%s has a service's roles no more: %s", self._services.cluster_id, why)
