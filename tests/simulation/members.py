"""One subscription member on a virtual clock: the real `MemberServing`, a group, logs and applications in memory.

The driver waits as `PollingDriver` does, and time passes only while it waits. At random times it makes a step that
nothing caused. Whatever that step does must have been due soon: a member that sleeps on is late. Applications also act
in the middle of a step, as threads do.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import inf
from types import SimpleNamespace
from typing import Any, Final, cast

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.commands import CommandQueue
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.meters import SubscriptionMeter
from pulsar_on_kafka.broker.cursor.identity import CursorIdentity
from pulsar_on_kafka.broker.cursor.store import CursorStore
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import SubscriptionType
from pulsar_on_kafka.broker.subscriptions.dispatching.subscription_policies import SubscriptionPolicies
from pulsar_on_kafka.broker.subscriptions.member.next_step import NextStep
from pulsar_on_kafka.broker.subscriptions.member.ownership import MemberServices
from pulsar_on_kafka.broker.subscriptions.member.serving import MemberServing
from pulsar_on_kafka.broker.subscriptions.partition.owned_partition import OwnedPartition
from pulsar_on_kafka.broker.subscriptions.records.ack_timeouts import AckTimeouts
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Delivery, DeliveryRules, Endpoint, PartitionAcks
from pulsar_on_kafka.client.values.message import BatchedMessage, ReceivedMessage
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks
from pulsar_on_kafka.kafka.reading.events import Event, KafkaPartition, OutOfRange, Records
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from tests.clocks import SetClock
from tests.memory_log import MemoryStateLog
from tests.same_incarnation import SAME_INCARNATION
from tests.unit.broker.subscriptions.dispatching.served import TOPIC, Letters, Record

SAVE_INTERVAL_S: Final = 1.0
_START_S: Final = 1000.0
_UNREAD_POLL_S: Final = 0.1
_REPLY_POLL_S: Final = 0.02

_SOON_S: Final = 0.0205
"""The timer's shortest time between two steps without room, and what a step takes."""
_CHECK_S: Final = 1.001
"""Its longest time while messages wait: for an inbox that is more than half full."""
_IDLE_WINDOW_S: Final = 0.02
_IDLE_STEPS: Final = 6
"""Steps in this time that nothing causes and that change nothing."""
_SUSPECT_STEPS: Final = 24
"""The same while suspects wait for each other, where the member looks each millisecond."""
_UNREAD_LIMIT_S: Final = 1.5
"""The time until records are read for a consumer with room."""
_CALM_LIMIT_S: Final = 200.0
"""The time in which all messages are acknowledged and saved, after faults end and consumers recover."""


class Timeline:
    """Actions at times of the virtual clock. Those of applications may come in the middle of a step."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, bool, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Callable[[], None], *, thread: bool = False) -> None:
        """`thread`: of an application's thread."""
        heapq.heappush(self._waiting, (self._clock.seconds + seconds, next(self._numbers), thread, action))

    def next_s(self) -> float:
        return self._waiting[0][0] if self._waiting else inf

    def move_to(self, time_s: float) -> None:
        """Move the clock to the next action, or to this time if it comes first."""
        self._clock.seconds = max(self._clock.seconds, min(time_s, self.next_s()))
        while self._waiting and self._waiting[0][0] <= self._clock.seconds:
            heapq.heappop(self._waiting)[3]()

    def run_early(self) -> None:
        """Run the next action, if it is an application's and is due soon."""
        if self._waiting and self._waiting[0][2] and self._waiting[0][0] < self._clock.seconds + 0.05:
            heapq.heappop(self._waiting)[3]()


class Acks(PartitionAcks):
    """Applications may acknowledge just before and after the member watches."""

    __slots__ = ("amid",)

    def __init__(self, number: int, amid: Callable[[], None]) -> None:
        super().__init__(TOPIC, number, number, LedgerLayout(1, 10))
        self.amid = amid

    def watch(self, wake: Callable[[], None]) -> None:
        self.amid()
        super().watch(wake)
        self.amid()


class Inbox(Endpoint):
    """Reports deliveries, and whether the inbox was at most half full before."""

    def __init__(self, world: MemberWorld, name: str, capacity: int, rules: DeliveryRules) -> None:
        super().__init__(name, capacity, delivery_type=ReceivedMessage, rules=rules)
        self._world = world
        self.waited = False
        """A receiver of an inbox without capacity waits."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            low = len(self.queue) <= self.capacity // 2
            self._world.effect("delivered", within_s=_SOON_S if low else _CHECK_S, what=f"to {self.name}")
        super().deliver(deliveries)

    def watch(self, left: int | None = None) -> None:
        self._world.amid()
        super().watch(left)
        self._world.amid()


class PlayedLetters(Letters):
    def __init__(self, world: MemberWorld, most: int) -> None:
        super().__init__(most)
        self._world = world

    def publish_dead_letters(self, letters: Sequence[Delivery], kept: Callable[[Delivery], None]) -> None:
        self._world.effect("dead letters", within_s=_SOON_S)
        self.fails = self._world.fails(0.2)
        super().publish_dead_letters(letters, kept)


class PlayedGroup:
    """The membership, as `GroupMembership` has it, and the group's coordinator. Callbacks come by `poll`."""

    def __init__(self, world: MemberWorld, callbacks: GroupCallbacks) -> None:
        self._world = world
        self._callbacks = callbacks
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._ready_s: dict[int, float] = {}
        self._known: dict[int, int] = {}
        self._refused: set[int] = set()
        self._calls: deque[Callable[[], None]] = deque()
        self.commits: dict[int, CommittedOffset] = {}
        self._sent: dict[int, CommittedOffset] | None = None

    @property
    def awaits_reply(self) -> bool:
        return self._sent is not None

    @property
    def notices_deletion(self) -> bool:
        return False

    # The coordinator ----------------------------------------------------------------------------------------------

    def assign(self, partitions: Collection[int]) -> None:
        self._calls.append(lambda: self._assign([number for number in partitions if number not in self._positions]))

    def _assign(self, partitions: list[int]) -> None:
        starts = self._callbacks.assigned(partitions)
        for number, offset in starts.items():
            self._positions[number] = offset
            self._fetch_after(number)
            if not self._callbacks.begins(number):
                self._paused.add(number)

    def take_away(self, partitions: Collection[int], *, lost: bool) -> None:
        self._calls.append(lambda: self._take_away([n for n in partitions if n in self._positions], lost=lost))

    def _take_away(self, partitions: list[int], *, lost: bool) -> None:
        (self._callbacks.lost if lost else self._callbacks.revoked)(partitions)
        for number in partitions:
            del self._positions[number]
            self._paused.discard(number)
            self._refused.discard(number)
            self._known.pop(number, None)

    # The driver ---------------------------------------------------------------------------------------------------

    def poll(self, limit: int) -> list[Event]:
        """The events that are there by now; callbacks run in here."""
        self._call_back()
        events: list[Event] = []
        now_s = self._world.clock.seconds
        for number in self._world.shuffled(self._positions):
            position, log = self._positions[number], self._world.logs[number]
            if limit <= 0 or number in self._paused | self._refused or self._ready_s[number] > now_s:
                continue
            if self._world.is_down(number):
                continue
            where = KafkaPartition("orders", number)
            if position < self._world.begins[number]:
                self._refused.add(number)
                events.append(OutOfRange(where, errors.OffsetOutOfRange("simulated"), position))
                continue
            self._known[number] = len(log)
            run: list[Any] = list(islice((record for record in log[position:] if record is not None), limit))
            if run:
                self._positions[number] = run[-1].offset() + 1
                events.append(Records(where, run))
                limit -= len(run)
        return events

    def has_unread(self, partition: int) -> bool:
        """Whether records of a partition could be fetched, if it is not paused."""
        position, log = self._positions.get(partition, 0), self._world.logs[partition]
        if partition not in self._positions or partition in self._refused or self._world.is_down(partition):
            return False
        ready = self._ready_s[partition] <= self._world.clock.seconds and position >= self._world.begins[partition]
        return ready and any(record is not None for record in log[position:])

    def _call_back(self) -> None:
        while self._calls:
            self._world.cause()
            self._calls.popleft()()

    def _fetch_after(self, partition: int) -> None:
        delay_s = self._world.rng.choice((0.0, 0.002, 0.05))
        self._ready_s[partition] = self._world.clock.seconds + delay_s
        self._world.timeline.after(delay_s, self._world.cause)

    # `GroupMembership` --------------------------------------------------------------------------------------------

    def known_end(self, partition: int) -> int:
        return self._known.get(partition, -1)

    def watermarks(self, partition: int, timeout_s: float) -> tuple[int, int]:
        if self._world.is_down(partition) or self._world.fails(0.2):
            raise errors.StoreError("no broker answers")
        return self._world.begins[partition], len(self._world.logs[partition])

    def seek(self, partition: int, offset: int) -> None:
        if partition in self._positions:
            self._world.effect("sought", within_s=_SOON_S)
            self._positions[partition] = offset
            self._refused.discard(partition)
            self._fetch_after(partition)

    def pause(self, partitions: Sequence[int]) -> None:
        self._paused.update(partitions)

    def resume(self, partitions: Sequence[int]) -> None:
        if self._paused.intersection(partitions):
            self._world.resumed()
        self._paused.difference_update(partitions)
        for number in partitions:
            self._fetch_after(number)

    def committed(self, partitions: Sequence[int], timeout_s: float) -> dict[int, CommittedOffset]:
        if self._world.fails(0.2):
            raise errors.StoreError("no coordinator answers")
        return {number: self.commits[number] for number in partitions if number in self.commits}

    def commit(self, commits: Mapping[int, CommittedOffset]) -> None:
        self._world.effect("saved", within_s=_SOON_S)
        failure = self._outcome(commits)
        if failure is not None:
            raise failure

    def commit_async(self, commits: Mapping[int, CommittedOffset]) -> None:
        self._world.effect("saved", within_s=_SOON_S)
        if self._world.fails(0.1):
            raise errors.StoreError("it could not be sent")
        self._sent = sent = dict(commits)
        delay_s = self._world.rng.choice((0.001, 0.01, 0.002 if self._world.calm else 0.3))
        self._world.timeline.after(delay_s, lambda: self._calls.append(lambda: self._reply(sent)))

    def _reply(self, commits: Mapping[int, CommittedOffset]) -> None:
        outcome = self._outcome(commits)
        if commits is self._sent:  # not of one that the member has forgotten with a lost partition
            self._sent = None
            self._callbacks.committed(outcome)

    def _outcome(self, commits: Mapping[int, CommittedOffset]) -> errors.LayerError | None:
        if self._world.fails(0.05):
            return errors.Fenced("a rebalance")
        if self._world.fails(0.05):
            return errors.StoreError("refused")
        unknown = self._world.fails(0.1)
        if not unknown or self._world.rng.random() < 0.5:
            self.commits.update(commits)
        return errors.CommitOutcomeUnknown("no reply") if unknown else None

    def is_exposed(self, partition: int) -> bool:
        return self._world.fails(0.1)

    def yield_partitions(self) -> None:
        """The world moves partitions by itself."""

    def serve_group(self, timeout_s: float) -> None:
        self._world.timeline.move_to(self._world.clock.seconds + timeout_s)
        self._call_back()

    def close(self) -> None:
        self._positions.clear()


class Application:
    """One consumer: receives, holds, and acknowledges in its own ways; hangs, closes, and recovers in the end."""

    def __init__(self, world: MemberWorld, name: str) -> None:
        self.world = world
        rng = world.rng
        shared = world.kind.is_shared
        timeouts = AckTimeouts(rng.choice((0.5, 2.0))) if rng.random() < world.often_timed else None
        letters = PlayedLetters(world, rng.randrange(1, 4)) if shared and world.letters and rng.random() < 0.8 else None
        rules = DeliveryRules(
            priority=rng.randrange(2) if rng.random() < 0.2 else 0,
            max_unacked=rng.choice((3, 50, 50_000)) if shared else 50_000,
            ack_timeouts=timeouts,
            dead_letters=letters,
        )
        self.inbox = Inbox(world, name, rng.choice(world.capacities), rules)
        self.inbox.wake_member = world.commands.wake
        self.held: list[Delivery] = []
        self.received_s: dict[tuple[int, int], float] = {}
        """The last receipt of each message, by partition and offset."""
        self.pace_s = rng.choice((0.002, 0.01, 0.1))
        self.holds = rng.choice((0.0, 0.3, 1.0))
        self.refuses = rng.choice((0.0, 0.2, 0.6))
        self.hangs = rng.choice((0.0, 0.02, 0.2))
        world.commands.run(lambda: world.serving.dispatcher.attach(self.inbox))
        self._later(self._receive)

    def _later(self, action: Callable[[], None], seconds: float | None = None) -> None:
        wait_s = self.world.rng.expovariate(1 / self.pace_s) if seconds is None else seconds
        self.world.timeline.after(wait_s, action, thread=True)

    def _receive(self) -> None:
        world, rng, inbox = self.world, self.world.rng, self.inbox
        if inbox.closed:
            return
        world.cause()
        if not world.calm and rng.random() < self.hangs:
            self._later(self._receive, rng.choice((0.1, 1.5, 4.0)))
            return
        for _ in range(1 if rng.random() < 0.5 else rng.randrange(1, 30)):
            message = inbox.take_now()
            if message is None:
                if inbox.capacity == 0 and not inbox.waited:
                    inbox.waited = True
                    inbox.expect(1)
                break
            if inbox.waited:
                inbox.waited = False
                inbox.expect(-1)
            self._take(message)
        if world.calm or rng.random() < 0.5:
            self._finish_some()
        self._later(self._receive)

    def _take(self, message: Delivery) -> None:
        self.received_s[message.feed.slot.number, message.offset] = self.world.clock.seconds
        self.held.append(message)
        if self.world.calm or self.world.rng.random() >= self.holds:
            self._finish_some()

    def _finish_some(self) -> None:
        rng = self.world.rng
        if self.world.calm:
            while self.held:
                self._acknowledge(self.held.pop())
            return
        for _ in range(rng.randrange(4)):
            if not self.held:
                return
            message = self.held.pop(rng.randrange(len(self.held)))
            draw = rng.random()
            if draw < self.refuses:
                self._refuse(message, rng.choice((0.0, 0.02, 0.5, 3.0)))
            elif draw < self.refuses + 0.05 and not self.world.kind.is_shared:
                message.feed.slot.ack_upto(message.offset)
            else:
                self._acknowledge(message)

    def late(self, timeout_s: float) -> list[int]:
        """Messages that this consumer received, did not refuse, and holds beyond its ack timeout."""
        now_s, held = self.world.clock.seconds, {(each.feed.slot.number, each.offset) for each in self.held}
        held -= {(each.feed.slot.number, each.offset) for each in self.inbox.queue}
        held = {place for place in held if place[1] not in self.world.serving.dispatcher._nacks.offsets(place[0])}
        found: list[int] = []
        for number, offset in held:
            owned = self.world.owned.get(number)
            feed = None if owned is None else owned.holders.get(offset)
            old = now_s - self.received_s[number, offset] > 1.3 * timeout_s + _SOON_S
            if old and feed is not None and feed.endpoint is self.inbox:
                found.append(offset)
        return found

    def acknowledge_one(self) -> None:
        if self.held and not self.inbox.closed:
            self.world.cause()
            self._acknowledge(self.held.pop())

    def _acknowledge(self, message: Delivery) -> None:
        if isinstance(message, BatchedMessage):
            message.feed.slot.ack_in_batch((message.offset, message.batch_index, message.entry.size))
        else:
            message.feed.slot.ack(message.offset)

    def _refuse(self, message: Delivery, delay_s: float) -> None:
        slot, now_s = message.feed.slot, self.world.clock.seconds
        if isinstance(message, BatchedMessage) and self.world.kind.is_shared:
            place = message.batch_index, message.entry.size
            slot.nacks_in_batch.append((now_s, delay_s, message.offset, self.inbox, *place))
        else:
            slot.nacks.append((now_s, delay_s, message.offset, self.inbox))
        self.world.commands.wake()

    def close(self) -> None:
        self.world.commands.run(lambda: self.world.serving.detach(self.inbox))

    def redeliver(self) -> None:
        self.world.commands.run(lambda: self.world.serving.redeliver_all(self.inbox))


@dataclass(slots=True)
class _Effect:
    kind: str
    within_s: float
    """The step is due at most this long after it could have had the effect."""


class MemberWorld:
    """One history: Kafka, the clock, the member and its driver."""

    def __init__(self, seed: int, kind: SubscriptionType) -> None:
        self.seed = seed
        self.kind = kind
        self.rng = rng = random.Random(f"{kind} {seed}")
        self.clock = SetClock(_START_S)
        self.timeline = Timeline(self.clock)
        partitions = rng.choice((1, 1, 2, 3))
        self.logs: list[list[Record | None]] = [[] for _ in range(partitions)]
        self.begins = [0] * partitions
        self.down_until_s = [0.0] * partitions
        self.calm = False
        self._often_amid = rng.choice((0.0, 0.05, 0.5))
        """How often an application acts at a given point of a step."""
        self._amid = False
        self.faults = rng.choice((False, True, True))
        self.letters = kind.is_shared and rng.random() < 0.3
        self.often_timed = rng.choice((0.0, 0.0, 0.5))
        self.often_delayed = rng.choice((0.0, 0.0, 0.3)) if kind.is_shared else 0.0
        self.often_batched = rng.choice((0.0, 0.3, 0.6))
        self.capacities = rng.choice(((10,), (1, 4, 1000), (0, 2), (1,)))
        self.probes = rng.choice((0.0, 0.1, 0.4))
        """The share of waits in which a step comes that nothing caused."""
        self.steps = 0
        self._next: tuple[Sequence[Event], float | None] = (), None
        self.probed: dict[str, int] = {}
        self._effects: list[_Effect] = []
        self._causes = self._causes_before = 0
        self._unread_since_s = _START_S
        self._idle: deque[float] = deque()
        self._most_idle = _IDLE_STEPS
        self.commands = CommandQueue()
        self.slots = [Acks(number, self.amid) for number in range(partitions)]
        self.owned: dict[int, OwnedPartition] = {}
        self.applications: list[Application] = []
        self._names = count()
        self.meter = SubscriptionMeter()
        self.group: PlayedGroup
        store = CursorStore(MemoryStateLog(self.clock))
        services = MemberServices(
            store, cast("Any", self), self.clock, cast("Any", _NoTransactions()), None, SAVE_INTERVAL_S
        )
        self.serving = MemberServing(
            cast("Any", self._handle()), services, self._open, self.commands, self.owned, [], threading.Event()
        )

    def _handle(self) -> object:
        return SimpleNamespace(
            topic=TOPIC, subscription="audit", kafka_topic="orders", type=self.kind, partition=None, transient=False,
            incarnation=SAME_INCARNATION, buffer=None, meter=self.meter, policies=SubscriptionPolicies(),
            local_peers=None,
            slot=self.slots.__getitem__, slots=self._watched_slots, identity=self._identity,
            start_offset=lambda partition: 0, floor=lambda partition: 0, elsewhere=lambda *_: None,
            committed=lambda partitions, deadline: self.group.committed(partitions, 1.0),
            checkpoint=lambda *_: None, verify=lambda deadline: None, fences=lambda *_: (),
            compacted=lambda partition: None, acknowledged_elsewhere=lambda partition: None, ended=lambda: None,
        )  # fmt: skip

    def _watched_slots(self) -> Sequence[PartitionAcks]:
        self.amid()
        return self.slots

    def _identity(self, partition: int) -> CursorIdentity:
        return CursorIdentity(TOPIC, partition, "audit", "orders", "t" * 22, 1, 2, 10)

    def _open(self, callbacks: GroupCallbacks) -> Any:
        self.group = PlayedGroup(self, callbacks)
        return self.group

    # What parts of the world report -------------------------------------------------------------------------------

    def is_down(self, partition: int) -> bool:
        return not self.calm and self.clock.seconds < self.down_until_s[partition]

    def fails(self, chance: float) -> bool:
        return self.faults and not self.calm and self.rng.random() < chance

    def shuffled(self, numbers: Collection[int]) -> list[int]:
        return self.rng.sample(sorted(numbers), len(numbers))

    def amid(self) -> None:
        """An application acts in the middle of a step, now and then."""
        if self._amid or self.rng.random() >= self._often_amid:
            return
        self._amid = True
        try:
            if self.applications and self.rng.random() < 0.5:
                self.rng.choice(self.applications).acknowledge_one()
            else:
                self.timeline.run_early()
        finally:
            self._amid = False

    def cause(self) -> None:
        """Something happened by which the member may have to do."""
        self._causes += 1

    def effect(self, kind: str, *, within_s: float, what: str = "") -> None:
        self._effects.append(_Effect(f"{kind} {what}".strip(), within_s))

    def resumed(self) -> None:
        active = {owned.active.endpoint for owned in self.owned.values() if owned.active is not None}
        inboxes = active or {each.inbox for each in self.applications}
        low = any(inbox.permits() > 0 and len(inbox.queue) <= inbox.capacity // 2 for inbox in inboxes)
        self.effect("resumed", within_s=_SOON_S if low else inf)

    # The fetcher of records that are read again -------------------------------------------------------------------

    def read_at(self, topic: str, partition: int, offsets: Sequence[int], deadline: Deadline) -> Iterator[list[Record]]:
        self.cause()
        if self.is_down(partition) or self.fails(0.1):
            raise errors.StoreError("no broker answers")
        if offsets[0] < self.begins[partition]:
            raise errors.OffsetOutOfRange("deleted")
        log = self.logs[partition]
        found = [record for offset in offsets if offset < len(log) and (record := log[offset]) is not None]
        if found:
            yield found
        if offsets[-1] >= len(log):
            self.clock.seconds += 2.0
            raise errors.DeadlineExceeded("the log ends before that")

    def log_start(self, topic: str, partition: int, deadline: Deadline) -> int:
        if self.is_down(partition) or self.fails(0.2):
            raise errors.StoreError("no broker answers")
        return self.begins[partition]

    # What happens to the member -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history. Raises AssertionError: the member was late, spun, or left messages or saves."""
        active_s = self.rng.choice((2.0, 6.0))
        self.group.assign(range(len(self.logs)))
        for _ in range(self.rng.randrange(1, 4) if self.kind is not SubscriptionType.EXCLUSIVE else 1):
            self._join()
        for _ in range(self.rng.randrange(2, 20)):
            self.timeline.after(self.rng.uniform(0, active_s), self._publish)
        for action, most in (
            (self._rebalance, 4), (self._delete, 2), (self._replace, 4), (self._flush, 3), (self._redeliver, 2),
            (self._stop_leader, 4),
        ):  # fmt: skip
            for _ in range(self.rng.randrange(most)):
                self.timeline.after(self.rng.uniform(0.1, active_s), action)
        self.timeline.after(active_s, self._calm_down)
        self._drive(lambda: self.calm, inf)
        self._finishes()
        self._drive(lambda: False, self.clock.seconds + 3 * SAVE_INTERVAL_S)
        self._publish()  # to a member that rests
        self._finishes()
        self._rests()

    def _finishes(self) -> None:
        self._drive(self._all_done, self.clock.seconds + _CALM_LIMIT_S)
        assert self._all_done(), f"{self}: {self._left()} after {_CALM_LIMIT_S:.0f} s"

    def __str__(self) -> str:
        return f"{self.kind.value} seed {self.seed} at {self.clock.seconds - _START_S:.4f} s"

    def _join(self) -> None:
        self.applications.append(Application(self, f"c{next(self._names)}"))

    def _publish(self) -> None:
        self.cause()
        if not any(map(self.group.has_unread, self.owned)):
            self._unread_since_s = self.clock.seconds
        rng, number = self.rng, self.rng.randrange(len(self.logs))
        log = self.logs[number]
        for _ in range(rng.randrange(1, rng.choice((2, 10 if self.letters else 40)))):
            due_ms = None
            if rng.random() < self.often_delayed:
                due_ms = self.clock.now_ms() + rng.randrange(4000)
            batch = rng.randrange(2, 5) if due_ms is None and rng.random() < self.often_batched else 0
            record = Record(b"key %d" % rng.randrange(5), batch=batch, deliver_at_ms=due_ms)
            record.at = len(log)
            log.append(record if rng.random() < 0.97 else None)
        if log[-1] is None:  # a compacted log ends with a record
            record.at = len(log) - 1
            log[-1] = record

    def _rebalance(self) -> None:
        if self.calm:
            return
        taken = [number for number in range(len(self.logs)) if self.rng.random() < 0.6]
        self.group.take_away(taken, lost=self.rng.random() < 0.4)
        self.timeline.after(self.rng.choice((0.0, 0.1, 1.0)), lambda: self.group.assign(range(len(self.logs))))

    def _stop_leader(self) -> None:
        """A partition's leader does not answer for some time."""
        if self.faults:
            number, seconds = self.rng.randrange(len(self.logs)), self.rng.choice((0.5, 4.0))
            self.down_until_s[number] = self.clock.seconds + seconds
            self.timeline.after(seconds, self.cause)

    def _delete(self) -> None:
        """Retention deletes the beginning of a log."""
        number = self.rng.randrange(len(self.logs))
        begin = self.rng.randrange(self.begins[number], len(self.logs[number]) + 1)
        self.begins[number] = begin
        self.logs[number][:begin] = [None] * begin

    def _replace(self) -> None:
        if self.calm or self.kind is SubscriptionType.EXCLUSIVE:
            return
        self.cause()
        if len(self.applications) > 1 and self.rng.random() < 0.6:
            self.applications.pop(self.rng.randrange(len(self.applications))).close()
        else:
            self._join()

    def _flush(self) -> None:
        self.cause()
        self.commands.run(self.serving.save)

    def _redeliver(self) -> None:
        self.cause()
        self.rng.choice(self.applications).redeliver()

    def _calm_down(self) -> None:
        self.calm = True
        for each in self.applications:
            each.pace_s, each.hangs = 0.01, 0.0
        self.group.assign(range(len(self.logs)))

    def _left(self) -> dict[int, object]:
        """By partition: its first unacknowledged entry and the log's end, or that it is not saved or not owned."""
        found: dict[int, object] = {}
        for number, log in enumerate(self.logs):
            owned = self.owned.get(number)
            if owned is None:
                found[number] = "not owned"
            elif owned.next_unacked < len(log):
                found[number] = owned.next_unacked, len(log), owned.intake.stopped
            elif owned.saves.dirty:
                found[number] = "not saved"
        return found

    def _all_done(self) -> bool:
        return not self._left() and not self.group.awaits_reply

    def _rests(self) -> None:
        """An idle member makes few steps."""
        self.probes = 0.0
        begun_s, begun = self.clock.seconds, self.steps
        for each in self.applications:
            each.pace_s = 1e6
        self._drive(lambda: False, begun_s + 1.0 + SAVE_INTERVAL_S)
        begun_s, begun = self.clock.seconds, self.steps
        self._drive(lambda: False, begun_s + 100.0)
        counts = any(owned.guard is not None for owned in self.owned.values())
        few = 110 if counts or self.serving.ownership.has_periodic_work else 10
        assert self.steps - begun <= few, f"{self}: {self.steps - begun} steps in 100 s without work"

    # The driver ---------------------------------------------------------------------------------------------------

    def _drive(self, over: Callable[[], bool], until_s: float) -> None:
        while not over() and self.clock.seconds < until_s:
            following = self._step(*self._next)
            self._next = self._wait(following, until_s)

    def _step(self, events: Sequence[Event], probe_due_s: float | None) -> NextStep:
        caused, was_idle = self._causes, not events
        self._effects.clear()
        redelivered = self.meter.redelivered
        acked = any(slot.has_acknowledgements() for n, slot in enumerate(self.slots) if n in self.owned)
        self.steps += 1
        self._see_timeouts()
        self.amid()
        suspects = self.serving.dispatcher.counting.has_suspects
        following = self.serving.step(events)
        if self.meter.redelivered > redelivered:
            self.effect("redelivered", within_s=_SOON_S)
        if acked:
            self.effect("acknowledged", within_s=SAVE_INTERVAL_S + 0.001)
        now_s = self.clock.seconds
        if probe_due_s is not None and caused == self._causes:
            for effect in self._effects:
                self.probed[effect.kind.split()[0]] = self.probed.get(effect.kind.split()[0], 0) + 1
                late_s = probe_due_s - now_s
                assert late_s <= effect.within_s, f"{self}: {effect.kind} {late_s:.3f} s before the step's due time"
        if probe_due_s is None:
            idle = was_idle and not self._effects and caused == self._causes_before
            self._see_spin(now_s, idle=idle, most=_SUSPECT_STEPS if suspects else _IDLE_STEPS)
        self._causes_before = self._causes
        self._see_unread(now_s)
        self.clock.seconds += self.rng.choice((0.00002, 0.0002))
        return following

    def _see_spin(self, now_s: float, *, idle: bool, most: int) -> None:
        if not idle or most != self._most_idle:
            self._most_idle = most
            self._idle.clear()
            return
        self._idle.append(now_s)
        while self._idle[0] < now_s - _IDLE_WINDOW_S:
            self._idle.popleft()
        assert len(self._idle) <= most, f"{self}: {len(self._idle)} idle steps in {_IDLE_WINDOW_S} s"

    def _see_timeouts(self) -> None:
        for each in self.applications:
            timeouts = each.inbox.ack_timeouts
            late = [] if timeouts is None or self.often_batched else each.late(timeouts._timeout_s)
            assert not late, f"{self}: {each.inbox.name} holds {late} beyond its ack timeout"

    def _see_unread(self, now_s: float) -> None:
        """A Shared consumer with room gets messages of every partition that can be read."""
        if self.kind is not SubscriptionType.SHARED or self.letters:
            return
        low = any(a.inbox.shared_permits() > 0 and a.inbox.has_room_again() for a in self.applications)
        if not low or not any(map(self.group.has_unread, self.owned)):
            self._unread_since_s = now_s
        late_s = now_s - self._unread_since_s
        assert late_s <= _UNREAD_LIMIT_S, f"{self}: a consumer with room waited {late_s:.1f} s for records"

    def _wait(self, following: NextStep, until_s: float) -> tuple[Sequence[Event], float | None]:
        """Wait as `PollingDriver`; returns the events, and the due time if the step comes before it without a cause."""
        clock, due_s = self.clock, following.due_s
        probe_s = inf
        if self.rng.random() < self.probes:
            wait_s = min(due_s - clock.seconds, self.rng.choice((0.03, 0.3, 3.0)))
            probe_s = clock.seconds + self.rng.random() * max(0.0, wait_s)
        polled_s = clock.seconds
        while True:
            poll_s = polled_s + (_REPLY_POLL_S if self.group.awaits_reply else _UNREAD_POLL_S)
            if following.reads or clock.seconds >= poll_s:
                polled_s = clock.seconds
                events = self.group.poll(self.serving.max_records if following.reads else 1)
                if events:
                    self.cause()
                    self._unread_since_s = clock.seconds
                    return events, None
            if self.commands.is_woken or clock.seconds >= min(due_s, until_s):
                return (), None
            if clock.seconds >= probe_s:  # where no records are of use, these change nothing
                caused = self._causes
                events = [] if following.reads else self.group.poll(self.serving.max_records)
                only_records = all(isinstance(each, Records) for each in events)
                return events, due_s if only_records and caused == self._causes else None
            self.timeline.move_to(min(due_s, until_s, probe_s, inf if following.reads else poll_s))


class _NoTransactions:
    """The journal of pending acknowledgements, without any."""

    def knows_of(self, name: object, deadline: Deadline) -> bool:
        return False

    def exchange(self, records: Mapping[Any, Any], deadline: Deadline) -> Mapping[Any, Any]:
        assert not records
        return {}


def play(seed: int, kind: SubscriptionType) -> MemberWorld:
    """Plays one history, without the member's warnings."""
    logging.disable(logging.ERROR)
    try:
        world = MemberWorld(seed, kind)
        world.run()
    finally:
        logging.disable(logging.NOTSET)
    return world
