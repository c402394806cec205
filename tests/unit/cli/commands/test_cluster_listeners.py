"""`--listener` of `pok clusters`."""

from __future__ import annotations

import pytest
import typer

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.lookup.listeners import check_listeners
from pulsar_on_kafka.cli.commands.clusters import _listeners, _written
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterListener


def test_listeners_are_read_and_written() -> None:
    given = ["inside=kafka://a:1,b:2@10.0.0.0/8,fd00::/8", "vpn=kafka+ssl://c:3"]
    found = _listeners(given)
    assert found == {
        "inside": ClusterListener("kafka://a:1,b:2", ("10.0.0.0/8", "fd00::/8")),
        "vpn": ClusterListener("kafka+ssl://c:3"),
    }
    assert [f"{name}={_written(listener)}" for name, listener in found.items()] == given
    check_listeners(found)


@pytest.mark.parametrize("given", [["inside"], ["=kafka://a:1"], ["inside=@10.0.0.0/8"], ["a=kafka://a:1"] * 2])
def test_what_is_no_listener_is_refused(given: list[str]) -> None:
    with pytest.raises(typer.BadParameter, match="NAME=URL"):
        _listeners(given)


@pytest.mark.parametrize("network", ["10.0.0.1/8", "inside", ""])
def test_what_is_no_network_is_refused(network: str) -> None:
    with pytest.raises(errors.InvalidOption, match="listener a: a network is written as 10"):
        check_listeners({"a": ClusterListener("kafka://a:1", (network,))})
