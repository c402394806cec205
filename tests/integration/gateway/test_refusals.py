"""Refusals leave nothing behind: whatever a client asks for, and whatever it is refused with, counts are as before."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.gateway.connection import Connection
from pulsar_on_kafka.gateway.server import Gateway
from pulsar_on_kafka_mapping.wire.commands import Type
from pulsar_on_kafka_mapping.wire.message_metadata import PulsarMetadata
from tests.integration.gateway.wire import Wire
from tests.seeds import in_three
from tests.steps import Unique
from tests.waiting import until

pytestmark = pytest.mark.kafka

HUGE = [{"key": f"k{number}", "value": "v" * 100} for number in range(15_000)]
"""Properties of a subscription that no record can have."""
NO_AVRO = {"name": "s", "type": 4, "schema_data": b"{"}
HELD = {"exclusive": 0, "shared": 1, "ranges": 3}
"""Subscriptions that another client has, and their types."""
NOWHERE = 2**63 - 2
OPENED = (Type.SUCCESS, Type.PRODUCER_SUCCESS)


class Stage:
    """A gateway's clients, and what there is of them. Others hold a subscription and produce, so many are refused."""

    def __init__(self, gateway: Gateway, admin: AdminClient, wire: Wire, holder: Wire, topic: str) -> None:
        self.gateway = gateway
        self.wire = wire
        self.topic = f"persistent://public/default/{topic}"
        self._admin = admin
        self._holder = holder
        self._request = 0
        holder.connect()
        for number, (name, kind) in enumerate(HELD.items()):
            ranges = {"keySharedMode": 1, "hashRanges": [{"start": 0, "end": 99}]} if kind == 3 else None
            fields = {} if ranges is None else {"keySharedMeta": ranges}
            holder.say(
                Type.SUBSCRIBE, topic=self.topic, subscription=name, subType=kind, consumer_id=number,
                request_id=number, **fields,
            )  # fmt: skip
            assert holder.hear()[0] is Type.SUCCESS
        said = holder.ask(Type.PRODUCER, topic=self.topic, producer_id=1, request_id=9, producer_name="taken",
                          user_provided_producer_name=True)  # fmt: skip
        assert said.producer_name == "taken"
        others = set(gateway.connections.all())
        wire.connect()
        (self.connection,) = set[Connection](gateway.connections.all()) - others

    def ask(self, kind: Type, **fields: Any) -> tuple[Type, Any]:
        self._request += 1
        self._holder.say(Type.PING)  # or its connection ends after a minute, with what it holds
        self.wire.say(kind, request_id=self._request, **fields)
        while True:
            heard, said = self.wire.hear()
            assert heard is not None, "the connection was closed"
            if getattr(said, "request_id", None) == self._request:
                return heard, said

    def counts(self) -> dict[str, object]:
        node, connection = self.gateway.context.node, self.connection
        return {
            "members": {key: member.consumers() for key, member in node.memberships.members().items()},
            "subscriptions": sorted(self._admin.list_subscriptions(self.topic)),
            "producers": {key: len(held) for key, held in node.producers._held.items()},
            "open": (len(connection.consumers), len(connection.producers), len(connection.watchers)),
            "asked": (connection.requests.open, connection.requests.working, len(connection.requests.waiting)),
            "under way": connection.reader.flow.in_flight,
        }


@pytest.fixture
def stage(gateway: Gateway, admin: AdminClient, wire: Wire, unique: Unique) -> Iterator[Stage]:
    with Wire(gateway) as holder:
        yield Stage(gateway, admin, wire, holder, unique())


def subscription_asked(dice: random.Random, topic: str) -> dict[str, Any]:
    def sometimes(value: Any, otherwise: Any) -> Any:
        return value if dice.random() < 0.15 else otherwise

    kind = dice.choice([0, 1, 2, 3, 3, 7])
    asked: dict[str, Any] = {
        "topic": sometimes(dice.choice([f"{topic}-none", "public/none/t", "no topic:/"]), topic),
        "subscription": dice.choice([*HELD, f"new{dice.random()}", "", "a\0b", "s" * 3_000]),
        "subType": kind,
        "consumer_id": 7,
        "consumer_name": sometimes("n" * 70_000, "c"),
        "durable": sometimes(False, True),
        "initialPosition": dice.randrange(2),
        "read_compacted": sometimes(True, False),
        "force_topic_creation": False,
        "priority_level": sometimes(-1, 0),
        "replicate_subscription_state": sometimes(True, False),
        "subscription_properties": sometimes(HUGE, sometimes([{"key": "k", "value": "\0"}], [])),
    }
    if kind == 3:
        ranges = dice.choice([[], [(0, 99)], [(50, 200)], [(9, 1)], [(0, 2**31 - 1)], [(100, 200), (150, 300)]])
        asked["keySharedMeta"] = {
            "keySharedMode": dice.randrange(2),
            "hashRanges": [{"start": start, "end": end} for start, end in ranges],
        }
    if dice.random() < 0.15:
        asked["start_message_id"] = {"ledgerId": NOWHERE, "entryId": 5}
    if dice.random() < 0.15:
        asked["schema"] = NO_AVRO
    return asked


def producer_asked(dice: random.Random, topic: str) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "topic": dice.choice([topic, topic, topic, "public/none/t", "no topic:/"]),
        "producer_id": 7,
        "producer_name": dice.choice(["taken", "", "a\0b", "mine"]),
        "user_provided_producer_name": dice.random() < 0.7,
        "producer_access_mode": dice.choice([0, 0, 1, 9]),
        "initial_subscription_name": dice.choice(["", "", "", "a\0b"]),
    }
    if dice.random() < 0.2:
        asked["schema"] = dice.choice([NO_AVRO, {"name": "s", "type": 99, "schema_data": b""}])
    return asked


@pytest.mark.parametrize("seeds", in_three(25, range(200)))
def test_a_consumer_or_producer_that_is_refused_leaves_nothing(stage: Stage, seeds: range) -> None:
    before, refused = stage.counts(), 0
    for seed in seeds:
        dice = random.Random(seed)
        if dice.random() < 0.7:
            kind, asked, closes = Type.SUBSCRIBE, subscription_asked(dice, stage.topic), Type.CLOSE_CONSUMER
            which = {"consumer_id": 7}
        else:
            kind, asked, closes = Type.PRODUCER, producer_asked(dice, stage.topic), Type.CLOSE_PRODUCER
            which = {"producer_id": 7}
        answer, said = stage.ask(kind, **asked)
        told = f"seed {seed}: {answer.name} {str(said)[:200]} of {str(asked)[:600]}"
        if answer in OPENED:
            if kind is Type.SUBSCRIBE and asked["subscription"] not in HELD:
                assert stage.ask(Type.UNSUBSCRIBE, **which)[0] is Type.SUCCESS, told
            assert stage.ask(closes, **which)[0] is Type.SUCCESS, told
        else:
            refused += 1
        assert stage.counts() == before, told
    assert refused > len(seeds) / 4


def test_consumers_whose_properties_cannot_be_stored_take_no_messages(stage: Stage) -> None:
    """Of three clients that were refused one gets every message: those hold no keys."""
    meta = {"keySharedMeta": {"keySharedMode": 0}}
    opened = stage.ask(Type.SUBSCRIBE, topic=stage.topic, subscription="s", subType=3, consumer_id=1, **meta)
    assert opened[0] is Type.SUCCESS
    for number in range(2, 5):
        answer, _ = stage.ask(
            Type.SUBSCRIBE, topic=stage.topic, subscription="s", subType=3, consumer_id=number,
            subscription_properties=HUGE, **meta,
        )  # fmt: skip
        assert answer is Type.ERROR
    assert stage.ask(Type.PRODUCER, topic=stage.topic, producer_id=1)[0] is Type.PRODUCER_SUCCESS
    stage.wire.say(Type.FLOW, consumer_id=1, messagePermits=100)
    keys = [b"k%d" % number for number in range(30)]
    for number, key in enumerate(keys):
        metadata = PulsarMetadata(
            producer_name="p", sequence_id=number, publish_time_ms=time.time_ns() // 1_000_000, partition_key=key
        )
        stage.wire.send_as(metadata, 1, key)
    got: set[bytes] = set()
    while len(got) < len(keys):
        kind, _ = stage.wire.hear()
        if kind is Type.MESSAGE:
            got.add(stage.wire.payload())
    assert got == set(keys)


REFUSED_ENTRIES: dict[str, dict[str, Any]] = {
    "a marker": {"marker_type": 1},
    "an unknown codec": {"compression": 77, "uncompressed_bytes": 1},
    "more than may be uncompressed": {"compression": 1, "uncompressed_bytes": 2**31},
    "more messages than bytes": {"messages": 1_000},
    "no base64": {"partition_key": b"***", "in_base64": 1},
    "an unknown transaction": {"txn_most": 3, "txn_least": 999_999},
    "a sequence id of no record": {"sequence_id": 2**63},
}


@pytest.mark.parametrize("what", REFUSED_ENTRIES)
def test_a_message_that_is_refused_leaves_nothing(stage: Stage, what: str) -> None:
    assert stage.ask(Type.PRODUCER, topic=stage.topic, producer_id=1)[0] is Type.PRODUCER_SUCCESS
    producer = stage.connection.producers.handles.get(1)
    assert producer is not None
    before = stage.counts()
    fields = {"sequence_id": 5, "producer_name": "p", "publish_time_ms": time.time_ns() // 1_000_000}
    stage.wire.send_as(PulsarMetadata(**{**fields, **REFUSED_ENTRIES[what]}), 1, b"x")
    assert stage.wire.hear()[0] in (Type.SEND_ERROR, Type.CLOSE_PRODUCER)

    def settled() -> bool:
        counts = stage.counts()
        counts["open"], counts["producers"] = before["open"], before["producers"]  # it may have been closed
        return counts == before and not producer.has_unanswered()

    until(settled, lambda: f"{stage.counts()} to be {before}")
