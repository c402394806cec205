"""A consumer group on the simulated broker: one member at a time, whose commits arrive whenever the broker likes.

Kafka takes a commit of the group's current generation, and refuses any other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.cursor.checkpoints import Checkpoints
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import RecoveredCursor, checkpoint_beside
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.kafka.groups.resent_commits import ResentCommits
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.statelog.api import StateLog
from tests.simulation.broker import Request, SimulatedBroker
from tests.simulation.turns import NEVER

RETRY_BACKOFF_MS = 500
_AT_ONCE_S, _RESENT_S = 0.003, 0.6
_RESENT, _NOT_ANSWERED = 0.2, 0.05


_Sent = tuple[Request[bool], Mapping[int, CommittedOffset], float]


class SimulatedGroup:
    """The coordinator's part. `committed` is what Kafka has."""

    def __init__(self, broker: SimulatedBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.committed: dict[int, CommittedOffset] = {}
        self.generation = 0
        self.set_back = 0
        """How often a copy of an older commit replaced a newer one."""
        self.deleted = 0
        """How often a late request deleted commits."""
        self._has_members = False
        self._newest = 0
        self._sent = 0

    def join(self, answered: Callable[[errors.LayerError | None], None]) -> SimulatedMembership:
        """A new member, and a new generation with it. `answered` hears the outcomes of `commit_async`."""
        self.generation += 1
        self._has_members = True
        return SimulatedMembership(self, answered)

    def empties(self) -> None:
        """The last member's session is over."""
        self.generation += 1
        self._has_members = False

    def delete(self) -> bool:
        """Kafka deletes no group that has members."""
        if not self._has_members:
            self.deleted += bool(self.committed)
            self.committed.clear()
        return not self._has_members

    def recover(self, log: StateLog, clock: Clock, identity: CursorIdentity) -> RecoveredCursor:
        """The cursor as its next owner finds it."""
        commit = self.committed.get(identity.partition)
        checkpoint = checkpoint_beside(lambda: Checkpoints(log, clock).newest(identity, NEVER), commit, None)
        return CursorStore(log).recover(identity, commit, checkpoint, 0, NEVER)

    def next_number(self) -> int:
        self._sent += 1
        return self._sent

    def commit(self, generation: int, number: int, commits: Mapping[int, CommittedOffset]) -> bool:
        if generation != self.generation:
            return False
        self.set_back += number < self._newest
        self._newest = max(number, self._newest)
        self.committed.update(commits)
        return True


class SimulatedMembership:
    """The calls of `GroupConsumer` that save cursors."""

    def __init__(self, group: SimulatedGroup, answered: Callable[[errors.LayerError | None], None]) -> None:
        self._group = group
        self._generation = group.generation
        self._connection = group.broker.connect()
        self._answered = answered
        self._resent = ResentCommits(RETRY_BACKOFF_MS)
        self._under_way: _Sent | None = None

    def rejoin(self) -> None:
        """Go on in the next generation."""
        self._group.generation += 1
        self._generation = self._group.generation
        self._resent.new_generation()

    def is_exposed(self, partition: int) -> bool:
        return self._resent.is_exposed(partition)

    def commit(self, commits: Mapping[int, CommittedOffset]) -> None:
        self._end(self._send(commits))

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        assert self._under_way is None, "two commits under way"
        self._under_way = self._send(commits)

    def poll(self) -> None:
        """Serve the answer of the commit that is under way."""
        if self._under_way is None:
            return
        sent, self._under_way = self._under_way, None
        try:
            self._end(sent)
        except errors.StoreError as failure:
            self._answered(failure)
        else:
            self._answered(None)

    def committed(self, partitions: Sequence[int], timeout_s: float) -> dict[int, CommittedOffset]:
        return {p: self._group.committed[p] for p in partitions if p in self._group.committed}

    def _send(self, commits: Mapping[int, CommittedOffset]) -> _Sent:
        group = self._group
        request = self._connection.send(partial(group.commit, self._generation, group.next_number(), dict(commits)))
        took_s = _AT_ONCE_S
        if group.rng.random() < _RESENT:
            self._connection, took_s = self._connection.send_again(), _RESENT_S
        return request, commits, took_s

    def _end(self, sent: _Sent) -> None:
        request, commits, took_s = sent
        if self._group.rng.random() < _NOT_ANSWERED:
            self._connection = self._group.broker.connect()
            self._resent.answered(commits, _RESENT_S, known=False)
            raise errors.CommitOutcomeUnknown("simulated")
        self._connection.wait_for(request)
        self._resent.answered(commits, took_s, known=True)
        if not request.answer:
            raise errors.Fenced("simulated")
