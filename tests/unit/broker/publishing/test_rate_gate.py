"""The gate before librdkafka while a topic has a publish rate, in simulated time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.broker.metadata.rates.policy_rates import PublishRate
from pulsar_on_kafka.broker.metadata.rates.publish_rates import PublishRates
from pulsar_on_kafka.broker.publishing.outgoing_schema import OutgoingSchema
from pulsar_on_kafka.broker.publishing.rate_gate import RateGate
from pulsar_on_kafka.exceptions import AlreadyClosed
from pulsar_on_kafka.kafka.errors import is_local_refusal
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka.schema import BytesSchema
from tests.producer_stage import Stage
from tests.seeds import for_each_seed


class Simulated(PublishRates):
    """Rates whose timer is moved by the test."""

    def __init__(self) -> None:
        super().__init__(cast("Clock", self))
        self.now_s = 1_000.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (due_s, next(self._numbers), action))

    def pass_s(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self._calls and self._calls[0][0] <= end_s:
            due_s, _, action = heapq.heappop(self._calls)
            self.now_s = max(self.now_s, due_s)
            action()
        self.now_s = end_s


class Handed:
    """A `KafkaProducer` that stores what it was handed, and now and then has no room."""

    asleep = False

    def __init__(self, rng: random.Random) -> None:
        self.taken: list[tuple[int, int]] = []
        self.of_others = 0
        """Records of other processes in each partition."""
        self._rng = rng

    def produce(self, _: str, value: bytes, key: Any, partition: int, report: Any, *rest: Any) -> None:
        if self._rng.random() < 0.1:
            raise BufferError
        self.taken.append((partition, int(value)))
        offset = sum(place == partition for place, _ in self.taken) + self.of_others
        report(None, SimpleNamespace(offset=lambda: offset))

    def wait_for_reports(self) -> None:
        """Room comes by luck."""

    def report(self, report: Callable[[], object]) -> None:
        report()


class Sent:
    def __init__(self, gate: RateGate, kafka: Handed, number: int, partition: int = 0) -> None:
        self.heard: list[Any] = []
        produce = gate.over(cast("KafkaProducer", kafka))
        while True:
            try:
                produce("t", b"%d" % number, None, partition, self.hear, None, 0, [])
            except BufferError:
                continue
            break

    def hear(self, error: Any, _: Any) -> None:
        self.heard.append(error)


def test_messages_above_the_rate_wait_and_other_partitions_go_on() -> None:
    rates, kafka = Simulated(), Handed(random.Random(1))
    gate = RateGate(rates, "t", 0, holds=True)
    gate.follow(PublishRate(2, -1))
    for number in range(5):
        Sent(gate, kafka, number)
    Sent(gate, kafka, 9, partition=1)
    assert kafka.taken == [(0, 0), (0, 1), (1, 9)]
    assert gate.limited_times == 1
    rates.pass_s(0.5)
    assert kafka.taken[3:] == [(0, 2)]
    rates.pass_s(1.1)
    assert kafka.taken[4:] == [(0, 3), (0, 4)]


def test_producers_of_a_process_share_the_rate() -> None:
    rates, kafka = Simulated(), Handed(random.Random(1))
    first, second = (RateGate(rates, "t", 0, holds=True) for _ in range(2))
    for gate in (first, second):
        gate.follow(PublishRate(1, -1))
    Sent(first, kafka, 1)
    Sent(second, kafka, 2)
    assert kafka.taken == [(0, 1)]
    rates.pass_s(1.0)
    assert kafka.taken == [(0, 1), (0, 2)]


def test_what_other_processes_store_counts() -> None:
    rates, kafka = Simulated(), Handed(random.Random(1))
    gate = RateGate(rates, "t", 0, holds=True)
    gate.follow(PublishRate(10, -1))
    Sent(gate, kafka, 0)
    kafka.of_others = 20
    for number in range(1, 4):
        Sent(gate, kafka, number)
    assert len(kafka.taken) == 2
    assert gate.wait_s(0) > 1.0
    rates.pass_s(2.0)
    assert len(kafka.taken) == 4


def test_without_the_policy_what_waits_goes_at_once() -> None:
    rates, kafka = Simulated(), Handed(random.Random(1))
    gate = RateGate(rates, "t", 0, holds=True)
    gate.follow(PublishRate(-1, 1))
    for number in range(1_000, 1_005):
        Sent(gate, kafka, number)
    assert len(kafka.taken) == 1
    gate.follow(PublishRate(-1, 20))
    assert len(kafka.taken) == 6 - 1
    gate.follow(PublishRate(1, -1))
    Sent(gate, kafka, 1_005)
    Sent(gate, kafka, 1_006)
    gate.follow(None)
    assert [number for _, number in kafka.taken] == list(range(1_000, 1_007))
    assert not gate.active


def test_what_waits_longer_than_a_send_may_ends_with_a_time_out() -> None:
    rates, kafka = Simulated(), Handed(random.Random(1))
    gate = RateGate(rates, "t", 3_000, holds=True)
    gate.follow(PublishRate(-1, 1))
    stored, late = Sent(gate, kafka, 1_000_000), Sent(gate, kafka, 2)
    rates.pass_s(2.9)
    assert (stored.heard, late.heard) == ([None], [])
    rates.pass_s(0.2)
    assert [error.name() for error in late.heard] == ["_MSG_TIMED_OUT"]
    closed = Sent(gate, kafka, 3)
    gate.give_up(AlreadyClosed("the producer is closed"))
    assert [is_local_refusal(error) for error in closed.heard] == [True]
    assert isinstance(gate.why(), AlreadyClosed)


def test_a_caller_that_holds_its_messages_back_is_told_for_how_long() -> None:
    rates, kafka = Simulated(), Handed(random.Random(1))
    gate = RateGate(rates, "t", 0, holds=False)
    assert gate.wait_s(0) == 0.0
    gate.follow(PublishRate(2, -1))
    for number in range(4):
        Sent(gate, kafka, number)
    assert len(kafka.taken) == 4
    assert round(gate.wait_s(0), 3) == 1.5


def test_without_a_rate_nothing_stands_before_librdkafka() -> None:
    stage = Stage()
    outlet = stage.producer(OutgoingSchema(BytesSchema(), None)).sender.outlet  # type: ignore[attr-defined]
    direct = outlet.produce
    assert direct == stage.kafka.produce
    outlet.follow_rate(PublishRate(1, -1))
    assert outlet.produce != direct
    outlet.follow_rate(None)
    assert outlet.produce == direct


@for_each_seed(range(200))
def test_each_message_is_sent_once_and_in_the_order_of_its_partition(seed: int) -> None:
    rng = random.Random(seed)
    rates, kafka = Simulated(), Handed(rng)
    gate = RateGate(rates, "t", 0, holds=True)
    sent: dict[int, list[int]] = {0: [], 1: []}
    gate.follow(PublishRate(rng.randint(1, 5), -1))
    for number in range(60):
        draw = rng.random()
        if draw < 0.1:
            gate.follow(rng.choice([None, PublishRate(rng.randint(1, 50), -1), PublishRate(-1, rng.randint(1, 9))]))
        elif draw < 0.4:
            rates.pass_s(rng.random())
        partition = rng.randrange(2)
        Sent(gate, kafka, number, partition)
        sent[partition].append(number)
    rates.pass_s(1_000)
    for partition, numbers in sent.items():
        assert [number for place, number in kafka.taken if place == partition] == numbers
