"""Clients that Pulsar sent here still have message ids of Pulsar: they mean the copies of these messages."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.clusters.migration.from_pulsar.entries import Entry, OriginOfCopies, PulsarMessage, copies
from pulsar_on_kafka.clusters.migration.from_pulsar.entry_positions import Position
from pulsar_on_kafka.kafka.appends import NewRecord, append_apart
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

_LEDGER = 7
_MESSAGES = 6
_PATIENCE_S = 60.0
INDIVIDUAL, CUMULATIVE = 0, 1


@pytest.fixture
def topic(admin: AdminClient, unique: Unique) -> str:
    """The topic of a tenant that a Pulsar cluster had: copies of 7:0 to 7:5, of which 7:2 has two messages."""
    tenant = TopicName.parse(unique()).local_name
    name = f"persistent://{tenant}/shop/orders"
    admin.create_namespace(f"{tenant}/shop")
    admin.create_topic(name)
    node, deadline = admin.node, Deadline.after(_PATIENCE_S)
    record = node.imports.begin(tenant, f"pulsar:{tenant}", "pulsar://old:6650", "http://old:8080", deadline)
    here = node.topics.open(TopicName.parse(name), deadline)
    node.producers.more_than_plain(here, deadline)
    found = []
    for number in range(_MESSAGES):
        payloads = [b"2.0", b"2.1"] if number == 2 else [b"%d" % number]
        messages = [PulsarMessage(payload=each) for each in payloads]
        entry = Entry(Position(_LEDGER, number), "p", 1_700_000_000_000, messages)
        found += copies(entry, OriginOfCopies(record.origin, 0, record.run), None, False, 1 << 20, "")  # fmt: skip
    append_apart(node.state_producer, [(here.kafka_topic, 0, [NewRecord(*each) for each in found])], deadline)
    return name


def _id(entry: int, **more: Any) -> dict[str, Any]:
    return {"ledgerId": _LEDGER, "entryId": entry, **more}


def _subscribe(wire: Wire, topic: str, kind: int) -> None:
    wire.connect()
    opened = wire.ask(
        Type.SUBSCRIBE, topic=topic, subscription="s", subType=kind, consumer_id=1, request_id=1, initialPosition=1
    )
    assert opened.request_id == 1


@pytest.mark.parametrize(
    ("kind", "ack_type", "ids", "left"),
    [
        (1, INDIVIDUAL, [_id(0), _id(3), _id(5)], 3),
        (1, INDIVIDUAL, [_id(2, ack_set=[0b10], batch_size=2)], _MESSAGES),
        (1, INDIVIDUAL, [_id(2)], _MESSAGES - 1),
        (1, INDIVIDUAL, [_id(9), {"ledgerId": 8, "entryId": 0}], _MESSAGES),
        (0, CUMULATIVE, [_id(3)], 2),
    ],
)
def test_late_acknowledgements_count_for_copies(
    wire: Wire, admin: AdminClient, topic: str, kind: int, ack_type: int, ids: list[dict[str, Any]], left: int
) -> None:
    _subscribe(wire, topic, kind)
    reply = wire.ask(Type.ACK, consumer_id=1, ack_type=ack_type, message_id=ids, request_id=2)
    assert (reply.request_id, reply.HasField("error")) == (2, False)

    def backlog() -> int:
        return admin.subscription_stats(topic, "s").backlog

    until(lambda: backlog() == left, lambda: f"the backlog is {backlog()}, expected {left}")


@pytest.mark.parametrize(
    ("start", "payload"),
    [(_id(1), b"2"), (_id(4), b"5"), (_id(2, batch_index=0), b"2"), ({"ledgerId": 6, "entryId": 9}, b"0")],
)
def test_readers_continue_behind_the_copy(wire: Wire, topic: str, start: dict[str, Any], payload: bytes) -> None:
    wire.connect()
    opened = wire.ask(
        Type.SUBSCRIBE, topic=topic, subscription="reader-1", subType=0, consumer_id=1, request_id=1, durable=False,
        start_message_id=start,
    )  # fmt: skip
    assert opened.request_id == 1
    wire.say(Type.FLOW, consumer_id=1, messagePermits=1)
    kind, message = wire.hear()
    assert kind is Type.MESSAGE
    assert message.message_id.entryId == int(payload)


def test_ids_of_pulsar_are_refused_without_an_import(wire: Wire, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    admin.create_topic(topic)
    _subscribe(wire, topic, 1)
    reply = wire.ask(Type.ACK, consumer_id=1, ack_type=INDIVIDUAL, message_id=[_id(0)], request_id=2)
    assert reply.error == ServerError.NOT_ALLOWED
