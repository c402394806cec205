"""Tenants move between clusters, and official clients on gateways go along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Refused
from pulsar_on_kafka.broker.metadata.tenants import TenantMove
from pulsar_on_kafka.clusters.migration.tenant_cutover import NamedCluster, TenantSides
from pulsar_on_kafka.clusters.migration.worker import MigrationWorker
from pulsar_on_kafka.gateway.handlers.client_moves import Resource
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka_mapping.state.clusters.tenant_records import MigrationStep
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from tests.builds import Missing
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.clusters.gateways import FlowingProgram, Gateways, OfficialProgram, gateways_of, official_client, pulsar
from tests.integration.gateway.languages import program_in
from tests.integration.gateway.rest import Rest
from tests.integration.gateway.wire import Wire
from tests.waiting import until


@pytest.fixture
def lookup_port(west: Cluster) -> Iterator[int]:
    with west.lookup_port() as port:
        yield port


@pytest.fixture
def gateways(clusters: dict[str, Cluster], lookup_port: int) -> Iterator[dict[str, Gateways]]:
    with gateways_of(clusters, lookup_port) as made:
        yield made


@pytest.fixture
def fleets(clusters: dict[str, Cluster], lookup_port: int) -> Iterator[dict[str, Gateways]]:
    """Two gateways of each cluster."""
    with gateways_of(clusters, lookup_port, each=2) as made:
        yield made


def _worker(west: AdminClient, east: AdminClient, tenant: str) -> MigrationWorker:
    record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
    return MigrationWorker(west, west, east, record, PATIENCE_S, print)


@pytest.mark.long
def test_official_clients_move_and_come_back(
    clusters: dict[str, Cluster], fleets: dict[str, Gateways], tenant: str
) -> None:
    """One program names a gateway of each cluster. Late acknowledgements count for copies, and a reader continues."""
    west, east = clusters["west"].admin, clusters["east"].admin
    topic, held = f"persistent://{tenant}/eu/orders", f"persistent://{tenant}/eu/held"
    west.create_namespace(f"{tenant}/eu")
    west.create_partitioned_topic(topic, 2)
    west.create_topic(held)
    west.assign_tenant(tenant, "west")
    until(lambda: all(_is_served(each, topic) for each in fleets.values()), "the gateways to know the tenant")
    with ExitStack() as stack:
        for cluster in clusters.values():
            stack.enter_context(cluster.replicating())
        programs = [
            stack.enter_context(OfficialProgram(fleets[name].binary[0], topic, f"of-{name}", kind))
            for name, kind in (("west", pulsar.ConsumerType.Shared), ("east", pulsar.ConsumerType.Failover))
        ]
        client = stack.enter_context(closing(official_client(fleets["east"].binary[0])))
        consumer = client.subscribe(held, "held", pulsar.ConsumerType.Shared)
        reader = client.create_reader(held, pulsar.MessageId.earliest)
        producer = client.create_producer(held, batching_enabled=False)
        for number in range(6):
            producer.send(b"%d" % number)
        messages = {int(each.data()): each for each in (consumer.receive(20_000) for _ in range(6))}
        assert [reader.read_next(20_000).data() for _ in range(3)] == [b"0", b"1", b"2"]
        consumer.acknowledge(messages[0])
        until(lambda: all(each.stored > 200 for each in programs), "200 messages")
        west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))

        worker = partial(_worker, west, east, tenant)
        worker().run(lambda record: None)
        assert worker().switch().step is MigrationStep.SWITCHED
        for each in programs:
            each.goes_on()
        assert east.subscription_stats(topic, "of-west").consumers, "it consumes on the east"
        again = {int(each.data()): each for each in (consumer.receive(20_000) for _ in range(5))}
        assert sorted(again) == [1, 2, 3, 4, 5], "the acknowledged one does not come again"
        consumer.acknowledge(messages[1])
        consumer.acknowledge(messages[2])
        consumer.acknowledge(again[3])
        until(lambda: east.subscription_stats(held, "held").backlog == 2, "late acknowledgements to count")
        assert [reader.read_next(20_000).data() for _ in range(2)] == [b"3", b"4"]
        assert worker().roll_back().step is MigrationStep.ROLLED_BACK
        for each in programs:
            each.goes_on()
        assert sorted(int(consumer.receive(20_000).data()) for _ in range(2)) == [4, 5]
        consumer.acknowledge(messages[4])
        consumer.acknowledge(again[5])
        until(lambda: west.subscription_stats(held, "held").backlog == 0, "ids of both clusters to count")
        assert reader.read_next(20_000).data() == b"5"
        for each in programs:
            each.end()
    for each in programs:
        print(each)
        each.check()


@pytest.mark.pulsar
@pytest.mark.timeout(1200)
def test_programs_in_java_and_go_move_and_come_back(
    clusters: dict[str, Cluster], gateways: dict[str, Gateways], tenant: str
) -> None:
    """Run by `make compat`. A Failover consumer acknowledges cumulatively."""
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_topic(topic)
    west.assign_tenant(tenant, "west")
    try:
        languages = [program_in(language) for language in ("java", "go")]
    except Missing as missing:
        pytest.skip(str(missing))
    until(lambda: _is_served(gateways["west"], topic), "the gateways to know the tenant")
    with ExitStack() as stack:
        for cluster in clusters.values():
            stack.enter_context(cluster.replicating())
        programs = [
            stack.enter_context(
                FlowingProgram(each, gateways["west"].binary[0], topic, f"{each.language}-{kind}", kind)
            )
            for each in languages
            for kind in ("Shared", "Failover")
        ]
        for program in programs:
            program.goes_on()
        west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))

        worker = partial(_worker, west, east, tenant)
        worker().run(lambda record: None)
        assert worker().switch().step is MigrationStep.SWITCHED
        for program in programs:
            program.goes_on()
        assert worker().roll_back().step is MigrationStep.ROLLED_BACK
        for program in programs:
            program.goes_on()
        for program in programs:
            print(program.end())


def test_gateways_lead_clients_to_the_cluster_of_their_tenant(
    clusters: dict[str, Cluster], gateways: dict[str, Gateways], lookup_port: int, tenant: str
) -> None:
    west = clusters["west"].admin
    topic, namespace = f"persistent://{tenant}/eu/orders", f"{tenant}/eu"
    path = f"persistent/{tenant}/eu/orders"
    west.create_namespace(namespace)
    west.create_partitioned_topic(topic, 2)
    west.assign_tenant(tenant, "west")
    until(lambda: all(_is_served(each, topic) for each in gateways.values()), "the gateways to know the tenant")
    url, rest = gateways["west"].binary[0], gateways["west"].rest[0]
    with Wire(gateways["east"]) as wire:
        wire.connect()
        found = wire.ask(Type.LOOKUP_TOPIC, topic=f"{topic}-partition-0", request_id=1)
        assert (found.response, found.brokerServiceUrl) == (0, url), "a redirect"
        assert wire.ask(Type.PARTITIONED_TOPIC_METADATA, topic=topic, request_id=2).partitions == 2
        names = wire.ask(Type.GET_TOPICS_OF_NAMESPACE, namespace=namespace, request_id=3, mode=0).topics
        assert list(names) == [f"{topic}-partition-{number}" for number in range(2)]
        assert "has no schema" in wire.ask(Type.GET_SCHEMA, topic=topic, request_id=4).error_message
        for kind, more in ((Type.PRODUCER, {"producer_id": 1}), (Type.SUBSCRIBE, {"consumer_id": 1, **_SUBSCRIPTION})):
            refused = wire.ask(kind, topic=f"{topic}-partition-0", request_id=5, **more)
            assert (refused.error, "is on cluster west" in refused.message) == (ServerError.SERVICE_NOT_READY, True)
        nowhere = wire.ask(Type.LOOKUP_TOPIC, topic="persistent://nobody/eu/orders", request_id=6)
        assert (nowhere.error, "no cluster for tenant nobody" in nowhere.message) == (
            ServerError.SERVICE_NOT_READY,
            True,
        )
    away = Rest(gateways["east"].rest[0], allow_redirects=False)
    for method, route in (("GET", f"/lookup/v2/topic/{path}"), ("PUT", f"/admin/v2/{path}/unload?x=%2F")):
        answer = away.ask(method, route)
        assert (answer.status_code, answer.headers["Location"]) == (307, f"{rest}{route}")
    assert Rest(away.url).get(f"/lookup/v2/topic/{path}")["brokerUrl"] == url
    Rest(away.url).does("PUT", f"/admin/v2/{path}/unload")
    service = Rest(f"http://127.0.0.1:{lookup_port}")
    assert service.get(f"/lookup/v2/topic/{path}")["brokerUrl"] == url
    assert Rest(rest).get("/admin/v2/clusters/east")["brokerServiceUrl"] == gateways["east"].binary[0]
    for looks_up_at in (away.url, service.url):
        with closing(official_client(looks_up_at)) as client:
            producer = client.create_producer(topic)
            consumer = client.subscribe(topic, looks_up_at[-5:])
            producer.send(looks_up_at.encode())
            assert consumer.receive(20_000).data() == looks_up_at.encode()


_SUBSCRIPTION = {"subscription": "s", "subType": 1}


def test_clients_learn_of_a_switch_when_it_is_over(
    clusters: dict[str, Cluster], gateways: dict[str, Gateways], tenant: str
) -> None:
    """Also of one that was given up: then they go on where they were. TOPIC_MIGRATED is for clients that take it:
    version 20 and later, but not the C++ client, which it may block for ever."""
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    for admin in (west, east):
        admin.create_namespace(f"{tenant}/eu")
        admin.create_topic(topic)
    west.assign_tenant(tenant, "west")
    until(lambda: _is_served(gateways["west"], topic), "the gateway to know the tenant")
    rest = Rest(gateways["west"].rest[0])

    def move(kind: TenantMove, to: str) -> None:
        west.node.tenants.move(tenant, kind, Deadline.after(PATIENCE_S), to)

    def opened(wire: Wire, number: int) -> None:
        fields = {"topic": topic, "request_id": number}
        assert wire.ask(Type.PRODUCER, producer_id=number, **fields).producer_name
        wire.say(Type.SUBSCRIBE, consumer_id=number, **fields, **_SUBSCRIPTION)
        assert wire.hear()[0] is Type.SUCCESS

    def heard(wire: Wire, commands: int) -> list[tuple[Type | None, Any]]:
        """In the order of their kinds: a producer and a consumer are closed side by side."""
        return sorted((wire.hear() for _ in range(commands)), key=lambda found: str(found[0]))

    with ExitStack() as stack:
        new, old, cpp = (stack.enter_context(Wire(gateways["west"])) for _ in range(3))
        new.connect()
        for wire, client, version in ((old, "old", 19), (cpp, "Pulsar-CPP-v3.13.0", 21)):
            wire.say(Type.CONNECT, client_version=client, protocol_version=version)
            assert wire.hear()[0] is Type.CONNECTED
        for wire in (new, old, cpp):
            opened(wire, 1)
        move(TenantMove.BEGIN_SWITCH, "east")
        until(lambda: not west.subscription_stats(topic, "s").consumers, "the consumers to leave the west")
        refused = new.ask(Type.LOOKUP_TOPIC, topic=topic, request_id=2)
        assert (refused.error, "from cluster west to east" in refused.message) == (ServerError.SERVICE_NOT_READY, True)
        rest.refuses(503, "is switching", "GET", f"/lookup/v2/topic/persistent/{tenant}/eu/orders")
        new.send(1, 0, b"never stored")
        move(TenantMove.ABANDON_SWITCH, "west")
        for wire in (new, old, cpp):
            assert [kind for kind, _ in heard(wire, 2)] == [Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER]
            opened(wire, 2)
        assert west.topic_stats(topic).end_offsets == {0: 0}
        move(TenantMove.BEGIN_SWITCH, "east")
        until(lambda: not west.subscription_stats(topic, "s").consumers, "the consumers to leave the west")
        move(TenantMove.FINISH_SWITCH, "east")
        told = heard(new, 4)
        assert [kind for kind, _ in told] == [
            Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER, Type.TOPIC_MIGRATED, Type.TOPIC_MIGRATED,
        ]  # fmt: skip
        url = gateways["east"].binary[0]
        assert {(each.resource_type, each.resource_id, each.brokerServiceUrl) for _, each in told[2:]} == {
            (Resource.PRODUCER, 2, url), (Resource.CONSUMER, 2, url),
        }  # fmt: skip
        for wire in (old, cpp):
            assert [kind for kind, _ in heard(wire, 2)] == [Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER]


def test_a_switch_names_clients_of_a_gateway_that_follows_no_map(clusters: dict[str, Cluster], tenant: str) -> None:
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_topic(topic)
    gateway = Gateway(west.node, GatewaySettings(port=0, fleet=tenant[-20:]))
    try:
        with Wire(gateway) as wire:
            wire.connect()
            wire.ask(Type.PRODUCER, topic=topic, request_id=1, producer_id=1, producer_name="shop-1")
            wire.say(Type.SUBSCRIBE, topic=topic, request_id=2, consumer_id=1, **_SUBSCRIPTION)
            assert wire.hear()[0] is Type.SUCCESS
            sides = TenantSides(tenant, NamedCluster("west", west), NamedCluster("east", east), 0.5)
            with pytest.raises(Refused, match=r"producers shop-1 of .*; consumers .* of s on .*end them"):
                sides.wait_until_disconnected()
    finally:
        gateway.close(Deadline.after(PATIENCE_S))


def _is_served(gateways: Gateways, topic: str) -> bool:
    client = official_client(gateways.binary[0])
    try:
        return len(client.get_topic_partitions(topic)) > 0
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
