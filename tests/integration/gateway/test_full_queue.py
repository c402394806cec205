"""Where Kafka takes nothing, and librdkafka no more, a client that sends waits, and nobody else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.embedded import EmbeddedBroker
from pulsar_on_kafka.gateway.handlers.wire_producer import USE
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.kafka.producer import KafkaProducer
from pulsar_on_kafka_mapping.wire.commands import Type
from tests.integration.gateway.test_entry_formats import Batches, in_kafka
from tests.integration.gateway.wire import Wire
from tests.waiting import until

_ROOM: Final = 100
"""Records that librdkafka takes."""
_ENTRIES: Final = 150
_TOPIC: Final = "orders"


@pytest.fixture
def admin(own_broker: EmbeddedBroker) -> Iterator[AdminClient]:
    options = {"queue.buffering.max.messages": str(_ROOM)}
    with AdminClient(f"kafka://{own_broker.bootstrap}", operation_timeout_seconds=120, kafka_config=options) as made:
        yield made


@pytest.fixture
def gateway(admin: AdminClient) -> Iterator[Gateway]:
    made = Gateway(admin.node, GatewaySettings(port=0))
    yield made
    made.close(Deadline.after(60))


@pytest.fixture
def queue(admin: AdminClient, gateway: Gateway) -> Callable[[], KafkaProducer]:
    """What the gateway's clients share."""
    return lambda: admin.node.producer("none", 0, USE)


@pytest.fixture(params=[1, 3], ids=["single messages", "batches taken apart"])
def entries(request: pytest.FixtureRequest, admin: AdminClient) -> Sequence[Sequence[int]]:
    """The numbers in each of them; a batch of three does not fit in as a whole."""
    admin.create_topic(_TOPIC)
    if request.param > 1:
        admin.set_policy(_TOPIC, "entry_format", "native")
    return [range(10 * number, 10 * number + request.param) for number in range(1, _ENTRIES)]


def opened(wire: Wire) -> Batches:
    batches = Batches(wire, _TOPIC)
    wire.send(1, 0, b"0")
    assert wire.hear()[0] is Type.SEND_RECEIPT  # everything is made that a message needs
    return batches


def say(wire: Wire, batches: Batches, entry: Sequence[int]) -> None:
    if len(entry) > 1:
        batches.say(*entry)
    else:
        wire.send(1, entry[0], b"%d" % entry[0])


def test_others_are_served_and_everything_is_stored_in_order(
    own_broker: EmbeddedBroker,
    gateway: Gateway,
    queue: Callable[[], KafkaProducer],
    entries: Sequence[Sequence[int]],
) -> None:
    with Wire(gateway) as sending, Wire(gateway) as other:
        batches = opened(sending)
        other.connect()
        other.limit_s(60)
        own_broker.pause()
        for entry in entries:
            say(sending, batches, entry)
        until(lambda: queue().outstanding() >= _ROOM - 2, "librdkafka to be full")
        for _ in range(5):
            other.say(Type.PING)
            assert other.hear()[0] is Type.PONG
        assert queue().full
        own_broker.resume()
        told = [sending.hear() for _ in entries]
        assert [(kind, said.sequence_id) for kind, said in told] == [(Type.SEND_RECEIPT, entry[0]) for entry in entries]
    stored = [record.value() for record in in_kafka(own_broker.bootstrap, _TOPIC)]
    assert stored == [b"0", *(b"%d" % number for entry in entries for number in entry)]


def test_what_still_waits_when_its_connection_ends_is_not_stored(
    own_broker: EmbeddedBroker,
    gateway: Gateway,
    queue: Callable[[], KafkaProducer],
    entries: Sequence[Sequence[int]],
) -> None:
    with Wire(gateway) as sending:
        batches = opened(sending)
        own_broker.pause()
        for entry in entries:
            say(sending, batches, entry)
        until(lambda: queue().full, "librdkafka to be full")
        gateway._loop.call_soon_threadsafe(gateway._abort)
        until(lambda: not gateway.connections, "its connection to be gone")
    own_broker.resume()
    until(lambda: not queue().outstanding(), "what was taken to be stored")
    stored = [record.value() for record in in_kafka(own_broker.bootstrap, _TOPIC)]
    assert stored == [b"0", *(b"%d" % number for entry in entries for number in entry)][: 1 + _ROOM]
