"""Where a tenant is, as the map of tenants tells its clients: from a lookup service, or from a file.

{"tenant":"acme","cluster":"east","service_url":"kafka://east:9092","state":"ACTIVE","version":"acme@4"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from layer.deadline import Deadline
from layer.errors import ConnectFailed, Corrupt
from mapping.state_records.tenants import TenantRecord, TenantState


class LookupFailed(ConnectFailed):
    """Nobody who was asked knows where a tenant is. Trying again may help."""


@dataclass(frozen=True, slots=True)
class Place:
    """`version` changes with every change of anything else; it says nothing by itself. While the tenant is SWITCHING
    `cluster` is the one that it leaves."""

    tenant: str
    cluster: str
    service_url: str
    state: TenantState
    version: str

    @property
    def switching(self) -> bool:
        return self.state is TenantState.SWITCHING

    def as_json(self) -> dict[str, str]:
        return {**asdict(self), "state": self.state.value}


def place_of(tenant: str, record: TenantRecord, service_url: str) -> Place:
    """`tenant` is who asked; the record may be that of every other tenant."""
    version = f"{record.tenant}@{record.epoch}@{service_url}"
    return Place(tenant, record.cluster, service_url, record.state, version)


def decode_place(found: Mapping[str, Any]) -> Place:
    """The inverse of `Place.as_json`. Raises Corrupt."""
    try:
        texts = {name: found[name] for name in Place.__dataclass_fields__}
        if not all(isinstance(text, str) for text in texts.values()):
            raise TypeError("every field is text")
        return Place(**{**texts, "state": TenantState(texts["state"])})
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"{found!r:.200} says no tenant's place: {error!r}") from error


class Directory(Protocol):
    """The map as a client sees it. Thread-safe."""

    def place(self, tenant: str, deadline: Deadline) -> Place:
        """Where a tenant is now.

        Raises:
            LookupFailed: nobody answered in time, or the tenant is nowhere.
        """

    def changed(self, known: Place, wait_s: float) -> Place:
        """Where the tenant is as soon as that is not what is known, or as it is when `wait_s` are over.

        Raises:
            LookupFailed: nobody answered.
        """

    def close(self) -> None:
        """Whoever waits hears LookupFailed soon."""
