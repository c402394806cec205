"""Closed connections, consumers and readers of a gateway leave nothing behind."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from typing import Final

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.base.garbage_collection import THRESHOLDS
from pulsar_on_kafka.broker.subscriptions.records.consumer_inbox import Endpoint
from pulsar_on_kafka.gateway.connection import Connection
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.gateway.wire import Wire
from tests.live_objects import leaves_nothing
from tests.steps import EARLIEST, SHARED, Unique

pytestmark = pytest.mark.kafka

SENT: Final = 500
_SHARED: Final = 1
_EARLIEST: Final = {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}


def _produced(wire: Wire, topic: str) -> None:
    assert wire.ask(Type.PRODUCER, topic=topic, producer_id=1, request_id=1).producer_ready
    wire.send(1, 0, b"x")
    assert wire.hear()[0] is Type.SEND_RECEIPT


def _consumed(wire: Wire, topic: str) -> None:
    wire.say(Type.SUBSCRIBE, topic=topic, subscription="s", subType=_SHARED, consumer_id=1, request_id=1)
    assert wire.hear()[0] is Type.SUCCESS


def _read(wire: Wire, topic: str) -> None:
    """One permit: the gateway's reader holds the other messages."""
    wire.say(
        Type.SUBSCRIBE, topic=topic, subscription="r", subType=0, consumer_id=1, request_id=1, durable=False,
        start_message_id=_EARLIEST,
    )  # fmt: skip
    assert wire.hear()[0] is Type.SUCCESS
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    assert wire.hear()[0] is Type.MESSAGE


def _refused(wire: Wire, topic: str) -> None:
    assert wire.ask(Type.PRODUCER, topic="persistent://nobody/nowhere/t", producer_id=1, request_id=1).message


@pytest.mark.parametrize("use", [_produced, _consumed, _read, _refused])
def test_a_closed_connection_leaves_nothing(
    gateway: Gateway, client: pulsar.Client, unique: Unique, use: Callable[[Wire, str], None]
) -> None:
    topic = unique()
    producer = client.create_producer(topic, block_if_queue_full=True)
    for _ in range(SENT):
        producer.send_async(b"x", None)
    producer.flush()

    def connected() -> None:
        with Wire(gateway) as wire:
            wire.connect()
            use(wire, topic)
            wire.open().shutdown(socket.SHUT_WR)
            while wire.hear()[0] is not None:
                pass

    leaves_nothing(connected)
    producer.close()


OPENED: Final = 500


@pytest.fixture
def tuned() -> Iterator[None]:
    """The thresholds of `pok gateway`; collections happen by them alone."""
    former = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*THRESHOLDS)
    yield
    gc.set_threshold(*former)


def alive(kind: type) -> int:
    return sum(isinstance(each, kind) for each in gc.get_objects())


@pytest.mark.usefixtures("tuned")
def test_a_tuned_collector_bounds_closed_connections(gateway: Gateway) -> None:
    before, most = alive(Connection), 0
    for number in range(OPENED):
        with Wire(gateway) as wire:
            wire.connect()
        if number % 50 == 0:
            most = max(most, alive(Connection) - before)
    assert most <= OPENED // 2


@pytest.mark.usefixtures("tuned")
def test_a_tuned_collector_bounds_closed_consumers(client: pulsar.Client, unique: Unique) -> None:
    topic = unique()
    keeping = client.subscribe(topic, "s", SHARED, initial_position=EARLIEST)
    before, most = alive(Endpoint), 0
    for number in range(OPENED):
        client.subscribe(topic, "s", SHARED).close()
        if number % 50 == 0:
            most = max(most, alive(Endpoint) - before)
    assert most <= OPENED * 3 // 4  # one leaves 36 objects that wait for a collection, which comes after 10,000
    keeping.close()
