"""Tenants with their admin roles and clusters: a part of AdminClient."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.broker.metadata.tenant_infos import DEFAULT_CLUSTER
from pulsar_on_kafka_mapping.state.clusters.tenant_records import TenantInfoRecord


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
        clusters = [self._local_name()] if allowed_clusters is None else allowed_clusters
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

    def _local_name(self) -> str:
        return self.node.clusters.registry(self._deadline()).local or DEFAULT_CLUSTER


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
