"""A gateway reads nothing ahead for a consumer that has not asked for messages."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import never, until

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("kind", range(4))  # Exclusive, Shared, Failover, Key_Shared
def test_nothing_is_read_before_the_first_flow(wire: Wire, admin: AdminClient, unique: Unique, kind: int) -> None:
    topic, payload = unique(), bytes(1_000_000)
    wire.connect()
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1).producer_ready
    for number in range(4):
        wire.send(1, number, payload)
        assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.ask(
        Type.SUBSCRIBE, topic=topic, subscription="s", subType=kind, consumer_id=1, request_id=2, initialPosition=1
    )
    meter = admin.node.meters.subscription(str(TopicName.parse(topic)), "s")
    until(lambda: meter.assigned, "the partition")
    never(lambda: meter.received_bytes, "records read ahead")
    wire.say(Type.CONSUMER_STATS, consumer_id=1, request_id=3)
    assert until(lambda: wire.hear(), "the statistics")[1].msgBacklog == 4
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    while wire.hear()[0] is not Type.MESSAGE:  # of Failover ACTIVE_CONSUMER_CHANGE comes first
        pass
    assert wire.payload() == payload
    wire.ask(Type.CLOSE_CONSUMER, consumer_id=1, request_id=4)
