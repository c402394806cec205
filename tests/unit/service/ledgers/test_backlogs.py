"""Backlogs held to their quotas, beside a truth: each record has a hundred bytes, record n was published at n s."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError, StoreError
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange, Measured
from pulsar_on_kafka.broker.managed_ledger.owner import Stretch, TopicLogs
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.service.ledgers.backlogs import TOLD_MS, BacklogKeeper
from pulsar_on_kafka.service.ledgers.maintenance import Compacting
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import AcknowledgeUpTo
from pulsar_on_kafka_mapping.state.metadata.metadata_records import BacklogExceeded, LifeState, TopicRecord

NAME = TopicName.parse("persistent://a/b/c")
LAYOUT = LedgerLayout(1, 100)
RECORD_BYTES = 100
NEVER = Deadline.never()


class World:
    """One topic of two partitions, and what is asked of services. Measuring fails when `fails` says so."""

    def __init__(self, policies: Mapping[str, Any]) -> None:
        self.record = TopicRecord(str(NAME), LifeState.ACTIVE, "k", 2, 100, policies=policies)
        self.ends = {0: 0, 1: 0}
        self.cursors = {name: {0: 0, 1: 0} for name in ("s", "t")}
        self.now_ms = 0
        self.fails = False
        self.measured = 0
        self.told = 0
        self.clock = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.topics = SimpleNamespace(
            records=SimpleNamespace(of=lambda names, _: dict.fromkeys(names, self.record), note_backlog=self._tell),
            find=lambda name, _: Topic(NAME, "k", "id", 2, True, LAYOUT),
            compact=self._compact,
        )
        self.namespaces = SimpleNamespace(policies_of=lambda names, _: {name: {} for name in names})
        self.subscriptions = SimpleNamespace(
            durable=lambda topic, _: [SimpleNamespace(name=name) for name in self.cursors]
        )
        self.admin = SimpleNamespace(offsets_at_time=self._offsets_at_time)

    def applied_to(self, names: Mapping[TopicName, Any], policy: Any, _: Deadline) -> dict[TopicName, Any]:
        return {name: self.record.policies.get(policy.name, policy.default) for name in names}

    def _tell(self, topic: Topic, exceeded: BacklogExceeded | None, _: Deadline) -> None:
        self.told += 1
        self.record = replace(self.record, backlog_exceeded=exceeded)

    def _compact(self, name: TopicName, _: Deadline) -> None:
        self.record = replace(self.record, compacted_to={str(p): end for p, end in self.ends.items()})

    def _offsets_at_time(self, places: Sequence[tuple[str, int]], time_ms: int, _: Deadline) -> dict[Any, int | None]:
        first = max(0, -(-time_ms // 1000))
        return {(topic, p): first if first < self.ends[p] else None for topic, p in places}

    def read(self, subscription: Any, _: Deadline) -> dict[int, Any]:
        places = self.cursors[subscription.name]
        return {p: SimpleNamespace(state=SimpleNamespace(next_unacked=place)) for p, place in places.items()}

    def change(self, subscription: Any, wishes: Mapping[int, Any], _: Deadline) -> dict[int, int]:
        for partition, wish in wishes.items():
            assert isinstance(wish, AcknowledgeUpTo)
            assert self.cursors[subscription.name][partition] <= wish.upto < self.ends[partition]
            self.cursors[subscription.name][partition] = wish.upto + 1
        return {}

    def measure(self, stretches: Sequence[Stretch], _: Deadline) -> list[Measured | LayerError]:
        self.measured += len(stretches)
        return [
            StoreError("simulated")
            if self.fails
            else Measured((each.end - each.start) * RECORD_BYTES, 0, each.start * 1000 or 1, each.end * 1000)
            for each in stretches
        ]

    def logs(self) -> list[TopicLogs]:
        return [TopicLogs(str(NAME), "k", LAYOUT, {p: LogRange(0, end) for p, end in self.ends.items()})]

    def keeper(self) -> BacklogKeeper:
        services: Any = self
        return BacklogKeeper(services, self.read, self.change, self.measure)

    def max_bytes(self) -> int:
        return max(self.ends[p] - min(each[p] for each in self.cursors.values()) for p in self.ends) * RECORD_BYTES

    def oldest_ms(self) -> int | None:
        lags = [min(each[p] for each in self.cursors.values()) for p in self.ends]
        return min((lag * 1000 or 1 for p, lag in enumerate(lags) if lag < self.ends[p]), default=None)


@pytest.mark.parametrize("action", ["producer_request_hold", "producer_exception"])
@pytest.mark.parametrize("by", ["size", "time"])
def test_producers_are_told_exactly_while_a_limit_is_exceeded(action: str, by: str) -> None:
    for seed in range(150):
        rng = random.Random(seed)
        limit = 1000 if by == "size" else 20
        world = World({f"backlog_quota_limit_{by}": limit, f"backlog_quota_limit_{by}_action": action})
        keeper = world.keeper()
        known: BacklogExceeded | None = None
        for _ in range(30):
            world.now_ms += rng.choice([1000, 5000, TOLD_MS // 2])
            partition = rng.randrange(2)
            world.ends[partition] = min(world.ends[partition] + rng.randrange(8), world.now_ms // 1000)
            name = rng.choice(["s", "t"])
            world.cursors[name][partition] += rng.randrange(world.ends[partition] - world.cursors[name][partition] + 1)
            world.fails = rng.random() < 0.1
            keeper.run(world.logs(), NEVER)
            oldest = world.oldest_ms()
            exceeded = (
                world.max_bytes() >= limit if by == "size" else oldest is not None and world.now_ms - oldest > 20_000
            )
            told = world.record.backlog_exceeded
            if world.fails and told == known:
                continue  # what could not be measured changes nothing, but for what was known before
            assert (told is not None) is exceeded, seed
            if told is not None:
                assert told.holds is (action == "producer_request_hold")
                assert told.until_ms > world.now_ms + TOLD_MS // 2, "it would end by itself before it is said again"
            known = told


def test_what_has_not_changed_is_neither_measured_nor_told_again() -> None:
    world = World({"backlog_quota_limit_size": 1000})
    keeper = world.keeper()
    world.ends[0] = 50
    for _ in range(10):
        keeper.run(world.logs(), NEVER)
    assert (world.measured, world.told, keeper.exceeded) == (1, 1, 1)
    world.record = replace(world.record, policies={})
    keeper.run(world.logs(), NEVER)
    assert world.record.backlog_exceeded is None
    assert keeper.exceeded == 0


def test_eviction_leaves_nine_tenths_and_tells_nobody() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        by = rng.choice(["size", "time"])
        limit = rng.choice([500, 2000]) if by == "size" else rng.choice([5, 60])
        action = "consumer_backlog_eviction"
        world = World({f"backlog_quota_limit_{by}": limit, f"backlog_quota_limit_{by}_action": action})
        world.ends = {0: rng.randrange(100), 1: rng.randrange(100)}
        for places in world.cursors.values():
            places.update({p: rng.randrange(end + 1) for p, end in world.ends.items()})
        world.cursors.pop("t") if by == "size" else None  # of several, Pulsar stops when one stays the slowest
        world.now_ms = 100_000
        world.keeper().run(world.logs(), NEVER)
        assert world.told == 0
        if by == "size":
            assert world.max_bytes() <= 0.9 * limit + RECORD_BYTES
        else:
            oldest = world.oldest_ms()
            assert oldest is None or world.now_ms - oldest <= limit * 1000, seed


def test_a_topic_is_compacted_when_a_partition_got_more_than_the_threshold() -> None:
    world = World({"compaction_threshold": 1000})
    services: Any = world
    compacting = Compacting(services, world.measure)
    for end, compacted_to in ((10, None), (11, 11), (21, 11), (22, 22)):
        world.ends[1] = end
        compacting.run(world.logs(), NEVER)
        compacting.run(world.logs(), NEVER)
        assert world.record.compacted_to.get("1") == compacted_to
    assert world.measured == 4
