"""Producers on bound Kafka topics whose configuration limits what may be written: compacted ones, and small batches."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as KafkaAdminClient
from confluent_kafka.admin import NewTopic

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.steps import EARLIEST, Process, Unique, receive
from tests.waiting import until

pytestmark = pytest.mark.kafka

Bound = Callable[..., str]


@pytest.fixture
def bound(admin: AdminClient, bootstrap: str, unique: Unique) -> Bound:
    """The name of a Pulsar topic that is bound to a Kafka topic of that configuration."""

    def made(**config: str) -> str:
        kafka, raw = KafkaAdminClient({"bootstrap.servers": bootstrap}), unique()
        configs: dict[str, Any] = {name.replace("_", "."): value for name, value in config.items()}
        kafka.create_topics([NewTopic(raw, 1, 1, config=configs)])[raw].result(30)
        until(lambda: raw in kafka.list_topics().topics, "the Kafka topic")
        admin.bind_topic(raw, raw)
        return raw

    return made


def test_each_message_to_a_compacted_topic_is_a_record_of_its_own(
    client: pulsar.Client, bound: Bound, caplog: pytest.LogCaptureFixture
) -> None:
    topic = bound(cleanup_policy="compact,delete")
    assert "cleanup.policy=compact" in caplog.text
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=300)
    for key in ("a", "b", "c", "a", "d"):
        producer.send_async(key.encode(), None, partition_key=key)
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    got = [(message.partition_key(), message.message_id().batch_index()) for message in receive(consumer, 5)]
    assert got == [("a", -1), ("b", -1), ("c", -1), ("a", -1), ("d", -1)]


def test_a_compacted_topic_takes_no_chunks_and_no_transactions(process: Process, bound: Bound) -> None:
    topic, client = bound(cleanup_policy="compact"), process(enable_transaction=True)
    with pytest.raises(pulsar.NotAllowedError, match=r"cleanup\.policy=compact.*chunking_enabled"):
        client.create_producer(topic, chunking_enabled=True)
    producer, txn = client.create_producer(topic), client.new_transaction(20_000)
    with pytest.raises(pulsar.NotAllowedError, match=r"cleanup\.policy=compact.*aborted transaction"):
        producer.send(b"x", partition_key="a", txn=txn)
    txn.abort()
    producer.send(b"x", partition_key="a")
    assert producer.send_counts().pending == 0


def test_messages_that_fit_one_by_one_are_stored_together(client: pulsar.Client, bound: Bound) -> None:
    producer = client.create_producer(bound(max_message_bytes="20000"), block_if_queue_full=True)
    said: Counter[str] = Counter()
    for number in range(200):
        size = 30_000 if number == 100 else 1_000  # one is too large, its neighbours are not
        producer.send_async(os.urandom(size), lambda result, message_id: said.update([result.name]))
    producer.flush()
    assert said == {"Ok": 199, "MessageTooBig": 1}


def test_chunks_fit_a_topic_of_small_batches(client: pulsar.Client, bound: Bound) -> None:
    topic, content = bound(max_message_bytes="20000"), os.urandom(60_000)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    client.create_producer(topic, chunking_enabled=True).send(content)
    assert receive(consumer, 1)[0].data() == content
