"""A replicator's place in one partition: an ordinary cursor without holes, saved in the group's commits."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cursor.identity import CursorIdentity
from pulsar_on_kafka.cursor.saved import Recovered, Saved
from pulsar_on_kafka.cursor.sessions import new_session
from pulsar_on_kafka.cursor.store import CursorStore
from pulsar_on_kafka.kafka.records import CommittedOffset

_VERSION_BITS: Final = 32


class ReplicationCursor:
    """The cursor of one owner, which is over as soon as Kafka's group refuses a commit. For one thread."""

    def __init__(self, identity: CursorIdentity, found: Recovered) -> None:
        self.identity = identity
        self._state = found.state
        self._version = found.version + 1
        self._next = identity.lineage(new_session(), self._version, 0)
        self._saved = found.saved or Saved(self._next)

    @property
    def next_offset(self) -> int:
        """Everything below it is copied, or is not to be."""
        return self._state.next_unacked

    @property
    def epoch(self) -> int:
        """Higher than that of all owners before, also of former lives of the subscription: a life's number is the place
        of its record in a log, and each owner's version one more than the one before, by a commit that the group
        accepts of the owner alone."""
        return self.identity.subscription_incarnation << _VERSION_BITS | self._version

    def prepare(self, store: CursorStore, next_offset: int, deadline: Deadline) -> CommittedOffset:
        """The commit which says that everything below `next_offset` is done."""
        if next_offset > self._state.next_unacked:
            self._state.acknowledge_cumulative(next_offset - 1)
        save = store.prepare(self.identity, self._state, self._saved, self._next, deadline)
        self._next = replace(self._next, save=self._next.save + 1)
        self._saved = save.saved  # it names no segments, so nothing depends on whether it is accepted
        return save.commit
