"""Services gather metrics of all subscriptions: one of them at a time, and whoever scrapes it gets them."""

from __future__ import annotations

import gzip
from contextlib import closing
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import pulsar_on_kafka as pulsar
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.admin.overview.shared import SharedGatherer
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.processes import SERVICE
from pulsar_on_kafka.base.role_state import RoleName
from pulsar_on_kafka.metrics import MetricsCollector
from pulsar_on_kafka.service.health import ServiceHealth, ServiceServer
from pulsar_on_kafka.service.running import RunningRoles
from tests.steps import Unique, receive, send
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.mark.long
def test_one_service_gathers_and_another_one_takes_over(
    client: pulsar.Client, admin: AdminClient, admin_elsewhere: AdminClient, unique: Unique
) -> None:
    topic, name = unique(), unique("scraped")
    consumer = client.subscribe(topic, name, pulsar.ConsumerType.Shared)
    send(client, topic, 5)
    consumer.acknowledge(receive(consumer, 5)[2])
    consumer.close()
    services = [
        RunningRoles(each.node, {RoleName.MAINTENANCE}, SERVICE, gatherer=SharedGatherer(each.node))
        for each in (admin, admin_elsewhere)
    ]

    def gathering() -> list[RunningRoles]:
        return [each for each in services if name.encode() in each.page().text]

    try:
        [first] = until(gathering, "a service to gather")
        labels = {
            "cluster": admin.node.cluster_id, "topic": f"persistent://public/default/{topic}", "subscription": name
        }  # fmt: skip
        found = scraped(first, labels)
        assert found["pok_subscription_backlog_entries"] == 4
        assert found["pok_subscription_holes"] == 1
        assert found["pok_subscription_processes"] == 0
        assert [sum(kind == "overview" for kind, _ in state.turns) for state in first.states()] == [1]
        services.remove(first)
        first.close(Deadline.after(30))
        assert first.page().text == b""
        assert until(gathering, "the other one to take over") == services
    finally:
        for each in services:
            each.close(Deadline.after(30))


def scraped(running: RunningRoles, labels: dict[str, str]) -> dict[str, float]:
    """Of one subscription, by name; asked for plain and zipped, which say the same."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector())
    server = ServiceServer("127.0.0.1", 0, registry, ServiceHealth(), page=running.page)
    with closing(server):
        plain = asked(server.port)
        zipped = gzip.decompress(asked(server.port, {"Accept-Encoding": "gzip"}))
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(zipped.decode())
        for sample in family.samples
        if sample.labels == labels
    }
    names = {line.partition("{")[0] for line in plain.decode().splitlines() if line and not line.startswith("#")}
    assert {"pok_build_info", "pok_overview_gathered_seconds"} <= names
    assert set(found) <= names
    return found


def asked(port: int, headers: dict[str, str] | None = None) -> bytes:
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/metrics", headers=headers or {})
        return connection.getresponse().read()
