"""The tenants that a gateway serves, by the map of tenants: those of its own Kafka cluster.

Clients of other tenants are sent to a gateway of the cluster that has the tenant. While a tenant is switching between
two clusters, no gateway serves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.worker import Worker
from pulsar_on_kafka.broker.lookup.gateway_urls import GatewayUrls, chosen_urls
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed, TenantPlace
from pulsar_on_kafka.broker.lookup.tenant_map import MapDirectory, TenantMap
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.clusters.cluster_admins import ClusterAdmins
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_log: Final = logging.getLogger(__name__)

WAIT_S: Final = 30.0
"""The wait of one request for changes of the map."""
_OF_EVERY_CLUSTER: Final = frozenset({"pulsar"})
"""Pulsar's system tenant, which has the coordinators of transactions: each cluster has its own."""


class Serving(NamedTuple):
    """The place of a tenant, for clients of one gateway.

    `reason`: why the gateway does not serve the tenant; '' if it does. `place`: None if the gateway serves it, or the
    map has no place. `urls`: the gateways of the other cluster that has the tenant.
    """

    reason: str = ""
    place: TenantPlace | None = None
    urls: GatewayUrls = GatewayUrls()

    @property
    def is_here(self) -> bool:
        return not self.reason

    @property
    def is_switching(self) -> bool:
        return self.place is not None and self.place.switching


HERE: Final = Serving()


class TenantFollower(NamedTuple):
    """The cluster of a gateway, the map that it follows, and access to the other clusters."""

    cluster: str
    directory: MapDirectory
    admins: ClusterAdmins


class ServedTenants:
    """All tenants without a `TenantFollower`. Thread-safe, except for `wait_for_change`; one thread until `close`.

    Without a reply about the map, the last known map counts. Memory: the map.
    """

    def __init__(self, node: Node, follower: TenantFollower | None) -> None:
        """Raises LookupFailed: the map cannot be read, or lacks the gateway's cluster."""
        self._node = node
        self._follower = follower
        self._map: TenantMap | None = None
        if follower is not None:
            self._map = follower.directory.tenant_map()
            self._map.service_url(follower.cluster)
        self._turns = count()
        self._waiting: list[asyncio.Future[None]] = []
        self._changed: Callable[[], None] = lambda: None
        self._worker = Worker("pok-gateway-tenants", self._follow, "the map of tenants cannot be read")

    @property
    def follows_map(self) -> bool:
        return self._follower is not None

    def start(self, changed: Callable[[], None]) -> None:
        """Follow the map. `changed` is called by another thread after each change."""
        if self._follower is not None:
            self._changed = changed
            self._worker.start()

    def of(self, tenant: str) -> Serving:
        follower, known = self._follower, self._map
        if follower is None or known is None or tenant in _OF_EVERY_CLUSTER:
            return HERE
        try:
            place = known.place(tenant)
            if place.switching:
                where = f"from cluster {place.cluster} to {place.target}" if place.target else "to another cluster"
                return Serving(f"tenant {tenant} is switching {where}: look it up again", place)
            if place.cluster == follower.cluster:
                return HERE
            urls = chosen_urls(known.gateways(place.cluster), next(self._turns))
        except LookupFailed as failure:
            return Serving(str(failure))
        if not urls.serves:
            reason = f"which has no gateway (pok clusters update {place.cluster} --gateway-url)"
        else:
            reason = f"whose gateway is {urls.plain or urls.tls}: look it up again"
        return Serving(f"tenant {tenant} is on cluster {place.cluster}, {reason}", place, urls)

    def of_topic(self, topic: str) -> Serving:
        """Raises InvalidTopicName."""
        return HERE if self._follower is None else self.of(TopicName.parse(topic).tenant)

    def node_at(self, place: TenantPlace | None) -> Node:
        """The node of the cluster that has a tenant. May block. Raises PulsarException: it cannot be reached."""
        follower = self._follower
        if follower is None or place is None or place.cluster == follower.cluster:
            return self._node
        return follower.admins.at(place.service_url).node

    def node_of(self, tenant: str) -> Node:
        """`node_at` the tenant's place; this cluster's for a tenant without a place."""
        return self.node_at(self.of(tenant).place)

    def generation(self, topic: str) -> int:
        """The number of moves of the topic's tenant, for message ids (`LedgerLayout.in_generation`). Raises
        InvalidTopicName."""
        return 0 if self._map is None else self._map.generation(TopicName.parse(topic).tenant)

    @property
    def cluster(self) -> str:
        """The name of this cluster in the map; '' without a map."""
        return "" if self._follower is None else self._follower.cluster

    def other_nodes(self) -> Iterator[tuple[str, Node]]:
        """The nodes of all other clusters of the map, by name. May block. Raises as `node_at`."""
        follower, known = self._follower, self._map
        if follower is not None and known is not None:
            for name, url in known.others(follower.cluster).items():
                yield name, follower.admins.at(url).node

    # The loop -----------------------------------------------------------------------------------------------------

    def wait_for_change(self) -> asyncio.Future[None]:
        """Settled after the next change of the map."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting = [each for each in self._waiting if not each.done()]
        self._waiting.append(waiting)
        return waiting

    def wake(self) -> None:
        """The map has changed."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    # The thread ---------------------------------------------------------------------------------------------------

    def _follow(self) -> float:
        assert self._follower is not None and self._map is not None  # noqa: S101, PT018 - `start`
        try:
            found = self._follower.directory.tenant_map(self._map.version, WAIT_S)
        except LookupFailed:
            if self._worker.ended:
                return 0.0
            raise
        if found.version != self._map.version:
            self._map = found
            _log.info("the map of tenants has changed")
            self._changed()
        return 0.0

    def close(self) -> None:
        self._worker.end()
        if self._follower is not None:
            self._follower.directory.close()
            self._worker.close(Deadline.never())
            self._follower.admins.close()
