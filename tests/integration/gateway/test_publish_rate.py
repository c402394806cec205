"""Clients of a gateway are held back by a topic's publish rate."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.gateway.rest import Rest
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_a_connection_above_the_rate_is_not_read_until_the_policy_is_removed(
    gateway: Gateway, admin: AdminClient, rest: Rest, unique: Unique
) -> None:
    name = unique()
    topic, path = f"persistent://public/default/{name}", f"/admin/v2/persistent/public/default/{name}"
    admin.create_topic(topic)
    rate = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 1}
    rest.does("POST", f"{path}/publishRate", json=rate)
    assert rest.get(f"{path}/publishRate") == rate
    with Wire(gateway) as held, Wire(gateway) as other:
        for wire in (held, other):
            wire.connect()
        _open(held, 1, topic)
        held.send(1, 0, b"x" * 100_000)
        assert held.hear()[0] is Type.SEND_RECEIPT
        held.send(1, 1, b"waits")
        held.say(Type.PING)
        _open(other, 1, f"persistent://public/default/{unique()}")
        other.send(1, 0, b"another topic's")
        assert other.hear()[0] is Type.SEND_RECEIPT
        until(lambda: rest.get(f"{path}/stats")["publishRateLimitedTimes"] > 0, "the statistics to show it")
        held.limit_s(0.5)
        with pytest.raises(TimeoutError):
            held.hear()
        held.limit_s(60)
        rest.does("DELETE", f"{path}/publishRate")
        assert {held.hear()[0] for _ in range(2)} == {Type.SEND_RECEIPT, Type.PONG}


def _open(wire: Wire, number: int, topic: str) -> None:
    wire.say(Type.PRODUCER, producer_id=number, request_id=number, topic=topic)
    assert wire.hear()[0] is Type.PRODUCER_SUCCESS
