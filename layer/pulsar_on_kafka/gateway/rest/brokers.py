"""The gateway as a broker over REST: health, version, configuration and metrics."""

from __future__ import annotations

from importlib import metadata
from math import isfinite
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, generate_latest

from pulsar_on_kafka.broker.node.metrics.collector import MetricsCollector
from pulsar_on_kafka.gateway.handlers.client_moves import TLS
from pulsar_on_kafka.gateway.rest import broker_settings
from pulsar_on_kafka.gateway.rest.request import RestError, RestRequest, Text

_REGISTRY: Final = CollectorRegistry()
_REGISTRY.register(MetricsCollector())


def health(request: RestRequest) -> Text:
    """The health check. Raises ConnectError, Timeout: Kafka does not answer."""
    request.admin.node.admin.cluster_id(request.deadline())
    return Text("ok")


def ready(request: RestRequest) -> Text:
    """The gateway serves: its REST begins after it."""
    return Text("ok")


def status(request: RestRequest) -> Text:
    """Whether a load balancer may send clients here. Raises ConnectError, Timeout: Kafka does not answer."""
    health(request)
    return Text("OK\n")


def version(request: RestRequest) -> Text:
    return Text(f"pulsar-on-kafka {metadata.version('pulsar-on-kafka')}")


def metrics(request: RestRequest) -> Text:
    """The metrics of the gateway's process, in Prometheus's text form."""
    return Text(generate_latest(_REGISTRY).decode())


def metrics_of_monitoring(request: RestRequest) -> list[dict[str, Any]]:
    """The same samples, each with its labels as dimensions."""
    return [
        {"metrics": {sample.name: sample.value if isfinite(sample.value) else None}, "dimensions": dict(sample.labels)}
        for family in _REGISTRY.collect()
        for sample in family.samples
    ]


def brokers(request: RestRequest) -> list[str]:
    """This gateway. Others of its fleet have a REST of their own, whose addresses are not on record."""
    _require_cluster(request)
    return [_id(request)]


def leader(request: RestRequest) -> dict[str, Any]:
    """This gateway: none leads, and each answers for the cluster."""
    return {"brokerId": _id(request), "serviceUrl": request.cluster.web_url()}


def owned_namespaces(request: RestRequest) -> dict[str, Any]:
    """None: gateways serve topics, no bundles of namespaces. Raises RestError: another broker is named."""
    _require_cluster(request)
    if request.names["broker"] != _id(request):
        raise RestError(404, f"broker {request.names['broker']!r:.120} is not this gateway, {_id(request)}")
    return {}


def resource_groups(request: RestRequest) -> list[str]:
    """None: they limit rates, and cannot be created here."""
    return []


def runtime_configuration(request: RestRequest) -> dict[str, str]:
    """Settings of the gateway under Pulsar's names."""
    broker, web = urlsplit(request.cluster.service_url()), urlsplit(request.cluster.web_url())
    encrypted = broker.scheme == TLS
    return {
        "clusterName": request.cluster.name,
        "advertisedAddress": broker.hostname or "",
        "brokerServicePortTls" if encrypted else "brokerServicePort": str(broker.port),
        "webServicePortTls" if encrypted else "webServicePort": str(web.port),
        **broker_settings.applied(request.admin),
        "systemTopicEnabled": "true",
        "topicLevelPoliciesEnabled": "true",
    }


def _id(request: RestRequest) -> str:
    """The broker's id: host and port of its REST."""
    return urlsplit(request.cluster.web_url()).netloc


def _require_cluster(request: RestRequest) -> None:
    """Raises RestError: the route names another cluster."""
    name = request.names.get("cluster", request.cluster.name)
    if name != request.cluster.name:
        raise RestError(404, f"Cluster does not exist: cluster={name}")
