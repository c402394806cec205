"""The map of tenants as a file, for those who run no lookup service.

    {"clusters": {"west": "kafka://west:9092", "east": "kafka://east:9092"},
     "tenants": {"acme": "west", "globex": {"cluster": "west", "state": "SWITCHING", "target": "east"}, "*": "east"}}

Who says where a tenant goes (`target`) has its programs connect there while they wait.

Replace it in one step (`mv`): a file that cannot be read is reported, and what was read before goes on counting.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.lookup.places import LookupFailed, TenantPlace
from pulsar_on_kafka.mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantState

LOOK_S: Final = 1.0
"""How often a file is looked at while somebody waits for a change."""


class FileDirectory:
    """Thread-safe. Memory: none; the file is read each time that it is looked at."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._closed = threading.Event()

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        """The tenant's place by the file. The deadline is not needed."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LookupFailed(f"the map of tenants {self._path} cannot be read: {error}") from error
        return _place(found, tenant, str(self._path))

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        deadline = Deadline.after(wait_s)
        while True:
            found = self.place(known.tenant, deadline)
            if found.version != known.version or deadline.passed():
                return found
            if self._closed.wait(min(LOOK_S, deadline.remaining_s())):
                raise LookupFailed("the client is closed")

    def close(self) -> None:
        self._closed.set()


def _place(found: object, tenant: str, path: str) -> TenantPlace:
    clusters = found.get("clusters") if isinstance(found, dict) else None
    tenants = found.get("tenants") if isinstance(found, dict) else None
    if not isinstance(clusters, dict) or not isinstance(tenants, dict):
        raise LookupFailed(f'{path} is no map of tenants: expected {{"clusters": {{...}}, "tenants": {{...}}}}')
    entry = tenants.get(tenant, tenants.get(EVERY_OTHER_TENANT))
    if entry is None:
        raise LookupFailed(f"{path} says of no cluster that it has tenant {tenant}")
    if isinstance(entry, str):
        entry = {"cluster": entry}
    try:
        cluster, state = entry["cluster"], TenantState(entry.get("state", TenantState.ACTIVE))
        url = clusters[cluster]
        target = entry.get("target", "") if state is TenantState.SWITCHING else ""
        target_url = clusters[target] if target else ""
        for name, address in ((cluster, url), (target, target_url)):
            if not isinstance(address, str):
                raise TypeError(f"the address of cluster {name} is {address!r}, expected a service URL")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LookupFailed(
            f"{path} says of tenant {tenant}: {entry!r:.200}, which names no cluster: {error!r}"
        ) from error
    return TenantPlace(tenant, cluster, url, state, f"{cluster}@{state.value}@{url}", target, target_url)
