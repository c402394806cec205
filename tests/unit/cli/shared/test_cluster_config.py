"""Options of registered clusters that a service is given."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from pulsar_on_kafka.cli.shared.settings import read_cluster_config
from pulsar_on_kafka.client.connection.cluster_settings import peer_settings
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress

US = ClusterAddress("kafka+ssl://us:9093", {"client.rack": "a", "sasl.username": "u"})


def test_what_is_given_goes_on_top_of_what_is_registered(tmp_path: Path) -> None:
    file = tmp_path / "us.properties"
    file.write_text("sasl.password=a=b\nclient.rack=c\n")
    given = read_cluster_config([f"us:{file}", "us:sasl.mechanism=PLAIN", "eu:1:client.rack=z"])
    assert given["eu:1"] == {"client.rack": "z"}
    found = peer_settings(US, given["us"])
    assert found.bootstrap == "us:9093"
    assert found.overrides == {
        "client.rack": "c", "sasl.username": "u", "sasl.password": "a=b", "sasl.mechanism": "PLAIN",
    }  # fmt: skip
    assert "a=b" not in repr(found)
    assert found.instance.name == ""
    assert peer_settings(ClusterAddress("kafka://us:9092", instance="acme"), {}).instance.name == "acme"


@pytest.mark.parametrize("given", ["client.rack=a", "us:nonsense", ":a=b", "us:enable.idempotence=false"])
def test_what_cannot_be_understood_is_refused(given: str) -> None:
    with pytest.raises(typer.BadParameter):
        read_cluster_config([given])
