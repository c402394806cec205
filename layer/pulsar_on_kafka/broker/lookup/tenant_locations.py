"""The place of a tenant, as its clients read it from the map of tenants: from a lookup service, or from a file.

{"tenant":"acme","cluster":"east","service_url":"kafka://east:9092","state":"ACTIVE","version":"acme@4",
"target":"","target_url":""}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import ConnectFailed, Corrupt
from pulsar_on_kafka_mapping.state.clusters.tenant_records import TenantRecord, TenantState


class LookupFailed(ConnectFailed):
    """No source knows the tenant's place. A retry may help."""


@dataclass(frozen=True, slots=True)
class TenantPlace:
    """The place of a tenant. `version` changes with every change except of `target_url`; it is opaque.

    While the tenant is SWITCHING `cluster` is the source, and `target` the target; '' where it is unknown.
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
        """The place after the switch; None where it is unknown, or the tenant does not switch."""
        if not (self.switching and self.target and self.target_url):
            return None
        return TenantPlace(self.tenant, self.target, self.target_url, TenantState.ACTIVE, "")


_LATER: Final = frozenset({"target", "target_url"})
"""Fields that services of earlier versions do not send."""


def place_of(tenant: str, record: TenantRecord, service_url: str, target_url: str = "") -> TenantPlace:
    """`tenant` is the requested one; the record may be that of every other tenant."""
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
        raise Corrupt(f"{found!r:.200} contains no tenant's place: {error!r}") from error


class Directory(Protocol):
    """The map as a client sees it. Thread-safe."""

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        """The present place of a tenant.

        Raises:
            LookupFailed: no source replied in time, or the tenant has no cluster.
        """

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        """The place as soon as it differs from the known one, or the present one after `wait_s`.

        Raises:
            LookupFailed: no source replied.
        """

    def close(self) -> None:
        """Ends the waits: waiting calls raise LookupFailed soon."""
