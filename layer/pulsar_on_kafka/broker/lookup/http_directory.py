"""The map of tenants of lookup services, by HTTP."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import Corrupt
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace, decode_place
from pulsar_on_kafka.broker.lookup.tenant_map import MAP_PATH, TenantMap

TENANTS_PATH: Final = "/lookup/v1/tenants/"
_ANSWER_S: Final = 5.0
"""The time-out of a service's reply, beyond the requested wait for a change."""
_LARGEST: Final = 4 * 1024 * 1024
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class LookupAccess:
    """Access to lookup services. `authorities`: a PEM file of the accepted certificate authorities; '' for the
    system's. `token`: their bearer token; '' without one."""

    tls: bool = False
    token: str = field(default="", repr=False)
    authorities: str = ""

    @staticmethod
    def from_environment(*, tls: bool) -> LookupAccess:
        """The access options from `POK_LOOKUP_TOKEN` and `POK_LOOKUP_CA`."""
        return LookupAccess(tls, os.environ.get("POK_LOOKUP_TOKEN", ""), os.environ.get("POK_LOOKUP_CA", ""))

    def connection(self, server: str, timeout_s: float) -> http.client.HTTPConnection:
        """Raises OSError: the file of authorities cannot be read."""
        host, _, port = server.rpartition(":")
        if not self.tls:
            return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)
        context = ssl.create_default_context(cafile=self.authorities or None)
        return http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=timeout_s, context=context)


_PLAIN: Final = LookupAccess()


class HttpDirectory:
    """Sends requests to the services in turns: to the next one when one does not reply. Thread-safe.

    No connection is kept: a client sends a request at its start, and then one in half a minute for each tenant.
    """

    def __init__(self, servers: Sequence[str], access: LookupAccess = _PLAIN, listener: str = "") -> None:
        """`servers`: `host:port` each; `listener`: the requested address of the clusters, '': that of this program's
        network."""
        self._listener = {"listener": listener} if listener else {}
        self._servers = list(servers)
        self._access = access
        self._preferred = 0
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._waiting: set[http.client.HTTPConnection] = set()

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        query = f"?{urlencode(self._listener)}" if self._listener else ""
        path = f"{TENANTS_PATH}{quote(tenant, safe='')}{query}"
        return self._query(path, min(_ANSWER_S, deadline.remaining_s()), decode_place)

    def topic_state(self, topic: str, deadline: Deadline) -> dict[str, Any]:
        """The service's answer about a topic, `persistent://...`, on the clusters of its tenant. Raises
        LookupFailed."""
        path = "/admin/v2/" + quote(topic.replace("://", "/", 1)) + "/state"
        return self._query(path, deadline.remaining_s(), dict)

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        query = urlencode({"unless": known.version, "wait_s": f"{wait_s:g}", **self._listener})
        return self._query(f"{TENANTS_PATH}{quote(known.tenant, safe='')}?{query}", wait_s + _ANSWER_S, decode_place)

    def tenant_map(self, unless: str = "", wait_s: float = 0.0) -> TenantMap:
        query = urlencode({"unless": unless, "wait_s": f"{wait_s:g}", **self._listener})
        decode = partial(TenantMap, source="the lookup service")
        return self._query(f"{MAP_PATH}?{query}", wait_s + _ANSWER_S, decode)

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            waiting = list(self._waiting)
        for connection in waiting:  # waiting requests fail
            if (sock := connection.sock) is not None:  # a requesting thread may close it meanwhile
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _query(self, path: str, timeout_s: float, decode: Callable[[Mapping[str, Any]], _T]) -> _T:
        failures = []
        for turn in range(len(self._servers)):
            if self._closed.is_set():
                raise LookupFailed("the client is closed")
            number = (self._preferred + turn) % len(self._servers)
            try:
                found = decode(self._get(self._servers[number], path, timeout_s))
            except (OSError, http.client.HTTPException, ValueError, Corrupt, LookupFailed) as failure:
                failures.append(f"{self._servers[number]}: {str(failure) or type(failure).__name__}")
                continue
            self._preferred = number
            return found
        raise LookupFailed(f"no lookup service returned the tenant's place ({'; '.join(failures)})")

    def _get(self, server: str, path: str, timeout_s: float) -> Mapping[str, Any]:
        connection = self._access.connection(server, max(0.001, timeout_s))
        with self._lock:
            self._waiting.add(connection)
        try:
            headers = {"Accept": "application/json"}
            if self._access.token:
                headers["Authorization"] = f"Bearer {self._access.token}"
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read(_LARGEST)
        finally:
            with self._lock:
                self._waiting.discard(connection)
            connection.close()
        reported: Any = json.loads(body)
        if response.status != http.client.OK:
            raise LookupFailed(
                str(reported.get("reason", reported)) if isinstance(reported, dict) else f"HTTP {response.status}"
            )
        if not isinstance(reported, dict):
            raise Corrupt(f"{reported!r:.200} is no reply of a lookup service")
        return reported
