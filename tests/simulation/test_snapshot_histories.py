"""Two or three clusters exchange snapshots of a topic, and mark-deletes move by them.

Messages, some of them for single clusters, copies by replicators of which former ones wake up and write what is void,
acknowledgements on all sides, processes that die at any step, and seeks. What moves a mark-delete never acknowledges a
message that the cluster which says so had not acknowledged before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pulsar_on_kafka.broker.cursor.cursor_machine import CursorState
from pulsar_on_kafka.broker.replication_state.snapshot_exchange import SnapshotExchange
from pulsar_on_kafka_mapping.records.subscription_markers import (
    Snapshot,
    SnapshotResponse,
    SubscriptionMarker,
    SubscriptionUpdate,
)
from pulsar_on_kafka_mapping.state.clusters.subscription_progress import Origin
from tests.seeds import in_three

LEDGER = 7
SEEDS = 400
MANY = 5_000
NAME = "s"
LIFE = (1, 2)
Identity = tuple[str, int]
"""Cluster and offset of the original."""


@dataclass(frozen=True)
class _Record:
    """`marker`: None for a message. `only_for`: the clusters that a message, or an answer, is for; None: for all."""

    cluster: str
    original: int
    marker: SubscriptionMarker | None = None
    only_for: frozenset[str] | None = None
    void: bool = False


@dataclass
class _Replicator:
    """Its place; a former one stopped somewhere before it, and may wake up."""

    place: int = 0
    former: int = 0


class _Cluster:
    def __init__(self, name: str) -> None:
        self.name = name
        self.origin = Origin(name, ord(name))
        self.log: list[_Record] = []
        self.from_: dict[str, _Replicator] = {}
        self.live = CursorState(0, LEDGER)
        self.saved = CursorState(0, LEDGER)
        self.exchange: SnapshotExchange | None = None
        self.known: dict[str, int] = {}
        """By cluster: below which offset here its word is no news."""
        self.ever: set[Identity] = set()
        """What its saved cursor had acknowledged at some time."""
        self.sought: set[Identity] = set()
        """What a seek brought back though all others' words on it were no news."""

    def append(self, marker: SubscriptionMarker | None = None, only_for: frozenset[str] | None = None) -> None:
        self.log.append(_Record(self.name, len(self.log), marker, only_for))

    def messages(self) -> dict[int, Identity]:
        return {
            offset: (each.cluster, each.original)
            for offset, each in enumerate(self.log)
            if each.marker is None and not each.void
        }

    def acknowledged(self, cursor: CursorState) -> set[Identity]:
        return {identity for offset, identity in self.messages().items() if cursor.is_acknowledged(offset)}

    def save(self) -> None:
        self.saved = _copy(self.live)
        self.ever |= self.acknowledged(self.saved)


def _copy(state: CursorState) -> CursorState:
    made = CursorState(state.next_unacked, LEDGER)
    for index, bitmap in state.deleted.ledgers():
        made.acknowledge([index * LEDGER + entry for entry in bitmap])
    return made


@dataclass
class _World:
    seed: int
    seeks: bool
    rng: random.Random = field(init=False)
    now_ms: int = 0
    consumed: list[_Cluster] = field(init=False)
    """Where there are consumers now."""
    moved: int = 0
    """Messages that were acknowledged by other clusters' words."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clusters: list[_Cluster] = [_Cluster(name) for name in ("ab" if self.rng.random() < 0.5 else "abc")]
        for here in self.clusters:
            here.from_ = {there.name: _Replicator() for there in self.clusters if there is not here}
        self.consumed = self.clusters[:1]

    def step(self) -> None:
        here = self.rng.choice(self.clusters)
        there = self.rng.choice([each for each in self.clusters if each is not here])
        self.now_ms += self.rng.randrange(400)
        match self.rng.choices(range(9), (5, 30, 14, 10, 24, 1, 1, 1 if self.seeks else 0, 3))[0]:
            case 0:
                self.publish(here)
            case 1:
                self.copy(here, there, self.rng.randrange(1, 30))
            case 2:
                self.consume()
            case 3:
                here.save()
            case 4:
                self.round(here, self.rng.randrange(1, 60))
            case 5:  # the consumers' process dies
                here.live = _copy(here.saved)
            case 6:  # the service dies
                here.exchange = None
            case 7:
                self.seek(here)
            case 8:
                self.wake_up(here, there)

    def publish(self, here: _Cluster) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            some = frozenset(self.rng.sample("abc", self.rng.randrange(3)))
            here.append(only_for=some if self.rng.random() < 0.05 else None)

    def consume(self) -> None:
        if self.rng.random() < 0.1:  # the consumers go on in another cluster, or in several
            self.consumed = [each for each in self.clusters if self.rng.random() < 0.5]
        for each in self.consumed:
            self.acknowledge(each)

    def copy(self, here: _Cluster, there: _Cluster, most: int) -> None:
        replicator = here.from_[there.name]
        end = min(len(there.log), replicator.place + most)
        self._append_copies(here, there, replicator.place, end, void=False)
        replicator.place = end
        if self.rng.random() < 0.1:  # it dies: what another one wrote behind the fence is void from now on
            replicator.former = self.rng.randrange(max(0, end - 3), end + 1)

    def wake_up(self, here: _Cluster, there: _Cluster) -> None:
        """A former replicator writes what its successor has copied, or is about to: behind the fence, so it is void."""
        replicator = here.from_[there.name]
        end = min(len(there.log), replicator.former + self.rng.randrange(30))
        self._append_copies(here, there, replicator.former, end, void=True)
        replicator.former = end

    @staticmethod
    def _append_copies(here: _Cluster, there: _Cluster, start: int, end: int, *, void: bool) -> None:
        for record in there.log[start:end]:
            if record.cluster != there.name or record.void or isinstance(record.marker, Snapshot):
                continue
            if record.only_for is None or here.name in record.only_for:
                here.log.append(_Record(record.cluster, record.original, record.marker, record.only_for, void))

    def acknowledge(self, here: _Cluster) -> None:
        messages = list(here.messages())
        first = here.live.next_unacked
        near = [offset for offset in messages if first <= offset < first + 30]
        some = self.rng.randrange(1, 30)
        here.live.acknowledge(near[:some] if self.rng.random() < 0.7 else self.rng.sample(near, min(len(near), some)))
        messages_too = set(messages)
        upto = self.rng.randrange(first, len(here.log) + 1)  # whoever reads passes what is no message
        here.live.acknowledge([offset for offset in range(first, upto) if offset not in messages_too])

    def seek(self, here: _Cluster) -> None:
        here.live.reset(self.rng.randrange(len(here.log) + 1))
        here.save()
        below = min(here.known.get(each.name, 0) for each in self.clusters if each is not here)
        here.sought = {
            identity
            for offset, identity in here.messages().items()
            if offset < below and not here.live.is_acknowledged(offset)
        }

    def round(self, here: _Cluster, most: int) -> None:
        """One round of `SnapshotSync`."""
        exchange = here.exchange
        lowest = here.saved.next_unacked
        if exchange is None or lowest < exchange.first:
            exchange = here.exchange = SnapshotExchange(here.origin, lowest, 0)
        exchange.follow({NAME})
        exchange.forget_below(lowest)
        start, log_end = exchange.position, len(here.log)
        end = min(log_end, start + most)
        for offset in range(start, end):
            record = here.log[offset]
            copied_from = "" if record.cluster == here.name else record.cluster
            if record.marker is None:
                named = None if record.only_for is None else (*record.only_for, copied_from)
                exchange.message(offset, named)
            elif not record.void:
                exchange.marker(offset, record.marker, copied_from)
        if self.rng.random() < 0.05:  # the reading fails in between
            return
        exchange.reached(end, log_end)
        self.take_over(here, exchange)
        markers: list[SubscriptionMarker] = []
        snapshot = exchange.passed(NAME, lowest)
        if snapshot is not None:
            news = {o: upto for o, upto in snapshot.upto.items() if here.known.get(o.cluster, 0) <= snapshot.local}
            for origin in news:
                here.known[origin.cluster] = snapshot.local + 1
            exchange.told(NAME, snapshot)
            if news:
                markers.append(SubscriptionUpdate(NAME, here.name, LIFE, news))
        others = frozenset(each.name for each in self.clusters if each is not here)
        markers += exchange.markers(self.now_ms, others, f"{self.rng.getrandbits(128):032x}")
        if self.rng.random() < 0.05:
            exchange.lost()
            if self.rng.random() < 0.5:
                return
        for marker in markers:
            here.append(marker, frozenset((marker.source,)) if isinstance(marker, SnapshotResponse) else None)

    def take_over(self, here: _Cluster, exchange: SnapshotExchange) -> None:
        for wished, upto in exchange.updates():
            assert (wished.subscription, wished.life) == (NAME, LIFE)
            known = here.known.get(wished.cluster, 0)
            exchange.applied(wished, upto)
            if upto < known:
                continue
            before = here.acknowledged(here.live)
            start, news = exchange.news(wished.cluster, upto, here.saved.next_unacked, known)
            here.live.acknowledge([start + offset for offset in news])
            here.save()
            if self.rng.random() < 0.9:  # else it dies before it wrote what it knows
                here.known[wished.cluster] = upto + 1
            new = here.acknowledged(here.live) - before
            there = next(each for each in self.clusters if each.name == wished.cluster)
            assert new <= there.ever, f"a message was skipped, seed {self.seed}"
            assert not new & here.sought, f"a seek was undone, seed {self.seed}"
            self.moved += len(new)

    def settle(self, first: _Cluster) -> None:
        """`first` has done with everything; then all is copied, said and heard."""
        for _ in range(30):
            self.now_ms += 1_000
            for here in self.clusters:
                for there in self.clusters:
                    if here is not there:
                        self.copy(here, there, 10_000)
            first.live.acknowledge_cumulative(len(first.log) - 1)
            first.save()
            for here in self.clusters:
                self.round(here, 10_000)


@pytest.mark.parametrize("seeks", [False, True], ids=["no seeks", "seeks"])
@pytest.mark.parametrize("seeds", in_three(60, range(SEEDS)), ids=str)
def test_no_mark_delete_moves_over_what_the_source_has_not_done_with(seeds: range, seeks: bool) -> None:
    assert _play(seeds, seeks=seeks) > 15 * len(seeds)


@pytest.mark.soak
@pytest.mark.parametrize("seeks", [False, True], ids=["no seeks", "seeks"])
def test_many_snapshot_histories(seeks: bool) -> None:
    _play(range(SEEDS, MANY), seeks=seeks)


def _play(seeds: range, *, seeks: bool) -> int:
    """Gives how many messages were acknowledged by other clusters' words. In the end, without seeks, everything that
    the one cluster which has done with everything ever got is done with everywhere."""
    moved = 0
    for seed in seeds:
        world = _World(seed, seeks)
        for _ in range(world.rng.randrange(200, 600)):
            world.step()
        first = world.clusters[0]
        world.settle(first)
        moved += world.moved
        for each in world.clusters if not seeks else ():
            left = set(each.messages().values()) - each.acknowledged(each.live)
            assert left.isdisjoint(first.messages().values()), seed
    return moved
