"""One Pulsar of each release for all tests of this directory, and a tenant of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.gateway.rest.server import RestServer
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from tests.compat.pulsar_standalone import RELEASES, PulsarOptions, PulsarStandalone
from tests.from_pulsar.there import There
from tests.steps import Unique
from tests.waiting import until

_HERE = Path(__file__).parent
_TIMEOUT_S = 540
"""The first test waits for Pulsar to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("pulsar")
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture(scope="package", params=RELEASES, ids=lambda release: release.version)
def there(request: pytest.FixtureRequest) -> Iterator[There]:
    checks = {"clusterMigrationCheckDurationSeconds": "1"}
    options = PulsarOptions(release=request.param, start_timeout_s=300, heap_mb=1000, extra=checks)
    with PulsarStandalone(options) as running:
        found = There(running, request.param)
        # It is healthy a little before it knows its own cluster.
        until(lambda: "standalone" in found.ask("GET", "/clusters"), "Pulsar to have made its cluster")
        yield found
        found.client.close()


@pytest.fixture
def tenant(unique: Unique, admin: AdminClient) -> Iterator[str]:
    name = unique("tenant")
    yield name
    for namespace in admin.list_namespaces(name):
        for topic in admin.list_topics(namespace):
            admin.delete_topic(topic, force=True)
        admin.delete_namespace(namespace)


@pytest.fixture
def addresses(admin: AdminClient, there: There, tenant: str) -> Iterator[list[str]]:
    """Of Pulsar and of a gateway, as options. Afterwards Pulsar knows no other cluster."""
    with ExitStack() as stack:
        settings = GatewaySettings(port=0, fleet=tenant)
        gateway = Gateway(admin.node, settings)
        stack.callback(gateway.close, Deadline.after(60))
        rest = RestServer(admin, gateway, settings)
        stack.callback(rest.close)
        yield [
            *("--from", there.service_url, "--admin", there.admin_url),
            *("--gateway", gateway.address(), "--gateway-admin", rest.url()),
        ]
    there.ask("POST", "/clusters/standalone/migrate?migrated=false", {})
