"""Two brokers for all tests of this directory: each test has a tenant of its own there, and leaves nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_on_kafka.admin import AdminClient
from tests.brokers import available
from tests.clusters.cluster import Cluster, administrators, clients_of, delete_tenant, embedded_broker
from tests.steps import Missing, Unique

_HERE = Path(__file__).parent
HUB = "hub"
_TIMEOUT_S = 600
"""The first test waits for both brokers to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))
        if "third_broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="package")
def two_brokers(missing: Missing) -> Iterator[dict[str, str]]:
    """Their URLs, by the names of the clusters. They end with the last test of this directory. Do not stop them."""
    with available(missing, embedded_broker()) as west, available(missing, embedded_broker()) as east:
        yield {"west": f"kafka://{west.bootstrap}", "east": f"kafka://{east.bootstrap}"}


@pytest.fixture(scope="package")
def admins(two_brokers: dict[str, str]) -> Iterator[dict[str, AdminClient]]:
    with administrators(two_brokers) as made:
        yield made


@pytest.fixture
def tenant(unique: Unique) -> str:
    """The test's own, on no cluster yet. What the test has made of it is deleted in the end, on both."""
    return unique("tenant")


@pytest.fixture
def clusters(two_brokers: dict[str, str], admins: dict[str, AdminClient], tenant: str) -> Iterator[dict[str, Cluster]]:
    """Both, with clients of the test's own. Nobody may have transactions in the east: there are tests of that."""
    with ExitStack() as stack:
        for admin in admins.values():
            stack.callback(delete_tenant, admin, tenant)
        yield stack.enter_context(clients_of(two_brokers, admins))


@pytest.fixture
def west(clusters: dict[str, Cluster]) -> Cluster:
    return clusters["west"]


@pytest.fixture
def east(clusters: dict[str, Cluster]) -> Cluster:
    return clusters["east"]


@pytest.fixture(scope="package")
def third_broker(missing: Missing) -> Iterator[str]:
    """The URL of one more, for tests of three."""
    with available(missing, embedded_broker()) as broker:
        yield f"kafka://{broker.bootstrap}"


@pytest.fixture
def hub(clusters: dict[str, Cluster], two_brokers: dict[str, str], third_broker: str, tenant: str) -> Iterator[Cluster]:
    """A third cluster, which knows both, and which both know while it is there. It has nothing of the tenant yet."""
    with ExitStack() as stack:
        admin = stack.enter_context(AdminClient(third_broker))
        admin.set_local_cluster(HUB)
        for name, at in {**two_brokers, HUB: third_broker}.items():
            admin.create_cluster(name, at)
        for each in clusters.values():
            each.admin.create_cluster(HUB, third_broker)
            stack.callback(each.admin.delete_cluster, HUB)
        stack.callback(delete_tenant, admin, tenant)
        yield stack.enter_context(clients_of({HUB: third_broker}, {HUB: admin}))[HUB]


@pytest.fixture
def namespace(clusters: dict[str, Cluster], tenant: str) -> str:
    """One of the test's tenant, on both clusters."""
    name = f"{tenant}/shop"
    for cluster in clusters.values():
        cluster.admin.create_namespace(name)
    return name


@pytest.fixture
def topic(namespace: str) -> str:
    """The name of a topic of the test's own, which is not there yet."""
    return f"persistent://{namespace}/orders"
