"""A role that services share by a Kafka group: the member with partition i of a state topic does part i."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import ClassVar

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.role_state import ReplicatorState, RoleName, RoleState
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.groups.work_assignment import Assignment, SharedWork
from pulsar_on_kafka_mapping.state.state_topics import StateTopic


class SharedRole:
    """Thread-safe. One thread does all parts of a process, round by round; it is in the group from `begin` until
    `close`."""

    role: ClassVar[RoleName]
    topic: ClassVar[StateTopic]
    work: ClassVar[str]
    """Ends the name of the group."""
    thread: ClassVar[str]
    turns: ClassVar[str]
    """The name of its rounds in metrics."""
    failing: ClassVar[str]
    """The log message when a round fails."""
    without: ClassVar[str]
    """The log's description of the work that this process omits while it may not join the group."""

    def __init__(self, node: Node, member: str, every_s: float, retry: Retry) -> None:
        self._node = node
        self._member = member
        self._every_s = every_s
        self._lock = threading.Lock()
        self._assigned: set[int] = set()
        self._lost: set[int] = set()
        """Revoked partitions that were not handled yet."""
        self._worker = Worker(self.thread, self._run, self.failing, retry=retry)

    def begin(self) -> None:
        self._worker.start()
        self._group_id = self._node.settings.instance.group(self.topic, self.work)
        assignment = Assignment(self._on_assigned, self._on_revoked)
        name = f"{self.thread}-group"
        self._group = SharedWork(self._group_id, self._open_member, assignment, name=name, without=self.without)

    def owned(self) -> list[int]:
        """The state partitions assigned to this process, in order."""
        with self._lock:
            return sorted(self._assigned)

    def state(self) -> RoleState:
        threads = ((self.thread, self._worker.is_alive()), (f"{self.thread}-group", self._group.is_alive()))
        return RoleState(
            self.role.value,
            self._group.answered,
            len(self.owned()),
            tuple(name for name, alive in threads if not alive and not self._worker.ended),
            ((self.turns, self._worker.turns.seen()),),
            replicators=self._replicators(),
        )

    def close(self, deadline: Deadline) -> None:
        """Leave the group, and end the threads; a second call does nothing."""
        self._worker.end()
        self._group.close(deadline)
        self._worker.close(deadline)

    def _run(self) -> float:
        """Gives the seconds until the next one."""
        raise NotImplementedError

    def _replicators(self) -> tuple[ReplicatorState, ...]:
        return ()

    def _open_member(self, callbacks: GroupCallbacks) -> GroupConsumer:
        return self._node.member_sharing(self.topic, self._group_id, callbacks, self._member)

    def _on_assigned(self, partitions: Iterable[int]) -> None:
        with self._lock:
            self._assigned.update(partitions)
        self._worker.wake()

    def _on_revoked(self, partitions: Iterable[int]) -> None:
        with self._lock:
            self._assigned.difference_update(partitions)
            self._lost.update(partitions)
        self._worker.wake()
