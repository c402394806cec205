"""A place says where a tenant is, as the map of tenants tells its clients: from a lookup service, or from a file.

{"tenant":"acme","cluster":"east","service_url":"kafka://east:9092","state":"ACTIVE","version":"acme@4",
 "target":"","target_url":""}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, Corrupt
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantRecord, TenantState


class LookupFailed(ConnectFailed):
    """Nobody who was asked knows where a tenant is. Trying again may help."""


@dataclass(frozen=True, slots=True)
class TenantPlace:
    """`version` changes with every change of anything else but `target_url`; it says nothing by itself.

    While the tenant is SWITCHING `cluster` is the one that it leaves, and `target` the one that it goes to; '' where
    that is not told.
    """

    tenant: str
    cluster: str
    service_url: str
    state: TenantState
    version: str
    target: str = ""
    target_url: str = ""

    @property
    def switching(self) -> bool:
        return self.state is TenantState.SWITCHING

    def as_json(self) -> dict[str, str]:
        return {**asdict(self), "state": self.state.value}

    def is_same_cluster(self, other: TenantPlace) -> bool:
        """The other place is on this one's cluster, reached in the same way."""
        return (self.cluster, self.service_url) == (other.cluster, other.service_url)

    @property
    def reached(self) -> TenantPlace | None:
        """Where the tenant is when it has switched; None where that is not told, or it does not switch."""
        if not (self.switching and self.target and self.target_url):
            return None
        return TenantPlace(self.tenant, self.target, self.target_url, TenantState.ACTIVE, "")


_LATER: Final = frozenset({"target", "target_url"})
"""Services of former versions do not tell them."""


def place_of(tenant: str, record: TenantRecord, service_url: str, target_url: str = "") -> TenantPlace:
    """`tenant` is who asked; the record may be that of every other tenant."""
    version = f"{record.tenant}@{record.epoch}@{service_url}"
    return TenantPlace(tenant, record.cluster, service_url, record.state, version, record.target, target_url)


def decode_place(found: Mapping[str, Any]) -> TenantPlace:
    """The inverse of `TenantPlace.as_json`. Raises Corrupt."""
    try:
        texts = {name: found[name] for name in TenantPlace.__dataclass_fields__ if name in found or name not in _LATER}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError("every field is text")
        return TenantPlace(**{**texts, "state": TenantState(texts["state"])})
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{found!r:.200} says no tenant's place: {error!r}") from error


class Directory(Protocol):
    """The map as a client sees it. Thread-safe."""

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        """Where a tenant is now.

        Raises:
            LookupFailed: nobody answered in time, or the tenant is nowhere.
        """

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        """Where the tenant is as soon as that is not what is known, or as it is when `wait_s` are over.

        Raises:
            LookupFailed: nobody answered.
        """

    def close(self) -> None:
        """Whoever waits hears LookupFailed soon."""


LOOK_S: Final = 1.0
"""How often a file is looked at while somebody waits for a change."""


class FileDirectory:
    """The map of tenants as a file, for those who run no lookup service. Thread-safe. Memory: none; the file is read
    each time that it is looked at.

    {"clusters": {"west": "kafka://west:9092", "east": "kafka://east:9092"},
     "tenants": {"acme": "west", "globex": {"cluster": "west", "state": "SWITCHING", "target": "east"}, "*": "east"}}

    Who says where a tenant goes (`target`) has its programs connect there while they wait. Replace it in one step
    (`mv`): a file that cannot be read is reported, and what was read before goes on counting.
    """

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
