"""Tenants as Pulsar has them: admin roles and allowed clusters, by compare-and-set in the state topic `tenants`.

A tenant without a record exists as long as it has a namespace: SDK programs and earlier versions make namespaces alone.
It has no admin roles, and may use this cluster. `public` and `pulsar` are there from the start. Source: Pulsar's
TenantsBase, 4.0.7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.clusters import Clusters
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned, readable
from pulsar_on_kafka.broker.metadata.namespaces import BUILT_IN, Namespaces
from pulsar_on_kafka.broker.metadata.policies import REPLICATION_CLUSTERS, tenant_level
from pulsar_on_kafka_mapping.state.clusters.tenant_records import (
    TenantInfoRecord,
    decode_tenant_info,
    encode_tenant_info,
)
from pulsar_on_kafka_mapping.state.state_keys import TenantInfoKey

TENANT_INFO_KEYS: Final[EntityKeys[str]] = EntityKeys(TenantInfoKey)
_BUILT_IN_TENANTS: Final = frozenset(name.split("/")[0] for name in BUILT_IN)
_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)


class TenantInfos:
    """Thread-safe. Memory: every record of the state topic `tenants`."""

    def __init__(self, entities: Entities[str], namespaces: Namespaces, clusters: Clusters) -> None:
        self._entities = entities
        self._namespaces = namespaces
        self._clusters = clusters

    def find(self, tenant: str, deadline: Deadline) -> TenantInfoRecord:
        """The tenant. Raises NoSuchTenant."""
        found = self._recorded(tenant, deadline)
        if found is not None:
            return found
        if tenant not in _BUILT_IN_TENANTS and not self._namespaces.list(tenant, deadline):
            raise errors.NoSuchTenant("Tenant does not exist")
        return TenantInfoRecord(tenant, (), (self._local(deadline),))

    def admin_roles(self, tenants: Iterable[str], deadline: Deadline) -> dict[str, frozenset[str]]:
        """The admin roles of several tenants, in one reading; none for a tenant without a record."""
        found = self._entities.read_together(tenants, deadline)
        recorded = {tenant: _present(state) for tenant, state in found.items()}
        return {tenant: frozenset(info.admin_roles if info else ()) for tenant, info in recorded.items()}

    def list(self, deadline: Deadline) -> list[str]:
        """The tenants, by name."""
        records = readable(self._entities.all(deadline), decode_tenant_info)
        recorded = {record.tenant for record in records if not record.deleted}
        return sorted({*recorded, *self._namespaces.tenants(deadline)})

    def create(self, info: TenantInfoRecord, deadline: Deadline) -> None:
        """Raises AlreadyExists; NoSuchCluster, InvalidOption: as `update`."""
        self._check(info, deadline)
        exists = info.tenant in self._namespaces.tenants(deadline)

        def created(current: Versioned | None) -> bytes | None:
            if exists or _present(current) is not None:
                raise errors.AlreadyExists("Tenant already exist")
            return encode_tenant_info(info)

        self._entities.update(info.tenant, created, deadline)

    def update(
        self,
        tenant: str,
        admin_roles: tuple[str, ...] | None,
        allowed_clusters: tuple[str, ...] | None,
        deadline: Deadline,
    ) -> None:
        """Replaces admin roles, clusters or both; None leaves them as they are.

        Raises:
            NoSuchTenant.
            InvalidOption: the tenant or a role has no name.
            NoSuchCluster: a cluster is not registered, or none is named.
            NotEmpty: a namespace is replicated to a cluster that is not among the new ones.
        """
        before = self.find(tenant, deadline)
        self._check(_with(before, admin_roles, allowed_clusters), deadline)
        if allowed_clusters is not None:
            self._check_use(tenant, allowed_clusters, deadline)

        def updated(current: Versioned | None) -> bytes | None:
            now = _present(current) or before
            changed = _with(now, admin_roles, allowed_clusters)
            return (
                None
                if current is not None and changed == decode_tenant_info(current.value)
                else encode_tenant_info(changed)
            )

        self._entities.update(tenant, updated, deadline)

    def _check_use(self, tenant: str, clusters: Iterable[str], deadline: Deadline) -> None:
        """Raises NotEmpty: a namespace is replicated to another cluster than these."""
        for namespace in self._namespaces.list(tenant, deadline):
            used = self._namespaces.policies(namespace, deadline).get(REPLICATION_CLUSTERS.name) or ()
            left = sorted(set(used) - set(clusters))
            if left:
                raise errors.NotEmpty(f"namespace {namespace} is replicated to {', '.join(left)}")

    def delete(self, tenant: str, deadline: Deadline) -> None:
        """Raises NoSuchTenant; NotEmpty: it has namespaces."""
        self.find(tenant, deadline)
        found = self._namespaces.list(tenant, deadline)
        if found:
            raise errors.NotEmpty(f"The tenant still has active namespaces: {', '.join(found[:10])}")

        def deleted(current: Versioned) -> bytes | None:
            record = replace(decode_tenant_info(current.value), admin_roles=(), allowed_clusters=(), deleted=True)
            return encode_tenant_info(record)

        self._entities.amend(tenant, deleted, deadline)
        if self._namespaces.policies(tenant_level(tenant), deadline):  # a later tenant of this name begins without
            self._namespaces.change_policies(tenant_level(tenant), lambda _: {}, deadline)

    def check_clusters(self, tenant: str, clusters: Iterable[str], deadline: Deadline) -> None:
        """Raises Refused: a namespace of the tenant may not be replicated to one of these clusters. A tenant without a
        record may use all of them."""
        recorded = self._recorded(tenant, deadline)
        refused = set() if recorded is None else set(clusters) - set(recorded.allowed_clusters)
        if refused:
            raise errors.Refused(
                f"Cluster {sorted(refused)} is not in the list of allowed clusters list for tenant [{tenant}]"
            )

    def _recorded(self, tenant: str, deadline: Deadline) -> TenantInfoRecord | None:
        return _present(self._entities.read(tenant, deadline))

    def _local(self, deadline: Deadline) -> str:
        return self._clusters.registry(deadline).local_name

    def _check(self, info: TenantInfoRecord, deadline: Deadline) -> None:
        if not is_tenant_name(info.tenant):
            raise errors.InvalidOption(f"a tenant is named by letters, digits and -=:._ , got {info.tenant!r:.120}")
        if not all(each.strip() for each in info.admin_roles):
            raise errors.InvalidOption(f"a role is empty in {list(info.admin_roles)!r:.200}")
        if not info.allowed_clusters or not all(each.strip() for each in info.allowed_clusters):
            raise errors.NoSuchCluster("Clusters can not be empty")
        known = self._clusters.registry(deadline)
        unknown = set(info.allowed_clusters) - {*known.clusters, known.local_name}
        if unknown:
            raise errors.NoSuchCluster(f"Clusters do not exist: {', '.join(sorted(unknown))}")


def is_tenant_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _with(
    info: TenantInfoRecord, admin_roles: tuple[str, ...] | None, allowed_clusters: tuple[str, ...] | None
) -> TenantInfoRecord:
    return replace(
        info,
        admin_roles=info.admin_roles if admin_roles is None else admin_roles,
        allowed_clusters=info.allowed_clusters if allowed_clusters is None else allowed_clusters,
    )


def _present(found: Versioned | None) -> TenantInfoRecord | None:
    record = None if found is None else decode_tenant_info(found.value)
    return None if record is None or record.deleted else record
