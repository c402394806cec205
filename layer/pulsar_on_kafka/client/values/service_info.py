"""A `ServiceInfo` has the address of a cluster; the other official classes switch between several."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pulsar_on_kafka.broker.publishing.arguments import check_type, check_type_or_none
from pulsar_on_kafka.client.values.authentication import Authentication

_HOST: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_SCHEMES: Final = {"kafka": False, "kafka+ssl": True}


class ServiceUrl(NamedTuple):
    """The bootstrap servers, and whether connections to them are TLS."""

    bootstrap: str
    tls: bool


def parse_service_url(url: str) -> ServiceUrl:
    """The parts of a service URL.

    Raises:
        ValueError: it is none; the message names the expected form.
    """
    scheme, separator, rest = url.partition("://")
    shown = url if "@" not in url else f"{scheme}://...@{url.rpartition('@')[2]}"  # no password in an error
    if scheme.startswith("pulsar") and separator:
        raise ValueError(
            f"{shown!r} is a Pulsar address; this client speaks to Kafka: kafka://host:9092 (`pok run` and "
            "pulsar_on_kafka.as_pulsar replace such addresses)"
        )
    servers = rest.rstrip("/").split(",")
    if scheme not in _SCHEMES or not separator or not all(is_server(server) for server in servers):
        raise ValueError(
            f"the service URL must be kafka://host:port[,host:port...], or kafka+ssl:// for TLS, got {shown!r}"
        )
    return ServiceUrl(",".join(servers), _SCHEMES[scheme])


def is_server(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 65536


class ServiceInfo:
    """The connection data of one cluster. Source: `pulsar.ServiceInfo`."""

    def __init__(
        self,
        service_url: str,
        authentication: Authentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ) -> None:
        """Raises ValueError: an argument has a wrong type. The client checks the URL."""
        check_type(str, "service_url", service_url)
        if authentication is not None and not isinstance(authentication, Authentication):
            raise ValueError("Argument authentication is expected to be either None or of type 'Authentication'")
        check_type_or_none(str, "tls_trust_certs_file_path", tls_trust_certs_file_path)
        self._service_url = service_url
        self._authentication = authentication
        self._tls_trust_certs_file_path = tls_trust_certs_file_path

    @property
    def service_url(self) -> str:
        """The cluster's URL."""
        return self._service_url

    @property
    def authentication(self) -> Authentication | None:
        """Not in the official class."""
        return self._authentication

    @property
    def use_tls(self) -> bool:
        """Whether the URL's scheme requires TLS."""
        return self._service_url.partition("://")[0].endswith("+ssl")

    @property
    def tls_trust_certs_file_path(self) -> str | None:
        """The file with the authorities of the brokers' certificates (PEM)."""
        return self._tls_trust_certs_file_path

    @classmethod
    def wrap(cls, service_info: ServiceInfo) -> ServiceInfo:
        """Another object with the same data."""
        return cls(service_info.service_url, service_info._authentication, service_info.tls_trust_certs_file_path)

    def __repr__(self) -> str:
        return (
            f"ServiceInfo(service_url={self.service_url!r}, use_tls={self.use_tls!r}, "
            f"tls_trust_certs_file_path={self.tls_trust_certs_file_path!r})"
        )


class ServiceInfoProvider:
    """A provider returns the address of a client's cluster, and reports changes; applications subclass it.

    Source: `pulsar.ServiceInfoProvider`.
    """

    def initial_service_info(self) -> ServiceInfo:
        """The cluster's address; called once, when the client is created."""
        raise NotImplementedError(f"{type(self).__name__}.initial_service_info")

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Keep `on_service_info_update`, and call it from any thread when the cluster is elsewhere: it returns at once,
        and the client moves. It raises ValueError for what is no `ServiceInfo`, or one that the client cannot use;
        then the client stays where it is. Calls after the client's `close` do nothing.
        """
        raise NotImplementedError(f"{type(self).__name__}.initialize")

    def close(self) -> None:
        """Give back what the provider holds; nothing by itself. Called once, by the client's `close`, or when the
        client cannot be made."""


@dataclass(eq=False)
class AutoClusterFailover:
    """A preferred cluster and those to go to when it does not answer, as a client's service URL.

    Every `check_interval_ms` the client opens a TCP connection to a broker of the cluster in use. After
    `failover_threshold` failures in a row of the primary it goes to the first secondary that answers; there it goes
    back when the primary answered `switch_back_threshold` times in a row, or, when the secondary fails as often, as
    soon as the primary answers. Source: `pulsar.AutoClusterFailover`, and its C++ implementation.

    Raises:
        ValueError: a wrong type, no secondary, or a number below 1.
    """

    primary: ServiceInfo
    secondary: Sequence[ServiceInfo]
    check_interval_ms: int = 5000
    failover_threshold: int = 1
    switch_back_threshold: int = 1

    def __post_init__(self) -> None:
        check_type(ServiceInfo, "primary", self.primary)
        check_type(list, "secondary", self.secondary)
        self.secondary = list(self.secondary)
        if not self.secondary:
            raise ValueError("secondary must name at least one ServiceInfo, got []")
        for index, info in enumerate(self.secondary):
            check_type(ServiceInfo, f"secondary[{index}]", info)
        for name in ("check_interval_ms", "failover_threshold", "switch_back_threshold"):
            number = getattr(self, name)
            check_type(int, name, number)
            if number < 1:
                raise ValueError(f"{name} must be 1 or more, got {number}")
