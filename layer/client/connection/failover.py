"""The failover of `AutoClusterFailover` probes several clusters, and moves the client to one that answers.

Source: `AutoClusterFailover.cc` of the C++ client, which pulsar-client 3.13.0 is built on.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.client.values.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from pulsar_on_kafka.client.values.service_url import parse_service_url

_log: Final = logging.getLogger(__name__)

_END_S: Final = 3.0
"""How long `close` waits for a connection that is being tried; its thread is a daemon and changes nothing after."""

Probe = Callable[[ServiceInfo], bool]
"""Whether a cluster answers."""


class Failover:
    """The failover chooses the cluster in use by the answers to probes. One thread."""

    def __init__(self, config: AutoClusterFailover, probe: Probe) -> None:
        self._config = config
        self._probe = probe
        self.current = config.primary
        self._failures = 0
        """Of the cluster in use, one after the other."""
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
    """The provider tells the client which cluster answers. One thread from `initialize` until `close`."""

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
            "clusters could not be asked",
            first_s=self._interval_s,
            retry=Retry(self._interval_s),
        )
        self._worker.start()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close(Deadline.after(_END_S))

    def _look(self, tell: Callable[[ServiceInfo], None]) -> float:
        before = self._failover.current.service_url
        if self._failover.check() and not self._is_closed():
            _log.warning("cluster %s is left for %s", before, self._failover.current.service_url)
            tell(self._failover.current)
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
