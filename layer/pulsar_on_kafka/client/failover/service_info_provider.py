"""A `ServiceInfoProvider` names the client's cluster; its answers make a map of tenants that has one place for all. The
failover of `AutoClusterFailover` probes several clusters, and moves the client to one that answers.

Source: `AutoClusterFailover.cc` of the C++ client, which pulsar-client 3.13.0 is built on.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace
from pulsar_on_kafka.client.values.service_info import (
    AutoClusterFailover,
    ServiceInfo,
    ServiceInfoProvider,
    parse_service_url,
)
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantState

_log: Final = logging.getLogger(__name__)

_END_S: Final = 3.0
"""The wait of `close` for a connection attempt under way; its thread is a daemon and changes nothing after."""

Probe = Callable[[ServiceInfo], bool]
"""Returns whether a cluster replies."""


class Failover:
    """The failover chooses the cluster in use by the answers to probes. One thread."""

    def __init__(self, config: AutoClusterFailover, probe: Probe) -> None:
        self._config = config
        self._probe = probe
        self.current = config.primary
        self._failures = 0
        """Consecutive failures of the cluster in use."""
        self._recoveries = 0
        """Answers of the primary, one after the other, while a secondary is in use."""

    def check(self) -> bool:
        """Probe; whether another cluster is in use now."""
        before = self.current
        if self._probe(self.current):
            self._failures = 0
        else:
            self._failures += 1
        failed = self._failures >= self._config.failover_threshold
        if self.current is self._config.primary:
            if failed:
                self._use(next(filter(self._probe, self._config.secondary), self.current))
        elif not self._probe(self._config.primary):
            self._recoveries = 0
        else:
            self._recoveries += 1
            if failed or self._recoveries >= self._config.switch_back_threshold:
                self._use(self._config.primary)
        return self.current is not before

    def _use(self, info: ServiceInfo) -> None:
        if info is not self.current:
            self.current, self._failures, self._recoveries = info, 0, 0


class ProbedClusters(ServiceInfoProvider):
    """The provider switches the client to a cluster that replies. One thread from `initialize` until `close`."""

    def __init__(self, config: AutoClusterFailover, connect_timeout_s: float) -> None:
        """`connect_timeout_s`: how long one broker may take to accept a connection."""
        self._connect_timeout_s = connect_timeout_s
        self._interval_s = config.check_interval_ms / 1000
        self._failover = Failover(config, self._answers)
        self._worker: Worker | None = None

    def initial_service_info(self) -> ServiceInfo:
        """The primary, whether it answers or not."""
        return self._failover.current

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        self._worker = Worker(
            "pok-cluster-failover",
            partial(self._look, on_service_info_update),
            "clusters could not be probed",
            first_s=self._interval_s,
            retry=Retry(self._interval_s),
        )
        self._worker.start()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close(Deadline.after(_END_S))

    def _look(self, report: Callable[[ServiceInfo], None]) -> float:
        before = self._failover.current.service_url
        if self._failover.check() and not self._is_closed():
            _log.warning("cluster %s is left for %s", before, self._failover.current.service_url)
            report(self._failover.current)
        return self._interval_s

    def _is_closed(self) -> bool:
        return self._worker is not None and self._worker.ended

    def _answers(self, info: ServiceInfo) -> bool:
        return any(self._accepts(server) for server in parse_service_url(info.service_url).bootstrap.split(","))

    def _accepts(self, server: str) -> bool:
        if self._is_closed():
            return False
        host, _, port = server.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), self._connect_timeout_s):
                return True
        except OSError:
            return False


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
        """Requests the initial place; `begin` requests the next ones.

        Args:
            check: raises ValueError for a `ServiceInfo` that the client cannot use.

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
        """Subscribes to changes of the provider. Errors of the provider are raised, after it was closed."""
        try:
            self._provider.initialize(self.update)
        except BaseException:
            self.close()
            raise

    @property
    def info(self) -> ServiceInfo:
        return self._now.info

    def update(self, info: ServiceInfo) -> None:
        """Moves the client to the cluster of `info`; does nothing after `close`. Raises ValueError for an `info` that
        the client cannot use."""
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
