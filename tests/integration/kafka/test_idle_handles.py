"""librdkafka asks for topics that it was asked about and that are not there every second, until its handle is closed:
none of ours has such a topic."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.settings import LIBRDKAFKA_LOG
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

ASKS_AGAIN = "should refresh metadata"


def test_no_topic_is_asked_for_every_second(service_url: str, unique: Unique, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LIBRDKAFKA_LOG.name)
    other = logging.getLogger(f"{LIBRDKAFKA_LOG.name}.{unique()}")
    client = pulsar.Client(service_url, kafka_config={"debug": "topic"})
    client.create_producer(unique()).send(b"x")
    admin = client._session.node().admin
    admin.cluster_id(Deadline.after(30))
    admin.broker_configs(Deadline.after(30))
    # The same with one that does: where it has begun to ask for the third time, ours would have asked as well.
    options: dict[str, Any] = {"debug": "topic", "logger": other}
    handle = AdminClient({"bootstrap.servers": service_url.removeprefix("kafka://")} | options)
    handle.list_topics(topic="", timeout=30)

    def asked(name: str) -> list[str]:
        handle.poll(0)
        admin._handle.poll(0)
        return [line.message for line in caplog.records if line.name == name and ASKS_AGAIN in line.message]

    until(lambda: len(asked(other.name)) >= 3, "a topic that is not there to be asked for again")
    assert asked(LIBRDKAFKA_LOG.name) == []
    client.close()
