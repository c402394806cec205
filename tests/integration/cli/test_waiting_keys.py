"""`pok subscriptions` shows keys that wait for refused messages."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from tests.integration.cli.conftest import Pok
from tests.steps import EARLIEST, KEY_SHARED, PATIENCE_MS, Unique

pytestmark = pytest.mark.kafka


def test_keys_that_wait_are_shown(done: Pok, client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    consumer = client.subscribe(topic, "s", KEY_SHARED, initial_position=EARLIEST, ordered_redelivery=True)
    producer = client.create_producer(topic)
    for number in range(3):
        producer.send(b"%d" % number, partition_key="k")
    consumer.negative_acknowledge(consumer.receive(PATIENCE_MS))
    text = "partition 0: waiting for refused messages: 1 key with 2 messages, the longest for "
    assert text in done("subscriptions", "show", topic, "-s", "s").out
    assert text in done("subscriptions", "stats", topic, "-s", "s").out
    (told,) = done("subscriptions", "stats", topic, "-s", "s", "--output", "json").json["consumers_told"]
    (keys,) = told["waiting_keys"]
    assert (keys["partition"], keys["keys"], keys["messages"], keys["oldest"]) == (0, 1, 2, 0)
    done("namespaces", "policy", "set", "public/default", "ordered_redelivery", "true")
    done("namespaces", "policy", "remove", "public/default", "ordered_redelivery")
    consumer.close()
