"""A gateway that stops closes what its clients have opened, also what is being opened just then."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.handlers import consumers
from pulsar_on_kafka.gateway.handlers.consumer_opening import open_consumer
from pulsar_on_kafka.gateway.protocol.fair_pool import FairPool
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka


def test_a_consumer_that_is_being_opened_while_the_gateway_stops_is_closed(
    client: pulsar.Client, admin: AdminClient, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, opened, may_return = unique(), threading.Event(), threading.Event()

    def held(*arguments: Any) -> Any:
        found = open_consumer(*arguments)
        opened.set()
        assert may_return.wait(60)
        return found

    monkeypatch.setattr(consumers, "open_consumer", held)
    waits = threading.Event()
    for name in ("shutdown", "wait_until_idle"):
        method = getattr(FairPool, name)
        monkeypatch.setattr(FairPool, name, lambda *given, method=method: (waits.set(), method(*given))[1])
    gateway = Gateway(admin.node, GatewaySettings(port=0, fleet=unique()))
    with Wire(gateway) as wire:
        wire.connect()
        wire.say(Type.SUBSCRIBE, topic=topic, subscription="s", subType=0, consumer_id=1, request_id=1)
        assert opened.wait(60)
        stopping = threading.Thread(target=gateway.close, args=(Deadline.after(60),))
        stopping.start()
        until(lambda: wire.hear()[0] is None, "the connection's end")
        assert waits.wait(60)  # for what is under way
        may_return.set()
        stopping.join(60)
        assert not stopping.is_alive()
    client.subscribe(topic, "s").close()  # Exclusive: refused while the consumer is attached
