"""Service URLs of clients that follow a map of tenants.

pok+lookup://host:port[,host:port...]     lookup services (pok lookup serve)
pok+lookup+ssl://host:port[,...]          the same by HTTPS
pok+map:///etc/pok/tenants.json           a file (see `FileDirectory`)
"""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.client.values.service_url import is_server
from pulsar_on_kafka.lookup.file_directory import FileDirectory
from pulsar_on_kafka.lookup.http_directory import HttpDirectory, LookupAccess
from pulsar_on_kafka.lookup.places import Directory

_LOOKUP: Final = "pok+lookup"
_LOOKUP_TLS: Final = "pok+lookup+ssl"
_MAP: Final = "pok+map"


def directory_of(url: str, listener: str = "") -> Directory | None:
    """None for the URL of a cluster. `listener`: which of a cluster's addresses a service is asked for, by name.

    Raises:
        ValueError: it is of this kind, and names no service or no file.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in (_LOOKUP, _LOOKUP_TLS, _MAP):
        return None
    if scheme == _MAP:
        if not rest:
            raise ValueError(f"the service URL of a map must be {_MAP}:///path/of/the/file, got {url!r}")
        return FileDirectory(rest)
    servers = rest.rstrip("/").split(",")
    if not all(is_server(server) for server in servers):
        raise ValueError(f"the service URL must be {scheme}://host:port[,host:port...], got {url!r:.200}")
    return HttpDirectory(servers, LookupAccess.from_environment(tls=scheme == _LOOKUP_TLS), listener)
