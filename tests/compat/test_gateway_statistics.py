"""Statistics of a topic have the names that a real Pulsar's have, over REST and in the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pulsar as official
import pytest
import requests

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.compat.pulsar_standalone import PulsarOptions, PulsarRelease, PulsarStandalone
from tests.compat.pulsar_standalone.releases import RELEASES
from tests.steps import Unique

_GONE = {"5.0.1": {"consumersAfterMarkDeletePosition"}}
"""Names that a release no longer has. Here they stay for clients of earlier ones."""

pytestmark = [pytest.mark.pulsar, pytest.mark.kafka, pytest.mark.timeout(600)]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_all_names_are_pulsars(release: PulsarRelease, admin: AdminClient, unique: Unique) -> None:
    topic = unique()
    options = PulsarOptions(release=release, start_timeout_s=300)
    settings = GatewaySettings(port=0, fleet=unique())
    gateway = Gateway(admin.node, settings)
    try:
        with closing(RestServer(admin, gateway, settings)) as rest, PulsarStandalone(options) as pulsar:
            ours = _statistics(gateway.address(), rest.url(), topic)
            theirs = _statistics(pulsar.service_url, pulsar.admin_url, topic)
    finally:
        gateway.close(Deadline.after(60))
    ((subscription, consumer, publisher), (of_pulsar, its_consumer, its_publisher)) = map(_parts, (ours, theirs))
    for here, there in (
        (ours, theirs),
        (subscription, of_pulsar),
        (consumer, its_consumer),
        (publisher, its_publisher),
    ):
        gone = _GONE.get(release.version, set())
        assert here.keys() - gone <= there.keys()
        assert {name: _kind(here[name]) for name in here.keys() - gone} == {
            name: _kind(there[name]) for name in here.keys() - gone
        }


def _statistics(service_url: str, rest_url: str, topic: str) -> dict[str, Any]:
    """While a client sends and receives."""
    quiet = official.ConsoleLogger(official.LoggerLevel.Error)
    with closing(official.Client(service_url, logger=quiet)) as client:
        consumer = client.subscribe(topic, "s", official.ConsumerType.Shared)
        client.create_producer(topic).send(b"one")
        consumer.acknowledge(consumer.receive(60_000))
        found = requests.get(f"{rest_url}/admin/v2/persistent/public/default/{topic}/stats", timeout=60)
        assert found.status_code == 200, found.text
        told: dict[str, Any] = found.json()
        return told


def _parts(told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    subscription = told["subscriptions"]["s"]
    return subscription, subscription["consumers"][0], told["publishers"][0]


def _kind(value: object) -> type:
    """A number is one, whether it has a fraction or not."""
    return float if type(value) is int else type(value)
