"""The cluster of `pok gateway`: that of a service URL, or one of a map of tenants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed
from pulsar_on_kafka.cli.shared.gateway_options import served_cluster
from pulsar_on_kafka.cli.shared.settings import Settings


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = tmp_path / "tenants.json"
    path.write_text(json.dumps({"clusters": {"west": "kafka://west:9092"}, "tenants": {"*": "west"}}))
    return f"pok+map://{path}"


def test_a_gateway_serves_a_cluster_of_the_map(url: str) -> None:
    with served_cluster(Settings(url), "west") as (served, follower):
        assert served == "kafka://west:9092"
        assert follower is not None
        assert follower.cluster == "west"


def test_a_gateway_without_a_map_serves_all_tenants() -> None:
    with served_cluster(Settings("kafka://west:9092"), "") as found:
        assert found == ("kafka://west:9092", None)


def test_the_cluster_has_to_be_named(url: str) -> None:
    with pytest.raises(typer.BadParameter, match="serves one cluster of the map"), served_cluster(Settings(url), ""):
        pass


def test_a_name_without_a_map_is_refused() -> None:
    with (
        pytest.raises(typer.BadParameter, match="goes with a map of tenants as --url"),
        served_cluster(Settings("kafka://west:9092"), "west"),
    ):
        pass


@pytest.mark.parametrize("wrong", ["pok+map://", "pok+lookup://west", "pok+other://west:1"])
def test_a_url_that_is_no_map_is_refused(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"must be|expected"), served_cluster(Settings(wrong), "west"):
        pass


def test_the_map_has_to_have_the_cluster(url: str) -> None:
    with (
        pytest.raises(LookupFailed, match="has no cluster 'east', it has: west"),
        served_cluster(Settings(url), "east"),
    ):
        pass
