"""Service URLs: `kafka://host:port[,host:port...]`."""

from __future__ import annotations

import re
from typing import Final

_HOST: Final = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


def parse_service_url(url: str) -> str:
    """The bootstrap servers of a service URL.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    scheme, separator, rest = url.partition("://")
    if scheme.startswith("pulsar") and separator:
        raise ValueError(f"{url!r} is a Pulsar address; this client speaks to Kafka: kafka://host:9092")
    servers = rest.rstrip("/").split(",")
    if scheme != "kafka" or not separator or not all(_is_server(server) for server in servers):
        raise ValueError(f"the service URL must be kafka://host:port[,host:port...], got {url!r}")
    return ",".join(servers)


def _is_server(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 65536
