"""Tenants move between clusters, and official clients on gateways go along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.clusters.migration.worker import MigrationWorker
from pulsar_on_kafka_mapping.state.clusters.tenant_records import MigrationStep
from tests.clusters.cluster import PATIENCE_S, Cluster
from tests.clusters.gateways import Gateways, OfficialProgram, gateways_of, pulsar
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
    west, east = clusters["west"].admin, clusters["east"].admin
    topic = f"persistent://{tenant}/eu/orders"
    west.create_namespace(f"{tenant}/eu")
    west.create_partitioned_topic(topic, 2)
    west.assign_tenant(tenant, "west")
    until(lambda: _is_served(gateways["west"], topic), "the gateways to know the tenant")
    with ExitStack() as stack:
        for cluster in clusters.values():
            stack.enter_context(cluster.replicating())
        program = OfficialProgram(gateways["west"].binary[0], topic, pulsar.ConsumerType.Shared)
        until(lambda: program.stored > 300, "300 messages")
        west.node.migrations.begin(tenant, "west", "east", Deadline.after(PATIENCE_S))

        def worker() -> MigrationWorker:
            record = west.node.migrations.require(tenant, Deadline.after(PATIENCE_S))
            return MigrationWorker(west, west, east, record, PATIENCE_S, print)

        worker().run(lambda record: None)
        assert worker().switch().step is MigrationStep.SWITCHED
        program.goes_on()
        assert east.subscription_stats(topic, "billing").consumers, "it consumes on the east"
        assert worker().roll_back().step is MigrationStep.ROLLED_BACK
        program.goes_on()
        program.end()
    print(program)
    program.check()


def _is_served(gateways: Gateways, topic: str) -> bool:
    client = pulsar.Client(gateways.binary[0], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        return len(client.get_topic_partitions(topic)) > 0
    except pulsar.PulsarException:
        return False
    finally:
        client.close()
