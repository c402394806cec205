"""Clusters and namespaces over REST."""

from __future__ import annotations

from typing import Any, Final

from pulsar_on_kafka.broker.lookup.gateway_urls import chosen_urls
from pulsar_on_kafka.gateway.handlers.client_moves import TLS
from pulsar_on_kafka.gateway.handlers.lookups import ALL, NON_PERSISTENT, topics_of
from pulsar_on_kafka.gateway.rest import policies
from pulsar_on_kafka.gateway.rest.permissions import auth_policies
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest, Text
from pulsar_on_kafka.gateway.rest.topics import delete_by_force

_MODES: Final = {"PERSISTENT": 0, "NON_PERSISTENT": NON_PERSISTENT, "ALL": ALL}


def clusters(request: RestRequest) -> list[str]:
    return [request.cluster.name]


def cluster(request: RestRequest) -> dict[str, Any]:
    """This cluster's addresses, or those of a registered one: of its gateways, and without any that of its Kafka."""
    name = request.names["cluster"]
    if name == request.cluster.name:
        broker, web = request.cluster.service_url(), request.cluster.web_url()
        encrypted = broker.startswith(TLS)
        return {
            "serviceUrl": None if encrypted else web,
            "serviceUrlTls": web if encrypted else None,
            "brokerServiceUrl": None if encrypted else broker,
            "brokerServiceUrlTls": broker if encrypted else None,
            "brokerClientTlsEnabled": encrypted,
        }
    found = next((each for each in request.admin.clusters() if each.name == name), None)
    if found is None:
        raise RestError(404, "Cluster does not exist")
    urls = chosen_urls(found.gateways)
    if not urls.serves:
        return {"brokerServiceUrl": found.service_url, "brokerClientTlsEnabled": False}
    plain_web = urls.web.startswith("http:")
    return {
        "serviceUrl": urls.web if plain_web else None,
        "serviceUrlTls": None if plain_web else urls.web or None,
        "brokerServiceUrl": urls.plain or None,
        "brokerServiceUrlTls": urls.tls or None,
        "brokerClientTlsEnabled": not urls.plain,
    }


def none_of_cluster(request: RestRequest) -> dict[str, Any]:
    """No failure domains and no isolation policies: they place brokers, and cannot be created here."""
    cluster(request)
    return {}


def namespaces(request: RestRequest) -> list[str]:
    """The namespaces of a tenant. Raises NoSuchTenant."""
    request.admin.get_tenant_info(request.names["tenant"])
    return request.admin.list_namespaces(request.names["tenant"])


def make_namespace(request: RestRequest) -> None:
    body = request.json() or {}
    if not isinstance(body, dict):
        raise RestError(400, f"expected policies, got {body!r:.120}")
    request.admin.get_tenant_info(request.names["tenant"])  # as in Pulsar it has to exist
    properties = request.texts_in("properties", body.get("properties"))
    chosen, permissions = policies.of_new_namespace(request, body), auth_policies(request, body)
    request.admin.create_namespace(request.namespace, chosen, properties, permissions)


def delete_namespace(request: RestRequest) -> None:
    """Delete a namespace, with `force` after its topics. Raises NotEmpty: the namespace has topics."""
    if request.flag("force"):
        delete_namespace_by_force(request, request.namespace)
    else:
        request.admin.delete_namespace(request.namespace)


def delete_namespace_by_force(request: RestRequest, namespace: str) -> None:
    for each in request.admin.list_topics(namespace):
        delete_by_force(request, each)
    request.admin.delete_namespace(namespace)


def unload_namespace(request: RestRequest) -> None:
    """Unload the topics of a namespace for clients of this gateway."""
    _check_bundle(request)
    names = topics_of(request.admin.node, request.namespace, ALL, request.deadline())
    request.cluster.unload({*names, *request.admin.list_topics(request.namespace)}, request.deadline())


def clear_backlog(request: RestRequest) -> None:
    """Clear the backlog of a namespace's subscriptions, or of those with one name."""
    _check_bundle(request)
    request.admin.clear_namespace_backlog(request.namespace, request.names.get("subscription"))


def properties(request: RestRequest) -> dict[str, str]:
    return request.admin.namespace_properties(request.namespace)


def set_properties(request: RestRequest) -> None:
    """Set properties of a namespace; others stay."""
    found = request.texts_in("properties", request.json())
    request.admin.update_namespace_properties(request.namespace, found)


def remove_properties(request: RestRequest) -> None:
    request.admin.update_namespace_properties(request.namespace, {}, remove=properties(request))


def one_property(request: RestRequest) -> Text | None:
    found = properties(request).get(request.names["key"])
    return None if found is None else Text(found)


def set_property(request: RestRequest) -> None:
    request.admin.update_namespace_properties(request.namespace, {request.names["key"]: request.names["value"]})


def remove_property(request: RestRequest) -> Text | None:
    """Remove a property. Returns its value, as in Pulsar."""
    found = one_property(request)
    request.admin.update_namespace_properties(request.namespace, {}, remove=[request.names["key"]])
    return found


def _check_bundle(request: RestRequest) -> None:
    bundle = request.names.get("bundle", policies.WHOLE)
    if bundle != policies.WHOLE:
        raise RestError(412, f"namespace {request.namespace} has no bundle {bundle}, only {policies.WHOLE}")


def topics_of_namespace(request: RestRequest) -> list[str]:
    """The topics of a namespace. As in Pulsar a partitioned topic is listed by its partitions."""
    mode = request.query.get("mode", "PERSISTENT")
    if mode not in _MODES:
        raise RestError(400, f"mode is {mode!r:.60}, expected one of {', '.join(_MODES)}")
    return topics_of(request.admin.node, request.namespace, _MODES[mode], request.deadline())
