"""Two or three clusters copy each other's messages and tell each other what a subscription has done with.

Messages, batches, copies that are made twice, acknowledgements on all sides, seeks, crashes that lose what was not
saved, and subscriptions that begin at the end of a log, or where others began. Truth is a plain set of what consumers
acknowledged.
"""

from __future__ import annotations

import random

import pytest

from pulsar_on_kafka.broker.cursor.batch_acks import BatchAckSet
from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.replication_state.acks import ReplicatedAcks
from pulsar_on_kafka.broker.replication_state.origin_index import OriginIndex
from pulsar_on_kafka.broker.replication_state.progress import (
    Progress,
    SubscriptionSide,
    add_report,
    begun,
    begun_everywhere,
    reported_progress,
    take_over,
    without_acknowledged,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from tests.seeds import in_three

LEDGER = 7
SEEDS = 300
MANY = 5_000
Identity = tuple[str, int, int]
"""Cluster, offset, and batch index."""


class _Cluster:
    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng
        self.log: list[tuple[Origin, int, int] | None] = []
        """Origin, offset there and messages of each record; None for a marker."""
        self.first: list[bool] = []
        self.copied: dict[str, int] = {}
        self.index = OriginIndex(0)
        self.live = CursorState(0, LEDGER)
        self.saved = CursorState(0, LEDGER)
        self.known: dict[str, Progress] = {}
        self.said: Progress = {}
        self.begun: Progress = {}
        self.start = 0
        self.skipped: set[Identity] = set()
        """What lies below the subscription's beginning, or is not wanted because it lies below all others'."""
        self.follows = False
        self.undone: set[Identity] = set()

    @property
    def origin(self) -> Origin:
        return Origin(self.name, ord(self.name))

    def append(self, record: tuple[Origin, int, int] | None) -> None:
        self.first.append(record is not None and record not in self.log)
        self.log.append(record)

    def side(self, cursor: CursorState) -> SubscriptionSide:
        for offset in range(self.index.end, len(self.log)):
            record = self.log[offset]
            if record is None:
                self.index.no_message(offset)
            elif record[0] == self.origin:
                self.index.published_here(offset)
            else:
                self.index.copied(offset, record[0], record[1], epoch=1)
        return SubscriptionSide(self.origin, cursor, self.index, len(self.log))

    def identities(self, cursor: CursorState) -> set[Identity]:
        """Of the messages that are acknowledged."""
        found: set[Identity] = set()
        for offset, record in enumerate(self.log):
            if record is None or not self.first[offset]:
                continue
            acks = cursor.batches.get(offset)
            for index in range(record[2]):
                if cursor.is_acknowledged(offset) or (acks is not None and acks.acked >> index & 1):
                    found.add((record[0].cluster, record[1], index))
        return found

    def begin(self) -> None:
        """The subscription is made at the log's end."""
        self.start = len(self.log)
        self.live, self.saved = CursorState(self.start, LEDGER), CursorState(self.start, LEDGER)
        self.skipped = self.identities(self.live)

    def save(self) -> None:
        self.saved = _copy(self.live)


def _copy(state: CursorState) -> CursorState:
    made = CursorState(state.next_unacked, LEDGER)
    for index, bitmap in state.deleted.ledgers():
        made.acknowledge([index * LEDGER + entry for entry in bitmap])
    made.acknowledge_batches(dict(state.batches.items()))
    return made


def _copied(progress: Progress) -> Progress:
    made: Progress = {}
    add_report(made, progress)
    return made


class _World:
    def __init__(self, seed: int, *, seeks: bool) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        names = "ab" if self.rng.random() < 0.6 else "abc"
        self.clusters = [_Cluster(name, self.rng) for name in names]
        self.truth: set[Identity] = set()
        self.seeks = seeks
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randrange(30)):
                self.publish_and_copy()
            for each in self.clusters:
                if self.rng.random() < 0.5:
                    each.begin()
                else:
                    each.follows = len(names) == 2 and self.rng.random() < 0.3

    def publish_and_copy(self) -> None:
        here, there = self.rng.sample(self.clusters, 2)
        here.append((here.origin, len(here.log), 1))
        self.copy(here, there)

    def step(self) -> None:
        here = self.rng.choice(self.clusters)
        there = self.rng.choice([each for each in self.clusters if each is not here])
        match self.rng.choices(range(9), (8, 3, 12, 4, 5, 5, 2, 1 if self.seeks else 0, 1))[0]:
            case 0:
                here.append((here.origin, len(here.log), self.rng.choice((1, 1, 1, 4))))
            case 1:
                self.copy(here, there)
            case 2:
                self.acknowledge(here)
            case 3:
                here.save()
            case 4:
                self.publish(here)
            case 5:
                self.fold(here, there)
            case 6:  # a crash
                here.live = _copy(here.saved)
            case 7:
                self.seek(here)
            case 8:
                here.append(None)

    def copy(self, here: _Cluster, there: _Cluster, most: int | None = None) -> None:
        start = here.copied.get(there.name, 0)
        if most is None and start and self.rng.random() < 0.2:  # the replicator died: what it sent last comes again
            start = max(0, start - self.rng.randrange(4))
        end = min(len(there.log), start + (most or self.rng.randrange(1, 12)))
        for offset in range(start, end):
            record = there.log[offset]
            if record is not None and record[0] == there.origin:
                here.append(record)
        here.copied[there.name] = max(end, here.copied.get(there.name, 0))

    def acknowledge(self, here: _Cluster) -> None:
        messages = [offset for offset, first in enumerate(here.log) if here.first[offset]]
        for offset in self.rng.sample(messages, min(len(messages), self.rng.randrange(1, 6))):
            record = here.log[offset]
            assert record is not None
            indexes = range(record[2])
            if record[2] > 1 and self.rng.random() < 0.7:
                indexes = self.rng.sample(range(record[2]), self.rng.randrange(1, record[2]))  # type: ignore[assignment]
            if record[2] > 1:
                here.live.acknowledge_batches({offset: BatchAckSet(record[2], sum(1 << index for index in indexes))})
            else:
                here.live.acknowledge([offset])
            self.truth |= {(record[0].cluster, record[1], index) for index in indexes}
        # What is no message is acknowledged by whoever meets it.
        here.live.acknowledge([offset for offset, first in enumerate(here.first) if not first])

    def publish(self, here: _Cluster) -> None:
        side = here.side(here.saved)
        says = reported_progress(side)
        add_report(here.begun, begun(side, here.start))
        for there in self.clusters:
            if there is not here:
                add_report(here.known.setdefault(there.name, {}), says)
        here.said = _copied(says)

    def fold(self, here: _Cluster, there: _Cluster) -> None:
        before = here.identities(here.live)
        known = _copied(here.known.get(there.name, {}))
        side = here.side(here.saved)
        follows = begun_everywhere([there.begun]) if here.follows else {}
        add_report(here.begun, follows)
        found = take_over(side, there.said, known, there.begun, follows)
        found = without_acknowledged(found, here.saved)
        _acknowledge(here.live, found)
        here.save()  # a request is answered when it is durable
        if self.rng.random() < 0.9:  # else it dies before it wrote what it knows
            here.known[there.name] = known
        new = here.identities(here.live) - before
        if here.follows:
            here.skipped |= new & there.skipped
        assert new <= self.truth | here.skipped, self.seed
        assert not new & here.undone, f"a seek was undone, seed {self.seed}"

    def seek(self, here: _Cluster) -> None:
        before = here.identities(here.live)
        here.live.reset(self.rng.randrange(len(here.log) + 1))
        here.save()
        after = here.identities(here.live)
        self.truth |= after  # what a seek passes over is acknowledged
        told = self.told(here)
        here.undone = (here.undone | {each for each in before - after if told[each]}) - after

    def told(self, here: _Cluster) -> dict[Identity, bool]:
        """Whether every other cluster's word about a message is no news here."""
        found = {}
        for offset, record in enumerate(here.log):
            if record is not None and here.first[offset]:
                for index in range(record[2]):
                    found[record[0].cluster, record[1], index] = all(
                        _has(here.known.get(other.name, {}).get(record[0]), record[1], index)
                        for other in self.clusters
                        if other is not here
                    )
        return found

    def settle(self) -> None:
        """Everything is copied, said and heard."""
        for _ in range(4):
            for here in self.clusters:
                for there in self.clusters:
                    if here is not there:
                        self.copy(here, there, 10_000)
                here.save()
                self.publish(here)
            for here in self.clusters:
                for there in self.clusters:
                    if here is not there:
                        self.fold(here, there)


def _has(acks: ReplicatedAcks | None, position: int, index: int) -> bool:
    return acks is not None and (acks.has(position) or bool(acks.batches.get(position, (0, 0))[1] >> index & 1))


def _acknowledge(state: CursorState, found: ReplicatedAcks) -> None:
    for block, bitmap in found.bitmaps.items():
        state.acknowledge([block * found.size + entry for entry in bitmap])
    state.acknowledge_batches({offset: BatchAckSet(*each) for offset, each in found.batches.items()})


@pytest.mark.parametrize("seeks", [False, True], ids=["no seeks", "seeks"])
@pytest.mark.parametrize("seeds", in_three(50, range(SEEDS)), ids=str)
def test_the_union_of_all_sides_is_the_truth_everywhere(seeds: range, seeks: bool) -> None:
    _play(seeds, seeks=seeks)


@pytest.mark.soak
@pytest.mark.parametrize("seeks", [False, True], ids=["no seeks", "seeks"])
def test_many_histories(seeks: bool) -> None:
    _play(range(SEEDS, MANY), seeks=seeks)


def _play(seeds: range, *, seeks: bool) -> None:
    """With seeks only what no side may do is judged; without them also what all sides have in the end."""
    for seed in seeds:
        world = _World(seed, seeks=seeks)
        for _ in range(world.rng.randrange(20, 150)):
            world.step()
        world.settle()
        skipped = set[Identity]().union(*(each.skipped for each in world.clusters))
        everywhere = [each.identities(each.live) for each in world.clusters]
        assert seeks or all(each - skipped == everywhere[0] - skipped for each in everywhere), seed
        assert all(  # what was not saved, a crash may lose
            passed - each.skipped <= world.truth for each, passed in zip(world.clusters, everywhere, strict=True)
        ), seed
