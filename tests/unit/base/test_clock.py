"""The brokers' clock, as far as it is heard."""

from __future__ import annotations

from pulsar_on_kafka.base.clock import ClusterClock, learn_time
from tests.clocks import SetClock


def test_it_is_this_machine_s_own_until_a_broker_is_heard() -> None:
    own = SetClock(50.0)
    clock = ClusterClock(own)
    assert not clock.is_known
    assert clock.now_ms() == 50_000
    clock.heard(3_650_000)
    own.seconds += 2.0
    assert clock.is_known
    assert clock.now_ms() == 3_652_000
    assert clock.monotonic() == 52.0


def test_the_least_late_answer_of_a_minute_counts() -> None:
    own = SetClock(50.0)
    clock = ClusterClock(own)
    clock.heard(1_000_000)
    own.seconds += 10.0
    clock.heard(1_007_000)  # three seconds on its way
    assert clock.now_ms() == 1_010_000
    own.seconds += 61.0
    clock.heard(1_000_000)  # the broker's clock was set back
    assert clock.now_ms() == 1_000_000


def test_it_is_asked_for_once() -> None:
    clock, asked = ClusterClock(SetClock(1.0)), []

    def append() -> None:
        asked.append(1)
        clock.heard(5_000)

    learn_time(clock, append)
    learn_time(clock, append)
    learn_time(SetClock(), append)
    assert asked == [1]
