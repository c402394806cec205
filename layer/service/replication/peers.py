"""Other clusters, as one is connected to them: by the registry, and with secrets that are given to the process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.client.connection.connection import peer_settings
from pulsar_on_kafka.mapping.state.clusters.cluster_registry import ClusterAddress
from pulsar_on_kafka.node.node import Node
from pulsar_on_kafka.replicated.progress_log import ProgressLog
from pulsar_on_kafka.service.replication.remote import RemoteCluster

_log: Final = logging.getLogger(__name__)

_LOOK_S: Final = 10.0
_AGAIN_S: Final = 30.0


class Peers:
    """For one thread, until `close`. Memory: a `Node` for each cluster that was asked for.

    A cluster that does not answer is asked again after 30 s.
    """

    def __init__(self, node: Node, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """`node`: here. `secrets`: more of librdkafka's options, by cluster."""
        self._node = node
        self._secrets = secrets
        self._ended = threading.Event()
        self._connected: dict[str, tuple[ClusterAddress, RemoteCluster, ProgressLog]] = {}
        self._again: dict[str, Deadline] = {}

    def progress(self, cluster: str) -> ProgressLog | None:
        """The cluster's state topic of progress; None while it is not registered, or cannot be reached."""
        address = self._node.clusters.registry(Deadline.after(_LOOK_S)).remote(cluster)
        known = self._connected.get(cluster)
        if known is not None and known[0] == address:
            return known[2]
        if known is not None:
            del self._connected[cluster]
            known[1].close()
        waits = self._again.get(cluster)
        if address is None or (waits is not None and not waits.passed()):
            return None
        try:
            remote = RemoteCluster(cluster, peer_settings(address, self._secrets.get(cluster, {})))
            progress = remote.node(self._ended.is_set).progress
        except LayerError as failure:
            self._again[cluster] = Deadline.after(_AGAIN_S)
            _log.warning("cluster %s cannot be reached, again in %.0f s: %s", cluster, _AGAIN_S, failure)
            return None
        self._again.pop(cluster, None)
        self._connected[cluster] = (address, remote, progress)
        return progress

    def close(self) -> None:
        """A second call does nothing."""
        self._ended.set()
        connected, self._connected = self._connected, {}
        for _, remote, _ in connected.values():
            remote.close()
