"""Clusters that replicate, and which of them has which tenant: the parts of `AdminClient` that register that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.lookup.gateway_urls import check_gateways
from pulsar_on_kafka.broker.lookup.listeners import check_listeners
from pulsar_on_kafka.broker.metadata.tenants import TenantMove
from pulsar_on_kafka.client.connection.cluster_settings import chosen_instance
from pulsar_on_kafka.client.values.service_info import parse_service_url
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress, ClusterListener
from pulsar_on_kafka_mapping.state.clusters.tenant_records import TenantInfoRecord, TenantRecord


@raising_pulsar_errors
class TenantAdmin(AdminContext):
    """The part of AdminClient about the map of tenants. It lies on the cluster that the client is connected to, and is
    what that cluster's lookup services answer with."""

    def tenant_place(self, tenant: str) -> TenantRecord | None:
        """The cluster of a tenant: its own record's, or else that of `*`; None where neither is there."""
        return self.node.tenants.place(tenant, self._deadline())

    def list_tenant_places(self) -> dict[str, TenantRecord]:
        """Every record of the map, by tenant."""
        return self.node.tenants.all(self._deadline())

    def assign_tenant(self, tenant: str, cluster: str) -> None:
        """Assigns the tenant to `cluster`; `*` stands for tenants without a record. Does nothing if it is assigned
        already.

        Clients that follow the map move over at once, and data does not: see `pok migrate` for a tenant with topics.

        Raises:
            NotAllowedError: it is switching, or `cluster` is neither registered nor this one.
        """
        self.node.clusters.require(cluster, self._deadline())
        self.node.tenants.move(tenant, TenantMove.ASSIGN, self._deadline(), cluster)

    def remove_tenant_place(self, tenant: str) -> None:
        """Take the tenant's record away, so that the one of `*` counts. Nothing if there is none.

        Raises:
            NotAllowedError: it is switching.
        """
        self.node.tenants.move(tenant, TenantMove.REMOVE, self._deadline())


class TenantInfo(NamedTuple):
    """A tenant. `admin_roles` may administer it over the REST of a gateway with authorization. `allowed_clusters` are
    those that its namespaces may be replicated to."""

    name: str
    admin_roles: tuple[str, ...]
    allowed_clusters: tuple[str, ...]


@raising_pulsar_errors
class TenantInfoAdmin(AdminContext):
    """Tenants of this cluster. Source of names: Pulsar's `pulsar-admin tenants`.

    A tenant without a record exists as long as it has a namespace, with no admin roles and this cluster alone.
    `update_tenant` gives it a record. `public` and `pulsar` are there from the start.
    """

    def list_tenants(self) -> list[str]:
        """The tenants, by name."""
        return self.node.tenant_infos.list(self._deadline())

    def get_tenant_info(self, tenant: str) -> TenantInfo:
        """Raises NotAllowedError: the tenant does not exist."""
        found = self.node.tenant_infos.find(tenant, self._deadline())
        return TenantInfo(found.tenant, found.admin_roles, found.allowed_clusters)

    def create_tenant(
        self, tenant: str, admin_roles: Iterable[str] = (), allowed_clusters: Iterable[str] | None = None
    ) -> None:
        """Create a tenant.

        Args:
            allowed_clusters: names of registered clusters, or of this one; None: this one.

        Raises:
            NotAllowedError: the tenant exists, also by a namespace, or a cluster does not.
            InvalidConfiguration: a name is not possible.
        """
        clusters = (
            [self.node.clusters.registry(self._deadline()).local_name] if allowed_clusters is None else allowed_clusters
        )
        info = TenantInfoRecord(tenant, _each_once(admin_roles), _each_once(clusters))
        self.node.tenant_infos.create(info, self._deadline())

    def update_tenant(
        self, tenant: str, admin_roles: Iterable[str] | None = None, allowed_clusters: Iterable[str] | None = None
    ) -> None:
        """Replace the tenant's admin roles, its clusters or both; None leaves them as they are.

        Raises:
            NotAllowedError: there is no such tenant or cluster, or a namespace is replicated to a cluster that would be
                removed.
            InvalidConfiguration: a role has no name.
        """
        roles = None if admin_roles is None else _each_once(admin_roles)
        clusters = None if allowed_clusters is None else _each_once(allowed_clusters)
        self.node.tenant_infos.update(tenant, roles, clusters, self._deadline())

    def delete_tenant(self, tenant: str) -> None:
        """Raises NotAllowedError: there is none, or it has namespaces."""
        self.node.tenant_infos.delete(tenant, self._deadline())


class ClusterInfo(NamedTuple):
    """A registered cluster; `local`: whether it is the queried one."""

    name: str
    service_url: str
    kafka_config: Mapping[str, str]
    local: bool
    listeners: Mapping[str, ClusterListener]
    """More addresses, by name."""
    instance: str
    """The instance there; '' is the one without a name."""
    gateways: tuple[str, ...] = ()
    """URLs of its gateways and their REST, for official clients."""


@raising_pulsar_errors
class ClusterAdmin(AdminContext):
    """Each Kafka cluster keeps a registry of its own: its name, and how others are reached. Source of names: Pulsar's
    `pulsar-admin clusters`."""

    def create_cluster(
        self,
        name: str,
        service_url: str,
        *,
        kafka_config: Mapping[str, str] | None = None,
        listeners: Mapping[str, ClusterListener] | None = None,
        instance: str = "",
        gateways: Sequence[str] = (),
    ) -> None:
        """Register a cluster. A second call with the same values changes nothing.

        Args:
            service_url: as that of `Client`: `kafka://host:port[,...]`, `kafka+ssl://...`.
            kafka_config: librdkafka's options for connecting to it. Secrets are refused: they are given to `pok serve`.
            listeners: more addresses, by name, for clients of the lookup service that name one (`listener_name`) or are
                in one of its networks. Replicators and the services themselves use `service_url`.
            instance: whose state it is there that replicators and migrations use (see `Client`).
            gateways: URLs of its gateways for official clients whose tenant is there: `pulsar://host:port`,
                `pulsar+ssl://host:port`, and `http://host:port` or `https://host:port` of their REST.

        Raises:
            NotAllowedError: it is registered with other values.
            InvalidConfiguration: the name, the address or an option is not possible.
        """
        address = _address(service_url, kafka_config, listeners, instance, gateways)
        self.node.clusters.create(name, address, self._deadline())

    def update_cluster(
        self,
        name: str,
        service_url: str,
        *,
        kafka_config: Mapping[str, str] | None = None,
        listeners: Mapping[str, ClusterListener] | None = None,
        instance: str = "",
        gateways: Sequence[str] = (),
    ) -> None:
        """Replace what is registered. Services follow within a minute. Raises: as `create_cluster`; NotAllowedError
        when it is not registered."""
        address = _address(service_url, kafka_config, listeners, instance, gateways)
        self.node.clusters.update(name, address, self._deadline())

    def delete_cluster(self, name: str) -> None:
        """Forget a cluster; policies that name it wait for it. Raises NotAllowedError when it is not registered."""
        self.node.clusters.delete(name, self._deadline())

    def clusters(self) -> list[ClusterInfo]:
        """The registered clusters, by name."""
        known = self.node.clusters.registry(self._deadline())
        return [
            ClusterInfo(
                name,
                at.service_url,
                dict(at.kafka_config),
                name == known.local,
                dict(at.listeners),
                at.instance,
                at.gateways,
            )
            for name, at in sorted(known.clusters.items())
        ]

    def set_local_cluster(self, name: str) -> None:
        """Sets the name of this cluster for others; copies from it carry the name. Raises NotAllowedError when it has
        another one already."""
        self.node.clusters.name_local(name, self._deadline())

    def local_cluster(self) -> str | None:
        """The name of this cluster; None without one."""
        return self.node.clusters.registry(self._deadline()).local or None


def _address(
    service_url: str,
    kafka_config: Mapping[str, str] | None,
    listeners: Mapping[str, ClusterListener] | None,
    instance: str,
    gateways: Sequence[str],
) -> ClusterAddress:
    try:
        for url in (service_url, *(listener.service_url for listener in (listeners or {}).values())):
            parse_service_url(url)
    except ValueError as error:
        raise errors.InvalidOption(str(error)) from error
    check_listeners(listeners or {})
    check_gateways(gateways)
    name = chosen_instance(instance).name
    return ClusterAddress(service_url, dict(kafka_config or {}), dict(listeners or {}), name, tuple(gateways))


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
