"""The whole map of tenants as one document: the content of a map's file, and a lookup service's reply to gateways.

{"clusters": {"west": "kafka://west:9092", "east": {"url": "kafka://east:9092", "gateways": ["pulsar://gw-east:6650"]}},
"tenants": {"acme": "west", "globex": {"cluster": "west", "state": "SWITCHING", "target": "east"}, "*": "east"}}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.lookup.gateway_urls import check_gateways
from pulsar_on_kafka.broker.lookup.tenant_locations import Directory, LookupFailed, TenantPlace
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantState

MAP_PATH: Final = "/lookup/v1/map"


class TenantMap:
    """A map at one moment. `version` differs between maps that differ. Immutable. Memory: the document."""

    def __init__(self, found: object, source: str) -> None:
        """`source` names the map in errors. Raises LookupFailed: `found` is no map."""
        clusters = found.get("clusters") if isinstance(found, dict) else None
        tenants = found.get("tenants") if isinstance(found, dict) else None
        if not isinstance(clusters, dict) or not isinstance(tenants, dict):
            raise LookupFailed(f'{source} is no map of tenants: expected {{"clusters": {{...}}, "tenants": {{...}}}}')
        self._clusters: Mapping[str, Any] = clusters
        self._tenants: Mapping[str, Any] = tenants
        self._source = source
        self.version = version_of(clusters, tenants)

    def place(self, tenant: str) -> TenantPlace:
        """Raises LookupFailed: the tenant has no cluster, or its entry is invalid."""
        entry = self._tenants.get(tenant, self._tenants.get(EVERY_OTHER_TENANT))
        if entry is None:
            raise LookupFailed(f"{self._source} has no cluster for tenant {tenant}")
        if isinstance(entry, str):
            entry = {"cluster": entry}
        try:
            cluster, state = entry["cluster"], TenantState(entry.get("state", TenantState.ACTIVE))
            target = entry.get("target", "") if state is TenantState.SWITCHING else ""
            url = self._url(cluster)
            target_url = self._url(target) if target else ""
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LookupFailed(
                f"{self._source} has for tenant {tenant}: {entry!r:.200}, which names no cluster: {error!r}"
            ) from error
        return TenantPlace(tenant, cluster, url, state, f"{cluster}@{state.value}@{url}", target, target_url)

    def generation(self, tenant: str) -> int:
        """The number of moves of a tenant, roughly: it grows with each switch. 0 for a tenant without an `epoch`."""
        entry = self._tenants.get(tenant, self._tenants.get(EVERY_OTHER_TENANT))
        epoch = entry.get("epoch", 0) if isinstance(entry, dict) else 0
        return epoch // 2 if isinstance(epoch, int) else 0

    def service_url(self, cluster: str) -> str:
        """The Kafka address of a cluster. Raises LookupFailed: the map has no such cluster."""
        try:
            return self._url(cluster)
        except (KeyError, TypeError) as error:
            there = ", ".join(sorted(self._clusters)) or "none"
            raise LookupFailed(f"{self._source} has no cluster {cluster!r:.100}, it has: {there}") from error

    def others(self, cluster: str) -> dict[str, str]:
        """The Kafka addresses of all other clusters, by name; without those of invalid entries."""
        found: dict[str, str] = {}
        for name in self._clusters:
            with suppress(KeyError, TypeError):
                if name != cluster:
                    found[name] = self._url(name)
        return found

    def gateways(self, cluster: str) -> tuple[str, ...]:
        """The URLs of a cluster's gateways, none without any. Raises LookupFailed: they are no URLs."""
        entry = self._clusters.get(cluster)
        found = entry.get("gateways", []) if isinstance(entry, dict) else []
        if not isinstance(found, list) or not all(isinstance(url, str) for url in found):
            raise LookupFailed(f"{self._source} has gateways of cluster {cluster}: {found!r:.200}, expected a list")
        try:
            check_gateways(found)
        except errors.InvalidOption as error:
            raise LookupFailed(f"{self._source}: {error}") from error
        return tuple(found)

    def _url(self, cluster: str) -> str:
        """Raises KeyError, TypeError."""
        entry = self._clusters[cluster]
        url = entry["url"] if isinstance(entry, dict) else entry
        if not isinstance(url, str):
            raise TypeError(f"the address of cluster {cluster} is {url!r}, expected a service URL")
        return url


class MapDirectory(Directory, Protocol):
    """A directory that also returns the whole map, for gateways. Thread-safe."""

    def tenant_map(self, unless: str = "", wait_s: float = 0.0) -> TenantMap:
        """The map, as soon as its version is not `unless`, or after `wait_s`.

        Raises:
            LookupFailed: no source replied.
        """


def version_of(clusters: Mapping[str, Any], tenants: Mapping[str, Any]) -> str:
    """A digest of the map's content."""
    text = json.dumps([clusters, tenants], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
