"""The map of tenants in a lookup service, for all requests: read when it changes, and four times a second."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from pulsar_on_kafka.base.clock import Clock
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.base.worker import Retry, Worker
from pulsar_on_kafka.broker.lookup.listeners import ANY_CLIENT, LookupClient, url_for
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace, place_of
from pulsar_on_kafka.broker.lookup.tenant_map import version_of
from pulsar_on_kafka.broker.node.services import Services
from pulsar_on_kafka.kafka.reading.assigned_reader import AssignedReader
from pulsar_on_kafka.statelog.api import LogRecord
from pulsar_on_kafka.statelog.tail import PartitionTail
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka_mapping.state.clusters.tenant_records import EVERY_OTHER_TENANT, TenantRecord
from pulsar_on_kafka_mapping.state.state_topics import TENANTS

_QUEUE_KBYTES: Final = 1024
_WAIT_MS: Final = 500
_CLOSE_S: Final = 5.0


@contextmanager
def following_map(services: Services) -> Iterator[FollowedMap]:
    """The followed map inside of the `with` block, by two threads. Memory: see `FollowedMap` and `PartitionTail`."""

    def addresses(deadline: Deadline) -> Mapping[str, ClusterAddress]:
        return services.clusters.registry(deadline).clusters

    def on_records(_: Sequence[tuple[int, LogRecord]]) -> None:
        followed.look()

    config = services.settings.tail(client_id="tenants", fetch_queue_kbytes=_QUEUE_KBYTES, wait_ms=_WAIT_MS)
    reader = AssignedReader(services.settings.of_state(config), "reader of the map of tenants")
    with ExitStack() as stack:
        followed = FollowedMap(services.tenants.all, addresses, services.clock)
        stack.callback(followed.close)
        tail = PartitionTail(
            services.log, TENANTS, reader, lambda: set(range(TENANTS.partitions)), on_records, name="pok-lookup-tail",
            without="changes of the map of tenants arrive a quarter of a second later",
        )  # fmt: skip
        stack.callback(lambda: tail.close(Deadline.after(_CLOSE_S)))
        tail.look()
        yield followed


_log: Final = logging.getLogger(__name__)

LOOK_S: Final = 0.25
STALE_S: Final = 5.0
"""The age from which the map is not served: the tenant may have moved since, and a client at its former place would
receive messages again that were acknowledged at the new one."""
MAX_WAITING: Final = 2_000
"""The limit of waiting requests; further ones are answered at once."""
LONGEST_WAIT_S: Final = 60.0

Addresses = Callable[[Deadline], Mapping[str, ClusterAddress]]
"""Returns the present address of each cluster, by its name."""
Records = Callable[[Deadline], Mapping[str, TenantRecord]]
"""Every record of the map by its tenant, as they stand now."""


class FollowedMap:
    """Thread-safe; one thread until `close`. Memory: the map, and a thread's stack for each of 2,000 that wait."""

    def __init__(self, records: Records, addresses: Addresses, clock: Clock) -> None:
        self._records = records
        self._addresses = addresses
        self._clock = clock
        self._known: Mapping[str, TenantRecord] = {}
        self._addresses_known: Mapping[str, ClusterAddress] = {}
        self._read_s: float | None = None
        self._failure = "the map was not read yet"
        self._waiting = 0
        self._changed = threading.Condition()
        failing = "lookup: the map of tenants cannot be read"
        self._worker = Worker("pok-lookup-map", self._follow, failing, retry=Retry(LOOK_S))
        self._worker.start()

    def place(self, tenant: str, caller: LookupClient = ANY_CLIENT) -> TenantPlace:
        """Raises LookupFailed."""
        with self._changed:
            return self._place(tenant, caller)

    def changed(self, tenant: str, unless: str, wait_s: float, caller: LookupClient = ANY_CLIENT) -> TenantPlace:
        """The place, as soon as its version is not `unless`, or after `wait_s` (at most a minute counts).

        Raises LookupFailed.
        """
        with self._changed:
            self._wait(lambda: self._place(tenant, caller).version != unless, wait_s)
            return self._place(tenant, caller)

    def _wait(self, differs: Callable[[], bool], wait_s: float) -> None:
        """Waits for a change. The caller holds the lock. Raises LookupFailed."""
        deadline = Deadline.after(min(wait_s, LONGEST_WAIT_S))
        if self._waiting < MAX_WAITING:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._worker.ended or differs(), deadline.remaining_s())
            finally:
                self._waiting -= 1

    def whole(self, unless: str = "", wait_s: float = 0.0, caller: LookupClient = ANY_CLIENT) -> dict[str, Any]:
        """The whole map, as `TenantMap` reads it, as soon as its version is not `unless`, or after `wait_s` (at most a
        minute counts). Clusters without an address for this client are omitted.

        Raises LookupFailed.
        """
        with self._changed:
            self._wait(lambda: self._whole(caller)["version"] != unless, wait_s)
            return self._whole(caller)

    def gateways(self, cluster: str) -> tuple[str, ...]:
        """The URLs of the cluster's gateways for official clients."""
        with self._changed:
            at = self._addresses_known.get(cluster)
            return () if at is None else at.gateways

    def failure(self) -> str:
        """The reason why no request can be answered now; '' without one."""
        with self._changed:
            if self._read_s is not None and self._clock.monotonic() - self._read_s <= STALE_S:
                return ""
            return self._failure or f"the map was not read for {STALE_S:g} s"

    def look(self) -> None:
        """Read the map now: something was written. Does not wait."""
        self._worker.wake()

    def close(self) -> None:
        self._worker.end()
        with self._changed:
            self._changed.notify_all()
        self._worker.close(Deadline.never())

    def _whole(self, caller: LookupClient) -> dict[str, Any]:
        self._check_fresh()
        clusters: dict[str, Any] = {}
        for name, at in self._addresses_known.items():
            with suppress(LookupFailed):
                clusters[name] = {"url": url_for(name, at, caller), "gateways": list(at.gateways)}
        tenants = {
            name: {"cluster": each.cluster, "state": each.state.value, "target": each.target, "epoch": each.epoch}
            for name, each in self._known.items()
        }
        return {"version": version_of(clusters, tenants), "clusters": clusters, "tenants": tenants}

    def _check_fresh(self) -> None:
        if self._read_s is None or self._clock.monotonic() - self._read_s > STALE_S:
            raise LookupFailed(f"the map of tenants cannot be read now: {self._failure or 'it takes too long'}")

    def _place(self, tenant: str, caller: LookupClient) -> TenantPlace:
        self._check_fresh()
        record = self._known.get(tenant) or self._known.get(EVERY_OTHER_TENANT)
        if record is None:
            raise LookupFailed(f"tenant {tenant} is on no cluster (pok tenants set)")
        at = self._addresses_known.get(record.cluster)
        if at is None:
            raise LookupFailed(
                f"tenant {tenant} is on cluster {record.cluster}, which has no address (pok clusters create)"
            )
        url = url_for(record.cluster, at, caller)
        target = self._addresses_known.get(record.target)
        try:
            return place_of(tenant, record, url, "" if target is None else url_for(record.target, target, caller))
        except LookupFailed:  # of the target: reported when the tenant is there
            return place_of(tenant, record, url)

    def _follow(self) -> float:
        deadline = Deadline.after(STALE_S)
        began_s = self._clock.monotonic()
        try:
            known, addresses = self._records(deadline), self._addresses(deadline)
        except LayerError as failure:
            self._failure = str(failure)
            raise
        with self._changed:
            differs = (known, addresses) != (self._known, self._addresses_known)
            self._known, self._addresses_known, self._read_s, self._failure = known, addresses, began_s, ""
            if differs:
                self._changed.notify_all()
        return LOOK_S
