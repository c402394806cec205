"""Tenants over REST. Source: Pulsar's TenantsBase, 4.0.7."""

from __future__ import annotations

from typing import Any

from pulsar_on_kafka.broker.metadata.namespaces import BUILT_IN
from pulsar_on_kafka.broker.metadata.tenant_infos import is_tenant_name
from pulsar_on_kafka.gateway.rest.clusters import delete_namespace_by_force
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest


def tenants(request: RestRequest) -> list[str]:
    return request.admin.list_tenants()


def tenant(request: RestRequest) -> dict[str, Any]:
    """Admin roles and clusters of a tenant. Raises NoSuchTenant."""
    found = request.admin.get_tenant_info(request.names["tenant"])
    return {"adminRoles": list(found.admin_roles), "allowedClusters": list(found.allowed_clusters)}


def make(request: RestRequest) -> None:
    """Raises RestError, AlreadyExists, NoSuchCluster."""
    if not is_tenant_name(request.names["tenant"]):
        raise RestError(412, "Tenant name is not valid")
    roles, clusters = _roles_and_clusters(request)
    request.admin.create_tenant(request.names["tenant"], roles, clusters)


def update(request: RestRequest) -> None:
    roles, clusters = _roles_and_clusters(request)
    request.admin.update_tenant(request.names["tenant"], roles, clusters)


def delete(request: RestRequest) -> None:
    """Delete a tenant, with `force` after its namespaces and their topics. Raises RestError: the tenant has namespaces
    that cannot be deleted."""
    name = request.names["tenant"]
    if request.flag("force"):
        request.admin.get_tenant_info(name)
        found = request.admin.list_namespaces(name)
        fixed = sorted(set(found) & set(BUILT_IN))
        if fixed:
            raise RestError(412, f"namespace {fixed[0]} cannot be deleted")
        for namespace in found:
            delete_namespace_by_force(request, namespace)
        if name not in request.admin.list_tenants():
            return  # it existed by these namespaces
    request.admin.delete_tenant(name)


def _roles_and_clusters(request: RestRequest) -> tuple[list[str], list[str]]:
    """Raises RestError: the body has something else, or names no cluster."""
    body = request.json()
    if not isinstance(body, dict):
        raise RestError(412, "Clusters can not be empty")
    roles, clusters = (request.names_in(each, body.get(each)) for each in ("adminRoles", "allowedClusters"))
    return sorted(roles), sorted(clusters)
