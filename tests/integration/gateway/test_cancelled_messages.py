"""Delayed messages of official clients on a gateway are cancelled and rescheduled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from tests.steps import Unique

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka


def test_an_official_consumer_gets_the_others_alone(
    gateway: Gateway, admin_elsewhere: AdminClient, unique: Unique
) -> None:
    topic, admin = unique(), admin_elsewhere
    official = pulsar.Client(gateway.address(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = official.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    producer = official.create_producer(topic)
    ids = [
        producer.send(b"%d" % number, {"n": str(number % 2)}, deliver_after=timedelta(hours=1)) for number in range(6)
    ]
    assert admin.cancel_messages(topic, properties={"n": "0"}) == {"s": 3}
    assert admin.cancel_messages(
        topic, message_ids=[sdk.MessageId.deserialize(each.serialize()) for each in ids[4:]]
    ) == {"s": 1}
    assert admin.reschedule_messages(topic, deliver_at=0, delayed=True) == 2
    found = [consumer.receive(60_000) for _ in range(2)]
    assert sorted(message.data() for message in found) == [b"1", b"3"]
    for message in found:
        consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(400)
    official.close()
