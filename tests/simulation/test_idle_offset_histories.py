"""Offsets that several programs change without being members, while members come and go: nothing confirmed is lost.

Histories of the real `IdleOffsets` over a model of Kafka's group coordinator. What is committed stands for a cursor: a
set of acknowledgements, each made once. Programs are stopped anywhere, for long or for ever; Kafka ends what they have
under way, and their membership, at some later time or never. It executes the requests of a change at any time after
they were sent, also of a program that is dead, and once more when a connection broke (`SimulatedBroker`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.groups.empty_group_offsets import FoundOffsets, GroupOffsets, IdleOffsets
from pulsar_on_kafka.kafka.records import CommittedOffset, GroupDescription, GroupMember
from tests.seeds import first_of
from tests.simulation.broker import Answer, SimulatedBroker
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


class Lost(Exception):
    """No answer came."""


class WriterAsSeen:
    """Kafka fences the requests of former epochs, and takes one of the newest epoch whenever it arrives."""

    def __init__(
        self, kafka: Coordinator, turn: Callable[[], None], rng: random.Random, broker: SimulatedBroker
    ) -> None:
        self._kafka = kafka
        self._turn = turn
        self._rng = rng
        self._connection = broker.connect()
        self._repeated = False
        self._epoch = -1

    def may_have_repeated(self) -> bool:
        return self._repeated

    def open(self, topic: str, deadline: Deadline) -> None:
        def begin() -> int:
            self._kafka.end_transaction()
            return self._kafka.epoch

        try:
            self._epoch = self._answer(begin)
        except Lost as lost:
            raise errors.DeadlineExceeded("simulated") from lost

    def put(self, topic: str, changes: GroupOffsets, deadline: Deadline) -> None:
        found = {(group, partition): commit for group, of in changes.items() for partition, commit in of.items()}

        def put() -> bool:
            if self._epoch == self._kafka.epoch:
                self._kafka.under_way = found
            return self._epoch == self._kafka.epoch

        self._fenced_or(put)

    def commit(self, deadline: Deadline) -> None:
        def commit() -> bool:
            if self._epoch == self._kafka.epoch and self._kafka.under_way is not None:
                self._kafka.committed.update(self._kafka.under_way)
                self._kafka.under_way = None
            return self._epoch == self._kafka.epoch

        try:
            self._fenced_or(commit)
        except errors.StoreError as failure:
            raise errors.CommitOutcomeUnknown("simulated") from failure

    def abort(self, deadline: Deadline) -> None:
        def abort() -> bool:
            if self._epoch == self._kafka.epoch:
                self._kafka.under_way = None
            return self._epoch == self._kafka.epoch

        self._fenced_or(abort)

    def close(self) -> None:
        pass

    def _fenced_or(self, execute: Callable[[], bool]) -> None:
        try:
            if not self._answer(execute):
                raise errors.Fenced("simulated")
        except Lost as lost:
            raise errors.DeadlineExceeded("simulated") from lost

    def _answer(self, execute: Callable[[], Answer]) -> Answer:
        self._turn()
        request = self._connection.send(execute)
        if self._rng.random() < 0.15:
            self._connection, self._repeated = self._connection.send_again(), True
        if self._rng.random() < 0.1:
            raise Lost
        self._connection.wait_for(request)
        self._turn()
        assert request.answer is not None
        return request.answer


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.kafka = Coordinator()
        self.broker = SimulatedBroker(self.rng)
        self.acks = 0
        self.confirmed: set[int] = set()
        self.patience_s = self.rng.choice((0.0, 3600.0))
        self.serving = self.rng.choice(GROUPS)

    def run(self, turns: int) -> None:
        clock = ManualClock()
        schedule = Schedule(self.rng, clock)
        lives = [self._changes, self._changes, self._changes, self._owns, self._owns]
        if self.rng.random() < 0.5:  # nothing but what is late comes between two changes of one writer
            lives = [self._owns]
        actors = [Actor(self._changes), *[Actor(self.rng.choice(lives)) for _ in range(self.rng.randint(1, 3))]]
        try:
            for _ in range(turns):
                clock.seconds += 1
                schedule.step_one_of([actor for actor in actors if not actor.finished])
                self._kafka_goes_on()
                if self.rng.random() < 0.02:
                    killed = self.rng.randrange(len(actors))
                    actors[killed].end()
                    actors[killed] = Actor(self.rng.choice(lives) if killed else self._changes)
        finally:
            for actor in actors:
                actor.end()

    def _kafka_goes_on(self) -> None:
        if self.broker.waiting and self.rng.random() < 0.1:
            self.broker.execute_one()
        if self.kafka.under_way is not None and self.rng.random() < 0.02:
            self.kafka.end_transaction()
        for member in list(self.kafka.members):
            if self.rng.random() < 0.01:
                del self.kafka.members[member]

    def _offsets(self, actor: Actor) -> IdleOffsets:
        return IdleOffsets(
            GroupsAsSeen(self.kafka, actor.pause),
            lambda author: WriterAsSeen(self.kafka, actor.pause, self.rng, self.broker),
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
            try:
                cursors |= offsets.settled(AUTHOR, self.serving, TOPIC, PARTITIONS, NEVER)
            except errors.StoreError:
                self.kafka.members.pop(me, None)
                continue
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


@pytest.mark.parametrize("seed", first_of(30, [93, *range(93), *range(94, 100)]))
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
