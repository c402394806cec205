"""Tenants with their admin roles and clusters, and those that exist by their namespaces alone."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.clock import SystemClock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.clusters import REGISTRY_KEYS, Clusters
from pulsar_on_kafka.broker.metadata.entities import Entities
from pulsar_on_kafka.broker.metadata.namespaces import NAMESPACE_KEYS, Namespaces
from pulsar_on_kafka.broker.metadata.tenant_infos import TENANT_INFO_KEYS, TenantInfos
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka_mapping.state.clusters.tenant_records import TenantInfoRecord
from pulsar_on_kafka_mapping.state.state_topics import NAMESPACES, TENANTS
from tests.memory_log import MemoryStateLog


class Site(NamedTuple):
    tenants: TenantInfos
    namespaces: Namespaces
    clusters: Clusters


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(10)


@pytest.fixture
def site() -> Site:
    log, clock = MemoryStateLog(), SystemClock()
    namespaces = Namespaces(Entities(log, NAMESPACES, NAMESPACE_KEYS, clock), clock)
    clusters = Clusters(Entities(log, NAMESPACES, REGISTRY_KEYS, clock))
    return Site(
        TenantInfos(Entities(log, TENANTS, TENANT_INFO_KEYS, clock), namespaces, clusters), namespaces, clusters
    )


def acme(*roles: str, clusters: tuple[str, ...] = ("standalone",)) -> TenantInfoRecord:
    return TenantInfoRecord("acme", roles, clusters)


def test_a_tenant_lives(site: Site, deadline: Deadline) -> None:
    with pytest.raises(errors.NoSuchTenant):
        site.tenants.find("acme", deadline)
    site.tenants.create(acme("boss"), deadline)
    assert site.tenants.list(deadline) == ["acme", "public", "pulsar"]
    with pytest.raises(errors.AlreadyExists):
        site.tenants.create(acme(), deadline)
    site.tenants.update("acme", ("boss", "deputy"), None, deadline)
    assert site.tenants.find("acme", deadline) == acme("boss", "deputy")
    assert site.tenants.admin_roles(["acme", "public"], deadline) == {
        "acme": frozenset({"boss", "deputy"}), "public": frozenset(),
    }  # fmt: skip
    site.namespaces.create("acme/eu", deadline)
    with pytest.raises(errors.NotEmpty, match="acme/eu"):
        site.tenants.delete("acme", deadline)
    site.namespaces.delete("acme/eu", deadline)
    site.tenants.delete("acme", deadline)
    assert site.tenants.list(deadline) == ["public", "pulsar"]
    assert site.tenants.admin_roles(["acme"], deadline) == {"acme": frozenset()}
    site.tenants.create(acme(), deadline)
    assert site.tenants.find("acme", deadline) == acme()


def test_a_tenant_without_a_record_exists_by_its_namespace(site: Site, deadline: Deadline) -> None:
    site.namespaces.create("acme/eu", deadline)
    assert site.tenants.find("acme", deadline) == acme()
    with pytest.raises(errors.AlreadyExists):
        site.tenants.create(acme(), deadline)
    site.tenants.update("acme", ("boss",), None, deadline)
    assert site.tenants.find("acme", deadline) == acme("boss")
    site.namespaces.delete("acme/eu", deadline)
    assert site.tenants.find("acme", deadline) == acme("boss")  # it has a record now
    assert site.tenants.find("public", deadline).allowed_clusters == ("standalone",)


@pytest.mark.parametrize(
    ("info", "refused", "words"),
    [
        (TenantInfoRecord("a b", (), ("standalone",)), errors.InvalidOption, "'a b'"),
        (TenantInfoRecord("a", (" ",), ("standalone",)), errors.InvalidOption, "a role is empty"),
        (TenantInfoRecord("a"), errors.NoSuchCluster, "Clusters can not be empty"),
        (TenantInfoRecord("a", (), ("",)), errors.NoSuchCluster, "Clusters can not be empty"),
        (TenantInfoRecord("a", (), ("east",)), errors.NoSuchCluster, "Clusters do not exist: east"),
    ],
)
def test_bad_values_are_named(
    site: Site, deadline: Deadline, info: TenantInfoRecord, refused: type[Exception], words: str
) -> None:
    with pytest.raises(refused, match=words):
        site.tenants.create(info, deadline)


def test_namespaces_use_the_clusters_of_their_tenant(site: Site, deadline: Deadline) -> None:
    site.clusters.name_local("west", deadline)
    for name in ("east", "south"):
        site.clusters.create(name, ClusterAddress("kafka://x:9092"), deadline)
    site.tenants.create(acme(clusters=("west", "east")), deadline)
    site.tenants.check_clusters("acme", ["west", "east"], deadline)
    site.tenants.check_clusters("other", ["south"], deadline)  # without a record
    with pytest.raises(errors.Refused, match=r"south.* is not in the list of allowed clusters"):
        site.tenants.check_clusters("acme", ["south"], deadline)
    site.namespaces.create("acme/eu", deadline)
    replicated = {"replication_clusters": ["west", "east"]}
    site.namespaces.change_policies("acme/eu", lambda _: replicated, deadline)
    with pytest.raises(errors.NotEmpty, match="acme/eu is replicated to east"):
        site.tenants.update("acme", None, ("west",), deadline)
