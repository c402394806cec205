"""The delay of micro-batches."""

from __future__ import annotations

from pulsar_on_kafka_spark.streaming.trigger_delay import TriggerDelay


def test_a_batch_waits_for_enough_entries_or_the_longest_delay() -> None:
    delay = TriggerDelay(100, 60.0)
    assert not delay.holds(1, 1000.0), "the first one comes at once"
    assert delay.holds(99, 1001.0)
    assert delay.ends_s() == 1060.0
    assert not delay.holds(100, 1002.0)
    assert delay.holds(1, 1061.9)
    assert not delay.holds(1, 1062.0)
    assert delay.holds(1, 1062.0)


def test_without_a_minimum_nothing_waits() -> None:
    delay = TriggerDelay(None, 60.0)
    assert not any(delay.holds(1, now) for now in (0.0, 0.0, 1.0))
