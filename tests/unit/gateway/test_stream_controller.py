"""The controller of V5 consumers keeps their names on record, whatever fails meanwhile."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import AppendFailed
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.subscriptions.consumer_registrations import (
    REGISTRATION_KEYS,
    ConsumerRegistrations,
    Registrations,
)
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.gateway.streams import stream_controller
from pulsar_on_kafka.gateway.streams.stream_controller import StreamConsumer, StreamController
from pulsar_on_kafka.gateway.streams.subscription_coordinator import SegmentAssignment
from pulsar_on_kafka_mapping.ids.ledger_ids import LedgerLayout
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import SUBSCRIPTIONS
from pulsar_on_kafka_mapping.wire.commands import ServerError
from tests.memory_log import MemoryStateLog

NEVER = Deadline.never()
NAME = TopicName.parse("orders")
GRACE_S = 60.0


class Registry(ConsumerRegistrations):
    """Real registrations on a log in memory, which may be out of reach."""

    def __init__(self, log: MemoryStateLog) -> None:
        super().__init__(Entities(log, SUBSCRIPTIONS, REGISTRATION_KEYS, SystemClock()))
        self.is_broken = False
        self.attempts = 0

    def _attempt(self) -> None:
        self.attempts += 1
        if self.is_broken:
            raise AppendFailed("no leader")

    def add(self, *arguments: Any) -> Registrations:
        self._attempt()
        return super().add(*arguments)

    def remove(self, *arguments: Any) -> Registrations | None:
        self._attempt()
        return super().remove(*arguments)


class Stage:
    """A gateway's controller, its loop and its threads, by hand."""

    def __init__(self, log: MemoryStateLog | None = None) -> None:
        self.now_s = 100.0
        self.url: str | None = None
        """The other gateway that serves the topic."""
        self.topic: Topic | None = Topic(NAME, "orders", "id", 2, True, LedgerLayout(1))
        self.registry = Registry(log or MemoryStateLog())
        self._calls: deque[Callable[[], object]] = deque()
        self._jobs: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        node: Any = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: self.now_s),
            topics=SimpleNamespace(find=lambda name, deadline: self.topic),
            namespaces=SimpleNamespace(require=lambda name, deadline: None),
            registrations=self.registry,
        )
        loop: Any = SimpleNamespace(call_later=self._call_later)
        pool: Any = SimpleNamespace(submit=self._submit)
        sharing: Any = SimpleNamespace(elsewhere=lambda bundle: self.url)
        scheduler: Any = SimpleNamespace(every=lambda interval_s, action: None)
        self.controller = StreamController(node, loop, self._calls.append, pool, sharing, scheduler, GRACE_S)

    def _call_later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> Any:
        made: Callable[[], object] = partial(call, *arguments)
        timer = self.now_s + delay_s, len(self._timers), made
        heapq.heappush(self._timers, timer)
        return SimpleNamespace(cancel=lambda: timer in self._timers and self._timers.remove(timer))

    def _submit(self, work: Callable[[], Any], *, caller: object, topic: str) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                found = work()
            except Exception as failure:
                future.set_exception(failure)
            else:
                future.set_result(found)

        self._jobs.append(run)
        return future

    def run(self, *, work: bool = True) -> None:
        """Have the threads (with `work`) and the loop do what is at hand."""
        while self._calls or (work and self._jobs):
            (self._calls or self._jobs).popleft()()

    def wait(self, seconds: float) -> None:
        """Time passes, and everything happens that is due."""
        until_s = self.now_s + seconds
        self.run()
        while self._timers and self._timers[0][0] <= until_s:
            self.now_s, _, call = heapq.heappop(self._timers)
            call()
            self.run()
        self.now_s = until_s

    def recorded(self) -> tuple[str, ...]:
        assert self.topic is not None
        found = self.registry.on_record(SUBSCRIPTIONS.partition_for(str(NAME)), NEVER)
        return found[str(NAME), "s"][1].consumers


class Member:
    """A client's consumer, and what it heard."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.segments: list[int] | None = None
        self.refused: ServerError | None = None
        self.is_ended = self.has_left = False
        self.consumer = StreamConsumer(NAME, 0, "s", name, self._take, self._end)

    def join(self) -> Member:
        self._stage.controller.register(self.consumer, self._take, self._refuse)
        return self

    def leave(self) -> None:
        self._stage.controller.unregister(self.consumer, self._left, self._refuse)

    def _take(self, assignment: SegmentAssignment) -> None:
        self.segments = [each.segment_id for each in assignment.segments]

    def _refuse(self, code: ServerError, reason: str) -> None:
        self.refused = code

    def _end(self, reason: str) -> None:
        self.is_ended = True

    def _left(self) -> None:
        self.has_left = True


@pytest.fixture
def stage() -> Stage:
    return Stage()


def joined(stage: Stage, *names: str) -> list[Member]:
    members = [Member(stage, name).join() for name in names]
    stage.run()
    return members


def test_a_failed_registration_is_refused_and_nothing_stays(stage: Stage) -> None:
    stage.registry.is_broken = True
    (a,) = joined(stage, "a")
    assert a.refused is ServerError.PERSISTENCE
    assert len(stage.controller) == 0
    stage.topic, stage.registry.is_broken = None, False
    (a,) = joined(stage, "a")
    assert a.refused is ServerError.TOPIC_NOT_FOUND


def test_an_end_of_grace_time_that_cannot_be_recorded_is_tried_again_each_second(stage: Stage) -> None:
    a, b = joined(stage, "a", "b")
    stage.controller.disconnect(a.consumer)
    stage.registry.is_broken, before = True, stage.registry.attempts
    stage.wait(GRACE_S + 10)
    assert stage.registry.attempts - before in (10, 11)
    assert (b.segments, stage.recorded()) == ([1], ("a", "b"))
    stage.registry.is_broken = False
    stage.wait(1)
    assert (b.segments, stage.recorded()) == ([0, 1], ("b",))


def test_a_leave_that_cannot_be_recorded_is_refused_and_made_after_the_grace_time(stage: Stage) -> None:
    a, b = joined(stage, "a", "b")
    stage.registry.is_broken = True
    a.leave()
    stage.run()
    assert (a.refused, a.has_left) == (ServerError.PERSISTENCE, False)
    stage.registry.is_broken = False
    stage.wait(GRACE_S)
    assert (b.segments, stage.recorded()) == ([0, 1], ("b",))


def test_a_connection_that_ends_before_its_consumer_is_on_record_has_the_grace_time(stage: Stage) -> None:
    a = Member(stage, "a").join()
    stage.run(work=False)
    stage.controller.disconnect(a.consumer)
    stage.run()
    assert a.refused is ServerError.SERVICE_NOT_READY
    stage.wait(GRACE_S - 1)
    assert stage.recorded() == ("a",)
    stage.wait(1)
    assert stage.recorded() == ()
    assert len(stage.controller) == 0


def test_a_consumer_that_leaves_while_it_is_registered_is_not_on_record(stage: Stage) -> None:
    a = Member(stage, "a").join()
    stage.run(work=False)
    a.leave()
    stage.run()
    assert a.has_left
    stage.wait(GRACE_S)
    assert stage.recorded() == ()


def test_a_topic_that_another_gateway_serves_is_forgotten_with_what_is_under_way(stage: Stage) -> None:
    (a,) = joined(stage, "a")
    b = Member(stage, "b").join()
    c = Member(stage, "c").join()
    stage.run(work=False)
    stage.url = "pulsar://other:6650"
    stage.controller.follow()
    assert a.is_ended
    stage.run()
    assert (b.refused, c.refused) == (ServerError.SERVICE_NOT_READY, ServerError.SERVICE_NOT_READY)
    assert len(stage.controller) == 0
    stage.wait(2 * GRACE_S)
    assert "a" in stage.recorded(), "only the next controller may remove it"


def test_a_consumer_that_a_former_controller_removed_is_put_on_record_again() -> None:
    log = MemoryStateLog()
    former, now = Stage(log), Stage(log)
    (old,) = joined(former, "a")
    former.controller.disconnect(old.consumer)
    (a,) = joined(now, "a")
    former.wait(GRACE_S)
    assert now.recorded() == ()
    (b,) = joined(now, "b")
    now.wait(0)
    assert now.recorded() == ("a", "b")
    assert (a.segments, b.segments) == ([0], [1])


def test_another_incarnation_of_the_topic_has_no_consumers_of_the_former_one(stage: Stage) -> None:
    (a,) = joined(stage, "a")
    stage.topic = Topic(NAME, "orders", "another", 2, True, LedgerLayout(2))
    (b,) = joined(stage, "b")
    assert a.is_ended
    assert (b.segments, stage.recorded()) == ([0, 1], ("b",))
    a.leave()
    stage.run()
    assert (a.has_left, stage.recorded()) == (True, ("b",))


def test_subscriptions_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_controller, "MAX_SUBSCRIPTIONS", 1)
    joined(stage, "a")
    other = Member(stage, "b")
    other.consumer.subscription = "t"
    assert other.join().refused is ServerError.NOT_ALLOWED
