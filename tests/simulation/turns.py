"""Many actors, one at a time: real threads that stop before each operation on the log until it is their turn.

Which actor goes on is drawn from the seed, so a history can be run again exactly.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed, AppendOutcomeUnknown, StoreError
from pulsar_on_kafka.statelog.api import Group, LogRecord, records_stay_s
from pulsar_on_kafka_mapping.state.instances import Instance
from pulsar_on_kafka_mapping.state.state_topics import Cleanup, PartitionedBy, StateTopic
from tests.memory_log import MemoryStateLog
from tests.simulation.broker import SimulatedBroker

NEVER = Deadline.never()


class ManualClock:
    """One second per step of the history."""

    def __init__(self) -> None:
        self.seconds = 0

    def monotonic(self) -> float:
        return float(self.seconds)

    def now_ms(self) -> int:
        return self.seconds * 1000


class HistoryOver(BaseException):
    """Ends an actor in the middle of whatever it does, as a crash would."""


class Actor:
    """`life` runs in a thread of its own, and only while `step` waits."""

    def __init__(self, life: Callable[[Actor], None]) -> None:
        self._life = life
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.finished = False
        self.knows_its_end = False  # and has not read yet: the worst moment to be stopped
        self.failure: BaseException | None = None

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._over:
                self._life(self)
        except HistoryOver:
            pass
        except BaseException as failure:
            self.failure = failure
        self.finished = True
        self._stopped.release()

    def pause(self) -> None:
        """Called by the actor: let the others have their turns."""
        self._stopped.release()
        self._go.acquire()
        if self._over:
            raise HistoryOver

    def step(self) -> None:
        """Called by the history: let the actor go on until its next pause."""
        if not self.finished:
            self._go.release()
            self._stopped.acquire()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        self._over = True
        while not self.finished:
            self._go.release()
            self._stopped.acquire()
        self._thread.join()


class Schedule:
    """The schedule gives each actor its turns. Now and then an actor is stopped for long, wherever it is, as by
    SIGSTOP."""

    def __init__(self, rng: random.Random, clock: ManualClock) -> None:
        self._rng = rng
        self._clock = clock
        self._wakes_at: dict[Actor, int] = {}

    def sleeps(self, actor: Actor) -> bool:
        return self._wakes_at.get(actor, 0) > self._clock.seconds

    def step_one_of(self, actors: Sequence[Actor]) -> None:
        awake = [actor for actor in actors if self._wakes_at.get(actor, 0) <= self._clock.seconds]
        if not awake:
            return
        actor = self._rng.choice(awake)
        actor.step()
        if self._rng.random() < (_FALLS_ASLEEP_READING if actor.knows_its_end else _FALLS_ASLEEP):
            self._wakes_at[actor] = self._clock.seconds + self._rng.randrange(_LONGEST_SLEEP_S)


@dataclass(slots=True)
class _Followed:
    """A partition as a `Window` has it."""

    topic: StateTopic
    partition: int
    start: int
    read_s: float
    records: list[LogRecord] = field(default_factory=list)
    reached: int = -1

    def go_on(self, log: MemoryStateLog, rng: random.Random) -> None:
        self.reached = max(self.reached, self.start)
        end = log.end_offset(self.topic, self.partition, NEVER)
        if self.reached < end:
            upto = rng.randint(self.reached, end)
            for batch in log.read(self.topic, self.partition, self.reached, upto, NEVER):
                self.records.extend(batch)
            self.reached = upto


class ActorsLog:
    """The log as one actor meets it: before every operation the others may have their turns, and appends fail.

    An append whose outcome is unknown is in the log, or comes later (`broker`), or never. What is read often may have
    been fetched long before it is read, as by a `FollowedLog`: with records that compaction has taken since, and
    without the tombstones that it has dropped.
    """

    def __init__(
        self,
        log: MemoryStateLog,
        actor: Actor,
        rng: random.Random,
        broker: SimulatedBroker,
        unknown_share: float,
        between: float | None = None,
    ) -> None:
        """`between`: how often the others have their turns before an operation."""
        self._log = log
        self._actor = actor
        self._rng = rng
        self._broker = broker
        self._unknown_share = unknown_share
        self._between = _OTHERS_COME_BETWEEN if between is None else between
        self._followed: dict[tuple[str, int], _Followed] = {}
        self._follows = rng.random() < _FOLLOWS

    def _turn(self) -> None:
        for followed in self._followed.values():
            if self._rng.random() < 0.3:
                followed.go_on(self._log, self._rng)
        if self._rng.random() < self._between:
            self._actor.pause()

    def append(self, topic: StateTopic, partition: int, key: bytes, value: bytes | None, deadline: Deadline) -> int:
        return self.append_many(topic, partition, [(key, value)], deadline)[0]

    def append_many(
        self, topic: StateTopic, partition: int, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline
    ) -> list[int]:
        self._turn()
        draw = self._rng.random()
        if draw < self._unknown_share:
            fate = self._rng.randrange(3)
            if fate == 0:
                self._log.append_many(topic, partition, records, deadline)
            elif fate == 1:
                self._broker.send(lambda: self._log.append_many(topic, partition, records, NEVER))
            raise AppendOutcomeUnknown("simulated")
        if draw > 1 - self._unknown_share / 2:
            raise AppendFailed("simulated")
        return self._log.append_many(topic, partition, records, deadline)

    def append_apart(self, groups: Sequence[Group], deadline: Deadline) -> None:
        """In any order; what becomes of one group is no concern of the others'."""
        failures = []
        for topic, partition, records in self._rng.sample(groups, len(groups)):
            try:
                self.append_many(topic, partition, records, deadline)
            except StoreError as failure:
                failures.append(failure)
        if failures:
            raise failures[0] if len(failures) == len(groups) else AppendOutcomeUnknown("simulated")

    def now_ms(self) -> int:
        return self._log.now_ms()

    def kafka_name(self, topic: StateTopic) -> str:
        return self._log.kafka_name(topic)

    def end_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        self._turn()
        return self._log.end_offset(topic, partition, deadline)

    def start_offset(self, topic: StateTopic, partition: int, deadline: Deadline) -> int:
        return self._log.start_offset(topic, partition, deadline)

    def read(
        self, topic: StateTopic, partition: int, start: int, end: int, deadline: Deadline
    ) -> Iterator[list[LogRecord]]:
        self._actor.knows_its_end = True
        self._turn()
        self._actor.knows_its_end = False
        for record in self._heard(topic, partition, start, end):
            yield [record]
            start = record.offset + 1
        for batch in self._log.read(topic, partition, start, end, deadline):
            half = len(batch) // 2  # the log may be compacted in the middle of a reading
            if half and self._rng.random() < 0.2:
                yield batch[:half]
                self._actor.pause()
                rest = self._log.read(topic, partition, batch[half].offset, end, deadline)
                yield from rest
                return
            yield batch

    def _heard(self, topic: StateTopic, partition: int, start: int, end: int) -> list[LogRecord]:
        """What following has brought; the first readings, and those after a long pause, find nothing."""
        now_s = self._log._clock.monotonic()
        which = (Instance().state_topic(topic), partition)
        followed = self._followed.get(which)
        if followed is None or now_s - followed.read_s > _FOLLOWED_S or start < followed.start:
            if self._follows:
                self._followed[which] = _Followed(topic, partition, end, now_s)
            return []
        followed.read_s = now_s
        return [record for record in followed.records if start <= record.offset < end]

    def read_at(self, *arguments: Any) -> dict[int, LogRecord]:
        self._turn()
        return self._log.read_at(*arguments)

    def close(self) -> None:
        self._log.close()


RETENTION_S = 50
COMPACTION_LAG_S = 24
_FALLS_ASLEEP = 0.04
_FALLS_ASLEEP_READING = 0.3
_LONGEST_SLEEP_S = 40
_OTHERS_COME_BETWEEN = 0.35
_FOLLOWS = 0.7
_FOLLOWED_S = RETENTION_S / 5


def simulated_topic(*, with_lag: bool) -> StateTopic:
    configs = {"delete.retention.ms": str(RETENTION_S * 1000)}
    if with_lag:
        configs |= {"min.compaction.lag.ms": str(COMPACTION_LAG_S * 1000), "message.timestamp.type": "LogAppendTime"}
    return StateTopic("simulated", 1, Cleanup.COMPACT, PartitionedBy.TOPIC, "simulations", "gone", configs)


def kafka_cleans(log: MemoryStateLog, topic: StateTopic, clock: ManualClock, rng: random.Random) -> None:
    """What the log cleaner may do now: compaction after the topic's lag, if any, and dropping old tombstones."""
    if rng.random() < 0.6:
        lag_s = records_stay_s(topic)
        log.compact(rng, _first_since(log, topic, (clock.seconds - lag_s) * 1000) if lag_s else None)
    else:
        old_ms = (clock.seconds - RETENTION_S) * 1000
        log.drop_tombstones(rng, _first_since(log, topic, old_ms), old_ms)


def _first_since(log: MemoryStateLog, topic: StateTopic, horizon_ms: float) -> int:
    """The offset below which every record is older than `horizon_ms`."""
    end = log.end_offset(topic, 0, NEVER)
    young = (
        record.offset
        for batch in log.read(topic, 0, 0, end, NEVER)
        for record in batch
        if record.timestamp_ms >= horizon_ms
    )
    return next(young, end)
