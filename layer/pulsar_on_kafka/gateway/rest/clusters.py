"""Brokers, clusters, tenants and namespaces over REST."""

from __future__ import annotations

from importlib import metadata
from typing import Any, Final

from pulsar_on_kafka.gateway.handlers.lookups import ALL, NON_PERSISTENT, topics_of
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest, Text
from pulsar_on_kafka.gateway.rest.topics import delete_by_force

_MODES: Final = {"PERSISTENT": 0, "NON_PERSISTENT": NON_PERSISTENT, "ALL": ALL}


def health(asked: RestRequest) -> Text:
    """Kafka answers. Raises ConnectError, Timeout: it does not."""
    asked.admin.node.admin.cluster_id(asked.deadline())
    return Text("ok")


def version(asked: RestRequest) -> Text:
    return Text(f"pulsar-on-kafka {metadata.version('pulsar-on-kafka')}")


def clusters(asked: RestRequest) -> list[str]:
    return [asked.cluster.name]


def tenants(asked: RestRequest) -> list[str]:
    """Those that have namespaces."""
    return asked.admin.node.namespaces.tenants(asked.deadline())


def tenant(asked: RestRequest) -> dict[str, Any]:
    """Every tenant is there: nothing is kept of it but its namespaces."""
    return {"adminRoles": [], "allowedClusters": [asked.cluster.name]}


def make_tenant(asked: RestRequest) -> None:
    """Nothing, where nothing is to be kept. Raises RestError: something is."""
    said = asked.json()
    if said is None:
        return
    if not isinstance(said, dict):
        raise RestError(400, f"expected adminRoles and allowedClusters, got {said!r:.120}")
    asked.nothing_in("adminRoles of a tenant", said.get("adminRoles"))
    others = asked.names_in("allowedClusters", said.get("allowedClusters")) - {asked.cluster.name}
    if others:
        raise RestError(412, f"clusters do not exist: {', '.join(sorted(others))}")


def delete_tenant(asked: RestRequest) -> None:
    found = namespaces(asked)
    if found:
        raise RestError(409, f"the tenant still has namespaces: {', '.join(found)}")


def namespaces(asked: RestRequest) -> list[str]:
    return asked.admin.list_namespaces(asked.names["tenant"])


def make_namespace(asked: RestRequest) -> None:
    said = asked.json() or {}
    if not isinstance(said, dict):
        raise RestError(400, f"expected policies, got {said!r:.120}")
    if asked.names_in("replication_clusters", said.get("replication_clusters")) - {asked.cluster.name}:
        asked.nothing_in("replication_clusters of a new namespace", said["replication_clusters"])
    for name, value in said.items():
        if name not in ("bundles", "replication_clusters"):  # nobody here divides a namespace
            asked.nothing_in(f"{name} of a new namespace", value)
    asked.admin.create_namespace(asked.namespace)


def delete_namespace(asked: RestRequest) -> None:
    """With `force` its topics first. Raises RestError: it has some."""
    topics = asked.admin.list_topics(asked.namespace)
    if topics and not asked.flag("force"):
        raise RestError(409, f"namespace {asked.namespace} has {len(topics)} topics, {topics[0]} first")
    for each in topics:
        delete_by_force(asked, each)
    asked.admin.delete_namespace(asked.namespace)


def schema_strategy(asked: RestRequest) -> str:
    """UNDEFINED where none is set."""
    return asked.admin.get_schema_compatibility_strategy(asked.namespace).name


def set_schema_strategy(asked: RestRequest) -> None:
    said = asked.json()
    if not isinstance(said, str):
        raise RestError(400, f"expected a strategy, got {said!r:.120}")
    asked.admin.set_schema_compatibility_strategy(asked.namespace, said)


def topics_of_namespace(asked: RestRequest) -> list[str]:
    """As in Pulsar the partitions of a partitioned topic, not itself."""
    said = asked.query.get("mode", "PERSISTENT")
    if said not in _MODES:
        raise RestError(400, f"mode is {said!r:.60}, expected one of {', '.join(_MODES)}")
    return topics_of(asked.admin.node, asked.namespace, _MODES[said], asked.deadline())
