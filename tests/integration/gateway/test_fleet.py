"""Two gateways of a fleet share the topics: lookups, consumers that meet, a gateway that comes, and one that goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.fleet.bundles import BUNDLES, bundle_of
from pulsar_on_kafka.gateway.fleet.membership import fleets_group
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.integration.gateway.wire import Wire
from tests.steps import Unique
from tests.waiting import until

pulsar: Any = pytest.importorskip("pulsar", reason="the official client, pulsar-client, is not installed")

pytestmark = pytest.mark.kafka

PATIENCE_MS = 60_000
EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
Begin = Callable[[], Gateway]
Official = Callable[[Gateway], Any]


@pytest.fixture
def fleet(unique: Unique) -> str:
    return unique("fleet")


@pytest.fixture
def begin(service_url: str, fleet: str) -> Iterator[Begin]:
    """One more gateway of the test's fleet, as in another process."""
    with ExitStack() as ending:

        def make() -> Gateway:
            admin = ending.enter_context(AdminClient(service_url))
            made = Gateway(admin.node, GatewaySettings(port=0, fleet=fleet))
            ending.callback(lambda: made.close(Deadline.after(60)))
            return made

        yield make


@pytest.fixture
def official() -> Iterator[Official]:
    with ExitStack() as ending:

        def make(gateway: Gateway) -> Any:
            client = pulsar.Client(gateway.address(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            ending.callback(client.close)
            return client

        yield make


def owners(admin: AdminClient, fleet: str) -> dict[int, str]:
    """By bundle the client id of its owner."""
    group = fleets_group(admin.node.settings.instance, fleet)
    members = admin.node.admin.describe_group(group, Deadline.after(60)).members
    return {bundle: member.client_id for member in members for _, bundle in member.assigned}


def shared_out(admin: AdminClient, fleet: str, gateways: int) -> Callable[[], bool]:
    def is_so() -> bool:
        found = owners(admin, fleet)
        return len(found) == BUNDLES and len(set(found.values())) == gateways

    return is_so


def topics_of(admin: AdminClient, fleet: str, gateway: Gateway, unique: Unique) -> str:
    """A new topic's name that this gateway serves."""
    while True:
        topic = unique()
        if gateway.address() in owners(admin, fleet)[bundle_of(topic)]:
            return topic


def test_a_lookup_over_http_leads_to_the_one_that_serves(
    begin: Begin, admin: AdminClient, fleet: str, unique: Unique
) -> None:
    one, other = begin(), begin()
    until(shared_out(admin, fleet, 2), "the bundles to be shared out")
    rest = RestServer(admin, one, GatewaySettings())
    try:
        for served_by in (one, other):
            topic = topics_of(admin, fleet, served_by, unique)
            told = requests.get(f"{rest.url()}/lookup/v2/topic/persistent/public/default/{topic}", timeout=60).json()
            assert told["brokerUrl"] == served_by.address()
    finally:
        rest.close()


def test_a_client_of_any_gateway_gets_to_the_one_that_serves(
    begin: Begin, official: Official, admin: AdminClient, fleet: str, unique: Unique
) -> None:
    one, other = begin(), begin()
    until(shared_out(admin, fleet, 2), "the bundles to be shared out")
    for served_by in (one, other):
        topic = topics_of(admin, fleet, served_by, unique)
        consumer = official(one).subscribe(topic, "s", initial_position=EARLIEST)
        producer = official(other).create_producer(topic, batching_enabled=False)
        producer.send(b"found")
        message = consumer.receive(PATIENCE_MS)
        assert message.data() == b"found"
        consumer.acknowledge(message)
        consumer.close()
        producer.close()


@pytest.mark.long
def test_consumers_of_a_partitioned_topic_meet_at_its_partitions(
    begin: Begin, official: Official, admin: AdminClient, fleet: str, unique: Unique
) -> None:
    one, other = begin(), begin()
    until(shared_out(admin, fleet, 2), "the bundles to be shared out")
    topic = unique()
    admin.create_partitioned_topic(topic, 4)
    consumers = [
        official(gateway).subscribe(topic, "s", SHARED, initial_position=EARLIEST, receiver_queue_size=10)
        for gateway in (one, other)
    ]
    producer = official(one).create_producer(topic, batching_enabled=False)
    texts = [b"%d" % number for number in range(400)]
    for text in texts:
        producer.send_async(text, None, partition_key=text.decode())
    producer.flush()
    found: list[list[bytes]] = [[], []]

    def all_there() -> bool:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(10)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            found[number].append(message.data())
        return len(found[0]) + len(found[1]) == len(texts)

    until(all_there, "every message to be received by one of both")
    assert sorted(found[0] + found[1]) == sorted(texts)
    assert all(found)


def test_a_gateway_that_comes_gets_its_share_and_the_clients_of_it(
    begin: Begin, official: Official, admin: AdminClient, fleet: str, unique: Unique
) -> None:
    first = begin()
    client = official(first)
    topics = [unique() for _ in range(12)]  # all of them stay at the first gateway once in 4,096 runs
    consumers = [client.subscribe(topic, "s", initial_position=EARLIEST) for topic in topics]
    producers = [client.create_producer(topic, batching_enabled=False) for topic in topics]
    second = begin()
    sent = 0

    def moved() -> bool:
        nonlocal sent
        for producer in producers:
            producer.send(b"%d" % sent)
        sent += 1
        return shared_out(admin, fleet, 2)() and bool(second.connections)

    until(moved, "clients to come to the second gateway")
    for producer in producers:
        producer.send(b"last")
    for consumer in consumers:
        received: list[bytes] = []
        while not received or received[-1] != b"last":
            message = consumer.receive(PATIENCE_MS)
            received.append(message.data())
            consumer.acknowledge(message)
        assert set(received) == {b"last", *(b"%d" % number for number in range(sent))}


def test_a_gateway_that_stops_hands_over(
    begin: Begin, official: Official, admin: AdminClient, fleet: str, unique: Unique
) -> None:
    stays, goes = begin(), begin()
    until(shared_out(admin, fleet, 2), "the bundles to be shared out")
    topic = topics_of(admin, fleet, goes, unique)
    client = official(stays)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"before")
    producer.send(b"kept")
    consumer.acknowledge(consumer.receive(PATIENCE_MS))
    kept = consumer.receive(PATIENCE_MS)
    goes.close(Deadline.after(60))
    assert shared_out(admin, fleet, 1)()
    producer.send(b"after")
    assert [consumer.receive(PATIENCE_MS).data() for _ in range(2)] == [b"kept", b"after"]
    assert kept.data() == b"kept"


def test_stream_consumers_find_their_partitions_by_the_next_controller(
    begin: Begin, admin: AdminClient, fleet: str, unique: Unique
) -> None:
    stays, goes = begin(), begin()
    until(shared_out(admin, fleet, 2), "the bundles to be shared out")
    topic = topics_of(admin, fleet, goes, unique)
    admin.create_partitioned_topic(topic, 5)

    def register(wire: Wire, name: str) -> Any:
        return wire.ask(
            Type.SCALABLE_TOPIC_SUBSCRIBE, request_id=1, topic=topic, subscription="s", consumer_name=name,
            consumer_id=1, consumer_type=0,
        )  # fmt: skip

    def segments(reply: Any) -> list[int]:
        return [each.segment_id for each in reply.assignment.segments]

    with Wire(goes) as a, Wire(goes) as b, Wire(stays) as misplaced, Wire(stays) as again:
        for wire in (a, b, misplaced, again):
            wire.connect()
        assert register(misplaced, "a").error == ServerError.SERVICE_NOT_READY
        layout = misplaced.ask(Type.SCALABLE_TOPIC_LOOKUP, session_id=1, topic=topic).dag
        assert layout.controller_broker_url == goes.address()
        assert segments(register(a, "a")) == [0, 1, 2, 3, 4]
        assert segments(register(b, "b")) == [1, 3]
        assert segments(a.hear()[1]) == [0, 2, 4]
        goes.close(Deadline.after(60))
        assert (a.hear(), b.hear()) == ((None, None), (None, None)), "their connections end"
        assert segments(register(again, "b")) == [1, 3], "a has its grace time"
        assert segments(register(misplaced, "a")) == [0, 2, 4]
