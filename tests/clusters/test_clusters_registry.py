"""The registry of clusters and the policy that names them, by the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.broker.metadata.policies import CLUSTER
from tests.clusters.cluster import Cluster
from tests.integration.command_line import CommandLine

ASIA = "asia"
AT = "kafka://asia:9092"


@pytest.fixture
def forgotten(west: Cluster) -> Iterator[None]:
    """Other tests have this cluster without asia, and without a policy of its own."""
    yield
    west.admin.remove_policy(CLUSTER, "replication_clusters")
    if any(one.name == ASIA for one in west.admin.clusters()):
        west.admin.delete_cluster(ASIA)


@pytest.mark.usefixtures("forgotten")
def test_clusters_are_registered_and_named_by_policies(west: Cluster, topic: str) -> None:
    clusters, policy = CommandLine(west.url, "clusters"), CommandLine(west.url, "cluster")
    assert clusters("local").stdout.strip() == "west"
    assert clusters("local", "west").stdout.strip() == "this cluster is west"
    assert "called west" in clusters.refused("local", ASIA)
    assert "sasl.password" in clusters.refused("create", ASIA, "--service-url", AT, "--config", "sasl.password=p")
    assert "names asia, which is not registered" in policy.refused("policy", "set", "replication_clusters", ASIA)
    with pytest.raises(pulsar.NotAllowedError, match="no cluster 'asia'"):
        west.admin.update_cluster(ASIA, AT)
    clusters("create", ASIA, "--service-url", AT, "--config", "client.rack=b")
    assert {one.name: (one.kafka_config, one.local) for one in west.admin.clusters()} == {
        "asia": ({"client.rack": "b"}, False),
        "east": ({}, False),
        "west": ({}, True),
    }
    policy("policy", "set", "replication_clusters", "west,asia")
    assert policy("policy", "get", "replication_clusters").stdout.strip() == "west,asia"
    west.admin.create_topic(topic)
    assert west.admin.get_policy(topic, "replication_clusters", applied_value=True) == ["west", "asia"]
    clusters("delete", ASIA, "--yes")
    assert {one["name"] for one in clusters.json("list")} == {"west", "east"}


def test_a_cluster_without_a_name_names_no_others(service_url: str) -> None:
    """The broker that all tests share has none."""
    assert CommandLine(service_url, "clusters")("local").stdout.strip() == "-"
    assert CommandLine(service_url, "clusters").json("list") == []
    for name, reason in (("", "no name yet"), (ASIA, "not registered")):
        policy = CommandLine(service_url, "cluster")
        assert reason in policy.refused("policy", "set", "replication_clusters", name)
