"""Processes share a partition's publish rate by the order of its log, in simulated time."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

import pytest

from pulsar_on_kafka.broker.metadata.policies import DISPATCH_RATE
from pulsar_on_kafka.broker.metadata.rates.policy_rates import (
    DispatchRate,
    PublishRate,
    dispatch_rate,
    publish_rate,
)
from pulsar_on_kafka.broker.metadata.rates.publish_rates import PartitionRate

_LATENCY_S = 0.01
"""Between a send and its report."""


class Log:
    """A partition, and the processes that send to it as fast as they may."""

    def __init__(self, rate: PublishRate, processes: int) -> None:
        self.now_s = 0.0
        self.rates = [PartitionRate(rate, 0.0) for _ in range(processes)]
        self.sent = [0] * processes
        self._end = 0
        self._reports: deque[tuple[float, int, int]] = deque()

    def run(self, until_s: float, active: Callable[[int], bool], size: int = 10, messages: int = 1) -> None:
        """Each active process sends whenever it may."""
        while self.now_s < until_s:
            while self._reports and self._reports[0][0] <= self.now_s:
                _, process, offset = self._reports.popleft()
                self.rates[process].stored(offset, self.now_s)
            for process, rate in enumerate(self.rates):
                while active(process) and rate.wait_s(self.now_s) <= 0:
                    rate.sent(messages, size, self.now_s)
                    self.sent[process] += 1
                    self._reports.append((self.now_s + _LATENCY_S, process, self._end))
                    self._end += 1
            due = [self.now_s + 0.005]
            if self._reports:
                heapq.heappush(due, self._reports[0][0])
            self.now_s = max(self.now_s + 1e-4, due[0])


@pytest.mark.parametrize(("rate", "processes"), [(1, 1), (1, 5), (20, 2), (20, 5), (200, 3)])
def test_all_processes_together_keep_the_rate(rate: int, processes: int) -> None:
    log = Log(PublishRate(rate, -1), processes)
    log.run(60.0, lambda process: True)
    before = list(log.sent)
    assert sum(before) <= 1.1 * 60 * rate + processes * rate + processes
    log.run(120.0, lambda process: True)
    lasting = [(sent - earlier) / 60 for sent, earlier in zip(log.sent, before, strict=True)]
    assert 0.9 * rate <= sum(lasting) <= 1.1 * rate
    assert min(lasting) > 0.6 * max(lasting)


def test_a_process_alone_has_the_whole_rate_though_others_have_producers() -> None:
    log = Log(PublishRate(50, -1), 3)
    log.run(20.0, lambda process: process == 0)
    assert 50 * 20 <= log.sent[0] <= 50 * 21 + 1
    assert log.sent[1:] == [0, 0]
    log.run(20.1, lambda process: process == 1)  # what was stored before it came is no debt
    assert log.sent[1] >= 50


def test_bytes_of_others_are_estimated_by_the_own_average() -> None:
    log = Log(PublishRate(-1, 1_000), 2)
    log.run(50.0, lambda process: True, size=10)
    before = sum(log.sent)
    log.run(150.0, lambda process: True, size=10)
    assert 0.9 <= (sum(log.sent) - before) / (100 * 100) <= 1.1


def test_batches_count_their_messages() -> None:
    log = Log(PublishRate(100, -1), 1)
    log.run(10.0, lambda process: True, messages=50)
    assert 100 * 10 <= log.sent[0] * 50 <= 100 * 11 + 50


def test_programs_without_the_limit_leave_some_of_it() -> None:
    for messages, wait_s in ((5, 20.2), (50, 10.02)):
        rate = PartitionRate(PublishRate(messages, -1), 0.0)
        for offset in (0, 1_000_000):
            rate.sent(1, 1, 0.0)
            rate.stored(offset, 0.0)
        assert rate.wait_s(0.0) == pytest.approx(wait_s)


def test_own_records_of_two_kafka_producers_are_not_counted_twice() -> None:
    rng = random.Random(3)
    rate, offsets = PartitionRate(PublishRate(100, -1), 0.0), list(range(50))
    rng.shuffle(offsets)
    for offset in [0, *offsets[:-1]]:
        rate.sent(1, 1, 0.0)
        rate.stored(offset, 0.0)
    assert rate.wait_s(0.0) == 0.0


def test_a_level_that_limits_nothing_is_passed_over() -> None:
    off, namespace = {"publish_throttling_rate_in_msg": -1}, {"publish_throttling_rate_in_byte": 7}
    assert publish_rate() is None
    assert publish_rate(off, {}) is None
    assert publish_rate(off, namespace) == PublishRate(-1, 7)
    assert publish_rate({"publish_throttling_rate_in_msg": 3}, namespace) == PublishRate(3, -1)
    own = {"dispatch_rate_period_in_second": 60, "dispatch_throttling_rate_in_msg": 1}
    assert dispatch_rate(DISPATCH_RATE, {"dispatch_rate_period_in_second": 5}, own) == DispatchRate(1, -1, 60, False)
