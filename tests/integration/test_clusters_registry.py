"""The registry of clusters and the policy that names them, by the command line, on a real broker of its own."""

from __future__ import annotations

import pytest

import layer as pulsar
from layer.admin import AdminClient
from layer.embedded import EmbeddedBroker
from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.kafka


def test_clusters_are_registered_and_named_by_policies(own_broker: EmbeddedBroker) -> None:
    url = f"kafka://{own_broker.bootstrap}"
    clusters, policy = CommandLine(url, "clusters"), CommandLine(url, "cluster")
    assert clusters("local").stdout.strip() == "-"
    clusters("create", "us", "--service-url", "kafka://us:9092", "--config", "client.rack=b")
    assert "no name yet" in policy.refused("policy", "set", "replication_clusters", "us")
    assert clusters("local", "eu").stdout.strip() == "this cluster is eu"
    assert "called eu" in clusters.refused("local", "asia")
    assert "sasl.password" in clusters.refused(
        "create", "x", "--service-url", "kafka://x:1", "--config", "sasl.password=p"
    )
    assert "names asia, which is not registered" in policy.refused("policy", "set", "replication_clusters", "asia")
    policy("policy", "set", "replication_clusters", "eu,us")
    assert policy("policy", "get", "replication_clusters").stdout.strip() == "eu,us"
    with AdminClient(url) as admin:
        assert [(one.name, one.kafka_config, one.local) for one in admin.clusters()] == [
            ("us", {"client.rack": "b"}, False)
        ]
        admin.create_topic("t")
        assert admin.get_policy("t", "replication_clusters", applied_value=True) == ["eu", "us"]
        with pytest.raises(pulsar.NotAllowedError, match="no cluster 'asia'"):
            admin.update_cluster("asia", "kafka://asia:9092")
    clusters("delete", "us", "--yes")
    assert clusters("list", "--output", "json").stdout.strip() == "[]"
