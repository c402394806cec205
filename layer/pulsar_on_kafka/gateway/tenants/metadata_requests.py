"""Requests of one connection for metadata of a tenant, on the cluster that has the tenant.

Clients send these requests to the gateway of their service URL, wherever the tenant is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import Operation
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.request_queue import OnError, RequestQueue, operation_deadline
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.wire.commands import ServerError

T = TypeVar("T")


class MetadataRequests:
    """For the event loop."""

    def __init__(self, tenants: ServedTenants, rights: ClientRights, requests: RequestQueue) -> None:
        self._tenants = tenants
        self._rights = rights
        self._requests = requests

    def begin(
        self,
        tenant: str,
        operation: Operation | None,
        work: Callable[[Node], T],
        then: Callable[[T], None],
        refused: OnError,
    ) -> None:
        """Do `work` in a thread, on the node of the tenant's cluster, if the role may do the operation there. None:
        each role may."""
        serving = self._tenants.of(tenant)
        if not serving.is_here and serving.place is None:
            refused(ServerError.SERVICE_NOT_READY, serving.reason)
            return

        def do() -> T:
            node = self._tenants.node_at(serving.place)
            if operation is not None and not serving.is_here:
                self._rights.check_at(node, operation, operation_deadline())
            return work(node)

        begin = partial(self._requests.begin, do, then, refused)
        if operation is not None and serving.is_here:
            self._rights.require(operation, begin, refused)
        else:
            begin()
