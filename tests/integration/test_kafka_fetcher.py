"""The fetcher on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import layer as pulsar
from layer.admin import AdminClient
from layer.deadline import Deadline
from layer.errors import LayerError
from layer.kafka.fetcher import Fetcher
from layer.kafka.settings import KafkaSettings
from layer.waiting import wait_until
from tests.integration.sdk_support import send

pytestmark = pytest.mark.kafka

Unique = Callable[..., str]


def test_a_partition_that_is_made_while_it_is_asked_for_is_found(
    client: pulsar.Client, admin: AdminClient, bootstrap: str, unique: Unique
) -> None:
    topic = unique()
    send(client, topic, 3)
    kafka_topic = admin.topic_stats(topic).kafka_topic
    fetcher = Fetcher(KafkaSettings(bootstrap).reader(fetch_queue_kbytes=1024))

    def end_of(partition: int) -> int | None:
        try:
            return fetcher.watermarks(kafka_topic, partition, Deadline.after(5))[1]
        except LayerError:
            return None

    try:
        batches = fetcher.read(kafka_topic, 0, 0, 3, Deadline.after(20))
        assert end_of(0) == 3
        assert end_of(1) is None
        admin.node.admin.grow_topic(kafka_topic, 2, Deadline.after(20))
        assert wait_until(lambda: end_of(1) == 0, Deadline.after(15))  # librdkafka by itself looks every 30 s or later
        assert [record.offset() for batch in batches for record in batch] == [0, 1, 2]
    finally:
        fetcher.close()
