"""The REST server of a gateway: routes, rights and replies."""

from __future__ import annotations

import json
import logging
import ssl
from asyncio import Transport
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote_plus

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base.asgi_server import Address, AsgiServer, HttpProtocol
from pulsar_on_kafka.base.text import url_host
from pulsar_on_kafka.exceptions import AuthenticationError
from pulsar_on_kafka.gateway.login.access import TLS, TOKEN, GatewayAccess
from pulsar_on_kafka.gateway.login.authorization import Authorization
from pulsar_on_kafka.gateway.rest import (
    broker_settings,
    brokers,
    clusters,
    cursors,
    entries,
    internals,
    permissions,
    policies,
    schemas,
    statistics,
    tenants,
    topic_commands,
    topics,
    transactions,
)
from pulsar_on_kafka.gateway.rest.request import (
    DOMAINS,
    Binary,
    Cluster,
    RestError,
    RestRequest,
    ServedElsewhere,
    Text,
    refusal,
    refused,
    unserved,
)
from pulsar_on_kafka.gateway.rest.rights import LOGGED_IN, RouteRight, right_of
from pulsar_on_kafka.gateway.server import Gateway, GatewaySettings
from pulsar_on_kafka.gateway.tenants.served_tenants import HERE

_log: Final = logging.getLogger(__name__)

_MAX_BODY_BYTES: Final = 64 * 1024
_MAX_SCHEMA_BYTES: Final = 8 * 1024 * 1024
"""The limit of a body with a schema, of 5 MiB at most; only administrators send such bodies."""
_CERTIFICATE: Final = "pok.certificate"
"""The key of the client's certificate in the scope of a request."""
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})
"""A server on these hosts that requires no login accepts only these host names."""
_METHODS: Final = ("GET", "PUT", "POST", "DELETE", "PATCH")
_ROOTS: Final = ("/admin", "/lookup")

Handler = Callable[[RestRequest], object]
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS: Final = "/admin/v2/{domain}/{tenant}/{namespace}"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"
_SUBSCRIPTION: Final = f"{_TOPIC}/subscription/{{subscription}}"
_SCHEMA_ROOT: Final = "/admin/v2/schemas/"
_SCHEMAS: Final = f"{_SCHEMA_ROOT}{{tenant}}/{{namespace}}/{{topic}}"
_BROKERS: Final = "/admin/v2/brokers"
_BROKER_STATS: Final = "/admin/v2/broker-stats"
_TRANSACTIONS: Final = "/admin/v3/transactions"
_OF_TOPIC: Final = "{tenant}/{namespace}/{topic}"

OF_ALL: Final[tuple[tuple[str, str, Handler], ...]] = (("GET", "/status.html", brokers.status),)
"""Routes that require no login: Pulsar's page for load balancers."""

OF_CLIENTS: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", f"{_BROKERS}/health", brokers.health),
    ("GET", f"{_BROKERS}/ready", brokers.ready),
    ("GET", f"{_BROKERS}/version", brokers.version),
    ("GET", "/admin/v2/clusters", clusters.clusters),
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", topics.lookup),
    ("GET", f"{_NAMESPACE}/topics", clusters.topics_of_namespace),
    ("GET", f"{_TOPIC}/partitions", topics.partitions),
    ("GET", f"{_SCHEMAS}/schema", schemas.schema),
    ("GET", f"{_SCHEMAS}/schema/{{version}}", schemas.schema),
    ("GET", f"{_SCHEMAS}/schemas", schemas.schemas),
)
"""Routes for every role that may connect. With authorization a role needs rights to the topic (`right_of`)."""
OF_ADMINISTRATORS: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/metrics", brokers.metrics),
    ("GET", _BROKERS, brokers.brokers),
    ("GET", f"{_BROKERS}/leaderBroker", brokers.leader),
    ("GET", f"{_BROKERS}/configuration", broker_settings.names),
    ("GET", f"{_BROKERS}/configuration/values", broker_settings.values),
    ("POST", f"{_BROKERS}/configuration/{{setting}}/{{value}}", broker_settings.set_value),
    ("DELETE", f"{_BROKERS}/configuration/{{setting}}", broker_settings.remove_value),
    ("GET", f"{_BROKERS}/configuration/runtime", brokers.runtime_configuration),
    ("GET", f"{_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces", brokers.owned_namespaces),
    ("GET", f"{_BROKERS}/internal-configuration", refused("there is no metadata store besides Kafka")),
    ("GET", f"{_BROKERS}/backlog-quota-check", refused("pok serve checks backlog quotas each minute")),
    ("GET", f"{_BROKERS}/{{cluster}}", brokers.brokers),
    ("GET", f"{_BROKER_STATS}/topics", statistics.of_gateway),
    ("GET", f"{_BROKER_STATS}/metrics", brokers.metrics_of_monitoring),
    ("GET", f"{_BROKER_STATS}/load-report", refused("Kafka's group of gateways shares the topics, without loads")),
    ("GET", f"{_BROKER_STATS}/mbeans", refused("it is no Java program; /metrics has its metrics")),
    ("GET", f"{_BROKER_STATS}/allocator-stats/{{allocator}}", refused("it is no Java program")),
    ("GET", f"{_BROKER_STATS}/bookieops", refused("there are no bookies")),
    ("GET", "/admin/v2/clusters/{cluster}", clusters.cluster),
    ("GET", "/admin/v2/clusters/{cluster}/failureDomains", clusters.none_of_cluster),
    ("GET", "/admin/v2/clusters/{cluster}/namespaceIsolationPolicies", clusters.none_of_cluster),
    ("GET", "/admin/v2/resourcegroups", brokers.resource_groups),
    ("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle", policies.bundle_of_topic),
    ("POST", f"{_SCHEMAS}/schema", schemas.register),
    ("DELETE", f"{_SCHEMAS}/schema", schemas.delete),
    ("POST", f"{_SCHEMAS}/compatibility", schemas.compatibility),
    ("POST", f"{_SCHEMAS}/version", schemas.version_of),
    ("GET", f"{_SCHEMAS}/metadata", schemas.metadata),
    ("GET", f"{_TRANSACTIONS}/coordinators", transactions.coordinators),
    ("GET", f"{_TRANSACTIONS}/coordinatorStats", transactions.coordinator_stats),
    ("POST", f"{_TRANSACTIONS}/transactionCoordinator/replicas", transactions.scale),
    ("GET", f"{_TRANSACTIONS}/transactionMetadata/{{most}}/{{least}}", transactions.transaction),
    ("GET", f"{_TRANSACTIONS}/slowTransactions/{{timeout}}", transactions.slow_transactions),
    ("POST", f"{_TRANSACTIONS}/abortTransaction/{{most}}/{{least}}", transactions.abort),
    ("GET", f"{_TRANSACTIONS}/transactionInBufferStats/{_OF_TOPIC}/{{most}}/{{least}}", transactions.in_buffer),
    (
        "GET",
        f"{_TRANSACTIONS}/transactionInPendingAckStats/{_OF_TOPIC}/{{subscription}}/{{most}}/{{least}}",
        transactions.in_pending_ack,
    ),
    ("GET", f"{_TRANSACTIONS}/transactionBufferStats/{_OF_TOPIC}", transactions.buffer_stats),
    ("GET", f"{_TRANSACTIONS}/pendingAckStats/{_OF_TOPIC}/{{subscription}}", transactions.pending_ack_stats),
    ("GET", "/admin/v2/tenants", tenants.tenants),
    ("GET", "/admin/v2/tenants/{tenant}", tenants.tenant),
    ("PUT", "/admin/v2/tenants/{tenant}", tenants.make),
    ("POST", "/admin/v2/tenants/{tenant}", tenants.update),
    ("DELETE", "/admin/v2/tenants/{tenant}", tenants.delete),
    ("GET", "/admin/v2/tenants/{tenant}/transactionCoordinatorEnabled", broker_settings.of_tenant),
    ("POST", "/admin/v2/tenants/{tenant}/transactionCoordinatorEnabled", broker_settings.set_of_tenant),
    ("DELETE", "/admin/v2/tenants/{tenant}/transactionCoordinatorEnabled", broker_settings.remove_of_tenant),
    ("GET", "/admin/v2/namespaces/{tenant}", clusters.namespaces),
    ("PUT", _NAMESPACE, clusters.make_namespace),
    ("DELETE", _NAMESPACE, clusters.delete_namespace),
    ("GET", _NAMESPACE, policies.of_namespace),
    ("GET", f"{_NAMESPACE}/bundles", policies.bundles),
    ("GET", f"{_NAMESPACE}/properties", clusters.properties),
    ("PUT", f"{_NAMESPACE}/properties", clusters.set_properties),
    ("DELETE", f"{_NAMESPACE}/properties", clusters.remove_properties),
    ("GET", f"{_NAMESPACE}/property/{{key}}", clusters.one_property),
    ("PUT", f"{_NAMESPACE}/property/{{key}}/{{value}}", clusters.set_property),
    ("DELETE", f"{_NAMESPACE}/property/{{key}}", clusters.remove_property),
    ("PUT", f"{_NAMESPACE}/unload", clusters.unload_namespace),
    ("PUT", f"{_NAMESPACE}/{{bundle}}/unload", clusters.unload_namespace),
    ("POST", f"{_NAMESPACE}/clearBacklog", clusters.clear_backlog),
    ("POST", f"{_NAMESPACE}/clearBacklog/{{subscription}}", clusters.clear_backlog),
    ("POST", f"{_NAMESPACE}/{{bundle}}/clearBacklog", clusters.clear_backlog),
    ("POST", f"{_NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}", clusters.clear_backlog),
    ("GET", f"{_NAMESPACE}/permissions", permissions.of_namespace),
    ("GET", f"{_NAMESPACE}/permissions/subscription", permissions.of_subscriptions),
    ("POST", f"{_NAMESPACE}/permissions/subscription/{{subscription}}", permissions.grant_on_subscription),
    ("DELETE", f"{_NAMESPACE}/permissions/{{subscription}}/{{role}}", permissions.revoke_on_subscription),
    ("POST", f"{_NAMESPACE}/permissions/{{role}}", permissions.grant),
    ("DELETE", f"{_NAMESPACE}/permissions/{{role}}", permissions.revoke),
    ("GET", f"{_NAMESPACE}/subscriptionAuthMode", permissions.subscription_auth_mode),
    ("POST", f"{_NAMESPACE}/subscriptionAuthMode", permissions.set_subscription_auth_mode),
    ("GET", f"{_TOPIC}/permissions", permissions.of_topic),
    ("POST", f"{_TOPIC}/permissions/{{role}}", permissions.grant_on_topic),
    ("DELETE", f"{_TOPIC}/permissions/{{role}}", permissions.revoke_on_topic),
    ("GET", _TOPICS, topics.topics),
    ("GET", f"{_TOPICS}/partitioned", topics.partitioned_topics),
    ("PUT", _TOPIC, topics.make),
    ("DELETE", _TOPIC, topics.delete),
    ("PUT", f"{_TOPIC}/partitions", topics.make_partitioned),
    ("POST", f"{_TOPIC}/partitions", topics.grow),
    ("DELETE", f"{_TOPIC}/partitions", topics.delete_partitioned),
    ("PUT", f"{_TOPIC}/unload", topics.unload),
    ("DELETE", f"{_TOPIC}/policies", policies.remove_all),
    ("GET", f"{_TOPIC}/properties", topic_commands.properties),
    ("PUT", f"{_TOPIC}/properties", topic_commands.update_properties),
    ("DELETE", f"{_TOPIC}/properties", topic_commands.remove_property),
    ("GET", f"{_TOPIC}/compaction", topic_commands.compaction_status),
    ("PUT", f"{_TOPIC}/compaction", topic_commands.compact),
    ("POST", f"{_TOPIC}/createMissedPartitions", topic_commands.create_missed_partitions),
    ("DELETE", f"{_TOPIC}/truncate", topic_commands.truncate),
    ("POST", f"{_TOPIC}/trim", topic_commands.trim),
    ("POST", f"{_TOPIC}/terminate", topic_commands.terminate),
    ("POST", f"{_TOPIC}/terminate/partitions", topic_commands.terminate_partitioned),
    ("GET", f"{_TOPIC}/subscriptions", topics.subscriptions),
    ("PUT", _SUBSCRIPTION, topics.make_subscription),
    ("DELETE", _SUBSCRIPTION, topics.delete_subscription),
    ("POST", f"{_SUBSCRIPTION}/resetcursor/{{timestamp}}", cursors.reset_to_time),
    ("POST", f"{_SUBSCRIPTION}/resetcursor", cursors.reset_to_id),
    ("POST", f"{_SUBSCRIPTION}/skip/{{count}}", cursors.skip),
    ("POST", f"{_SUBSCRIPTION}/skip_all", cursors.skip_all),
    ("POST", f"{_SUBSCRIPTION}/expireMessages/{{seconds}}", cursors.expire),
    ("POST", f"{_SUBSCRIPTION}/expireMessages", cursors.expire_to_id),
    ("POST", f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}", cursors.expire_everywhere),
    ("GET", f"{_SUBSCRIPTION}/properties", cursors.properties),
    ("PUT", f"{_SUBSCRIPTION}/properties", cursors.set_properties),
    ("GET", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", cursors.replicated),
    ("POST", f"{_SUBSCRIPTION}/replicatedSubscriptionStatus", cursors.set_replicated),
    ("GET", f"{_SUBSCRIPTION}/position/{{position}}", entries.peek),
    ("POST", f"{_SUBSCRIPTION}/analyzeBacklog", entries.analyze),
    ("GET", f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}", entries.by_id),
    ("GET", f"{_TOPIC}/examinemessage", entries.examine),
    ("GET", f"{_TOPIC}/messageid/{{timestamp}}", entries.id_at),
    ("GET", f"{_TOPIC}/lastMessageId", entries.last_id),
    ("PUT", f"{_TOPIC}/backlogSize", entries.backlog_size),
    ("GET", f"{_TOPIC}/internalStats", internals.stats),
    ("GET", f"{_TOPIC}/partitioned-internalStats", internals.partitioned_stats),
    ("GET", f"{_TOPIC}/internal-info", internals.info),
    ("GET", f"{_TOPIC}/stats", statistics.stats),
    ("GET", f"{_TOPIC}/partitioned-stats", statistics.partitioned_stats),
)
"""Routes for super users, or for every client if no login is required. With authorization also for admin roles of the
tenant, and some of them for roles with rights to the topic."""
OF_POLICIES: Final[tuple[tuple[str, str, Handler], ...]] = tuple(
    (method, f"{place}/{{policy}}", handler)
    for place in (_NAMESPACE, _TOPIC)
    for method, handler in (
        ("GET", policies.get),
        ("PUT", policies.set_policy),
        ("POST", policies.set_policy),
        ("DELETE", policies.remove),
    )
)
"""Routes for administrators, behind all others: `policies` has the names."""


class Rest:
    """Replies for a cluster. A handler runs in a thread of Starlette's pool, 40 at most. Memory: bodies of 64 KiB."""

    def __init__(
        self,
        cluster: Cluster,
        access: GatewayAccess,
        hosts: frozenset[str] = frozenset(),
        authorization: Authorization | None = None,
    ) -> None:
        """`hosts`: the accepted host names of requests; none: any. This rejects requests of web pages whose host name
        was made to resolve to this machine."""
        self._cluster = cluster
        self._access = access
        self._authorization = authorization
        self._hosts = hosts

    def app(self) -> ASGIApp:
        routes = []
        limited = ((False, OF_CLIENTS), (True, (*OF_ADMINISTRATORS, *OF_POLICIES)))
        for method, path, handler in OF_ALL:
            routes.append(Route(path, self._endpoint(handler, None), methods=[method]))
        for administers, table in limited:
            for method, path, handler in table:
                right = right_of(method, path, administers=administers)
                for domain in DOMAINS if "{domain}" in path else DOMAINS[:1]:
                    endpoint = self._endpoint(handler, right, domain)
                    routes.append(Route(path.replace("{domain}", domain), endpoint, methods=[method]))
        for root in _ROOTS:
            endpoint = self._endpoint(unserved, LOGGED_IN)
            routes.append(Route(f"{root}/{{rest:path}}", endpoint, methods=list(_METHODS)))
        return Starlette(routes=routes)

    def _endpoint(
        self, handler: Handler, right: RouteRight | None, domain: str = "persistent"
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                role = self._check(request, right)
                self._check_tenant(request, handler)
                received = RestRequest(
                    self._cluster,
                    {
                        **{name: unquote_plus(value) for name, value in request.path_params.items()},
                        "domain": domain,
                        "line": f"{request.method} {request.url.path}",
                    },
                    dict(request.query_params),
                    b"",
                )
                if right is not None and self._authorization is not None:
                    await run_in_threadpool(right.check, self._authorization, role, received)
                found = await run_in_threadpool(handler, replace(received, body=await _body(request)))
            except ClientDisconnect:
                return _refused(RestError(400, "the connection ended before the body"))
            except ServedElsewhere as elsewhere:
                return RedirectResponse(elsewhere.url, 307)
            except Exception as failure:  # whatever it is becomes an answer
                return _refused(refusal(failure))
            if isinstance(found, Text):
                return PlainTextResponse(found)
            if isinstance(found, Binary):
                return _binary(found)
            return Response(status_code=204) if found is None else _json(found)

        return answer

    def _check_tenant(self, request: Request, handler: Handler) -> None:
        """Raises ServedElsewhere: another cluster has the tenant. RestError: no cluster has it now, or the gateways of
        that cluster have no REST. A lookup needs none: its reply is the gateway itself."""
        tenant = request.path_params.get("tenant")
        serving = self._cluster.tenants.of(unquote_plus(tenant)) if tenant else HERE
        if serving.is_here or (handler is topics.lookup and serving.urls.serves and not serving.urls.web):
            return
        if not serving.urls.web:
            raise RestError(503, serving.reason)
        query = request.scope["query_string"].decode("ascii")
        raise ServedElsewhere(f"{serving.urls.web.rstrip('/')}{request.url.path}{'?' if query else ''}{query}")

    def _check(self, request: Request, right: RouteRight | None) -> str:
        """The caller's role; '' for a route that requires no login (`right` is None).

        Raises RestError: the caller does not have the right that this route requires.
        """
        if "origin" in request.headers:
            raise RestError(403, "this REST is not for pages of a browser")
        if self._hosts and request.url.hostname not in self._hosts:
            raise RestError(403, f"this REST answers to {', '.join(sorted(self._hosts))}")
        if right is None:
            return ""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        certificate: Mapping[str, Any] | None = request.scope.get(_CERTIFICATE)
        method = TOKEN if kind.lower() == "bearer" else TLS if certificate else ""
        try:
            role = self._access.login(method, token.encode("utf-8", "replace"), certificate).role
        except AuthenticationError as unknown:
            raise RestError(401, str(unknown)) from unknown
        if right.administers and self._authorization is None and not self._access.may_administer(role):
            raise RestError(403, f"{role} is no super user")
        return role


class RestServer(AsgiServer):
    """Listens from its construction until `close`."""

    def __init__(self, admin: AdminClient, gateway: Gateway, settings: GatewaySettings) -> None:
        """`settings` are the gateway's. Raises InvalidOption: the port is taken."""
        scheme = "https" if settings.tls.certificate else "http"
        shown = url_host(settings.host)

        def url() -> str:
            return f"{scheme}://{settings.advertised or shown}:{self.port}"

        self.url = url
        more: dict[str, Any] = {"http": _Protocol}
        if settings.trusted:
            more |= {"ssl_ca_certs": settings.trusted, "ssl_cert_reqs": ssl.CERT_OPTIONAL}
        local = not settings.access.requires_login and settings.host in _LOCAL
        hosts = _LOCAL | {settings.advertised or settings.host} if local else frozenset[str]()
        cluster = Cluster(admin, gateway.serving, gateway.unload, url, gateway.address, gateway.tenants, gateway.topics)
        app = Rest(cluster, settings.access, hosts, gateway.authorization).app()
        super().__init__(
            "pok-gateway-http", Address(settings.host, settings.http_port, "--http-port"), app, settings.tls, **more
        )


class _Protocol(HttpProtocol):
    """Requests know the certificate that their connection's client has shown, and their paths are as they were sent.

    In a name `+` is a space. Source: Pulsar's `Codec`, by which its clients write names into paths, and its broker
    reads them.
    """

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        inner, certificate = self.app, transport.get_extra_info("peercert")

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["raw_path"].decode("ascii")  # names are decoded after the route is found: they may have `/`
            await inner({**scope, "path": path, _CERTIFICATE: certificate}, receive, send)

        self.app = app


async def _body(request: Request) -> bytes:
    """The body of a request. Raises RestError: it is too large."""
    limit = _MAX_SCHEMA_BYTES if request.url.path.startswith(_SCHEMA_ROOT) else _MAX_BODY_BYTES
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > limit:
            raise RestError(413, f"the body has more than {limit} bytes")
    return found


def _json(value: object, status: int = 200) -> Response:
    return Response(json.dumps(value), status, media_type="application/json")


def _binary(found: Binary) -> Response:
    """Header names keep their case, which Pulsar's Java client compares."""
    answer = Response(found.body, media_type="application/octet-stream")
    answer.raw_headers.extend((name.encode(), value.encode()) for name, value in found.headers)
    return answer


def _refused(error: RestError) -> Response:
    _log.debug("status=%d %s", error.status, error)
    answer = _json({"reason": str(error)}, error.status)
    if error.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer
