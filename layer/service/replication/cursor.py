"""A replicator's place in one partition: an ordinary cursor without holes, saved in the group's commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.cursor.identity import CursorIdentity
from pulsar_on_kafka.cursor.saved import Recovered, Saved
from pulsar_on_kafka.cursor.sessions import new_session
from pulsar_on_kafka.cursor.store import CursorStore
from pulsar_on_kafka.kafka.records import CommittedOffset

_VERSION_BITS: Final = 32
ANSWER_S: Final = 30.0
"""How long an answer is waited for. librdkafka gives a commit up sooner; that it says so is not relied on."""


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


class PlaceSaves:
    """Saves of a replicator's places in its group: those that it was asked to keep, and those that it has. Places by
    partition, as source offsets below which everything is done. One save is under way at a time. For one thread.

    What the group did not take, or did not answer, is due again, also when nothing was copied since.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[int, int] = {}
        self._sent: dict[int, int] | None = None
        self._sent_s = 0.0

    def kept(self, places: Mapping[int, int]) -> None:
        """The group has these: it said so to somebody who waited."""
        self._kept.update(places)

    def forget(self, partitions: Iterable[int]) -> None:
        """They are somebody else's; an answer that still comes says nothing of them."""
        for partition in partitions:
            self._kept.pop(partition, None)
            if self._sent is not None:
                self._sent.pop(partition, None)

    def due(self, done: Mapping[int, int]) -> dict[int, int]:
        """What is to be saved of `done` now: nothing while an answer is waited for."""
        if self._sent is not None:
            return {}
        return {partition: place for partition, place in done.items() if place > self._kept.get(partition, -1)}

    def sent(self, places: Mapping[int, int]) -> None:
        """They are under way."""
        self._sent = dict(places)
        self._sent_s = self._clock.monotonic()

    def answered(self, *, accepted: bool) -> None:
        """The group has what is under way, or not."""
        if accepted and self._sent is not None:
            self._kept.update(self._sent)
        self._sent = None

    def is_unanswered(self) -> bool:
        """Whether the answer is not waited for any longer: the save then counts as one that was not accepted. A later
        one names a later place, or the same, so it does not matter what became of it."""
        if self._sent is None or self._clock.monotonic() - self._sent_s < ANSWER_S:
            return False
        self.answered(accepted=False)
        return True
