"""Clients of a Failover subscription are told which of them is the active one."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

EXCLUSIVE, FAILOVER = 0, 2


def heard(wire: Wire, count: int) -> list[tuple[str, int, bool | None]]:
    """So many commands: SUCCESS of a request, whether a consumer is active, or its end; in order of their names."""
    found: list[tuple[str, int, bool | None]] = []
    for _ in range(count):
        kind, said = wire.hear()
        if kind is Type.ACTIVE_CONSUMER_CHANGE:
            found.append(("active", said.consumer_id, said.is_active))
        elif kind is Type.CLOSE_CONSUMER:
            found.append(("closed", said.consumer_id, None))
        else:
            assert kind is Type.SUCCESS
            found.append(("success", said.request_id, None))
    return sorted(found, key=lambda each: each[:2])


def subscribe(wire: Wire, topic: str, number: int, name: str, kind: int = FAILOVER) -> None:
    wire.say(
        Type.SUBSCRIBE, topic=topic, subscription="s", subType=kind, consumer_id=number, request_id=number,
        consumer_name=name,
    )  # fmt: skip


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    """A topic's only partition: the first by name is its active consumer."""
    name = unique()
    admin.create_partitioned_topic(name, 1)
    return f"{name}-partition-0"


def test_who_takes_over_is_told(wire: Wire, topic: str) -> None:
    wire.connect()
    subscribe(wire, topic, 1, "b")
    assert heard(wire, 2) == [("active", 1, True), ("success", 1, None)]
    subscribe(wire, topic, 2, "c")
    assert heard(wire, 2) == [("active", 2, False), ("success", 2, None)]
    subscribe(wire, topic, 3, "a")
    assert heard(wire, 3) == [("active", 1, False), ("active", 3, True), ("success", 3, None)]
    wire.say(Type.CLOSE_CONSUMER, consumer_id=3, request_id=4)
    assert heard(wire, 2) == [("active", 1, True), ("success", 4, None)]


@pytest.mark.parametrize("seeking", [1, 2])
def test_a_seek_has_the_active_consumer_alone_come_anew(wire: Wire, topic: str, seeking: int) -> None:
    """Source: Pulsar's AbstractDispatcherSingleActiveConsumer.disconnectActiveConsumers."""
    wire.connect()
    for number, name in ((1, "a"), (2, "b")):
        subscribe(wire, topic, number, name)
        heard(wire, 2)
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=3).producer_name
    wire.send(1, 0, b"sent")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    wire.say(Type.SEEK, consumer_id=seeking, request_id=4, message_publish_time=0)
    assert heard(wire, 3) == [("active", 2, True), ("closed", 1, None), ("success", 4, None)]
    wire.say(Type.FLOW, consumer_id=2, messagePermits=1)
    kind, message = wire.hear()
    assert (kind, wire.payload()) == (Type.MESSAGE, b"sent")
    wire.say(Type.ACK, consumer_id=2, ack_type=0, message_id=[message.message_id], request_id=5)
    assert wire.hear()[0] is Type.ACK_RESPONSE

    def done() -> bool:
        return bool(wire.ask(Type.CONSUMER_STATS, consumer_id=2, request_id=6).msgBacklog == 0)

    until(done, "the acknowledgement to count")


def test_an_exclusive_consumer_is_not_told(wire: Wire, topic: str) -> None:
    wire.connect()
    subscribe(wire, topic, 1, "a", EXCLUSIVE)
    assert heard(wire, 1) == [("success", 1, None)]
    wire.say(Type.PING)
    assert wire.hear()[0] is Type.PONG


@pytest.mark.parametrize("with_flow", [True, False])
def test_the_active_consumer_is_told_behind_success(wire: Wire, topic: str, with_flow: bool) -> None:
    """Go's client registers its consumer after SUCCESS, and drops what it hears of the consumer before."""
    wire.connect()
    subscribe(wire, topic, 1, "b")
    assert wire.hear()[0] is Type.SUCCESS
    if with_flow:
        wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    kind, said = wire.hear()
    assert (kind, said.is_active) == (Type.ACTIVE_CONSUMER_CHANGE, True)
