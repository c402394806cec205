"""Tenants move between clusters, and official clients on gateways go along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.clusters.migration.worker import MigrationWorker
from pulsar_on_kafka_mapping.state.clusters.tenant_records import MigrationStep
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.clusters.gateways import Gateways, OfficialProgram, gateways_of, official_client, pulsar
from tests.waiting import until


@pytest.fixture
def lookup_port(west: Cluster) -> Iterator[int]:
    with west.lookup_port() as port:
        yield port


@pytest.fixture
def gateways(clusters: dict[str, Cluster], lookup_port: int) -> Iterator[dict[str, Gateways]]:
    with gateways_of(clusters, lookup_port) as made:
        yield made


@pytest.mark.long
def test_official_clients_move_and_come_back(
    clusters: dict[str, Cluster], gateways: dict[str, Gateways], tenant: str
) -> None:
    """One program names a gateway of each cluster. Late acknowledgements count for copies, and a reader continues."""
    west, east = clusters["west"].admin, clusters["east"].admin
    topic, held = f"persistent://{tenant}/eu/orders", f"persistent://{tenant}/eu/held"
    west.create_namespace(f"{tenant}/eu")
    west.create_partitioned_topic(topic, 2)
    west.create_topic(held)
    west.assign_tenant(tenant, "west")
    until(lambda: all(_is_served(each, topic) for each in gateways.values()), "the gateways to know the tenant")
    with ExitStack() as stack:
        for cluster in clusters.values():
            stack.enter_context(cluster.replicating())
        programs = [
            stack.enter_context(OfficialProgram(gateways[name].binary[0], topic, f"of-{name}", kind))
            for name, kind in (("west", pulsar.ConsumerType.Shared), ("east", pulsar.ConsumerType.Failover))
        ]
        client = stack.enter_context(closing(official_client(gateways["east"].binary[0])))
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

        def worker() -> MigrationWorker:
            record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
            return MigrationWorker(west, west, east, record, PATIENCE_S, print)

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


def _is_served(gateways: Gateways, topic: str) -> bool:
    client = official_client(gateways.binary[0])
    try:
        return len(client.get_topic_partitions(topic)) > 0
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
