"""Producers that want to be the only ones: those that wait, those that come again, and those that were followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique

pytestmark = pytest.mark.kafka

SHARED, EXCLUSIVE, WAIT_FOR_EXCLUSIVE, EXCLUSIVE_WITH_FENCING = range(4)


@pytest.fixture
def other(gateway: Gateway) -> Iterator[Wire]:
    with Wire(gateway) as made:
        made.connect()
        yield made


def asked(wire: Wire, topic: str, number: int, mode: int, **more: Any) -> Any:
    """What a producer with this number, which is its request's as well, is answered."""
    wanted = {"producer_id": number, "request_id": number, "producer_access_mode": mode}
    return wire.ask(Type.PRODUCER, topic=topic, **wanted, **more)


def test_it_is_told_that_it_waits_and_let_in_when_the_other_one_leaves(wire: Wire, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    assert asked(wire, topic, 1, EXCLUSIVE).producer_ready
    for number in (2, 3):
        said = asked(wire, topic, number, WAIT_FOR_EXCLUSIVE)
        assert (said.request_id, said.producer_ready) == (number, False)
    wire.say(Type.CLOSE_PRODUCER, producer_id=3, request_id=4)
    assert wire.hear()[1].request_id == 4
    wire.say(Type.CLOSE_PRODUCER, producer_id=1, request_id=5)
    heard = [wire.hear() for _ in range(2)]
    assert sorted((said.request_id, kind) for kind, said in heard) == [(2, Type.PRODUCER_SUCCESS), (5, Type.SUCCESS)]
    ready = next(said for kind, said in heard if kind is Type.PRODUCER_SUCCESS)
    assert ready.producer_ready
    wire.send(2, 0, b"mine")
    assert wire.hear()[0] is Type.SEND_RECEIPT


def test_they_are_let_in_in_their_order_and_before_those_who_come_later(
    wire: Wire, other: Wire, unique: Unique
) -> None:
    topic = unique()
    wire.connect()
    assert asked(other, topic, 1, EXCLUSIVE).producer_ready
    for number in (2, 3, 4):
        assert not asked(wire, topic, number, WAIT_FOR_EXCLUSIVE).producer_ready
    assert asked(other, topic, 5, EXCLUSIVE).error == ServerError.PRODUCER_FENCED
    assert asked(other, topic, 6, SHARED).error == ServerError.PRODUCER_BUSY
    other.close()  # its producer leaves with it
    for number in (2, 3, 4):
        kind, said = wire.hear()
        assert (kind, said.request_id, said.producer_ready) == (Type.PRODUCER_SUCCESS, number, True)
        wire.say(Type.CLOSE_PRODUCER, producer_id=number, request_id=10)
        assert wire.hear()[0] is Type.SUCCESS
    assert asked(wire, topic, 7, SHARED).producer_ready


def test_a_producer_that_fences_all_others_out_ends_the_waiting(wire: Wire, other: Wire, unique: Unique) -> None:
    topic = unique()
    wire.connect()
    assert asked(wire, topic, 1, EXCLUSIVE).producer_ready
    for number in (2, 3):
        assert not asked(wire, topic, number, WAIT_FOR_EXCLUSIVE).producer_ready
    assert asked(other, topic, 4, EXCLUSIVE_WITH_FENCING).producer_ready
    for number in (2, 3):
        kind, said = wire.hear()
        assert (kind, said.request_id, said.error) == (Type.ERROR, number, ServerError.PRODUCER_FENCED)
    assert not asked(wire, topic, 5, WAIT_FOR_EXCLUSIVE).producer_ready  # who comes later may wait
    other.say(Type.CLOSE_PRODUCER, producer_id=4, request_id=6)
    assert other.hear()[0] is Type.SUCCESS
    kind, said = wire.hear()
    assert (kind, said.request_id, said.producer_ready) == (Type.PRODUCER_SUCCESS, 5, True)


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT_FOR_EXCLUSIVE, EXCLUSIVE_WITH_FENCING])
def test_one_that_was_followed_by_another_never_comes_again(wire: Wire, other: Wire, unique: Unique, mode: int) -> None:
    """Its client opens it again, by itself, when its message is refused. It would take the topic back."""
    topic = unique()
    wire.connect()
    first = asked(wire, topic, 1, mode)
    assert first.producer_ready
    second = asked(other, topic, 2, EXCLUSIVE_WITH_FENCING)
    assert second.topic_epoch > first.topic_epoch > 0
    wire.send(1, 0, b"too late")
    kind, said = wire.hear()
    assert (kind, said.producer_id) == (Type.CLOSE_PRODUCER, 1)
    assert asked(wire, topic, 1, mode, topic_epoch=first.topic_epoch).error == ServerError.PRODUCER_FENCED
    other.send(2, 0, b"in time")
    assert other.hear()[0] is Type.SEND_RECEIPT
    other.say(Type.CLOSE_PRODUCER, producer_id=2, request_id=3)
    assert other.hear()[0] is Type.SUCCESS
    refused = asked(wire, topic, 1, mode, topic_epoch=first.topic_epoch)
    assert refused.error == ServerError.PRODUCER_FENCED
    assert "another one has had it since" in refused.message
    assert asked(wire, topic, 1, mode).topic_epoch > second.topic_epoch


@pytest.mark.parametrize("partition", ["", "-partition-1"])
def test_one_that_nobody_followed_comes_again(
    wire: Wire, other: Wire, admin: AdminClient, unique: Unique, partition: str
) -> None:
    """Also by another connection, while it is not known that its first one has broken."""
    topic = unique()
    if partition:
        admin.create_partitioned_topic(topic, 2)
        topic += partition
    wire.connect()
    first = asked(wire, topic, 1, EXCLUSIVE, producer_name="one")
    assert asked(other, topic, 5, EXCLUSIVE, producer_name="one").error == ServerError.PRODUCER_FENCED
    again = asked(other, topic, 5, EXCLUSIVE, producer_name="one", topic_epoch=first.topic_epoch)
    assert (again.producer_ready, again.topic_epoch) == (True, first.topic_epoch)
    other.send(5, 0, b"mine")
    assert other.hear()[0] is Type.SEND_RECEIPT
    wire.send(1, 0, b"of a connection that is over")
    assert wire.hear()[0] is Type.CLOSE_PRODUCER
    other.close()
    assert asked(wire, topic, 1, EXCLUSIVE, producer_name="one", topic_epoch=first.topic_epoch).producer_ready
