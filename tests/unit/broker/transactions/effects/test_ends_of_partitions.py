"""Where a partition ends, as two threads hear of it at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import StoreError
from pulsar_on_kafka.broker.transactions.effects.kafka_partitions import KafkaDataPartitions
from pulsar_on_kafka_mapping.state.transactions.transaction_log import TopicPartition

T = "persistent://public/default/t"


def partitions(ask: Callable[[], int]) -> KafkaDataPartitions:
    """Their ends are what `ask` says."""
    topic = SimpleNamespace(name=T, kafka_topic="t", layout=SimpleNamespace(incarnation=1))
    topics: Any = SimpleNamespace(find=lambda name, deadline: topic)
    admin: Any = SimpleNamespace(ends_now=lambda asked, deadline: {where: ask() for where in asked})
    fetcher: Any = SimpleNamespace(log_end=lambda name, partition, deadline: ask())
    nothing: Any = None
    return KafkaDataPartitions(topics, admin, fetcher, nothing, SystemClock(), {})


@pytest.mark.parametrize("asked", [[0], [0, 1]], ids=["one", "several"])
def test_an_answer_that_another_thread_s_has_overtaken_is_no_other_topic(asked: list[int]) -> None:
    inside = False

    def ask() -> int:
        nonlocal inside
        if inside:
            return 120
        inside = True
        assert made.end_offset(T, 0, Deadline.after(60)) == 120
        inside = False
        return 119

    made = partitions(ask)
    places = [TopicPartition(T, number) for number in asked]
    assert made.end_offsets(places, Deadline.after(60)) == dict.fromkeys(places, 119)


def test_an_end_before_the_one_that_was_known_is_that_of_another_topic() -> None:
    ends = iter((120, 119, 119))
    made = partitions(lambda: next(ends))
    assert made.end_offset(T, 0, Deadline.after(60)) == 120
    with pytest.raises(StoreError, match="ends at 119, it ended at 120: was it made anew"):
        made.end_offset(T, 0, Deadline.after(60))
    assert made.end_offset(T, 0, Deadline.after(60)) == 119  # it was looked for anew
