"""Processes that share one partition by leases, on a log, a Kafka group and an application that are played.

The group takes commits late and twice, also of processes that died.

The real dispatcher, cursor store, lessor and lessee. Any process may be killed or paused at any step, appends may fail
or be answered late, what is written is heard late, inboxes have room for some records only, and the group notices that
a member is gone some time after it is. It may take the partition from a live owner, and operators seek.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, cast

from pyroaring import BitMap64

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, AppendOutcomeUnknown, CommitOutcomeUnknown
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity, new_session
from pulsar_on_kafka.broker.cursor.saved_cursor import Save, SavedCursor
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.dispatcher import Dispatcher
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.leases.acks import LeasedAcks
from pulsar_on_kafka.broker.subscriptions.leases.lease_options import (
    LeaseTerms,
    ReceivedLeaseRecord,
    RereadLeaseRecords,
)
from pulsar_on_kafka.broker.subscriptions.leases.leasing import Leasing
from pulsar_on_kafka.broker.subscriptions.leases.lessee import Lessee
from pulsar_on_kafka.broker.subscriptions.member.consumer_drains import ConsumerDrains
from pulsar_on_kafka.broker.subscriptions.member.saving import CursorSaver
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.state.cursors.cursor_requests import CursorLife
from pulsar_on_kafka_mapping.state.cursors.cursor_state import decode_commit_metadata
from pulsar_on_kafka_mapping.state.cursors.lease_records import (
    Lease,
    LeaseRecord,
    Recall,
    Report,
    TakeOver,
    decode,
    encode,
)
from pulsar_on_kafka_mapping.state.cursors.lease_records import Saved as SavedNotice
from tests.memory_log import MemoryStateLog
from tests.same_incarnation import SAME_INCARNATION
from tests.simulation.broker import SimulatedBroker
from tests.simulation.group import SimulatedGroup
from tests.simulation.played_records import Record, key_of

TOPIC = "persistent://public/default/orders"
IDENTITY = CursorIdentity(TOPIC, 0, "audit", "orders", "t" * 22, 1, 2, 10)
LIFE = CursorLife("t" * 22, 1, 2)
DEADLINE = Deadline.never()


def no_transactions(*_: object) -> None:
    """No history has any."""


class World:
    """Kafka, the clock, and what a god would know."""

    def __init__(
        self,
        rng: random.Random,
        kind: SubscriptionType,
        *,
        faults: bool,
        letters: bool,
        seeks: bool = False,
        ordered: bool = False,
    ) -> None:
        self.rng = rng
        self.ordered = ordered
        """Redelivery keeps the order: see `Refusals`."""
        self.refusals = Refusals(self)
        self.kind = kind
        self.faults = faults
        self.letters = letters
        self.end = self.end_at_first = rng.randrange(1, 40)
        self.deliveries: list[tuple[int, bytes]] = []
        self.state_log = MemoryStateLog()
        late = random.Random(f"late {rng.getstate()}")
        self.coordinator = SimulatedGroup(SimulatedBroker(late), late)
        """It takes commits late, and of its current generation alone."""
        self.says_leased = False
        """What the owner saved last tells the next one to ask."""
        self.now_s = 1000.0
        self.processes: list[Process] = []
        self.group: dict[str, Process] = {}
        """By client id, as Kafka's coordinator sees it."""
        self.owner: Process | None = None
        self.names = 0
        self.acked: set[int] = set()
        """By the application, ever."""
        self.durable: set[int] = set()
        self.refused: Counter[int] = Counter()
        self.refused_late: set[int] = set()
        """By who had it under a former owner: where it lies in the same inbox again it goes to another consumer too, as
        in Pulsar, which knows a delivery by its message id alone."""
        self.received: Counter[int] = Counter()
        self.out: set[int] = set()
        self.holders: dict[int, tuple[Inbox, int]] = {}
        """Received and neither acknowledged nor refused: by whom, and in which epoch of its process."""
        self.seeks = 0
        """After one, who had a message before may have it still, and it comes to others."""
        self.sought_at = 0
        """Where the log of leases ended then."""
        self.recalls: Traffic | None = None
        """Of the owner that has yet to write what the last seek recalls."""
        self.recalled_at = 0
        """Who has taken in what stands below this in the log knows of all seeks."""
        self.acked_late: set[int] = set()
        """Perhaps told behind a seek, which others do not know when they get these."""
        self.unsaved_seek: set[int] | None = None
        """What was acknowledged before a seek that no accepted save holds yet."""
        self.losses = 0
        """How often a live owner lost the partition."""
        self.hands_over = rng.random() < 0.5
        """Kafka's group takes the partition from live owners in good order, as whenever somebody joins."""
        self.may_seek = rng.random() < 0.2
        self.seeks_often = seeks
        """Operators seek all the time, also while an owner asks who holds what."""
        self.moves = rng.random() < 0.5
        """Consumers are closed and processes leave, in good order; what they refused just before counts or not."""
        self.forger = random.Random(repr(rng.getstate()))
        """Of its own, so that what else happens is as it is without forgeries."""
        self.forgeries = self.forger.random() < 0.1
        """Somebody writes TAKE_OVERs who took nothing over."""
        self.troubles = 0
        """Deaths, pauses and failures of appends: after one, deliveries may repeat and counts start over."""
        self.dead_letters: set[int] = set()
        chance = random.Random(f"policy {rng.getstate()}")
        """Of its own, as the forger's."""
        self.most = chance.randrange(1, 4)
        """What the dead letter policy says: one delivery, and so many redeliveries."""
        self.poisonous = chance.choice((0.0, 0.3)) if letters and kind is not SubscriptionType.FAILOVER else 0.0
        self.refuses = kind is not SubscriptionType.FAILOVER or chance.random() < 0.5
        """Applications refuse some of what they receive."""
        self.append_fails = chance.choice((0.01, 0.05))
        """How often, with faults; as often again nobody knows."""
        self.asks_again = random.Random(f"again {rng.getstate()}")
        """When applications have all that they did not acknowledge redelivered."""
        self.often_again = self.asks_again.choice((0.0, 0.0, 0.02))
        self.elsewhere = random.Random(f"elsewhere {rng.getstate()}")
        """When members own partitions of other numbers for a while, and want nothing of this one's owner."""
        self.often_elsewhere = self.elsewhere.choice((0.0, 0.05))
        self.hangs = random.Random(f"hangs {rng.getstate()}")
        """When consumers hang: they receive nothing, and say nothing of what they have."""
        self.often_hangs = self.hangs.choice((0.0, 0.02, 0.05))
        self.drains = random.Random(f"drains {rng.getstate()}")
        """When consumers begin to drain."""
        self.often_drains = self.drains.choice((0.0, 0.0, 0.01, 0.05))
        self.delivered: Counter[int] = Counter()
        """How often applications received a message; not what their consumers held when they were closed in good
        order, as in Pulsar."""

    def is_poison(self, offset: int) -> bool:
        """The application can do nothing with it."""
        return random.Random(f"{self.end_at_first} {offset}").random() < self.poisonous

    def deliver_to_application(self, offset: int) -> None:
        """Whatever dies, is expelled or changes its owner."""
        if self.letters and self.kind is not SubscriptionType.FAILOVER and not self.seeks:
            assert self.delivered[offset] <= self.most, f"{offset} is delivered {self.delivered[offset] + 1} times"
        self.delivered[offset] += 1

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
        yield [Record(offset) for offset in offsets if offset < self.end]

    def read_at_all(self, end: int) -> list[Record]:
        """What reading the partition from its beginning gives."""
        return [Record(offset) for offset in range(end)]

    def leave(self, partition: int | None = None) -> None:
        """Nothing is fetched ahead."""

    def close(self) -> None:
        """For the reader that this is, too."""

    def log_start(self, *_: object) -> int:
        return 0

    def told_acknowledged(self) -> BitMap64:
        """What reports in the log acknowledge, without those from before a seek, and of who was no member: it held
        the messages when it lost the partition and could tell nobody, so they come again elsewhere."""
        records = (decode(value) for _, value in self.deliveries[self.sought_at :])
        reports = (each for each in records if isinstance(each, Report) and not (each.leaving and each.sequence == 1))
        found = [report.acks[0] for report in reports if 0 in report.acks]
        return BitMap64.union(*found) if found else BitMap64()

    def is_sought(self, target: int, heard_since: int) -> None:
        """What was acknowledged and told before does not count behind it; what is told later may. `heard_since`: the
        owner did not hear what was told before that."""
        self.seeks += 1
        if self.unsaved_seek is None:
            self.unsaved_seek = self.acked.copy()
        self.sought_at = len(self.deliveries)
        later = {offset for process in self.processes for offset in process.not_told(heard_since)}
        self.acked = {offset for offset in self.acked if offset < target or offset in later} | set(range(target))
        self.acked_late |= later
        self.out = {offset for offset in self.out if offset < target}
        self.holders.clear()
        self.durable = {offset for offset in self.durable if offset < target}
        for process in self.processes:
            process.wants_flush = None
            process.acked_elsewhere.clear()
            process.acked_by_leases.clear()

    # Kafka's group ------------------------------------------------------------------------------------------------

    def join(self) -> Process:
        self.names += 1
        process = Process(self, f"member-{self.names}")
        self.processes.append(process)
        self.group[process.client_id] = process
        self.assign()
        return process

    def forget(self, process: Process) -> None:
        """Its session is over, or it left."""
        if self.group.pop(process.client_id, None) is not None:
            process.out_of_group = True
            process.holds_nothing()
            if self.owner is process:
                self.vacate()
            self.assign()

    def vacate(self) -> None:
        """Nobody owns the partition for now; the group has begun its next generation."""
        self.owner = None
        self.coordinator.generation += 1

    def assign(self) -> None:
        if self.owner is None:
            ready = [process for process in self.group.values() if process.alive and not process.paused]
            if ready:
                self.owner = self.rng.choice(ready)


class Refusals:
    """What the application refused and nobody has acknowledged since: later messages of its key wait for it. An owner
    that has taken a refusal in passes it on to the next one when it gives the partition up in good order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._told: set[int] = set()
        self._known: dict[int, tuple[int, int]] = {}
        """With the present at that time."""
        self.checked = 0
        """How many messages were received while an earlier one of their key was not acknowledged."""

    def note(self, inbox: Inbox, offset: int, *, mine: bool) -> None:
        """The application is about to tell that it refuses a message, which is `mine` if it has it by right."""
        if inbox.refused_here is not None:
            inbox.refused_here.refuse(0, offset)
            if mine or self._world.kind is SubscriptionType.FAILOVER:
                self._told.add(offset)
                self._known.pop(offset, None)

    def taken_in(self, owned: OwnedPartition) -> None:
        """`owned` is served by its owner."""
        for offset in self._told & set(owned.refused.offsets()):
            self._told.discard(offset)
            self._known[offset] = self._present()

    def _present(self) -> tuple[int, int]:
        """Troubles and, with faults or on Failover, owners: who died, or whose save failed, may have passed nothing
        on, and on Failover nobody does."""
        world = self._world
        passes_on = world.kind is SubscriptionType.KEY_SHARED and not world.faults
        return world.troubles, 0 if passes_on else world.coordinator.generation

    def check(self, inbox: Inbox, offset: int) -> None:
        """`inbox` receives this message."""
        world, in_order = self._world, self._world.kind is SubscriptionType.FAILOVER
        if not world.ordered or world.seeks or offset in world.acked or inbox.process.is_behind(in_order=in_order):
            return
        for lower in range(offset):
            if lower in world.acked or not (in_order or key_of(lower) == key_of(offset)):
                continue
            known = self._known.get(lower) == self._present()
            assert not known, f"{inbox.name} gets {offset}, {lower} of its key was refused before"
            if world.troubles == 0 and not in_order:
                holder = world.holders.get(lower, (None, 0))[0]
                assert holder is inbox, f"{inbox.name} gets {offset} before {lower} of its key, which {holder} has"
            self.checked += 1


class Written(Future[list[int]]):
    """Offsets of an append; an actor that waits for them, and does nothing else meanwhile, has them at once."""

    def __init__(self, answers: list[Callable[[], None]]) -> None:
        super().__init__()
        self.answers = answers

    def result(self, timeout: float | None = None) -> list[int]:
        while not self.done():
            self.answers.pop(0)()
        return super().result(timeout)


def world_version(world: World) -> int:
    """Of the cursor that the group has committed."""
    commit = world.coordinator.committed.get(0)
    metadata = None if commit is None else decode_commit_metadata(commit.metadata)
    return -1 if metadata is None else metadata.lineage.version


class Traffic:
    def __init__(self, world: World) -> None:
        self.world = world
        self.hear: Callable[[Sequence[ReceivedLeaseRecord]], None] = lambda records: None
        self.at: int | None = None
        """What it hears next; None until its reader stands anywhere."""
        self.answers: list[Callable[[], None]] = []
        self.may_lease: Callable[[], bool] = lambda: True
        """Whoever owns the partition next would ask who holds something of it."""

    def listen(self, hear: Callable[[Sequence[ReceivedLeaseRecord]], None], patience: Callable[[], bool]) -> None:
        self.hear = hear

    def hear_from_here(self) -> None:
        if self.at is None:
            self.at = len(self.world.deliveries)

    @property
    def is_behind(self) -> bool:
        return self.at is None or self.at < len(self.world.deliveries)

    def read(self, start: int, most: int) -> Future[RereadLeaseRecords]:
        answer = Future[RereadLeaseRecords]()

        def now() -> None:
            log = self.world.deliveries
            if self.world.faults and self.world.rng.random() < 0.05:
                answer.set_exception(AppendFailed("no"))
                return
            upto = min(len(log), start + most)
            answer.set_result(RereadLeaseRecords([(offset, *log[offset]) for offset in range(start, upto)], upto))

        self.answers.append(now)
        return answer

    def write(self, records: Sequence[tuple[int, LeaseRecord]]) -> Future[list[int]]:
        self.hear_from_here()
        world, answer = self.world, Written(self.answers)
        recalls, world.recalls = world.recalls is self, None if world.recalls is self else world.recalls
        values = [(partition, encode(record)) for partition, record in records]
        assert [decode(value) for _, value in values] == [record for _, record in records]
        if any(isinstance(record, Lease) for _, record in records):
            assert self.may_lease(), "leased before a save says so: the next owner would not ask"
            if world.owner is not None and world.owner.traffic is self:
                leased = {each.offset for _, record in records if isinstance(record, Lease) for each in record.entries}
                assert not leased & world.durable, f"{leased} leased, {world.durable} were durably acknowledged"

        def now() -> None:
            luck = world.rng.random() if world.faults else 1.0
            if luck < world.append_fails:
                world.troubles += 1
                answer.set_exception(AppendFailed("no"))
                return
            start = len(world.deliveries)
            world.deliveries += values
            if recalls:
                world.recalled_at = len(world.deliveries)
            if luck < 2 * world.append_fails:
                world.troubles += 1
                answer.set_exception(AppendOutcomeUnknown("perhaps"))
            else:
                answer.set_result(list(range(start, start + len(values))))

        self.answers.append(now)
        return answer

    def end(self, deadline: Deadline) -> int:
        return len(self.world.deliveries)

    def take_over(
        self, partition: int, record: TakeOver, since: int, deadline: Deadline
    ) -> tuple[int, list[Lease | Recall | Report]]:
        log = self.world.deliveries
        at = len(log)
        log.append((partition, encode(record)))
        self.at = at if self.at is None else self.at
        found = [decode(log[offset][1]) for offset in range(since, at)]
        return at, [each for each in found if isinstance(each, Lease | Recall | Report)]

    def group(self) -> Future[Collection[str]]:
        answer = Future[Collection[str]]()
        self.answers.append(lambda: answer.set_result(frozenset(self.world.group)))
        return answer

    def saved_version(self, partition: int) -> Future[int]:
        answer = Future[int]()
        self.answers.append(lambda: answer.set_result(world_version(self.world)))
        return answer

    def stop(self) -> None:
        self.hear = lambda records: None

    def step(self) -> None:
        if self.world.forgeries and self.world.forger.random() < 0.01:
            forged = TakeOver(LIFE, self.world.forger.randbytes(16), 2**40)
            self.world.deliveries.append((0, encode(forged)))
        if self.answers and self.world.rng.random() < 0.6:
            self.answers.pop(0)()
        log = self.world.deliveries
        if self.at is None:
            if self.world.rng.random() < 0.2:
                self.hear_from_here()
        elif self.at < len(log) and self.world.rng.random() < 0.7:
            upto = min(len(log), self.at + self.world.rng.randrange(1, 6))
            self.hear([(offset, *log[offset]) for offset in range(self.at, upto)])
            self.at = upto


class Letters:
    def __init__(self, world: World) -> None:
        self.world = world
        self.max_redeliver_count = world.most

    def take_refused(self, letter_topic: str, offset: int) -> bool:
        return False

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Callable[[Delivery], None]) -> None:
        world = self.world
        for letter in letters:
            offset = letter.offset
            # It counts, too, what was leased to a member that owns the partition before it has heard that.
            known = world.troubles or world.seeks or world.often_again or offset in world.received
            assert known, f"{offset} is dead, and nobody has received it"
            world.dead_letters.add(offset)
            world.acked.add(offset)
            world.out.add(offset)
            letter.feed.slot.ack(offset)


class Inbox(Endpoint):
    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        world = process.world
        letters = Letters(world) if world.letters else None
        self.run_end: int | None = None
        """Behind the last message that came since the inbox was emptied."""
        self.received: set[int] = set()
        self.hangs = False
        super().__init__(
            name,
            world.rng.randrange(1, 15),
            delivery_type=Delivery,
            rules=DeliveryRules(world.rng.choice((0, 0, 0, 1)), dead_letters=letters),
        )
        if world.ordered:
            self.keep_redelivery_order()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        world = self.process.world
        assert not self.emptied, f"{self.name} drains, and gets {[each.offset for each in deliveries]}"
        for delivery in deliveries:
            offset = delivery.offset
            if not self.process.out_of_group and not self.process.is_expelled():
                # After a seek, and on Failover, who had it before may acknowledge what is on its way to the next one:
                # see `Traffic.write`.
                for_one = world.kind is not SubscriptionType.FAILOVER and not world.seeks
                if for_one or self.process.owned:
                    assert offset not in world.durable, f"{offset} goes out after it was durably acknowledged"
                if self.process.knows_seeks():
                    said = offset in self.process.acked_by_leases and not self.process.owned
                    assert not said, f"{offset} to {self.name}, which has acknowledged it"
                    self._check_key_order(offset)
                    self._check_order(offset)
            self.run_end = offset + 1
            world.out.add(offset)
        super().deliver(deliveries)
        assert len(self.queue) <= self.capacity, f"{self.name} of {self.capacity} got {len(self.queue)}"

    def discard(self, slot: PartitionAcks | None) -> list[Delivery]:
        self.run_end = None
        return super().discard(slot)

    def _check_order(self, offset: int) -> None:
        """Failover: it begins with the first message that is not acknowledged, and leaves none out."""
        world = self.process.world
        if world.kind is SubscriptionType.FAILOVER:
            begin = 0 if self.run_end is None or offset < self.run_end else self.run_end
            missed = [other for other in range(begin, offset) if other not in world.acked]
            assert not missed, f"{offset} to {self.name} before {missed}"

    def _check_key_order(self, offset: int) -> None:
        world = self.process.world
        if world.kind is not SubscriptionType.KEY_SHARED:
            return
        if world.troubles == 0 and offset not in world.out:
            for lower in range(offset):
                out = key_of(lower) != key_of(offset) or lower in world.out or lower in world.acked_late
                assert out or (world.seeks and lower in world.acked), f"{offset} before {lower} of its key"
        self._check_first_deliveries(offset)
        for other, (holder, epoch) in world.holders.items():
            if key_of(other) == key_of(offset) and holder is not self and holder.process.holds_in(epoch):
                assert other in world.acked or holder.closed, f"{offset} to {self.name}, {holder.name} has {other}"

    def _check_first_deliveries(self, offset: int) -> None:
        """An owner's first deliveries climb within each key, also of what a former owner gave back or had refused."""
        process, world = self.process, self.process.world
        owned = process.owned.get(0)
        if owned is None or world.troubles or world.seeks:
            return
        if offset not in process.out_here:
            put_off = process.dispatcher._nacks.offsets(0)
            for lower in range(owned.cursor.next_unacked, offset):
                if key_of(lower) == key_of(offset) and lower not in process.out_here and lower not in world.acked:
                    assert lower in owned.holders or lower in put_off, f"{offset} before {lower} of its key, given back"
        process.out_here.add(offset)


class Membership:
    """Membership in Kafka's group: the dispatcher seeks there."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def seek(self, partition: int, offset: int) -> None:
        self.process.position = offset

    def watermarks(self, *_: object) -> tuple[int, int]:
        return 0, self.process.world.end


class Process:
    def __init__(self, world: World, client_id: str) -> None:
        self.world = world
        self.client_id = client_id
        self.alive = True
        self.paused = False
        self.owns_elsewhere = False
        self.out_of_group = False
        self.traffic = Traffic(world)
        self.traffic.may_lease = lambda: world.owner is not self or world.says_leased
        self.store = CursorStore(world.state_log)
        self.session = new_session()
        self.slot = PartitionAcks(TOPIC, 0, -1, LedgerLayout(1, 10))
        self.owned: dict[int, OwnedPartition] = {}
        self.consumers: list[Endpoint] = []
        handle = cast(
            "Any",
            type(
                "Handle",
                (),
                {
                    "type": world.kind,
                    "kafka_topic": "orders",
                    "incarnation": SAME_INCARNATION,
                    "buffer": None,
                    "policies": SubscriptionPolicies(),
                    "slot": lambda self_, number: self.slot,
                    "slots": lambda self_: [self.slot],
                },
            )(),
        )
        fake = cast("Any", world)
        self.position = 0
        self.out_here: set[int] = set()
        """What its consumers were handed since it took the partition over."""
        self.replaced_at: int | None = None
        """Where the log ended when another process took over what this one believes to own. What is written later it
        does not read: that it reserved it does not count, because it was not there."""
        lessee = Lessee(LIFE, client_id, self.consumers, in_order=world.kind is SubscriptionType.FAILOVER)
        self.dispatcher = Dispatcher(
            handle, fake, fake, cast("Any", Membership(self)), self.owned, self.consumers, lessee
        )
        most_heard = world.rng.choice((2, 5, 1000))
        terms = LeaseTerms(
            client_id, LIFE, self.traffic, world, no_transactions, max_received=most_heard, session=self.session
        )
        self.leasing = Leasing(
            handle, terms, world, self.dispatcher, lessee, self._seek, self.owned, self.consumers, lambda: None
        )
        self.drains = ConsumerDrains(
            world, self.dispatcher, lessee, self.owned, self.consumers, lambda: None,
            in_order=world.kind is SubscriptionType.FAILOVER,
        )  # fmt: skip
        for number in range(world.rng.randrange(1, 3)):
            self.dispatcher.attach(Inbox(self, f"{client_id}-{number}"))
        self.holds_seeks = 0
        """How many there had been when that save was made."""
        self.held: list[Delivery] = []
        self.acked_elsewhere: set[int] = set()
        """By its application, while it did not own the partition."""
        self.acked_by_leases: set[int] = set()
        """The same, of what was leased to it."""
        self.refused: set[int] = set()
        """By its application, and not received since."""
        self.wants_flush: tuple[int, set[int]] | None = None
        """The mark of what was told, and that."""

    def holds_in(self, epoch: int) -> bool:
        """What it got in this epoch is still its own, as far as others can know."""
        here = self.alive and not self.out_of_group and self.leasing.lessee.id.epoch == epoch
        return here and not self.is_expelled()

    def is_expelled(self) -> bool:
        """An owner wrote something to it of which nobody knows whether it is there, so it gave it up."""
        if not self.world.troubles:
            return False
        member, owner = self.leasing.lessee.id, self.world.owner
        if any(member in process.leasing.lessor._expelled for process in self.world.processes):
            return True
        leased = self.leasing.lessee.partitions.get(0)
        if owner is not self and leased is not None and leased.version < world_version(self.world):
            return True  # it came behind the TAKE_OVER, and got something of a former owner that does not know yet
        if owner is None or owner is self or not owner.owned or owner.owned[0].quiet:
            return False
        return member not in [known for known, _ in owner.leasing.lessor.members()]

    def _seek(self, number: int, offset: int) -> None:
        self.position = offset

    def step(self) -> None:
        if self.world.coordinator.broker.waiting and self.world.coordinator.rng.random() < 0.1:
            self.world.coordinator.broker.execute_one()
        if self.out_of_group and self.world.rng.random() < 0.2:
            self.lose_place()
            return
        if self.world.owner is self and not self.owned:
            self.take_over()
        chance = self.world.elsewhere.random()
        if chance < self.world.often_elsewhere:
            self.owns_elsewhere = not self.owns_elsewhere
        self.leasing.step(joined=bool(self.owned) or not self.owns_elsewhere)
        self.dispatcher.drain()
        if self.owned and not self.owned[0].quiet and self.world.owner is self:
            self.world.refusals.taken_in(self.owned[0])
        self.dispatcher.redelivery.redeliver_due()
        self.dispatcher.dispatch()
        rng = self.world.rng
        if self.owned:
            wanted = self.leasing.lessor.awaits_save or self.dispatcher.counting.requires_save()
            if wanted or rng.random() < 0.2:
                self.save()
            if rng.random() < 0.6:
                self.answer()
            self.read()
        self.application()
        if self.world.ordered:
            self.receive_more()
        self.end_drains()
        self.flush()

    def lose_place(self) -> None:
        """It hears that Kafka took it for dead, and comes again as another member."""
        self.alive = False
        self.traffic.stop()
        self.world.processes.remove(self)
        self.world.join()

    def take_over(self) -> None:
        world = self.world
        self._join()
        found = world.coordinator.recover(world.state_log, world, IDENTITY)
        save = self.store.take_over(IDENTITY, found, DEADLINE)
        saved = found.saved or SavedCursor(save.saved.lineage)
        try:
            self.member.commit({0: save.commit})
        except CommitOutcomeUnknown:
            return  # it tries again
        world.says_leased = found.state.leased_from is not None
        owned = OwnedPartition(self.slot, IDENTITY, found.state, saved)
        self.saver.accept({0: (owned, save)}, DEADLINE)
        nacked = self.leasing.hand_over.take_over(owned, DEADLINE)
        if world.unsaved_seek is not None:  # its owner did not live to save it
            world.acked |= world.unsaved_seek
            world.unsaved_seek = None
        if world.seeks:
            world.recalls, world.recalled_at = None, len(world.deliveries)
        told = () if world.losses else world.told_acknowledged()
        missed = [offset for offset in told if not owned.cursor.is_acknowledged(offset)]
        assert not missed, f"{missed} are acknowledged in the log, and {self.client_id} took over without that"
        self.owned[0] = owned
        self.out_here.clear()
        self.replaced_at = None
        for former in world.processes:
            if former is not self and former.replaced_at is None:
                former.replaced_at = world.end
        self.dispatcher.count_deliveries()
        self.leasing.hand_over.opened(owned, nacked)
        self.dispatcher.choose_active()
        self.position = owned.read_position

    def read(self) -> None:
        owned, world = self.owned[0], self.world
        end = world.end if self.replaced_at is None else self.replaced_at
        if self.position < end and world.rng.random() < 0.7:
            start, self.position = self.position, min(end, self.position + world.rng.randrange(1, 20))
            if not owned.quiet:
                offsets = list(range(start, self.position))
                owned.intake.accept(offsets, [Record(offset) for offset in offsets])

    def _join(self) -> None:
        """Become a member of the group in its next generation."""
        self.member = self.world.coordinator.join(lambda failure: self.saver.committed(failure))
        self.saver = CursorSaver(
            "audit", self.store, self.world, cast("Any", self.member), self.owned, SubscriptionMeter(), self._saved
        )

    def save(self) -> None:
        if self.saver.under_way:
            return
        self.saver.settle()
        self.holds_seeks = self.world.seeks
        self.saver.save_in_background()

    def answer(self) -> None:
        self.member.poll()

    def _saved(self, owned: OwnedPartition, save: Save) -> None:
        if not self.owned:
            return  # the save of the take-over
        if self.world.owner is self:  # a former one may hear late that its save was accepted
            self.world.says_leased = owned.saves.saved.leased_from is not None
        self.leasing.lessor.saved(owned)
        if self.world.unsaved_seek is not None and self.holds_seeks == self.world.seeks:
            troubles = self.world.troubles
            self.leasing.write_all()  # before an operator hears that it is done
            if self.world.troubles == troubles and not self.leasing._outbox:  # or its word may be lost with it
                self.world.unsaved_seek = None

    # The application ----------------------------------------------------------------------------------------------

    def application(self) -> None:
        rng, world = self.world.rng, self.world
        inbox = cast("Inbox", rng.choice([each for each in self.consumers if not each.is_remote]))
        for _ in range(rng.randrange(5)):
            received = None if inbox.hangs else inbox.take_now()
            if received is None:
                break
            self.receive(inbox, received)
        if world.asks_again.random() < world.often_again:
            self.redeliver_all(inbox)
        while (ready := self.in_working_hands()) and rng.random() < 0.6:
            delivery = self.held.pop(ready[rng.randrange(len(ready))])
            offset, endpoint = delivery.offset, cast("Inbox", delivery.feed.endpoint)
            mine = world.holders.get(offset, (None, 0))[0] is endpoint
            if mine:
                del world.holders[offset]
            if world.kind is SubscriptionType.FAILOVER and rng.random() < 0.3:
                self.acknowledge_up_to(delivery)
            elif (rng.random() < 0.85 or not world.refuses) and not world.is_poison(offset):
                world.acked.add(offset)
                if world.seeks and not mine:
                    world.acked_late.add(offset)
                delivery.feed.slot.ack(offset)
                self.acked_elsewhere.add(offset)
                if not self.owned:
                    self.acked_by_leases.add(offset)
            else:
                # Also of what somebody acknowledged: an owner that has not heard that counts it.
                world.refused[offset] += bool(mine or world.faults or world.seeks)
                self.refused.add(offset)
                if not mine:
                    world.refused_late.add(offset)
                world.refusals.note(endpoint, offset, mine=mine)
                delivery.feed.slot.nacks.append((world.now_s, rng.choice((0.0, 0.3, 3.0)), offset, endpoint))

    def receive_more(self) -> None:
        """At once, before the member hears of refusals."""
        for inbox in self.inboxes():
            received = None if inbox.hangs else inbox.take_now()
            if received is not None:
                self.receive(inbox, received)

    def inboxes(self) -> list[Inbox]:
        return [each for each in self.consumers if isinstance(each, Inbox)]

    def wake_up(self) -> None:
        self.paused = False
        for inbox in self.inboxes():
            inbox.hangs = False

    def in_working_hands(self) -> list[int]:
        """Places in `held` of what is some consumer's that does not hang."""
        return [at for at, each in enumerate(self.held) if not cast("Inbox", each.feed.endpoint).hangs]

    def redeliver_all(self, inbox: Inbox) -> None:
        """Of what it refused the count is raised once."""
        world, feed = self.world, inbox.feed(self.slot)
        has = self.owned[0] if self.owned else self.leasing.lessee.partitions.get(0)
        refused = {nack[2] for nack in self.slot.nacks}
        if self.owned:
            refused |= self.refused - {each.offset for each in inbox.queue}
        world.refused.update([] if has is None else set(has.in_flight.held_by(feed)) - refused)
        self.dispatcher.redelivery.redeliver_all(inbox)
        self.leasing.lessee.redeliver_all(inbox)
        world.holders = {o: held for o, held in world.holders.items() if held[0] is not inbox}
        self.held = [each for each in self.held if each.feed is not feed]

    def acknowledge_up_to(self, delivery: Delivery) -> None:
        """And everything before it."""
        world, offset = self.world, delivery.offset
        world.acked.update(range(offset + 1))
        delivery.feed.slot.cumulative.append(offset)
        self.held = [each for each in self.held if each.offset > offset]

    def receive(self, inbox: Inbox, delivery: Delivery) -> None:
        world, offset = self.world, delivery.offset
        world.received[offset] += 1
        self.refused.discard(offset)
        world.deliver_to_application(offset)
        world.refusals.check(inbox, offset)
        if world.kind is SubscriptionType.FAILOVER:
            assert delivery.redeliveries == 0
            # Whoever is not the active one any more never is again, unless others leave.
            calm = world.troubles == 0 and not (
                world.moves or world.seeks or world.refuses or world.often_again or world.often_drains
            )
            assert not calm or offset not in inbox.received, f"{offset} comes to {inbox.name} again"
            inbox.received.add(offset)
            self.held.append(delivery)
            return
        holder, epoch = world.holders.get(offset, (None, 0))
        if (
            world.troubles == 0
            and self.knows_seeks()
            and not self.waited(delivery)
            and offset not in world.refused_late
        ):
            assert offset not in world.acked - world.acked_late, f"{offset} was acknowledged, and comes to {inbox.name}"
            assert holder is None or holder.closed, f"{offset} is {holder.name}'s, and {inbox.name} received it"
        shared = self.knows_seeks() and not self.out_of_group and not self.waited(delivery)
        if holder is not None and holder is not inbox and shared:
            over = offset in world.acked or offset in world.refused_late
            fine = over or holder.closed or not holder.process.holds_in(epoch)
            assert fine, f"{offset} is {holder.name}'s, and {inbox.name} received it"
        moves = world.moves or world.hands_over or world.often_drains
        if world.troubles == 0 and not moves and not world.seeks and offset not in world.acked:
            assert delivery.redeliveries == world.refused[offset], f"{offset}: {delivery.redeliveries} redeliveries"
        assert delivery.redeliveries <= world.refused[offset], f"{offset}: {delivery.redeliveries} redeliveries"
        if self.knows_seeks():
            world.holders[offset] = (inbox, self.leasing.lessee.id.epoch)
        self.held.append(delivery)

    def knows_seeks(self) -> bool:
        """What it hands to consumers is not from before one."""
        return bool(self.owned) or self.leasing._inbox.applied_upto >= self.world.recalled_at

    def is_behind(self, *, in_order: bool) -> bool:
        """It may have messages that are others' by now."""
        if self.owned:
            return self.owned[0].quiet or self.world.owner is not self
        return self.is_expelled() or self.out_of_group or (in_order and self.traffic.is_behind)

    def waited(self, delivery: Delivery) -> bool:
        """It lay in the inbox, and is not this process's any more: nobody has told it yet."""
        if self.owned:
            return self.owned[0].quiet or self.world.owner is not self
        return self.is_expelled() or self.traffic.is_behind

    def flush(self) -> None:
        """A member that does not own the partition makes durable what it acknowledged."""
        lessee = self.leasing.lessee
        if self.owned:
            self.wants_flush = None
            lessee.save_required = False
            self.acked_elsewhere.clear()
        elif self.wants_flush is None and self.world.rng.random() < 0.05:
            lessee.drain([self.slot])
            self.wants_flush = lessee.mark(), set(self.acked_elsewhere)
            lessee.save_required = True
        elif self.wants_flush is not None and lessee.is_saved(self.wants_flush[0]):
            self.world.durable |= self.wants_flush[1]
            self.wants_flush = None
            lessee.save_required = False

    # What is done to it -------------------------------------------------------------------------------------------

    def seek(self) -> None:
        """An operator seeks; done when a save holds it."""
        owned, world = self.owned[0], self.world
        target = world.rng.randrange(world.end + 1)
        self.dispatcher.drain()
        heard_since = owned.saves.applied_since
        self.leasing.hand_over.about_to_seek(owned)
        self.dispatcher.seek(owned, target, None)
        self.position = owned.read_position
        # While it asks who holds what it recalls what they answer: nobody here knows when all have heard that.
        world.recalls, world.recalled_at = None if owned.quiet else self.traffic, 2**62
        world.is_sought(target, heard_since)

    def not_told(self, heard_since: int) -> set[int]:
        """What its application acknowledged, and no report in the log says for the last time: what an owner says not to
        have heard is told again, by who has not heard of a seek that comes behind that, too."""
        lessee, found = self.leasing.lessee, LeasedAcks()
        lessee._acks.add_unreported(0, lessee._unwritten, found)
        said = [decode(value) for _, value in self.world.deliveries]
        since = max((each.since for each in said if isinstance(each, SavedNotice)), default=0)
        since = max(since, heard_since)
        again = [each.acks for each in lessee._saves._unheard.values()]
        again += [told.acks[0] for told in lessee._saves._reports if told.first < since and 0 in told.acks]
        for each in again:
            found.add(each.whole, each.batches)
        return {*self.slot.acks, *found.whole, *range(max(self.slot.cumulative, default=-1) + 1)}

    def lose_partition(self) -> None:
        """Kafka gave it to somebody else, or will; it lives on, and what its application acknowledges counts."""
        owned = self.owned.pop(0)
        world = self.world
        world.losses += 1
        self.saver.forget()
        self.leasing.hand_over.giving_up(owned)
        self.dispatcher.forget(owned)
        self.leasing.gave_up(0)
        self.slot.forget_acknowledgements()
        self.holds_nothing()
        self.acked_elsewhere.clear()
        world.vacate()
        world.assign()

    def holds_nothing(self) -> None:
        """What its application has comes to others, as far as those can know."""
        world = self.world
        world.holders = {o: held for o, held in world.holders.items() if held[0].process is not self}

    def hand_over(self) -> None:
        """Kafka's group gives it to somebody else, in good order; what its application holds stays with it."""
        world = self.world
        self.dispatcher.drain()
        self.leasing.hand_over.keep_what_is_out([0])
        self.retire()
        owned = self.owned.pop(0)
        if world.troubles and not owned.stays_out:  # nobody could be told: it comes again elsewhere
            self.holds_nothing()
        self.saver.forget()
        self.leasing.hand_over.giving_up(owned)
        self.dispatcher.forget(owned)
        self.leasing.gave_up(0)
        if world.owner is self:
            world.vacate()
            world.assign()

    def retire(self) -> None:
        """Save the partition for its next owner."""
        self.dispatcher.counting.retire([0], orderly=True)
        self.leasing.hand_over.retire()
        while self.saver.under_way or self.saver.is_unsettled or self.owned[0].saves.dirty:
            self.answer()
            if self.world.owner is not self:
                break
            self.save()

    # Ends ---------------------------------------------------------------------------------------------------------

    def close_one(self) -> None:
        """One of several consumers is closed."""
        own = [each for each in self.consumers if not each.is_remote]
        if len(own) < 2:
            return
        gone = self.world.rng.choice(own)
        self.dispatcher.drain()
        self.leasing.detach(gone)
        self.dispatcher.detach(gone)
        self.forget_held_by(gone)

    def drain_one(self) -> None:
        """A consumer takes no more; another one comes in its place at once."""
        inbox = self.world.drains.choice(self.inboxes())
        if inbox.draining:
            return
        inbox.begin_draining()
        if self.world.drains.random() < 0.5:  # its application receives until the member looks
            for _ in range(min(2, len(inbox.queue))):
                self.receive(inbox, inbox.queue.popleft())
        self.drains.begin(inbox)
        if all(each.draining for each in self.inboxes()):
            self.dispatcher.attach(Inbox(self, f"{inbox.name}+"))

    def end_drains(self) -> None:
        """Consumers that are done leave, and sometimes others, whose time is up."""
        world = self.world
        for inbox in [each for each in self.inboxes() if each.draining]:
            done = not self.drains.unsettled(inbox)
            if not done and world.drains.random() > 0.002:
                continue
            held = [offset for offset, (holder, _) in world.holders.items() if holder is inbox]
            calm = not world.troubles and not world.seeks and not world.often_again
            assert not done or not calm or not held, f"{inbox.name} is drained, and has {held}"
            if len(self.inboxes()) == 1:  # a process has a consumer as long as it is a member
                self.dispatcher.attach(Inbox(self, f"{self.client_id}-+"))
            self.dispatcher.drain()
            self.leasing.detach(inbox)
            self.dispatcher.detach(inbox)
            self.forget_held_by(inbox)

    def forget_held_by(self, gone: Endpoint) -> None:
        """It was closed in good order: what it held is not delivered by that."""
        self.world.delivered.subtract(each.offset for each in self.held if each.feed.endpoint is gone)
        self.held = [each for each in self.held if each.feed.endpoint is not gone]

    def leave(self) -> None:
        """In good order."""
        for endpoint in [each for each in self.consumers if not each.is_remote]:
            self.dispatcher.drain()
            self.leasing.detach(endpoint)
            self.dispatcher.detach(endpoint)
            self.forget_held_by(endpoint)
        if self.owned:
            self.retire()
            self.owned.clear()
            self.leasing.gave_up(0)
        self.leasing.lessee.requesting = False
        for _ in range(100):
            self.leasing.send()
            self.traffic.step()
        self.alive = False
        self.traffic.stop()
        self.world.processes.remove(self)
        self.world.forget(self)
