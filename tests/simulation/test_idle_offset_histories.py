"""Offsets that several programs change without being members, while members come and go: nothing confirmed is lost.

Histories of the real `IdleOffsets` over a model of Kafka's group coordinator. What is committed stands for a cursor: a
set of acknowledgements, each made once. Programs are stopped anywhere, for long or for ever; Kafka ends what they have
under way, and their membership, at some later time or never.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.groups.idle_offsets import FoundOffsets, GroupOffsets, IdleOffsets
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription, GroupMember
from tests.seeds import first_of
from tests.simulation.turns import NEVER, Actor, ManualClock, Schedule

GROUPS = ("orders/audit", "orders/audit/0")
AUTHOR = GROUPS[0]
TOPIC = "orders"
PARTITIONS = (0, 1)


class Coordinator:
    """Kafka's group coordinator: groups, their members, and transactions that change offsets."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, int], CommittedOffset] = {}
        self.members: dict[str, str] = {}
        """Group by member."""
        self.epoch = 0
        self.under_way: dict[tuple[str, int], CommittedOffset] | None = None

    def end_transaction(self) -> None:
        self.under_way = None
        self.epoch += 1


class GroupsAsSeen:
    """`turn` is called before every request, and after it: its answer may come late."""

    def __init__(self, kafka: Coordinator, turn: Callable[[], None]) -> None:
        self._kafka = kafka
        self._turn = turn

    def describe_group(self, group_id: str, deadline: Deadline) -> GroupDescription:
        self._turn()
        members = tuple(
            GroupMember(name, name, "", ()) for name, group in self._kafka.members.items() if group == group_id
        )
        return GroupDescription(group_id, "", members)

    def committed(
        self, group_id: str, topic: str, partitions: Sequence[int], deadline: Deadline, *, settled: bool = False
    ) -> dict[int, CommittedOffset]:
        self._turn()
        places = [(group_id, partition) for partition in partitions]
        if settled and any(place in (self._kafka.under_way or {}) for place in places):
            raise errors.OffsetsUnsettled("simulated")
        found = {place[1]: self._kafka.committed[place] for place in places if place in self._kafka.committed}
        self._turn()
        return found


class WriterAsSeen:
    def __init__(self, kafka: Coordinator, turn: Callable[[], None], rng: random.Random) -> None:
        self._kafka = kafka
        self._turn = turn
        self._rng = rng
        self._epoch = -1

    def open(self, topic: str, deadline: Deadline) -> None:
        self._turn()
        self._kafka.end_transaction()
        self._epoch = self._kafka.epoch
        self._turn()

    def put(self, topic: str, changes: GroupOffsets, deadline: Deadline) -> None:
        self._turn()
        self._check()
        self._kafka.under_way = {
            (group, partition): commit for group, offsets in changes.items() for partition, commit in offsets.items()
        }
        self._turn()

    def commit(self, deadline: Deadline) -> None:
        self._turn()
        try:
            self._check()
        except errors.Fenced as late:
            raise errors.CommitOutcomeUnknown("simulated") from late
        fate = self._rng.random()
        if fate < 0.1:
            raise errors.CommitOutcomeUnknown("simulated: never heard of")
        assert self._kafka.under_way is not None
        self._kafka.committed.update(self._kafka.under_way)
        self._kafka.under_way = None
        if fate > 0.9:
            raise errors.CommitOutcomeUnknown("simulated: answer lost")

    def abort(self, deadline: Deadline) -> None:
        self._turn()
        self._check()
        self._kafka.under_way = None

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self._epoch != self._kafka.epoch:
            raise errors.Fenced("simulated")


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kafka = Coordinator()
        self.acks = 0
        self.confirmed: set[int] = set()
        self.patience_s = self.rng.choice((0.0, 3600.0))
        self.serving = self.rng.choice(GROUPS)

    def run(self, turns: int) -> None:
        clock = ManualClock()
        schedule = Schedule(self.rng, clock)
        lives = [self._changes, self._changes, self._changes, self._owns, self._owns]
        actors = [Actor(self.rng.choice(lives)) for _ in range(4)]
        try:
            for _ in range(turns):
                clock.seconds += 1
                schedule.step_one_of([actor for actor in actors if not actor.finished])
                self._kafka_goes_on()
                if self.rng.random() < 0.02:
                    killed = self.rng.randrange(len(actors))
                    actors[killed].end()
                    actors[killed] = Actor(self.rng.choice(lives))
        finally:
            for actor in actors:
                actor.end()

    def _kafka_goes_on(self) -> None:
        if self.kafka.under_way is not None and self.rng.random() < 0.02:
            self.kafka.end_transaction()
        for member in list(self.kafka.members):
            if self.rng.random() < 0.01:
                del self.kafka.members[member]

    def _offsets(self, actor: Actor) -> IdleOffsets:
        return IdleOffsets(
            GroupsAsSeen(self.kafka, actor.pause),
            lambda author: WriterAsSeen(self.kafka, actor.pause, self.rng),
            wait=lambda seconds: actor.pause(),
            patience_s=self.patience_s,
        )

    def _changes(self, actor: Actor) -> None:
        """Acknowledges as a program without a consumer."""
        offsets, seen = self._offsets(actor), GroupsAsSeen(self.kafka, actor.pause)
        while True:
            actor.pause()
            found: FoundOffsets = {
                group: {p: seen.committed(group, TOPIC, PARTITIONS, NEVER).get(p) for p in PARTITIONS}
                for group in GROUPS
            }
            acks = {partition: self._ack() for partition in self.rng.sample(PARTITIONS, self.rng.randint(1, 2))}
            wanted = {
                self.serving: {p: with_ack(found[self.serving][p], ack) for p, ack in acks.items()},
            }
            try:
                offsets.change(AUTHOR, TOPIC, found, wanted, NEVER)
            except errors.SubscriptionBusy:
                continue
            except errors.StoreError:
                continue
            self.confirmed.update(acks.values())

    def _owns(self, actor: Actor) -> None:
        """A member: opens cursors, saves some times, leaves or is thrown out."""
        offsets = self._offsets(actor)
        while True:
            actor.pause()
            if self.serving in self.kafka.members.values():
                continue
            me = f"member-{self._ack()}"
            self.kafka.members[me] = self.serving
            actor.pause()
            cursors: dict[int, CommittedOffset | None] = dict.fromkeys(PARTITIONS)
            cursors |= offsets.settled(AUTHOR, self.serving, TOPIC, PARTITIONS, NEVER)
            for _ in range(self.rng.randrange(4)):
                actor.pause()
                partition, ack = self.rng.choice(PARTITIONS), self._ack()
                cursors[partition] = saved = with_ack(cursors[partition], ack)
                if me not in self.kafka.members:
                    break
                self.kafka.committed[self.serving, partition] = saved
                self.confirmed.add(ack)
            actor.pause()
            self.kafka.members.pop(me, None)

    def _ack(self) -> int:
        self.acks += 1
        return self.acks


def with_ack(before: CommittedOffset | None, ack: int) -> CommittedOffset:
    return CommittedOffset(0, f"{before.metadata if before is not None else ''}{ack} ")


@pytest.mark.parametrize("seed", first_of(30, range(100)))
def test_nothing_confirmed_is_lost(seed: int) -> None:
    history = History(seed)
    history.run(1_500)
    kept = {int(ack) for commit in history.kafka.committed.values() for ack in commit.metadata.split()}
    assert history.confirmed <= kept, f"seed {seed}: lost {sorted(history.confirmed - kept)}"


def test_histories_confirm_something() -> None:
    confirmed = 0
    for seed in range(10):
        history = History(seed)
        history.run(1_500)
        confirmed += len(history.confirmed)
    assert confirmed > 200
