"""Brokers, clusters, tenants and namespaces over REST."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from pulsar_on_kafka.gateway.handlers.lookups import ALL, NON_PERSISTENT, topics_of
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest, Text
from pulsar_on_kafka.gateway.rest.topics import delete_by_force

_MODES: Final = {"PERSISTENT": 0, "NON_PERSISTENT": NON_PERSISTENT, "ALL": ALL}


def health(request: RestRequest) -> Text:
    """The health check. Raises ConnectError, Timeout: Kafka does not answer."""
    request.admin.node.admin.cluster_id(request.deadline())
    return Text("ok")


def version(request: RestRequest) -> Text:
    return Text(f"pulsar-on-kafka {metadata.version('pulsar-on-kafka')}")


def clusters(request: RestRequest) -> list[str]:
    return [request.cluster.name]


def tenants(request: RestRequest) -> list[str]:
    """The tenants with namespaces."""
    return request.admin.node.namespaces.tenants(request.deadline())


def tenant(request: RestRequest) -> dict[str, Any]:
    """A tenant. Every tenant exists: only its namespaces are stored."""
    return {"adminRoles": [], "allowedClusters": [request.cluster.name]}


def make_tenant(request: RestRequest) -> None:
    """Create a tenant, for which nothing is stored. Raises RestError: the body has something to store."""
    body = request.json()
    if body is None:
        return
    if not isinstance(body, dict):
        raise RestError(400, f"expected adminRoles and allowedClusters, got {body!r:.120}")
    request.nothing_in("adminRoles of a tenant", body.get("adminRoles"))
    others = request.names_in("allowedClusters", body.get("allowedClusters")) - {request.cluster.name}
    if others:
        raise RestError(412, f"clusters do not exist: {', '.join(sorted(others))}")


def delete_tenant(request: RestRequest) -> None:
    found = namespaces(request)
    if found:
        raise RestError(409, f"the tenant still has namespaces: {', '.join(found)}")


def namespaces(request: RestRequest) -> list[str]:
    return request.admin.list_namespaces(request.names["tenant"])


def make_namespace(request: RestRequest) -> None:
    body = request.json() or {}
    if not isinstance(body, dict):
        raise RestError(400, f"expected policies, got {body!r:.120}")
    if request.names_in("replication_clusters", body.get("replication_clusters")) - {request.cluster.name}:
        request.nothing_in("replication_clusters of a new namespace", body["replication_clusters"])
    for name, value in body.items():
        if name not in ("bundles", "replication_clusters"):  # namespaces are not divided here
            request.nothing_in(f"{name} of a new namespace", value)
    request.admin.create_namespace(request.namespace)


def delete_namespace(request: RestRequest) -> None:
    """Delete a namespace, with `force` after its topics. Raises RestError: the namespace has topics."""
    topics = request.admin.list_topics(request.namespace)
    if topics and not request.flag("force"):
        raise RestError(409, f"namespace {request.namespace} has {len(topics)} topics, {topics[0]} first")
    for each in topics:
        delete_by_force(request, each)
    request.admin.delete_namespace(request.namespace)


def schema_strategy(request: RestRequest) -> str:
    """The compatibility strategy, UNDEFINED by default."""
    return request.admin.get_schema_compatibility_strategy(request.namespace).name


def set_schema_strategy(request: RestRequest) -> None:
    body = request.json()
    if not isinstance(body, str):
        raise RestError(400, f"expected a strategy, got {body!r:.120}")
    request.admin.set_schema_compatibility_strategy(request.namespace, body)


def topics_of_namespace(request: RestRequest) -> list[str]:
    """The topics of a namespace. As in Pulsar a partitioned topic is listed by its partitions."""
    mode = request.query.get("mode", "PERSISTENT")
    if mode not in _MODES:
        raise RestError(400, f"mode is {mode!r:.60}, expected one of {', '.join(_MODES)}")
    return topics_of(request.admin.node, request.namespace, _MODES[mode], request.deadline())
