"""Service URLs: `kafka://host:port[,host:port...]`, and `kafka+ssl://` for TLS."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_HOST: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_SCHEMES: Final = {"kafka": False, "kafka+ssl": True}


class ServiceUrl(NamedTuple):
    """The bootstrap servers, and whether connections to them are TLS."""

    bootstrap: str
    tls: bool


def parse_service_url(url: str) -> ServiceUrl:
    """What a service URL says.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    scheme, separator, rest = url.partition("://")
    shown = url if "@" not in url else f"{scheme}://...@{url.rpartition('@')[2]}"  # no password in an error
    if scheme.startswith("pulsar") and separator:
        raise ValueError(f"{shown!r} is a Pulsar address; this client speaks to Kafka: kafka://host:9092")
    servers = rest.rstrip("/").split(",")
    if scheme not in _SCHEMES or not separator or not all(is_server(server) for server in servers):
        raise ValueError(
            f"the service URL must be kafka://host:port[,host:port...], or kafka+ssl:// for TLS, got {shown!r}"
        )
    return ServiceUrl(",".join(servers), _SCHEMES[scheme])


def is_server(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 65536
