"""Administration of which cluster has which tenant. Ours, not Pulsar's: Tencent's lookup service keeps such a map."""

from __future__ import annotations

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.mapping.state.clusters.tenant_records import TenantRecord
from pulsar_on_kafka.metadata.tenants import TenantMove


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
        """Say that `cluster` has the tenant; `*` stands for tenants without a record. Nothing if it has it already.

        Clients that follow the map move over at once, and data does not: see `pok migrate` for a tenant with topics.

        Raises:
            NotAllowedError: it is switching.
        """
        self.node.tenants.move(tenant, TenantMove.ASSIGN, self._deadline(), cluster)

    def remove_tenant_place(self, tenant: str) -> None:
        """Take the tenant's record away, so that the one of `*` counts. Nothing if there is none.

        Raises:
            NotAllowedError: it is switching.
        """
        self.node.tenants.move(tenant, TenantMove.REMOVE, self._deadline())
