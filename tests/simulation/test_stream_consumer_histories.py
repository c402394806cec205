"""V5 consumers join, leave and lose connections, and gateways that control their subscription follow one another.

The coordinators and the registrations are the real ones, on a log in memory. A gateway may believe that it is the
controller long after another one is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.subscriptions.consumer_registrations import (
    REGISTRATION_KEYS,
    ConsumerRegistrations,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.gateway.streams.subscription_coordinator import SegmentAssignment, SubscriptionCoordinator
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.routing.topic_layouts import topic_layout
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS
from tests.memory_log import MemoryStateLog
from tests.seeds import for_each_seed, in_three

NEVER: Final = Deadline.never()
GRACE_S: Final = 60.0
NAMES: Final = "abcde"
STEPS: Final = 60


@dataclass(eq=False)
class Consumer:
    """A program: its connection to a gateway, and the assignment that it works by."""

    name: str
    gateway: Gateway | None = None
    connection: object = None
    assignment: SegmentAssignment | None = None
    lost_s: float = 0.0


@dataclass(eq=False)
class Gateway:
    registrations: ConsumerRegistrations
    coordinator: SubscriptionCoordinator[object]
    by_connection: dict[object, Consumer] = field(default_factory=dict)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.partitions = self.random.randint(0, 6)
        self.log = MemoryStateLog()
        self.consumers = [Consumer(name) for name in NAMES]
        self.controller = self.gateway()
        self.gateways = [self.controller]

    def topic(self) -> Topic:
        layout = LedgerLayout(1)
        return Topic(TopicName.parse("t"), "t", "id", max(1, self.partitions), self.partitions > 0, layout)

    def gateway(self) -> Gateway:
        registrations = ConsumerRegistrations(Entities(self.log, SUBSCRIPTIONS, REGISTRATION_KEYS, SystemClock()))
        layout = topic_layout(TopicName.parse("t"), self.partitions, 1)
        return Gateway(registrations, SubscriptionCoordinator(layout, GRACE_S))

    def report(self, gateway: Gateway) -> None:
        for connection, assignment in gateway.coordinator.updates():
            gateway.by_connection[connection].assignment = assignment

    def record(self, gateway: Gateway, added: list[str], removed: list[str]) -> None:
        topic, found = self.topic(), None
        if added:
            found = gateway.registrations.add(topic, "s", added, NEVER)
        if removed:
            found = gateway.registrations.remove(topic, "s", removed, NEVER)
        if found is not None:
            gateway.coordinator.recorded(found.version, found.names, self.now_s)
            if again := gateway.coordinator.unrecorded():
                self.record(gateway, again, [])
        self.report(gateway)

    # Steps --------------------------------------------------------------------------------------------------------

    def connect(self, consumer: Consumer) -> None:
        if consumer.gateway is not None:
            return
        gateway, connection = self.controller, object()
        consumer.gateway, consumer.connection = gateway, connection
        gateway.by_connection[connection] = consumer
        gateway.coordinator.connect(consumer.name, connection)
        self.record(gateway, [consumer.name], [])

    def lose(self, consumer: Consumer) -> None:
        gateway = consumer.gateway
        if gateway is not None:
            consumer.gateway, consumer.lost_s = None, self.now_s
            gateway.coordinator.disconnect(consumer.name, consumer.connection, self.now_s)

    def leave(self, consumer: Consumer) -> None:
        gateway = consumer.gateway
        if gateway is not None and gateway.coordinator.disconnect(consumer.name, consumer.connection, self.now_s):
            consumer.gateway = consumer.assignment = None
            self.record(gateway, [], [consumer.name])

    def evict(self, gateway: Gateway) -> None:
        if expired := gateway.coordinator.expired(self.now_s):
            self.record(gateway, [], expired)

    def follow(self, *, killed: bool) -> None:
        """Another gateway is the controller. The former one is dead, or it finds that out later."""
        before, self.controller = self.controller, self.gateway()
        self.gateways.append(self.controller)
        if killed:
            self.end(before)

    def end(self, gateway: Gateway) -> None:
        for consumer in self.consumers:
            if consumer.gateway is gateway:
                consumer.gateway, consumer.lost_s = None, self.now_s
        if gateway in self.gateways:
            self.gateways.remove(gateway)

    def grow(self) -> None:
        if self.partitions:
            self.partitions += 1
            layout = topic_layout(TopicName.parse("t"), self.partitions, 1)
            for gateway in self.gateways:
                gateway.coordinator.change_layout(layout)
                self.report(gateway)

    def step(self) -> None:
        consumer = self.random.choice(self.consumers)
        match self.random.randrange(10):
            case 0 | 1 | 2:
                self.connect(consumer)
            case 3:
                self.lose(consumer)
            case 4:
                self.leave(consumer)
            case 5:
                self.follow(killed=self.random.random() < 0.5)
            case 6:
                self.now_s += self.random.choice((1.0, 30.0, GRACE_S))
            case 7:
                self.evict(self.random.choice(self.gateways))
            case 8 if self.random.random() < 0.2:
                self.grow()
            case _:
                former = [each for each in self.gateways if each is not self.controller]
                if former:
                    self.end(self.random.choice(former))
        for gateway in self.gateways:
            self.check_coordinator(gateway)

    # What must hold -----------------------------------------------------------------------------------------------

    def check_coordinator(self, gateway: Gateway) -> None:
        coordinator = gateway.coordinator
        dealt = [each.segment_id for name in coordinator.names for each in coordinator.assignment(name).segments]
        segments = [each.segment_id for each in coordinator.layout.segments] if coordinator.names else []
        assert sorted(dealt) == segments, "each segment has one owner"
        for connection in coordinator.connections:
            consumer = gateway.by_connection[connection]
            assert consumer.assignment == coordinator.assignment(consumer.name), f"{consumer.name} was told"

    def settle(self) -> None:
        """Every consumer connects again to the last controller, and all the others are gone."""
        for gateway in [each for each in self.gateways if each is not self.controller]:
            self.end(gateway)
        for consumer in self.consumers:
            self.connect(consumer)
        held = [
            segment.segment_id for consumer in self.consumers for segment in (consumer.assignment or _NONE).segments
        ]
        assert sorted(held) == [each.segment_id for each in self.controller.coordinator.layout.segments]


_NONE: Final = SegmentAssignment(0, ())


@pytest.mark.parametrize("seeds", in_three(500, range(5_000)), ids=str)
def test_each_segment_has_one_owner(seeds: range) -> None:
    for seed in seeds:
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.settle()
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


@for_each_seed(range(1_000))
def test_the_next_controller_assigns_as_the_last_one_did(seed: int) -> None:
    """Consumers that come back within the grace time find their segments, whatever order they come in."""
    world = World(seed)
    chosen = world.random.sample(world.consumers, world.random.randint(1, len(NAMES)))
    for consumer in chosen:
        world.connect(consumer)
    before = {each.name: each.assignment for each in chosen}
    world.follow(killed=True)
    world.random.shuffle(chosen)
    for consumer in chosen:
        world.now_s += GRACE_S / len(NAMES) / 2
        world.connect(consumer)
        assert consumer.assignment == before[consumer.name]
        world.evict(world.controller)
    assert {each.name: each.assignment for each in chosen} == before
