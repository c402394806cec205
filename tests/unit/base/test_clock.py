"""The brokers' clock, as far as it is heard."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.base.clock import ClusterClock, Moment
from pulsar_on_kafka.base.errors import StoreError
from tests.clocks import SetClock


def test_it_is_this_machine_s_own_until_a_broker_is_heard() -> None:
    own = SetClock(50.0)
    clock = ClusterClock(own)
    assert not clock.is_known
    assert clock.now_ms() == 50_000
    clock.observe(3_650_000)
    own.seconds += 2.0
    assert clock.is_known
    assert clock.now_ms() == 3_652_000
    assert clock.monotonic() == 52.0


def test_the_least_late_answer_of_a_minute_counts() -> None:
    own = SetClock(50.0)
    clock = ClusterClock(own)
    clock.observe(1_000_000)
    own.seconds += 10.0
    clock.observe(1_007_000)  # three seconds on its way
    assert clock.now_ms() == 1_010_000
    own.seconds += 61.0
    clock.observe(1_000_000)  # the broker's clock was set back
    assert clock.now_ms() == 1_000_000


class Machine(SetClock):
    """A machine whose own clock is `off_s` ahead."""

    off_s = 0.0

    def now_ms(self) -> int:
        return int((self.seconds + self.off_s) * 1000)


class Brokers:
    """Brokers whose time is `ahead_ms` ahead of a machine's monotonic clock; or one that does not answer."""

    def __init__(self, machine: Machine) -> None:
        self.asked = 0
        self.ahead_ms: int | None = 3_600_000
        self.machine = machine
        self.clock = ClusterClock(machine, self.append)

    def append(self) -> None:
        self.asked += 1
        self.clock.now_ms()  # what asks is not asked again
        if self.ahead_ms is None:
            raise StoreError("no answer")
        self.clock.observe(self.ahead_ms + int(self.machine.seconds * 1000))


def test_a_thread_that_must_not_wait_gets_the_last_answer() -> None:
    machine = Machine(50.0)
    brokers = Brokers(machine)
    assert (brokers.clock.known_now_ms(), brokers.asked) == (50_000, 0)
    brokers.clock.now_ms()
    machine.off_s = 3600.0  # its clock was set
    assert (brokers.clock.known_now_ms(), brokers.asked, brokers.clock.is_known) == (3_650_000, 1, False)


def test_brokers_are_asked_once_whatever_the_machine_s_clock_says() -> None:
    machine = Machine(50.0)
    machine.off_s = -8 * 3600.0
    brokers = Brokers(machine)
    assert brokers.clock.now_ms() == brokers.clock.now_ms() == 3_650_000
    assert (brokers.asked, brokers.clock.monotonic_ms()) == (1, 50_000)


@pytest.mark.parametrize("step_s", [-8 * 3600.0, 3 * 86400.0])
def test_brokers_are_asked_again_when_the_machine_slept_or_its_clock_was_set(step_s: float) -> None:
    machine = Machine(50.0)
    brokers = Brokers(machine)
    brokers.clock.now_ms()
    machine.off_s, brokers.ahead_ms = step_s, 7_200_000
    assert (brokers.clock.now_ms(), brokers.asked) == (7_250_000, 2)
    machine.off_s, brokers.ahead_ms = 0.0, None
    machine.seconds += 20.0
    assert (brokers.clock.now_ms(), brokers.asked) == (7_270_000, 3), "the last answer counts"


def test_brokers_that_do_not_answer_are_asked_now_and_then() -> None:
    machine = Machine(50.0)
    brokers = Brokers(machine)
    brokers.ahead_ms = None
    assert brokers.clock.now_ms() == brokers.clock.now_ms() == 50_000
    assert brokers.asked == 1
    machine.seconds += 11.0
    brokers.ahead_ms = 1_000
    assert (brokers.clock.now_ms(), brokers.asked) == (62_000, 2)


def test_a_moment_knows_how_long_the_machine_slept() -> None:
    machine = Machine(50.0)
    brokers = Brokers(machine)
    brokers.clock.now_ms()
    before = Moment.of(brokers.clock)
    machine.off_s += 600.0
    assert before.seconds_until(Moment.of(brokers.clock)) == 600.0
