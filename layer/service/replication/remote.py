"""Another cluster, connected to when somebody first needs it, and then shared by all that is copied there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka.node.node import Node, acquire, release

_LOOK_S: Final = 2.0
_CONNECT_S: Final = 15.0
_COMPRESSION: Final = "compression.type"


class RemoteCluster:
    """Thread-safe."""

    def __init__(self, name: str, settings: KafkaSettings) -> None:
        self.name = name
        self.settings = settings
        self.compression = str(settings.overrides.get(_COMPRESSION, "none"))
        """Of what is sent there, as the options of the cluster have it."""
        self._node: Node | None = None
        self._lock = threading.Lock()

    def node(self, ended: Callable[[], bool]) -> Node:
        """The connection. Raises ConnectFailed when nobody answers, or `ended` says so."""
        with self._lock:
            if self._node is None:
                if ended():
                    raise errors.ConnectFailed(f"cluster {self.name} is not needed any more")
                # To connect keeps other Clients of the process waiting, so not in vain.
                self._require_listener()
                self._node = acquire(self.settings, Deadline.after(_CONNECT_S))
            return self._node

    def close(self) -> None:
        """Give the connection back; nobody may use it any more."""
        with self._lock:
            node, self._node = self._node, None
        if node is not None:
            release(node)

    def _require_listener(self) -> None:
        reasons = []
        for server in self.settings.bootstrap.split(","):
            host, _, port = server.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_S).close()
            except OSError as error:
                reasons.append(f"{server}: {error.strerror or error}")
            else:
                return
        raise errors.ConnectFailed(f"cluster {self.name} does not answer ({'; '.join(reasons)})")
