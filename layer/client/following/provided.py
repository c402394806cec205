"""A `ServiceInfoProvider` names the client's cluster; its answers make a map of tenants that has one place for all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.client.values.service_info import ServiceInfo, ServiceInfoProvider
from pulsar_on_kafka.lookup.places import LookupFailed, TenantPlace
from pulsar_on_kafka.mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantState

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProvidedPlace(TenantPlace):
    """A provided place has no name for its cluster: `cluster` is ''."""

    info: ServiceInfo = None  # type: ignore[assignment]  # behind fields with defaults, and always given

    def is_same_cluster(self, other: TenantPlace) -> bool:
        """False for another login as well: connections are made anew with it."""
        return isinstance(other, ProvidedPlace) and _means(other.info) == _means(self.info)


class ProvidedPlaces:
    """The directory gives every tenant the place that the provider named last. Thread-safe."""

    def __init__(self, provider: ServiceInfoProvider, check: Callable[[ServiceInfo], None]) -> None:
        """Asks for the initial place; `begin` for the next ones.

        Args:
            check: raises ValueError for what the client cannot use.

        Raises:
            ValueError: the provider gave no `ServiceInfo`, or one that cannot be used; the provider is closed then,
                also when it raised.
        """
        self._provider = provider
        self._check = check
        self._changed = threading.Condition()
        self._closed = False
        try:
            self._now = self._checked(provider.initial_service_info(), 1)
        except BaseException:
            self.close()
            raise

    def begin(self) -> None:
        """Have the provider tell of changes from now on. What it raises is raised, when it is closed."""
        try:
            self._provider.initialize(self.update)
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> ServiceInfo:
        """What the provider said last."""
        return self._now.info

    def update(self, info: ServiceInfo) -> None:
        """Have the client move to the cluster of `info`; nothing once it is closed. Raises ValueError for what it
        cannot use."""
        if self._closed:
            return
        with self._changed:
            self._now = self._checked(info, int(self._now.version) + 1)
            self._changed.notify_all()

    def _checked(self, info: object, version: int) -> ProvidedPlace:
        if not isinstance(info, ServiceInfo):
            raise ValueError(f"Expected a ServiceInfo instance, got {type(info).__name__}: {info!r:.60}")
        self._check(info)
        return ProvidedPlace(
            EVERY_OTHER_TENANT, "", info.service_url, TenantState.ACTIVE, str(version), info=ServiceInfo.wrap(info)
        )

    def place(self, tenant: str, deadline: Deadline) -> TenantPlace:
        """The same place for every tenant."""
        return self._now

    def changed(self, known: TenantPlace, wait_s: float) -> TenantPlace:
        """The place as soon as it is not `known`, or when `wait_s` are over. Raises LookupFailed: the client is
        closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._now.version != known.version, wait_s)
            if self._closed:
                raise LookupFailed("the client is closed")
            return self._now

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        try:
            self._provider.close()
        except Exception:  # the application's; everything else is closed all the same
            _log.exception("a ServiceInfoProvider failed to close")


def _means(info: ServiceInfo) -> tuple[str, int, str | None]:
    return info.service_url, id(info.authentication), info.tls_trust_certs_file_path
