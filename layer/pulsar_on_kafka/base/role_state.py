"""Each role of a process reports its state here; whether the process is alive and ready follows from it. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.loop_timing import TurnsSeen

STALLED_S: Final = 600.0
"""A turn that lasts longer hangs: the longest deadline of one is five minutes."""


class RoleName(str, Enum):
    """The roles of a service; a Kafka group shares out each of them among the processes."""

    MAINTENANCE = "maintenance"
    DELETION = "deletion"
    TRANSACTIONS = "transactions"
    SUBSCRIPTIONS = "subscriptions"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class ReplicatorState:
    """A topic that this process copies to another cluster. `waits_for` is the reason of a pause; '' while it copies.

    `records`, `bytes` and `failures` only go up; `under_way` were sent and are not answered; `behind` are records up to
    the log's end, as Kafka last reported it, of the partitions that this process copies.
    """

    topic: str
    cluster: str
    waits_for: str
    records: int
    bytes: int
    failures: int
    under_way: int
    behind: int


@dataclass(frozen=True, slots=True)
class RoleState:
    """One role in one process.

    Attributes:
        joined: Kafka's group has answered with this process's share (which may be nothing), or with a refusal.
        partitions: the share now.
        dead: names of threads that should be alive and are not.
        turns: the turns of each kind of work, by its name.
        written: records that were written, tombstones among them, by kind of work.
        deletions: requests to delete a ledger, by their outcome (`DeletionWorker.counts`).
        replicators: copies to other clusters, in no order.
    """

    name: str
    joined: bool
    partitions: int
    dead: tuple[str, ...] = ()
    turns: tuple[tuple[str, TurnsSeen], ...] = ()
    written: tuple[tuple[str, int], ...] = ()
    deletions: tuple[tuple[str, int], ...] = ()
    replicators: tuple[ReplicatorState, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "joined": self.joined,
            "partitions": self.partitions,
            "dead_threads": list(self.dead),
            "turns": {
                name: {"done": seen.done, "failed": seen.failed, "last_s": round(seen.last_s, 3),
                       "under_way_s": round(seen.under_way_s, 3), "failure": seen.failure}
                for name, seen in self.turns
            },
            "written": dict(self.written),
            "deletions": dict(self.deletions),
            "replicators": [asdict(each) for each in self.replicators],
        }  # fmt: skip


class RunsRoles(Protocol):
    def states(self) -> Sequence[RoleState]:
        """The states of the running roles, in no order."""
        ...

    def close(self, deadline: Deadline) -> None:
        """Leave the groups, and end the threads; a second call does nothing."""
        ...


def why_not_alive(states: Iterable[RoleState]) -> list[str]:
    """Why a restart would help; nothing when it would not. A broker that is away is no reason."""
    found = []
    for state in states:
        found += [f"{state.name}: thread {name} has ended" for name in state.dead]
        found += [
            f"{state.name}: {name} has been at one turn for {seen.under_way_s:.0f} s"
            for name, seen in state.turns
            if seen.under_way_s > STALLED_S
        ]
    return found


def why_not_ready(states: Iterable[RoleState], kafka: str) -> list[str]:
    """Why the process does not do its share now; nothing when it does. `kafka`: why no broker answers, or ''."""
    found = [f"Kafka: {kafka}"] if kafka else []
    return found + [
        f"{state.name}: its Kafka group has not given it a share yet" for state in states if not state.joined
    ]
