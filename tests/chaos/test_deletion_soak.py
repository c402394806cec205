"""Thousands of ledgers are acknowledged, retained and deleted at random while the processes that do it are killed.

`POK_DELETION_TOPICS` (100) topics of `POK_DELETION_LEDGERS` (1,000) ledgers each, for `POK_CHAOS_SECONDS` (60) seconds.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.chaos.deletion_process import MAINTENANCE, WORKER
from tests.chaos.test_deletions_cut_short import Process, Start, processes
from tests.steps import Unique
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.soak, pytest.mark.timeout(0)]

TOPICS = int(os.environ.get("POK_DELETION_TOPICS", "100"))
LEDGERS = int(os.environ.get("POK_DELETION_LEDGERS", "1000"))
SECONDS = float(os.environ.get("POK_CHAOS_SECONDS", "60"))
SIZE = 5
PROCESSES = 3
PATIENCE_S = 300.0 + TOPICS * LEDGERS / 50
POLICIES = (("retention_time_in_minutes", 60), ("retention_size_in_mb", 1), ("retention_time_in_minutes", 0))


@dataclass
class Topic:
    """With where its subscriptions are; nobody but the test moves them."""

    name: str
    end: int
    positions: dict[str, int] = field(default_factory=dict)
    policy: str = ""

    def kept_from(self) -> int:
        """Where the log starts once all is deleted that may be."""
        return min([self.end, *self.positions.values()]) // SIZE * SIZE


class World:
    def __init__(self, admin: AdminClient, client: pulsar.Client, rng: random.Random) -> None:
        self._admin = admin
        self._client = client
        self._rng = rng
        self.topics: list[Topic] = []

    def make(self, name: str) -> None:
        self._admin.create_topic(name, entries_per_ledger=SIZE)
        topic = Topic(name, LEDGERS * SIZE + self._rng.randrange(SIZE), {"a": 0, "b": 0})
        for subscription in topic.positions:
            self._admin.create_subscription(name, subscription, from_earliest=True)
        producer = self._client.create_producer(name, block_if_queue_full=True)
        for number in range(topic.end):
            producer.send_async(str(number).encode(), None)
        producer.flush()
        producer.close()
        self.topics.append(topic)

    def happen(self) -> None:
        topic = self._rng.choice(self.topics)
        draw = self._rng.random()
        if draw < 0.7:
            name = self._rng.choice(sorted(topic.positions))
            count = self._rng.choice([1, SIZE, topic.end // 10, topic.end // 3]) or 1
            topic.positions[name] += self._admin.skip(topic.name, name, count)
        elif draw < 0.85:
            if topic.policy:
                self._admin.remove_policy(topic.name, topic.policy)
            topic.policy, value = self._rng.choice(POLICIES)
            self._admin.set_policy(topic.name, topic.policy, value)
        elif draw < 0.9 and len(topic.positions) < 4:
            name = f"s{len(topic.positions)}"
            self._admin.create_subscription(topic.name, name, from_earliest=True)
            (cursor,) = self._admin.subscription_stats(topic.name, name).partitions
            topic.positions[name] = cursor.mark_delete + 1
            assert topic.positions[name] <= topic.end
        else:
            self.check(topic)

    def check(self, topic: Topic) -> None:
        start = self._admin.topic_stats(topic.name).start_offsets[0]
        assert start <= min(topic.positions.values()), f"{topic} lost what somebody needs, its log starts at {start}"

    def settled(self, topic: Topic) -> bool:
        stats = self._admin.topic_stats(topic.name)
        return stats.start_offsets[0] == topic.kept_from()


def test_logs_start_where_the_lists_say_whatever_dies(service_url: str, tmp_path: Path, unique: Unique) -> None:
    seed = int(os.environ.get("POK_SEED", time.time_ns() % 1_000_000))
    rng = random.Random(seed)
    print(f"seed {seed}")
    client = pulsar.Client(service_url)
    with AdminClient(service_url) as admin, processes(service_url, tmp_path) as start:
        given_up_before = {letter.event for letter in admin.dead_deletions(100_000).first}
        world = World(admin, client, rng)
        for number in range(TOPICS):
            world.make(unique(f"t{number}"))
        kills = _live(world, start, rng)
        survivors = [start(MAINTENANCE, WORKER) for _ in range(PROCESSES)]
        for topic in world.topics:
            if topic.policy:
                admin.remove_policy(topic.name, topic.policy)
        left = list(world.topics)

        def all_settled() -> bool:
            left[:] = [topic for topic in left if not world.settled(topic)]
            return not left

        until(
            all_settled, lambda: f"seed {seed}: {len(left)} logs do not start where they should: {left[:3]}", PATIENCE_S
        )
        until(
            lambda: admin.list_deletions(5).count == 0,
            lambda: f"seed {seed}: what was asked for is done: {admin.list_deletions()}",
            PATIENCE_S,
        )
        for letter in admin.dead_deletions(100_000).first:
            if letter.event not in given_up_before:  # a subscription came in time, or its owner was dead for long
                assert "is listed" in letter.reason or "is needed" in letter.reason, f"seed {seed}: {letter}"
        for topic in world.topics:
            world.check(topic)
            first = admin.list_ledgers(topic.name)[0]
            assert first.first_offset == topic.kept_from(), f"seed {seed}: {topic} is listed from {first}"
        for topic in rng.sample(world.topics, min(5, TOPICS)):
            name = min(topic.positions, key=lambda each: topic.positions[each])
            consumer = client.subscribe(topic.name, name, pulsar.ConsumerType.Shared)
            wanted = range(topic.positions[name], topic.end)
            assert [int(consumer.receive(60_000).data()) for _ in wanted] == list(wanted), f"seed {seed}: {topic}"
            consumer.close()
        assert not any(process.is_dead() for process in survivors)
        deleted = sum(topic.kept_from() // SIZE for topic in world.topics)
        given_up = admin.dead_deletions(0).count - len(given_up_before)
        print(f"{TOPICS} topics, {TOPICS * LEDGERS} ledgers, {kills} kills, {deleted} ledgers deleted, "
              f"{given_up} events given up, every log starts where it should")  # fmt: skip
    client.close()


def _live(world: World, start: Start, rng: random.Random) -> int:
    """Things happen, and processes die, for `SECONDS`; gives how many died."""
    kills = 0
    living: list[Process] = [start(MAINTENANCE, WORKER) for _ in range(PROCESSES)]
    end_s = time.monotonic() + SECONDS
    next_kill_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        world.happen()
        if time.monotonic() >= next_kill_s:
            next_kill_s = time.monotonic() + rng.uniform(3, 12)
            place = rng.randrange(len(living))
            living[place].kill()
            kills += 1
            living[place] = start(MAINTENANCE, WORKER)
    for process in living:
        process.kill()
    return kills + len(living)
