"""Messages that kill their process, fail or are fine, through crashes, on the real dispatcher and cursor store. Group
commits arrive late and twice.

On Shared and Key_Shared subscriptions. What must hold: no message is delivered more often than the policy
allows, whatever dies; each ends acknowledged or as a dead letter; and where nothing but the messages themselves kills,
only those that kill or always fail become dead letters: their neighbours share the blame of a death, never of the last
delivery. On Key_Shared
no message goes out before a lower one of its key that was not out, unless that one is put off or on its way to the dead
letter topic.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import CommitOutcomeUnknown, LayerError
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.saved_cursor import SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching import key_shared
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.key_shared import MAX_PARKED
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.member.saving import CursorSaver
from pulsar_on_kafka.broker.subscriptions.partition import key_order
from pulsar_on_kafka.broker.subscriptions.partition.key_order import KNOWN, NEAR
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.memory_log import MemoryStateLog
from tests.same_incarnation import SAME_INCARNATION
from tests.seeds import first_of
from tests.simulation.broker import SimulatedBroker
from tests.simulation.group import SimulatedGroup, SimulatedMembership
from tests.simulation.played_records import Record, key_of

TOPIC = "persistent://public/default/orders"
IDENTITY = CursorIdentity(TOPIC, 0, "audit", "orders", "t" * 22, 1, 2, 10)
DEADLINE = Deadline.never()
SEEDS = 10
HISTORIES_A_SEED = 5


class Died(Exception):
    """The process is gone, with everything in its memory."""


class World:
    """Kafka: the log, the committed offset, the state log, the dead letter topic; and what the messages do."""

    def __init__(
        self, rng: random.Random, kind: SubscriptionType, *, other_deaths: bool, orderly_ends: bool, late_policy: bool
    ) -> None:
        self.rng = rng
        self.kind = kind
        self.late_policy = late_policy
        self.end = rng.randrange(1, 60)
        self.log = MemoryStateLog()
        late = random.Random(f"late {rng.getstate()}")
        self.group = SimulatedGroup(SimulatedBroker(late), late)
        self.dead: list[int] = []
        self.delivered: Counter[int] = Counter()
        self.now_s = 1000.0
        self.most = rng.randrange(1, 4)
        self.killers = {rng.randrange(80) for _ in range(rng.randrange(3))}
        self.failing = {rng.randrange(80) for _ in range(rng.randrange(rng.choice((4, 30))))} - self.killers
        self.other_deaths = other_deaths
        self.orderly_ends = orderly_ends

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
        yield [Record(offset) for offset in offsets if offset < self.end]

    def watermarks(self, *_: object) -> tuple[int, int]:
        return 0, self.end

    def perhaps_die(self) -> None:
        if self.other_deaths and self.rng.random() < 0.02:
            raise Died

    def one_arrives(self) -> None:
        """A request on its way, of a living process or of a dead one, reaches the broker."""
        if self.group.broker.waiting:
            self.group.broker.execute_one()


class Membership(SimulatedMembership):
    """The group's member: its process may die between a save's preparation, its commit and the answer."""

    def __init__(self, world: World, answered: Callable[[LayerError | None], None]) -> None:
        self._world = world
        world.group.generation += 1
        super().__init__(world.group, answered)

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        self._world.perhaps_die()
        super().commit_async(commits)
        self._world.perhaps_die()


class Letters:
    def __init__(self, world: World) -> None:
        self.world = world
        self.max_redeliver_count = world.most

    def take_refused(self, letter_topic: str, offset: int) -> bool:
        return False

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Callable[[Delivery], None]) -> None:
        for letter in letters:
            if self.world.rng.random() < 0.1:
                kept(letter)
                continue
            self.world.dead.append(letter.offset)
            self.world.perhaps_die()
            letter.feed.slot.ack(letter.offset)


class Inbox(Endpoint):
    """Sees what goes out, and in which order."""

    def __init__(self, process: Process, name: str, dead_letters: Letters | None) -> None:
        self.process = process
        rules = DeliveryRules(dead_letters=dead_letters)
        super().__init__(name, process.world.rng.randrange(1, 20), delivery_type=Delivery, rules=rules)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.process.goes_out(delivery.offset)
        super().deliver(deliveries)


class Process:
    """One owner of the partition, from take-over to its death or orderly end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = CursorStore(world.log)
        self.member = Membership(world, lambda failure: self.saver.committed(failure))
        found = world.group.recover(world.log, world, IDENTITY)
        save = self.store.take_over(IDENTITY, found, DEADLINE)
        saved = found.saved or SavedCursor(save.saved.lineage)
        self.member.commit({0: save.commit})
        world.perhaps_die()
        slot = PartitionAcks(TOPIC, 0, -1, LedgerLayout(1, 10))
        self.owned = OwnedPartition(slot, IDENTITY, found.state, saved)
        self.saver = CursorSaver(
            "audit", self.store, world, cast("Any", self.member), {0: self.owned}, SubscriptionMeter(), lambda *_: None
        )
        self.saver.accept({0: (self.owned, save)}, DEADLINE)
        words = {
            "type": world.kind,
            "kafka_topic": "orders",
            "buffer": None,
            "policies": SubscriptionPolicies(),
            "slots": lambda: [slot],
            "incarnation": SAME_INCARNATION,
        }
        handle = cast("Any", type("Handle", (), words))
        fake = cast("Any", world)
        self.consumers: list[Endpoint] = []
        self.dispatcher = Dispatcher(handle, fake, fake, fake, {0: self.owned}, self.consumers)
        self.out: set[int] = set()
        # Where a former owner counted, it does not matter that the policy comes late.
        counted = found.state.deliveries is not None and found.state.deliveries.matter_from(found.state.next_unacked)
        self.attach(Letters(world) if not (counted and world.late_policy) else None)
        if world.rng.random() < 0.5:
            self.attach(Letters(world))
        self.dispatcher.count_deliveries()
        self.held: list[Delivery] = []
        self.reads = world.rng.choice((0.7, 0.03))
        self.hanging: Endpoint | None = None

    def attach(self, letters: Letters | None) -> None:
        self.dispatcher.attach(Inbox(self, f"c{len(self.consumers)}", letters))

    def goes_out(self, offset: int) -> None:
        if self.world.kind is SubscriptionType.KEY_SHARED and offset not in self.out:
            for lower in range(self.owned.cursor.next_unacked, offset):
                if key_of(lower) == key_of(offset) and lower not in self.out:
                    settled = self.owned.cursor.is_acknowledged(lower) or lower in self.owned.in_flight.holders
                    assert settled or lower in self.put_off(), f"{offset} before {lower} of its key"
        self.out.add(offset)
        has_policy = any(consumer.dead_letters is not None for consumer in self.consumers)
        if has_policy and not self.world.orderly_ends:  # a delivery that ended in good order does not count
            assert self.world.delivered[offset] <= self.world.most, f"{offset} goes out once too often"

    def put_off(self) -> set[int]:
        return {offset for offsets in self.dispatcher._nacks.waiting(0).values() for offset in offsets}

    def step(self) -> None:
        rng = self.world.rng
        self.world.now_s += rng.random()
        self.world.perhaps_die()
        self.dispatcher.drain()
        self.dispatcher.redelivery.redeliver_due()
        self.dispatcher.dispatch()
        if self.dispatcher.counting.requires_save() or rng.random() < 0.2:
            self.saver.save_in_background()
        self.dispatcher.has_undelivered()
        if rng.random() < 0.6:
            self.member.poll()
        if rng.random() < 0.2:
            self.world.one_arrives()
        start = self.owned.read_position
        if start < self.world.end and rng.random() < self.reads:
            upto = min(self.world.end, start + rng.randrange(1, 30))
            self.owned.intake.accept(list(range(start, upto)), [Record(offset) for offset in range(start, upto)])
        if rng.random() < 0.8:
            self.receive()
        if self.world.late_policy and rng.random() < 0.03 and len(self.consumers) < 3:
            self.attach(Letters(self.world))
        if self.world.orderly_ends and rng.random() < 0.03:
            gone = rng.choice(self.consumers)
            self.dispatcher.detach(gone)
            self.held = [message for message in self.held if message.feed.endpoint is not gone]
            self.attach(Letters(self.world))

    def receive(self) -> None:
        rng = self.world.rng
        if self.held and rng.random() < 0.7:
            self.finish(self.held.pop(rng.randrange(len(self.held))))
        if rng.random() < 0.05:
            self.hanging = rng.choice((None, *self.consumers))
        consumer = rng.choice(self.consumers)
        if consumer is self.hanging:
            return
        inbox = consumer.queue
        for _ in range(rng.randrange(1, 6)):
            if not inbox:
                return
            message = inbox.popleft()
            self.world.delivered[message.offset] += 1
            if rng.random() < 0.7:
                self.finish(message)
            else:
                self.held.append(message)

    def finish(self, message: Delivery) -> None:
        slot, offset = message.feed.slot, message.offset
        if offset in self.world.killers:
            raise Died
        if offset in self.world.failing:
            delay = self.world.rng.choice((0.0, 0.5, 20.0))
            slot.nacks.append((self.world.now_s, delay, offset, message.feed.endpoint))
        else:
            slot.ack(offset)

    def end_in_order(self) -> None:
        self.dispatcher.drain()
        for consumer in list(self.consumers):  # as `Serving` does; where they stay, what they have received counts
            self.dispatcher.detach(consumer)
        self.member.poll()
        self.dispatcher.counting.retire([0], orderly=True)
        while self.owned.saves.dirty:
            with suppress(CommitOutcomeUnknown):
                self.saver.settle()
                self.saver.save([0])
        self.saver.checkpoint([0], forced=True)

    def done(self) -> bool:
        saved = not (self.saver.under_way or self.saver.is_unsettled or self.owned.saves.dirty)
        return self.owned.cursor.next_unacked >= self.world.end and saved


def run(world: World) -> None:
    for _ in range(400):
        try:
            process = Process(world)
            for _ in range(world.rng.randrange(1, 400) if world.orderly_ends else 100_000):
                process.step()
                if world.end < 80 and world.rng.random() < 0.05:
                    world.end += world.rng.randrange(1, 10)
                if world.end >= 80 and process.done():
                    return
            process.end_in_order()
        except (Died, CommitOutcomeUnknown):
            while world.rng.random() < 0.7:
                world.one_arrives()
    pytest.fail("it does not come to an end")


KINDS = [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", first_of(1, range(SEEDS)))
@pytest.mark.parametrize("late_policy", [False, True], ids=["policy first", "policy late"])
@pytest.mark.parametrize("other_deaths", [False, True], ids=["messages kill", "anything kills"])
@pytest.mark.parametrize("orderly_ends", [False, True], ids=["death only", "orderly ends too"])
def test_no_message_is_delivered_more_often_than_configured(
    seed: int,
    other_deaths: bool,
    orderly_ends: bool,
    late_policy: bool,
    kind: SubscriptionType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for history in range(HISTORIES_A_SEED):
        number = seed * HISTORIES_A_SEED + history
        monkeypatch.setattr(key_order, "NEAR", (1, 4, NEAR)[number % 3])
        monkeypatch.setattr(key_order, "KNOWN", (0, 4, KNOWN)[number // 3 % 3])
        monkeypatch.setattr(key_shared, "MAX_PARKED", (5, MAX_PARKED)[number % 2])
        rng = random.Random(f"{seed} {history}")
        world = World(rng, kind, other_deaths=other_deaths, orderly_ends=orderly_ends, late_policy=late_policy)
        run(world)
        what = f"seed {seed} history {history} killers {world.killers} failing {world.failing} most {world.most}"
        poison = {offset for offset in world.killers | world.failing if offset < world.end}
        if not other_deaths:
            assert set(world.dead) == poison, what
        assert poison <= set(world.dead), what
        if orderly_ends or other_deaths:
            continue
        for offset in world.delivered.keys() - poison:
            assert world.delivered[offset] <= world.most + 1, f"{what}: {offset} was delivered too often"
