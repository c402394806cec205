"""A Kafka producer is given up: nothing that waits in it is stored any more."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka_mapping.names.topic_name import TopicName, kafka_topic
from tests.chaos.outside import read_topic
from tests.waiting import patience, until


def test_what_waits_is_not_stored_when_kafka_answers_again(own_broker: EmbeddedBroker) -> None:
    topic = kafka_topic(TopicName.parse("orders"))
    records = [b"%04d" % number + bytes(50_000) for number in range(100)]  # one request takes twenty
    with AdminClient(f"kafka://{own_broker.bootstrap}") as admin:
        admin.create_topic("orders")
        kafka = admin.node.producer("none", 0, "mine")
        kafka.append(topic, 0, None, b"before", patience())
        heard: list[Any] = []
        own_broker.pause()
        for record in records:
            kafka.enqueue(topic, 0, None, record, lambda error, _record: heard.append(error))
        kafka.wake()
        admin.node.give_up_producers("of others", ConnectFailed("cut off"))
        assert kafka.fatal is None
        admin.node.give_up_producers("mine", ConnectFailed("cut off"))
        until(lambda: len(heard) == len(records), "every sender to hear of it")
        assert all(heard)
        own_broker.resume()
        another = admin.node.producer("none", 0, "mine")
        assert another is not kafka
        another.append(topic, 0, None, b"after", Deadline.after(120))
    stored = [value for value in read_topic(own_broker.bootstrap, topic, 1).values() if len(value) > 10]
    assert stored == records[: len(stored)]
    assert len(stored) < len(records) / 2
