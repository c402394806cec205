"""The lookup service returns the clusters of tenants, and metadata of the clusters, over HTTP. Never data.

    GET /lookup/v1/tenants/TENANT[?unless=VERSION&wait_s=30]           the tenant's place, see `TenantPlace`
    GET /lookup/v1/map[?unless=VERSION&wait_s=30]                      the whole map, see `TenantMap`: for gateways
    GET /lookup/v2/topic/persistent/TENANT/NAMESPACE/TOPIC             {"brokerUrl": "pulsar://...", "cluster": ...}
    GET /admin/v2/persistent/TENANT/NAMESPACE/TOPIC/partitions         {"partitions": 4}
    GET /admin/v2/persistent/TENANT/NAMESPACE/TOPIC/state              offsets, cursors, owners
    GET /admin/v2/schemas/TENANT/NAMESPACE/TOPIC/schema[/VERSION]      type, data, properties ...
    GET /health/live, /health/ready

Those below /lookup/v2 and the partitions and schemas have Pulsar's paths and replies. A missing topic is not created.
`brokerUrl` is a gateway of the tenant's cluster; without one, the cluster's Kafka address for SDK programs.

A cluster may have several addresses (`listeners.py`): a client with `?listener=NAME`, as sent by clients with a
`listener_name`, gets that one, others that of their network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from itertools import count
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.http_server import answered
from pulsar_on_kafka.broker.lookup.gateway_urls import chosen_urls
from pulsar_on_kafka.broker.lookup.http_directory import TENANTS_PATH
from pulsar_on_kafka.broker.lookup.listeners import ANY_CLIENT, LookupClient
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace
from pulsar_on_kafka.broker.lookup.tenant_map import MAP_PATH
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.clusters.lookup_service.followed_map import FollowedMap
from pulsar_on_kafka.exceptions import PulsarException, TopicNotFound
from pulsar_on_kafka_mapping.encoding.decimals import decimal_or_none

_TOPIC: Final = "/lookup/v2/topic/"
_ADMIN: Final = "/admin/v2/"
_SCHEMAS: Final = "/admin/v2/schemas/"


class Metadata(Protocol):
    """Metadata of a tenant's cluster, as `ClusterMetadata` gives it. Raises PulsarException."""

    def partitions(self, place: TenantPlace, topic: str) -> int: ...
    def schema(self, place: TenantPlace, topic: str, version: int | None) -> StoredSchema: ...
    def state(self, place: TenantPlace, topic: str) -> dict[str, Any]: ...


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class LookupAnswers:
    """A WSGI application. Thread-safe."""

    def __init__(self, places: FollowedMap, metadata: Metadata) -> None:
        self._map = places
        self._turns = count()
        self._metadata = metadata

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        status, reported = HTTPStatus.OK, None
        try:
            if environ.get("REQUEST_METHOD") != "GET":
                raise _Refusal(
                    HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered: the map is changed with pok tenants"
                )
            # PEP 3333: the bytes of the path, one character each
            path = str(environ.get("PATH_INFO", "")).encode("latin-1").decode("utf-8", "replace")
            query = parse_qs(str(environ.get("QUERY_STRING", "")))
            caller = LookupClient(str(environ.get("REMOTE_ADDR", "")), query.get("listener", [""])[0])
            reported = self._answer(path, query, caller)
        except _Refusal as refused:
            status, reported = refused.status, {"reason": str(refused)}
        except TopicNotFound as missing:
            status, reported = HTTPStatus.NOT_FOUND, {"reason": str(missing)}
        except (LayerError, PulsarException) as failure:
            status, reported = HTTPStatus.SERVICE_UNAVAILABLE, {"reason": str(failure)}
        return answered(f"{status.value} {status.phrase}", reported, start_response)

    def _answer(self, path: str, query: dict[str, list[str]], caller: LookupClient) -> dict[str, Any]:
        if path.startswith(TENANTS_PATH):
            return self._tenant(path.removeprefix(TENANTS_PATH), query, caller)
        if path.startswith(_TOPIC):
            return self._lookup(self._topic(path.removeprefix(_TOPIC).split("/"), caller)[0])
        if path == MAP_PATH:
            return self._map.whole(query.get("unless", [""])[0], _wait_s(query), caller)
        if path.startswith(_SCHEMAS):
            return self._schema(path.removeprefix(_SCHEMAS).split("/"))
        if path.startswith(_ADMIN) and path.endswith("/partitions"):
            place, topic = self._topic(path.removeprefix(_ADMIN).removesuffix("/partitions").split("/"))
            return {"partitions": self._metadata.partitions(place, topic)}
        if path.startswith(_ADMIN) and path.endswith("/state"):
            return self._state(*self._topic(path.removeprefix(_ADMIN).removesuffix("/state").split("/")))
        if path == "/health/live":
            return {"status": "ok"}
        if path == "/health/ready":
            if failure := self._map.failure():
                raise LookupFailed(failure)
            return {"status": "ok"}
        raise _Refusal(HTTPStatus.NOT_FOUND, f"there is no {path}; see docs/migration.md")

    def _tenant(self, tenant: str, query: dict[str, list[str]], caller: LookupClient) -> dict[str, str]:
        if "unless" not in query:
            return self._map.place(tenant, caller).as_json()
        return self._map.changed(tenant, query["unless"][0], _wait_s(query), caller).as_json()

    def _lookup(self, place: TenantPlace) -> dict[str, Any]:
        """The gateway of the tenant's cluster. Raises LookupFailed: the tenant is switching, and its clients retry."""
        urls = chosen_urls(self._map.gateways(place.cluster), next(self._turns))
        if not urls.serves:
            return {"brokerUrl": place.service_url, "cluster": place.cluster}
        if place.switching:
            raise LookupFailed(f"tenant {place.tenant} is switching to cluster {place.target}: look it up again")
        return {**urls.lookup_data(), "cluster": place.cluster}

    def _topic(self, parts: list[str], caller: LookupClient = ANY_CLIENT) -> tuple[TenantPlace, str]:
        """The topic's place as the client reaches it; for this service itself the cluster's own address."""
        if len(parts) != 4 or parts[0] not in ("persistent", "non-persistent") or not all(parts):
            raise _Refusal(
                HTTPStatus.BAD_REQUEST, f"expected persistent/TENANT/NAMESPACE/TOPIC, got {'/'.join(parts)!r:.200}"
            )
        domain, tenant, namespace, topic = parts
        return self._map.place(tenant, caller), f"{domain}://{tenant}/{namespace}/{topic}"

    def _state(self, place: TenantPlace, topic: str) -> dict[str, Any]:
        """The state of the topic in each cluster that has something of it: while its tenant moves, both."""
        reported: dict[str, Any] = {}
        missing: list[TopicNotFound] = []
        places = [place] if place.reached is None else [place, place.reached]
        for each in places:
            try:
                reported[each.cluster] = self._metadata.state(each, topic)
            except TopicNotFound as failure:
                missing.append(failure)
                reported[each.cluster] = {"failure": str(failure)}
            except (LayerError, PulsarException) as failure:
                if len(places) == 1:
                    raise
                reported[each.cluster] = {"failure": str(failure)}  # one of the two may be away
        if len(missing) == len(places):
            raise missing[0]
        found = {"tenant": place.tenant, "state": place.state.value, "cluster": place.cluster, "target": place.target}
        return {"topic": topic, **found, "clusters": reported}

    def _schema(self, parts: list[str]) -> dict[str, Any]:
        if len(parts) not in (4, 5) or parts[3] != "schema" or (len(parts) == 5 and decimal_or_none(parts[4]) is None):
            raise _Refusal(
                HTTPStatus.BAD_REQUEST,
                f"expected TENANT/NAMESPACE/TOPIC/schema[/VERSION], got {'/'.join(parts)!r:.200}",
            )
        place, topic = self._topic(["persistent", *parts[:3]])
        return self._metadata.schema(place, topic, int(parts[4]) if len(parts) == 5 else None).rest()


def _wait_s(query: dict[str, list[str]]) -> float:
    """Raises _Refusal: the time is no number."""
    try:
        return max(0.0, float(query.get("wait_s", ["0"])[0]))
    except ValueError as error:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"wait_s is a number of seconds: {error}") from error
