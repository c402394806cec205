"""Finds the gateway that serves a topic, for the requests of one connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial

from pulsar_on_kafka.gateway.fleet.bundles import bundle_of
from pulsar_on_kafka.gateway.fleet.membership import FleetMembership
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.flow_control import FlowControl
from pulsar_on_kafka.gateway.protocol.request_queue import OnError, RequestQueue
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.wire.commands import ServerError


class TopicOwners:
    """For the event loop."""

    def __init__(
        self, sharing: FleetMembership, tenants: ServedTenants, address: str, requests: RequestQueue, flow: FlowControl
    ) -> None:
        """`address` is the URL of this gateway."""
        self._sharing = sharing
        self._tenants = tenants
        self._address = address
        self._requests = requests
        self._flow = flow

    def refuses(self, topic: str, refused: OnError) -> bool:
        """Whether this cluster does not serve the tenant of a topic now. If so, `refused` is called. A name that is
        none is left to the caller."""
        try:
            serving = self._tenants.of_topic(topic)
        except MappingError:
            return False
        if not serving.is_here:
            refused(ServerError.SERVICE_NOT_READY, serving.reason)
        return not serving.is_here

    def find(self, topic: str, then: Callable[[int, str], None], refused: OnError) -> None:
        """Call `then` with the topic's bundle and the URL of the gateway that serves it, of those of this cluster. The
        topic of a tenant that this cluster does not serve now is refused."""
        if self._requests.is_full(refused):
            return
        try:
            bundle = bundle_of(topic)
        except MappingError as failure:
            refused(*error_code_of(failure))
            return
        if self.refuses(topic, refused):
            return

        def found(url: str | None) -> None:
            if url is None:
                refused(ServerError.SERVICE_NOT_READY, f"no gateway serves topic {topic} now: look it up again")
            else:
                then(bundle, url)

        self._sharing.find(bundle, self._requests.counted(found))

    def find_each(self, bundles: AbstractSet[int], then: Callable[[Mapping[int, str]], None]) -> None:
        """Call `then` with the URLs of the gateways that serve these bundles, '' for one that no gateway serves now. A
        closed connection may get the call."""
        found: dict[int, str] = {}
        done = self._requests.counted(then)

        def settle(bundle: int, url: str | None) -> None:
            found[bundle] = url or ""
            if len(found) == len(bundles):
                done(found)

        if not bundles:
            done(found)
        for bundle in bundles:
            self._sharing.find(bundle, partial(settle, bundle))

    def known(self, bundle: int) -> str:
        """The URL of the gateway that serves a bundle, as far as is known: this gateway's for an unknown one."""
        return self._sharing.elsewhere(bundle) or self._address

    def require_this(self, topic: str, then: Callable[[int], None], refused: OnError) -> None:
        """Call `then` with the topic's bundle if this gateway serves it. A closed connection gets no call."""

        def found(bundle: int, url: str) -> None:
            if url != self._address:
                refused(ServerError.SERVICE_NOT_READY, f"topic {topic} is served by {url}: look it up again")
            elif not self._flow.is_closed:
                then(bundle)

        self.find(topic, found, refused)
