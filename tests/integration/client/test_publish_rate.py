"""Publish rates of topics, for programs of the SDK."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from tests.integration.cli.conftest import Pok
from tests.integration.cli.conftest import done as done
from tests.integration.cli.conftest import pok as pok
from tests.steps import Unique
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

_LARGE = b"x" * 100_000
"""At one byte a second no more comes after it while a test runs."""


class Sent:
    """The results of messages, in the order of their arrival."""

    def __init__(self) -> None:
        self.results: list[pulsar.Result] = []
        self.is_answered = threading.Event()

    def __call__(self, result: pulsar.Result, _: Any) -> None:
        self.results.append(result)
        self.is_answered.set()


@pytest.mark.parametrize("batching", [False, True])
def test_messages_above_the_rate_wait_until_the_policy_is_removed(
    client: pulsar.Client, admin: AdminClient, unique: Unique, batching: bool
) -> None:
    topic, other = unique(), unique()
    admin.create_topic(topic)
    admin.set_policy(topic, "publish_throttling_rate_in_byte", 1)
    producer = client.create_producer(topic, "slow", send_timeout_millis=0, batching_enabled=batching)
    producer.send(_LARGE)
    held = Sent()
    for _ in range(3):
        producer.send_async(b"held", held)
    client.create_producer(other).send(b"another topic's")
    assert producer.send_counts().pending == 3
    assert not held.results
    admin.remove_policy(topic, "publish_throttling_rate_in_byte")
    assert held.is_answered.wait(PATIENCE_S)
    producer.flush()
    assert held.results == [pulsar.Result.Ok] * 3
    producer.send(b"free again")


def test_held_messages_are_bounded_by_the_queue_and_end_with_a_time_out(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, held = unique(), Sent()
    admin.create_topic(topic)
    admin.set_policy(topic, "publish_throttling_rate_in_byte", 1)
    producer = client.create_producer(topic, max_pending_messages=2, send_timeout_millis=500)
    producer.send(_LARGE)
    for _ in range(3):
        producer.send_async(b"held", held)
    assert held.results == [pulsar.Result.ProducerQueueIsFull]
    with pytest.raises(pulsar.ProducerQueueIsFull):
        producer.send(b"one more")
    until(lambda: len(held.results) == 3, "the held messages to time out")
    assert held.results[1:] == [pulsar.Result.Timeout] * 2


def test_a_partition_that_is_held_back_holds_no_other_one(
    client: pulsar.Client, admin: AdminClient, unique: Unique
) -> None:
    topic, held = unique(), Sent()
    admin.create_partitioned_topic(topic, 2)
    admin.set_policy(topic, "publish_throttling_rate_in_byte", 1)
    first, second = (client.create_producer(f"{topic}-partition-{number}") for number in range(2))
    first.send(_LARGE)
    first.send_async(b"held", held)
    second.send(b"free")
    assert not held.results
    admin.remove_policy(topic, "publish_throttling_rate_in_byte")
    assert held.is_answered.wait(PATIENCE_S)


def test_a_namespace_has_a_rate_and_the_command_shows_who_is_held_back(
    client: pulsar.Client, admin: AdminClient, done: Pok, unique: Unique
) -> None:
    namespace = f"public/{unique()}"
    admin.create_namespace(namespace)
    topic, held = f"{namespace}/orders", Sent()
    done("namespaces", "policy", "set", namespace, "publish_throttling_rate_in_byte", "1")
    producer = client.create_producer(topic)
    producer.send(_LARGE)
    producer.send_async(b"held", held)

    def shown() -> bool:
        (publisher,) = done("--output", "json", "topics", "stats", topic).json["publishers"]
        return bool(publisher["rate_limited_times"] == 1)

    until(shown, "the command to show that the producer is held back")
    done("topics", "policy", "set", topic, "publish_throttling_rate_in_msg", "1000")
    assert held.is_answered.wait(PATIENCE_S)
    assert held.results == [pulsar.Result.Ok]
