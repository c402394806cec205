"""Slow partitions are tried again after a while in which nothing could be done."""

from __future__ import annotations

from math import inf

from pulsar_on_kafka.broker.transactions.effects.batched_effects import SlowPartitions
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition

ONE, TWO, OTHER = (TopicPartition("persistent://a/b/c", number) for number in range(3))


def test_a_partition_that_failed_rests_longer_each_time_up_to_a_limit() -> None:
    slow = SlowPartitions(1.0, 5.0)
    assert slow.rested_s([ONE, TWO]) == -inf
    found = []
    for now_s in (100.0, 200.0, 300.0, 400.0, 500.0):
        slow.failed([ONE], now_s)
        found.append(slow.rested_s([ONE, OTHER]) - now_s)
    assert found == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert slow.rested_s([OTHER]) == -inf


def test_what_touches_several_waits_for_the_last_of_them() -> None:
    slow = SlowPartitions(1.0, 5.0)
    slow.failed([ONE], 100.0)
    slow.failed([TWO], 100.5)
    assert slow.rested_s([ONE, TWO]) == 101.5
    slow.worked([TWO])
    assert slow.rested_s([ONE, TWO]) == 101.0


def test_what_worked_begins_anew_and_what_nobody_tries_is_forgotten() -> None:
    slow = SlowPartitions(1.0, 5.0)
    slow.failed([ONE, TWO], 100.0)
    slow.worked([ONE, OTHER])
    slow.failed([ONE], 110.0)
    assert slow.rested_s([ONE]) == 111.0
    slow.failed([OTHER], 900.0)
    assert slow.rested_s([TWO]) == -inf
