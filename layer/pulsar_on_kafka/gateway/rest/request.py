"""One REST request, and the conversion of failures to Pulsar's JSON with a status."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pulsar_on_kafka import exceptions
from pulsar_on_kafka.admin import AdminClient
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.publishing.official_errors import as_pulsar
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import NON_PERSISTENT, PERSISTENT, SCALABLE
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import DEFAULT_CLUSTER

_log: Final = logging.getLogger(__name__)

OPERATION_S: Final = 30.0
DOMAINS: Final = (PERSISTENT, NON_PERSISTENT, SCALABLE)
"""The domains of topics in paths; `topic` is another name of `persistent`."""
INTEGER: Final = re.compile(r"-?[0-9]{1,19}")


class ServedElsewhere(Exception):
    """Another cluster has the tenant of a request. `url` is the request's URL at the REST of a gateway there."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class RestError(Exception):
    """An error as a reply: Pulsar's `{"reason": ...}`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Text(str):
    """A reply in plain text."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """A reply of bytes, with headers in UTF-8. A name may occur several times."""

    body: bytes
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The gateway and its node, as handlers use them."""

    admin: AdminClient
    serving: Callable[[str, Deadline], str | None]
    """As `Gateway.serving`."""
    unload: Callable[[AbstractSet[str], Deadline], None]
    """As `Gateway.unload`."""
    web_url: Callable[[], str]
    """The URL of this REST server."""
    service_url: Callable[[], str]
    """The URL of the gateway for clients."""
    tenants: ServedTenants
    topics: Callable[[Deadline], AbstractSet[str]]
    """As `Gateway.topics`."""

    @property
    def name(self) -> str:
        return self.admin.local_cluster() or DEFAULT_CLUSTER


@dataclass(frozen=True, slots=True)
class RestRequest:
    """One request, with the parameters of its route."""

    cluster: Cluster
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes

    @property
    def admin(self) -> AdminClient:
        return self.cluster.admin

    @property
    def namespace(self) -> str:
        return f"{self.names['tenant']}/{self.names['namespace']}"

    @property
    def domain(self) -> str:
        """One of `DOMAINS`."""
        return self.names.get("domain", PERSISTENT)

    @property
    def topic(self) -> str:
        return f"{self.domain}://{self.namespace}/{self.names['topic']}"

    @property
    def of_topic(self) -> bool:
        """Whether the route names a topic."""
        return "topic" in self.names

    @property
    def is_persistent(self) -> bool:
        return self.domain != NON_PERSISTENT

    def deadline(self) -> Deadline:
        return Deadline.after(OPERATION_S)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A Boolean parameter. Raises RestError: the value is neither true nor false."""
        value = self.query.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise RestError(400, f"{name} is {value!r:.60}, expected true or false")
        return value == "true"

    def number(self, name: str) -> int:
        """A number in the path or, if it is not there, in the query. Raises RestError: the value is no integer of 64
        bits, or missing."""
        value = self.names.get(name, self.query.get(name, ""))
        if not INTEGER.fullmatch(value) or not -(2**63) <= int(value) < 2**63:
            raise RestError(400, f"{name} is {value!r:.60}, expected an integer of 64 bits")
        return int(value)

    def json(self) -> Any:
        """The body, None without one. Raises RestError: the body is not JSON."""
        try:
            return json.loads(self.body) if self.body.strip() else None
        except (ValueError, RecursionError) as failure:
            raise RestError(400, f"the body is no JSON: {failure}") from failure

    def names_in(self, where: str, value: object) -> frozenset[str]:
        """The names of a list, none without a list. Raises RestError: the value is not a list of names."""
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise RestError(400, f"{where} is {value!r:.120}, expected a list of names")
        return frozenset(value)

    def texts_in(self, where: str, value: object) -> dict[str, str]:
        """The properties of an object, none without one. Raises RestError: the value is not an object of texts."""
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise RestError(400, f"{where} are {value!r:.120}, expected an object of texts")
        return value

    def nothing_in(self, where: str, value: object) -> None:
        """Raises RestError: `value` has something that is not stored here."""
        if differs_from_default(value):
            raise RestError(501, f"{where} is not kept by this gateway, got {value!r:.200} (docs/gateway.md)")


def differs_from_default(value: object) -> bool:
    """Whether a value differs from Pulsar's defaults."""
    if isinstance(value, Mapping):
        return any(differs_from_default(each) for each in value.values())
    return value not in (None, False, 0, -1, "", "UNDEFINED", "None", [])


def refused(reason: str) -> Callable[[RestRequest], NoReturn]:
    """The handler of routes that have no meaning here."""

    def refuse(request: RestRequest) -> NoReturn:
        raise RestError(501, f"{request.names['line']} is not served by this gateway: {reason}")

    return refuse


def unserved(request: RestRequest) -> NoReturn:
    """The handler of routes without one. Raises RestError."""
    raise RestError(501, f"{request.names['line']} is not served by this gateway: docs/gateway.md has what is")


_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (errors.AlreadyExists, 409),
    (errors.NotEmpty, 409),
    (errors.NoSuchTenant, 404),
    (errors.NotSupportedYet, 501),
    (errors.InvalidOption, 400),
    (errors.SubscriptionBusy, 412),
    (exceptions.InvalidTopicName, 412),
    (exceptions.TopicNotFound, 404),
    (exceptions.SubscriptionNotFound, 404),
    (exceptions.TransactionNotFound, 404),
    (exceptions.InvalidConfiguration, 400),
    (exceptions.InvalidMessage, 400),
    (exceptions.IncompatibleSchema, 409),
    (exceptions.NotAllowedError, 412),
    (exceptions.AuthorizationError, 403),
    (exceptions.Timeout, 503),
    (exceptions.ConnectError, 503),
    (exceptions.NotConnected, 503),
    (exceptions.AlreadyClosed, 503),
)
"""The first match counts. All other failures get 500."""


def refusal(failure: Exception) -> RestError:
    """The reply to a failure. An unexpected failure is logged with its traceback."""
    if isinstance(failure, RestError):
        return failure
    if not isinstance(failure, (errors.LayerError, MappingError, exceptions.PulsarException)):
        _log.error("a request failed", exc_info=failure)
    ours, official = failure.__cause__ or failure, as_pulsar(failure)
    status = next((status for kind, status in _STATUSES if isinstance(ours, kind) or isinstance(official, kind)), 500)
    if isinstance(ours, errors.NoSuchNamespace):
        return RestError(status, "Namespace does not exist")
    return RestError(status, str(failure) or type(failure).__name__)
