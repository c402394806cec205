"""Clients of a Failover subscription are told which of them is the active one."""

from __future__ import annotations

import pytest

from pulsar_on_kafka.mapping.wire.commands import Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka

EXCLUSIVE, FAILOVER = 0, 2


def heard(wire: Wire, count: int) -> list[tuple[str, int, bool | None]]:
    """So many commands: SUCCESS of a request, or whether a consumer is active; in order of their names."""
    found: list[tuple[str, int, bool | None]] = []
    for _ in range(count):
        kind, said = wire.hear()
        if kind is Type.ACTIVE_CONSUMER_CHANGE:
            found.append(("active", said.consumer_id, said.is_active))
        else:
            assert kind is Type.SUCCESS
            found.append(("success", said.request_id, None))
    return sorted(found, key=lambda each: each[:2])


def subscribe(wire: Wire, topic: str, number: int, name: str, kind: int = FAILOVER) -> None:
    wire.say(
        Type.SUBSCRIBE, topic=topic, subscription="s", subType=kind, consumer_id=number, request_id=number,
        consumer_name=name,
    )  # fmt: skip


def test_who_takes_over_is_told(wire: Wire, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    subscribe(wire, topic, 1, "b")
    assert heard(wire, 2) == [("active", 1, True), ("success", 1, None)]
    subscribe(wire, topic, 2, "c")
    assert heard(wire, 2) == [("active", 2, False), ("success", 2, None)]
    subscribe(wire, topic, 3, "a")
    assert heard(wire, 3) == [("active", 1, False), ("active", 3, True), ("success", 3, None)]
    wire.say(Type.CLOSE_CONSUMER, consumer_id=3, request_id=4)
    assert heard(wire, 2) == [("active", 1, True), ("success", 4, None)]


def test_an_exclusive_consumer_is_not_told(wire: Wire, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    subscribe(wire, topic, 1, "a", EXCLUSIVE)
    assert heard(wire, 1) == [("success", 1, None)]
    wire.say(Type.PING)
    assert wire.hear()[0] is Type.PONG
