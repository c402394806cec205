"""What no client of Pulsar's sends: the gateway's memory stays bounded, connections end clearly, others go on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import pulsar_on_kafka as sdk
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway import connection
from pulsar_on_kafka.gateway.login import client_login
from pulsar_on_kafka.gateway.protocol import keep_alive
from pulsar_on_kafka.gateway.protocol.frame_reader import MAX_CONNECT_BYTES
from pulsar_on_kafka.gateway.protocol.frame_writer import CONGESTED_BYTES
from pulsar_on_kafka.gateway.protocol.request_queue import MAX_REQUESTS
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type, command
from pulsar_on_kafka_mapping.wire.frames import MAX_FRAME_BYTES, frame
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

_SHARED: Final = 1
_FETCH_BYTES: Final = 32 * 1024 * 1024
"""Of one hand-out at the most: what librdkafka fetches at once, and had in its queue (`kafka.settings`)."""


@pytest.fixture
def gateway(admin: AdminClient, unique: Unique) -> Iterator[Gateway]:
    made = Gateway(admin.node, GatewaySettings(port=0, fleet=unique()))
    yield made
    made.close(Deadline.after(60))


@pytest.fixture
def opened(gateway: Gateway) -> Iterator[Callable[..., Wire]]:
    """Makes connections, which have said CONNECT unless `silent`."""
    made: list[Wire] = []

    def one(*, silent: bool = False) -> Wire:
        made.append(Wire(gateway))
        made[-1].open()
        if not silent:
            assert made[-1].connect()[0] is Type.CONNECTED
        return made[-1]

    yield one
    for each in made:
        each.close()


Opened = Callable[..., Wire]


def is_served(wire: Wire) -> bool:
    wire.say(Type.PING)
    return wire.hear()[0] is Type.PONG


def subscribed(wire: Wire, topic: str, number: int = 1, **options: Any) -> None:
    fields = {"subscription": "s", "subType": _SHARED, "consumer_id": number, "request_id": number, **options}
    wire.say(Type.SUBSCRIBE, topic=topic, initialPosition=1, **fields)
    assert wire.hear()[0] is Type.SUCCESS


def numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


_PING: Final = command(Type.PING)


@pytest.mark.parametrize(
    "data",
    [
        numbers(3),
        numbers(0, 0),
        numbers(2**32 - 1, 4),
        numbers(MAX_FRAME_BYTES + 1, 4),
        numbers(len(_PING) + 4, len(_PING) + 1) + _PING,
        numbers(len(_PING) + 3, len(_PING)) + _PING,
        frame(_PING[:-1]),
        frame(b""),
        frame(b"\x08\xff\xff\xff\xff\x0f"),
        frame(command(Type.CONNECT, client_version="again")),
        frame(command(Type.SEND_RECEIPT, producer_id=1, sequence_id=1)),
        frame(command(Type.AUTH_RESPONSE)),
        frame(command(Type.SEND, producer_id=77, sequence_id=0), b"nothing"),
        frame(command(Type.SEEK, consumer_id=1, request_id=1)),
    ],
    ids=["three", "nothing", "largest", "too large", "long command", "cut total", "cut command", "empty",
         "no such type", "connect", "receipt", "no challenge", "unknown producer", "seek to nowhere"],
)  # fmt: skip
def test_what_no_client_says_ends_its_own_connection(opened: Opened, data: bytes) -> None:
    other, wire = opened(), opened()
    wire.write(data)
    assert wire.hear() == (None, None)
    assert is_served(other)


@pytest.mark.parametrize("kind", [kind for kind in Type if kind is not Type.CONNECT], ids=lambda kind: kind.name)
def test_nothing_is_done_before_connect(opened: Opened, kind: Type) -> None:
    fields: dict[str, Any] = {}
    for name in ("request_id", "consumer_id", "producer_id", "sequence_id"):
        if name in {each.name for each in _descriptor(kind).fields}:
            fields[name] = 1
    for each in _descriptor(kind).fields:
        if each.is_required and each.name not in fields:
            fields[each.name] = _something(each)
    wire = opened(silent=True)
    wire.write(frame(command(kind, **fields)))
    assert wire.hear() == (None, None)


def _descriptor(kind: Type) -> Any:
    from pulsar_on_kafka_mapping.wire.commands import message_class

    return message_class(kind.message).DESCRIPTOR


def _something(field: Any) -> Any:
    if field.message_type is not None:
        return {each.name: _something(each) for each in field.message_type.fields if each.is_required}
    return {9: "x", 12: b"x"}.get(field.type, 1)


def test_a_frame_before_connect_is_small(opened: Opened) -> None:
    wire = opened(silent=True)
    wire.write(numbers(MAX_CONNECT_BYTES + 1, 4))
    assert wire.hear() == (None, None)
    large = opened(silent=True)
    assert large.connect(auth_data=bytes(MAX_CONNECT_BYTES // 2))[0] is Type.CONNECTED


def test_changed_bytes_disturb_nobody_else(opened: Opened, unique: Unique) -> None:
    topic, dice = unique(), random.Random(28)
    entry = b"\x0e\x01" + bytes(4) + numbers(2) + b"ab" + b"payload"
    session = [
        frame(command(Type.PARTITIONED_TOPIC_METADATA, topic=topic, request_id=1)),
        frame(command(Type.PRODUCER, topic=topic, producer_id=1, request_id=2)),
        frame(command(Type.SUBSCRIBE, topic=topic, subscription="s", subType=1, consumer_id=1, request_id=3)),
        frame(command(Type.FLOW, consumer_id=1, messagePermits=1000)),
        frame(command(Type.SEND, producer_id=1, sequence_id=0), entry),
        frame(command(Type.ACK, consumer_id=1, ack_type=0, message_id=[{"ledgerId": 1, "entryId": 1}])),
        frame(command(Type.GET_LAST_MESSAGE_ID, consumer_id=1, request_id=4)),
        frame(command(Type.CLOSE_CONSUMER, consumer_id=1, request_id=5)),
    ]
    other = opened()
    for _ in range(60):
        wire = opened()
        said = bytearray(b"".join(session))
        for _ in range(dice.randrange(1, 6)):
            said[dice.randrange(len(said))] = dice.randrange(256)
        wire.write(bytes(said[: dice.randrange(len(said))] if dice.random() < 0.3 else said))
        wire.close()
    assert is_served(other)


def test_who_says_nothing_is_closed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_login, "CONNECT_S", 0.2)
    monkeypatch.setattr(keep_alive, "INTERVAL_S", 0.2)
    silent, half = opened(silent=True), opened(silent=True)
    half.write(frame(command(Type.CONNECT, client_version="half"))[:7])
    assert silent.hear() == half.hear() == (None, None)
    idle = opened()
    assert idle.hear()[0] is Type.PING
    assert idle.hear() == (None, None)


def test_a_frame_that_never_ends_does_not_keep_a_connection(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_alive, "INTERVAL_S", 0.5)
    wire = opened()
    wire.write(numbers(1000, 900))

    def drips() -> bool:
        try:
            wire.write(b"\x00")
        except OSError:
            return True
        return False

    until(drips, "the connection to be closed")


def test_a_thousand_strangers_keep_nobody_out(gateway: Gateway, opened: Opened) -> None:
    served = opened()
    strangers = [opened(silent=True) for _ in range(connection.MAX_UNCONNECTED)]
    late = opened()  # which was a stranger itself, until it said CONNECT
    assert strangers[0].hear() == (None, None)
    assert is_served(served)
    assert is_served(late)
    assert gateway.connections.without_login < connection.MAX_UNCONNECTED


def test_permits_without_end_fill_no_memory(
    gateway: Gateway, opened: Opened, client: sdk.Client, unique: Unique
) -> None:
    topic, large, count = unique(), bytes(500_000), 120
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send_async(large, None, properties={"number": str(number)})
    producer.flush()
    wire = opened()
    subscribed(wire, topic)
    for _ in range(3):
        wire.say(Type.FLOW, consumer_id=1, messagePermits=2**32 - 1)
    (served,) = gateway.connections.all()
    until(lambda: served.writer.congested, "the client to take nothing")
    assert served.transport.get_write_buffer_size() <= CONGESTED_BYTES + _FETCH_BYTES
    found = 0
    while found < count:
        kind, _ = wire.hear()
        if kind is Type.PING:
            wire.say(Type.PONG)
        else:
            assert kind is Type.MESSAGE
            found += 1


def test_who_asks_and_takes_no_answer_is_not_read(gateway: Gateway, opened: Opened) -> None:
    wire = opened()
    pings = frame(_PING) * 50_000
    (served,) = gateway.connections.all()
    wire.limit_s(0.5)

    def asks_for_ever() -> None:
        while True:
            wire.write(pings)

    with pytest.raises(TimeoutError):
        asks_for_ever()
    assert served.transport.get_write_buffer_size() <= CONGESTED_BYTES + 2**20


def test_ids_of_others_change_nothing(opened: Opened, client: sdk.Client, admin: AdminClient, unique: Unique) -> None:
    mine, theirs = unique(), unique()
    ids = [client.create_producer(topic).send(b"first") for topic in (mine, theirs)]
    admin.create_subscription(theirs, "s", from_earliest=True)
    wire = opened()
    subscribed(wire, mine)
    of_others = {"ledgerId": ids[1].ledger_id(), "entryId": ids[1].entry_id()}
    wrong = [
        of_others,
        {"ledgerId": 0, "entryId": 0},
        {"ledgerId": 2**64 - 2, "entryId": 5},
        {"ledgerId": ids[0].ledger_id(), "entryId": 2**63},
    ]
    for number, each in enumerate(wrong):
        wire.say(Type.ACK, consumer_id=1, ack_type=0, message_id=[each], request_id=10 + number)
        kind, said = wire.hear()
        assert (kind, said.request_id, said.HasField("error")) == (Type.ACK_RESPONSE, 10 + number, True), each
        wire.say(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=[each])
    wire.say(Type.SEEK, consumer_id=1, request_id=30, message_id=of_others)
    assert wire.hear()[0] is Type.ERROR
    for kind in (Type.UNSUBSCRIBE, Type.GET_LAST_MESSAGE_ID, Type.CONSUMER_STATS):
        wire.say(kind, consumer_id=99, request_id=31)
        answer, said = wire.hear()
        assert (answer, said.error) == (Type.ERROR, ServerError.CONSUMER_NOT_FOUND)
    wire.say(Type.ACK, consumer_id=99, ack_type=0, message_id=[of_others], request_id=32)
    assert wire.hear()[1].error == ServerError.CONSUMER_NOT_FOUND
    wire.say(Type.FLOW, consumer_id=99, messagePermits=1)
    wire.say(Type.CLOSE_PRODUCER, producer_id=99, request_id=33)
    assert wire.hear()[0] is Type.SUCCESS
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    kind, said = wire.hear()
    assert (kind, said.message_id.entryId) == (Type.MESSAGE, ids[0].entry_id())
    assert admin.subscription_stats(theirs, "s").backlog == 1


def test_a_message_of_numbers_that_nobody_could_be_told_is_refused(opened: Opened, unique: Unique) -> None:
    """Its producer would open no more: clients hear of the last sequence id. And who acknowledges a batch has a bit for
    each message that it says it has."""
    topic, wire = unique(), opened()
    fields = {"topic": topic, "producer_id": 1, "producer_name": "p"}
    wire.ask(Type.PRODUCER, request_id=1, **fields)
    wire.send(1, 2**63, b"a")
    batch = PulsarMetadata(producer_name="p", sequence_id=5, publish_time_ms=1, messages=2**31 - 1)
    wire.send_as(batch, 1, b"a")
    wire.send(1, 6, b"a", highest_sequence_id=2**64 - 1)
    wire.send_as(
        PulsarMetadata(producer_name="p", sequence_id=7, publish_time_ms=1, highest_sequence_id=2**63), 1, b"a"
    )
    for expected in (
        "sequence id is 9223372036854775808, expected up to",
        "a batch has 2147483647 messages, expected up to 100000",
        "sequence id is 18446744073709551615, expected up to",
        "sequence id is 9223372036854775808, expected up to",
    ):
        kind, refused = wire.hear()
        assert kind is Type.SEND_ERROR
        assert expected in refused.message
    assert wire.ask(Type.PRODUCER, request_id=2, **fields).last_sequence_id == -1
    wire.send(1, 2**63 - 1, b"a")
    assert wire.hear()[0] is Type.SEND_RECEIPT
    assert wire.ask(Type.PRODUCER, request_id=3, **fields).last_sequence_id == 2**63 - 1


@pytest.mark.parametrize("cumulative", [0, 1], ids=["individual", "cumulative"])
def test_what_was_never_delivered_is_not_acknowledged(
    opened: Opened, client: sdk.Client, unique: Unique, cumulative: int
) -> None:
    topic = unique()
    producer = client.create_producer(topic)
    first = producer.send(b"first")
    wire = opened()
    subscribed(wire, topic, subType=0)
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    assert wire.hear()[1].message_id.entryId == first.entry_id()
    for ledger, entry in ((first.ledger_id(), first.entry_id() + 3), (first.ledger_id() + 2**20, 0)):
        beyond = {"ledgerId": ledger, "entryId": entry}
        wire.say(Type.ACK, consumer_id=1, ack_type=cumulative, message_id=[beyond], request_id=2)
        assert wire.hear()[0] is Type.ACK_RESPONSE
    wire.say(Type.CONSUMER_STATS, consumer_id=1, request_id=3)
    assert wire.hear()[1].msgBacklog == 1  # as the member says, which has looked at what was acknowledged
    sent = [producer.send(b"%d" % number) for number in range(5)]
    wire.say(Type.FLOW, consumer_id=1, messagePermits=10)
    entries = [wire.hear()[1].message_id.entryId for _ in sent]
    assert entries == [each.entry_id() for each in sent]


def test_one_connection_s_requests_hold_up_no_other(opened: Opened) -> None:
    wire, other, most = opened(), opened(), MAX_REQUESTS + 20
    for number in range(most):
        wire.say(Type.GET_TOPICS_OF_NAMESPACE, request_id=number, namespace="not/there", mode=2)
    other.say(Type.GET_TOPICS_OF_NAMESPACE, request_id=1, namespace="public/default", mode=2)
    assert other.hear()[0] is Type.GET_TOPICS_OF_NAMESPACE_RESPONSE
    answers = [wire.hear() for _ in range(most)]
    assert {said.request_id for _, said in answers} == set(range(most))
    refused = [said.error for kind, said in answers if kind is Type.ERROR]
    assert set(refused) <= {ServerError.TOO_MANY_REQUESTS}
    assert len(refused) < most
    assert {kind for kind, _ in answers} <= {Type.ERROR, Type.GET_TOPICS_OF_NAMESPACE_RESPONSE}
