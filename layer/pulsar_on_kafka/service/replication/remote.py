"""A connection to another cluster, opened at its first use, and then shared by all copies to that cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import LayerError
from pulsar_on_kafka.broker.node.node import Node, acquire, release
from pulsar_on_kafka.broker.replication_state.progress_log import ProgressLog
from pulsar_on_kafka.client.connection.cluster_settings import peer_settings
from pulsar_on_kafka.kafka.connecting import connection_failure
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import ClusterAddress

_log: Final = logging.getLogger(__name__)
_LOOK_S: Final = 2.0
_REGISTRY_S: Final = 10.0
_RETRY_INTERVAL_S: Final = 30.0
_CONNECT_S: Final = 15.0


class RemoteCluster:
    """Thread-safe."""

    def __init__(self, name: str, settings: KafkaSettings) -> None:
        self.name = name
        self.settings = settings
        self._node: Node | None = None
        self._lock = threading.Lock()

    def node(self, ended: Callable[[], bool]) -> Node:
        """The connection. Raises ConnectFailed when no broker replies, or `ended` returns True."""
        with self._lock:
            if self._node is None:
                if ended():
                    raise errors.ConnectFailed(f"cluster {self.name} is not needed any more")
                # To connect keeps other Clients of the process waiting, so not in vain.
                silent = connection_failure(self.settings.bootstrap, _LOOK_S)
                if silent:
                    raise errors.ConnectFailed(f"cluster {self.name} does not answer ({silent})")
                self._node = acquire(self.settings, Deadline.after(_CONNECT_S))
            return self._node

    def close(self) -> None:
        """Releases the connection; no caller may use it afterwards."""
        with self._lock:
            node, self._node = self._node, None
        if node is not None:
            release(node)


class RemoteClusters:
    """Other clusters, by the registry, with the secrets of the process. For one thread, until `close`. Memory: a `Node`
    for each cluster in use.

    An unresponsive cluster is retried after 30 s.
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
        address = self._node.clusters.registry(Deadline.after(_REGISTRY_S)).remote(cluster)
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
            self._again[cluster] = Deadline.after(_RETRY_INTERVAL_S)
            _log.warning("cluster %s cannot be reached, again in %.0f s: %s", cluster, _RETRY_INTERVAL_S, failure)
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
