"""Consumers of a gateway get what the dispatch rate of their subscription allows."""

from __future__ import annotations

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.cli.conftest import Pok
from tests.integration.cli.conftest import done as done
from tests.integration.cli.conftest import pok as pok
from tests.integration.gateway.rest import Rest
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

_EVENTS = "dispatchThrottledMsgEventsBySubscriptionLimit"


def test_a_consumer_above_the_rate_waits_until_the_policy_is_removed(
    gateway: Gateway, client: pulsar.Client, admin: AdminClient, rest: Rest, done: Pok, unique: Unique
) -> None:
    name = unique()
    topic, path = f"persistent://public/default/{name}", f"/admin/v2/persistent/public/default/{name}"
    admin.create_topic(topic)
    rate = {"dispatchThrottlingRateInMsg": 2, "ratePeriodInSecond": 3600}
    rest.does("POST", f"{path}/subscriptionDispatchRate", json=rate)
    admin.create_subscription(topic, "s", from_earliest=True)
    producer = client.create_producer(topic)
    for number in range(5):
        producer.send(b"%d" % number)
    with Wire(gateway) as wire:
        wire.connect()
        wire.say(
            Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=1, consumer_name="c"
        )
        assert wire.hear()[0] is Type.SUCCESS
        wire.say(Type.FLOW, consumer_id=1, messagePermits=100)
        for _ in range(2):
            assert wire.hear()[0] is Type.MESSAGE
        until(lambda: rest.get(f"{path}/stats")["subscriptions"]["s"][_EVENTS] == 1, "the statistics to show it")
        shown = done("subscriptions", "stats", topic, "-s", "s").out
        assert "held back by the subscription's dispatch rate 1 time, by the topic's 0 times" in shown
        wire.limit_s(0.5)
        with pytest.raises(TimeoutError):
            wire.hear()
        wire.limit_s(60)
        rest.does("DELETE", f"{path}/subscriptionDispatchRate")
        for _ in range(3):
            assert wire.hear()[0] is Type.MESSAGE
