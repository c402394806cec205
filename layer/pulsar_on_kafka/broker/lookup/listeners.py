"""Advertised listeners: a cluster's addresses, each for the clients that name its listener, or that are in its network.

Source: Pulsar's `advertisedListeners` and the clients' `listenerName`; the networks are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.broker.lookup.tenant_locations import LookupFailed
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress, ClusterListener


class LookupClient(NamedTuple):
    """The client of a request: its IP address ('': not known), and the listener it names."""

    address: str = ""
    listener: str = ""


ANY_CLIENT = LookupClient()


def check_listeners(listeners: Mapping[str, ClusterListener]) -> None:
    """Raises InvalidOption for a name that is empty, or what is no network."""
    for name, listener in listeners.items():
        if not name:
            raise errors.InvalidOption(f"a listener has a name, {listener.service_url} has none")
        for network in listener.networks:
            try:
                ip_network(network)
            except ValueError as error:
                raise errors.InvalidOption(f"listener {name}: a network is written as 10.0.0.0/8: {error}") from error


def url_for(cluster: str, address: ClusterAddress, caller: LookupClient) -> str:
    """The service URL for a client: of the named listener; otherwise of the listener with the smallest network that
    contains the client; otherwise the cluster's own. An address of a dual-stack socket counts as its IPv4 address.

    Raises:
        LookupFailed: the cluster has no such listener.
    """
    if caller.listener:
        named = address.listeners.get(caller.listener)
        if named is None:
            known = ", ".join(sorted(address.listeners)) or "none"
            raise LookupFailed(f"cluster {cluster} has no listener {caller.listener!r:.100}, known are: {known}")
        return named.service_url
    requests = _parsed(caller.address)
    if requests is None:
        return address.service_url
    near = [
        (network.prefixlen, name)
        for name, listener in address.listeners.items()
        for network in map(ip_network, listener.networks)
        if network.version == requests.version and requests in network
    ]
    if not near:
        return address.service_url
    longest = max(prefix for prefix, _ in near)
    return address.listeners[min(name for prefix, name in near if prefix == longest)].service_url


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
