"""The cluster of a read whose `service.url` is a map of tenants."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace
from pulsar_on_kafka.broker.lookup.tenant_map import MapDirectory
from pulsar_on_kafka.client.failover.tenant_connections import directory_of
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import ReadOptions

_LOOKUP_S: Final = 10.0
CHECK_INTERVAL_S: Final = 1.0
"""The interval at which a stream requests its tenant's cluster."""


def on_cluster(options: ReadOptions) -> ReadOptions:
    """The options with the address and the name of the cluster that has the tenant now, if `service_url` is a map of
    tenants.

    Raises:
        InvalidReadOption: the URL is no map, or the topics are of several tenants.
        NotReadable: no cluster is known, or the tenant is switching.
    """
    directory = _directory(options.service_url)
    if directory is None:
        return options
    tenant = _tenant(options)
    try:
        place = directory.place(tenant, Deadline.after(_LOOKUP_S))
    except LookupFailed as failure:
        raise NotReadable(f"{options.service_url}: {failure}") from failure
    finally:
        directory.close()
    if place.switching:
        raise NotReadable(f"tenant {tenant} is switching from cluster {place.cluster}: start again when it has moved")
    return replace(options, service_url=place.service_url, map_url=options.service_url, cluster=place.cluster)


class MoveWatch:
    """Finds out whether a stream's tenant leaves its cluster. For one thread.

    Without a reply about the tenant's place, the stream stays where it is.
    """

    def __init__(self, options: ReadOptions) -> None:
        """`options` are those of `on_cluster`. Does nothing for a read without a map."""
        self._directory = _directory(options.map_url) if options.map_url else None
        self._options = options
        self._next_s = 0.0

    def check(self, *, at_once: bool = False) -> None:
        """Requests the tenant's place once a second, unless `at_once`.

        Raises:
            NotReadable: the tenant has left the cluster, or is leaving it.
        """
        now_s = monotonic()
        if self._directory is None or (now_s < self._next_s and not at_once):
            return
        self._next_s = now_s + CHECK_INTERVAL_S
        tenant = _tenant(self._options)
        try:
            place: TenantPlace = self._directory.place(tenant, Deadline.after(_LOOKUP_S))
        except LookupFailed:
            return
        if place.switching or place.cluster != self._options.cluster:
            where = f"moves to cluster {place.target}" if place.switching else f"is on cluster {place.cluster} now"
            raise NotReadable(
                f"tenant {tenant} has left cluster {self._options.cluster} and {where}: start the query again with the "
                "same checkpoint when it has moved"
            )

    def close(self) -> None:
        if self._directory is not None:
            self._directory.close()


def _directory(url: str) -> MapDirectory | None:
    try:
        return directory_of(url)
    except ValueError as wrong:
        raise InvalidReadOption(str(wrong)) from wrong


def _tenant(options: ReadOptions) -> str:
    names = options.topics if options.pattern is None else (options.pattern,)
    try:
        tenants = sorted({TopicName.parse(name).tenant for name in names})
    except MappingError as wrong:
        raise InvalidReadOption(str(wrong)) from wrong
    if len(tenants) != 1:
        raise InvalidReadOption(f"the topics are of tenants {', '.join(tenants)}, expected one: each has a cluster")
    return tenants[0]
