"""Maintenance removes what nobody uses when its time is over, and never sooner, beside a plain truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import SubscriptionBusy
from pulsar_on_kafka.broker.managed_ledger.ledger_list_update import LogRange
from pulsar_on_kafka.broker.managed_ledger.owner import TopicLogs
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.service.ledgers.inactive_topics import UnusedThings
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import LifeState, TopicRecord, Unused
from tests.seeds import for_each_seed

NAME = TopicName.parse("persistent://a/b/c")
LAYOUT = LedgerLayout(1, 100)
NEVER = Deadline.never()
MINUTE_MS = 60_000


class World:
    """A topic with subscriptions, and what is asked of services."""

    def __init__(self, policies: dict[str, Any], *, bound: bool = False) -> None:
        self.record = TopicRecord(str(NAME), LifeState.ACTIVE, "k", 0, 100, policies=policies)
        self.bound = bound
        self.alive = True
        self.end = 0
        self.positions = {"s": 0, "t": 0}
        self.versions = {"s": 0, "t": 0}
        self.connected: set[str] = set()
        self.producers = 0
        self.now_ms = 0
        self.joins_late = 0
        """Producers that have claims, and no heartbeat yet."""
        self.written = 0
        self.clock = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.topics = SimpleNamespace(
            records=SimpleNamespace(of=lambda names, _: dict.fromkeys(names, self.record), note_unused=self._note),
            find=lambda name, _: self._topic(),
        )
        self.namespaces = SimpleNamespace(policies_of=lambda names, _, required: {name: {} for name in names})
        self.subscriptions = SimpleNamespace(
            list=lambda *_: [self._subscription(name) for name in self.positions],
            has_consumers=lambda subscription, _: subscription.name in self.connected,
        )
        self.admin = SimpleNamespace(end_offsets=lambda *_: {0: self.end})
        self.producers_seen = SimpleNamespace(
            heartbeats=SimpleNamespace(publishers=self._publishers),
            connected=lambda *_: ["p"] * (self.producers or self.joins_late),
        )

    def _topic(self) -> Topic:
        return Topic(NAME, "k", "id", 1, False, LAYOUT, self.bound)

    def _subscription(self, name: str) -> Any:
        return SimpleNamespace(name=name, groups=(name,), replicated=False, topic=SimpleNamespace(name=NAME))

    def _publishers(self, topic: str, _: Deadline) -> list[Any]:
        return [SimpleNamespace(publishers=["p"] * self.producers, unlisted=0)] if self.producers else []

    def _note(self, topic: Topic, unused: dict[str, Unused], _: Deadline) -> None:
        self.written += 1
        self.record = replace(self.record, unused=unused)

    def read(self, subscription: Any, _: Deadline) -> dict[int, Any]:
        name = subscription.name
        state = SimpleNamespace(next_unacked=self.positions[name])
        return {0: SimpleNamespace(state=state, version=self.versions[name])}

    def _delete_subscription(self, subscription: Any, _: Deadline) -> None:
        if subscription.name in self.connected:
            raise SubscriptionBusy("it has consumers")
        del self.positions[subscription.name]

    def _delete_topic(self, topic: Topic, subscriptions: Sequence[Any], _: Deadline, check: Callable[[], None]) -> None:
        check()
        self.alive = False

    def run(self) -> int:
        """One round, in a process of its own."""
        services: Any = SimpleNamespace(
            clock=self.clock, topics=self.topics, namespaces=self.namespaces, subscriptions=self.subscriptions,
            admin=self.admin, producers=self.producers_seen,
        )  # fmt: skip
        unused = UnusedThings(services, self.read, self._delete_subscription, self._delete_topic)
        return unused.run([TopicLogs(str(NAME), "k", LAYOUT, {0: LogRange(0, self.end)})], NEVER)


@for_each_seed(range(200))
def test_a_subscription_goes_when_it_was_unused_for_long_enough(seed: int) -> None:
    rng = random.Random(seed)
    world = World({"subscription_expiration_time_minutes": 5})
    last_used = dict.fromkeys(world.positions, 0)
    for _ in range(60):
        world.now_ms += MINUTE_MS
        world.end += 10
        for name in list(world.positions):
            if rng.random() < 0.1:
                world.connected ^= {name}
            used = name in world.connected
            if used and rng.random() < 0.3:
                world.positions[name] = rng.randrange(world.end)  # a seek may go back
                world.versions[name] += 1
            elif rng.random() < 0.05:
                world.versions[name] += 1  # somebody came and went between two rounds
                used = True
            if used:
                last_used[name] = world.now_ms
        world.run()
        for name, last_ms in last_used.items():
            idle_ms = world.now_ms - last_ms
            if name in world.positions:
                assert idle_ms <= 7 * MINUTE_MS, "it should have gone"
            else:
                world.connected.discard(name)
        for name in set(last_used) - set(world.positions):
            assert world.now_ms - last_used.pop(name) > 5 * MINUTE_MS, "it went too soon"


@pytest.mark.parametrize(
    ("mode", "unused"),
    [
        ("delete_when_no_subscriptions", {"none": True, "caught up": False, "behind": False}),
        ("delete_when_subscriptions_caught_up", {"none": True, "caught up": True, "behind": False}),
    ],
)
def test_an_inactive_topic_goes_by_its_mode(mode: str, unused: dict[str, bool]) -> None:
    policies = {"delete_while_inactive": True, "inactive_topic_delete_mode": mode, "max_inactive_duration_seconds": 60}
    for kind, goes in unused.items():
        for hindrance in ("", "producer", "joining producer", "consumer", "bound", "retention"):
            kept = {"retention_time_in_minutes": -1, "retention_size_in_mb": -1} if hindrance == "retention" else {}
            world = World({**policies, **kept}, bound=hindrance == "bound")
            world.end = 5
            world.positions = {} if kind == "none" else {"s": 5 if kind == "caught up" else 4}
            world.producers = int(hindrance == "producer")
            world.joins_late = int(hindrance == "joining producer")
            world.connected = {"s"} if hindrance == "consumer" else set()
            for _ in range(5):
                world.run()
                world.now_ms += 59_000
                assert world.alive or world.now_ms > 60_000
            expected = goes and (not hindrance or (hindrance == "consumer" and kind == "none"))
            assert world.alive is not expected, (kind, hindrance)


def test_what_was_published_meanwhile_starts_the_time_anew_and_a_quiet_round_writes_nothing() -> None:
    world = World({"delete_while_inactive": True, "max_inactive_duration_seconds": 100})
    world.positions = {}
    for _ in range(10):
        world.run()
        world.now_ms += 90_000
        world.end += 1
    assert world.alive
    world.run()
    written = world.written
    world.now_ms += 50_000
    world.run()
    assert (world.alive, world.written) == (True, written)
    world.now_ms += 60_000
    world.run()
    assert not world.alive


def test_without_a_policy_nothing_is_kept_on_record() -> None:
    world = World({"subscription_expiration_time_minutes": 5})
    world.run()
    assert set(world.record.unused) == {"s", "t"}
    world.record = replace(world.record, policies={})
    world.run()
    assert world.record.unused == {}
    world.run()
    assert world.written == 2
