"""The answer to a commit must not be taken for the answer to a later one, or a save counts as durable that is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.kafka.groups.membership import GroupCallbacks, GroupConsumer
from pulsar_on_kafka.kafka.records import CommittedOffset
from pulsar_on_kafka.kafka.settings import KafkaSettings
from tests.chaos.stage import Stage
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_only_the_last_commit_is_answered(stage: Callable[..., Stage]) -> None:
    on = stage(1)
    assigned: list[int] = []
    answers: list[LayerError | None] = []

    def take(partitions: list[int]) -> dict[int, int]:
        assigned.extend(partitions)
        return dict.fromkeys(partitions, 0)

    callbacks = GroupCallbacks(take, lambda _: None, lambda _: None, answers.append)
    config = KafkaSettings(on.bootstrap).group_member(
        group_id=on.topic, client_id="test", fetch_queue_kbytes=1024, partitioned=False
    )
    consumer = GroupConsumer(config, on.kafka_topic, callbacks)
    until(lambda: [consumer.poll(1, 0.05), assigned][1], "it has the partition")
    consumer.commit_async({0: CommittedOffset(1, "first")})
    consumer.commit_async({0: CommittedOffset(2, "second")})
    until(lambda: consumer.committed([0], 5).get(0) == CommittedOffset(2, "second"), "the second one is there")
    until(lambda: [consumer.poll(1, 0.05), answers][1], "it is answered")
    consumer.poll(1, 0.2)
    assert answers == [None]
    consumer.close()
