"""Admin clients of several clusters, for processes that serve tenants of all of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from pulsar_on_kafka.admin.client import AdminClient

_TIMEOUT_S: Final = 10.0


class ClusterAdmins:
    """One admin client for each cluster in use, kept until `close`. Thread-safe.

    Memory: an admin client for each address that was ever used.
    """

    def __init__(self, kafka_config: Mapping[str, str], instance: str) -> None:
        """`kafka_config` and `instance` apply to every cluster."""
        self._kafka_config = kafka_config
        self._instance = instance
        self._admins: dict[str, AdminClient] = {}
        self._lock = threading.Lock()

    def at(self, service_url: str) -> AdminClient:
        """The client of the cluster at a service URL."""
        with self._lock:
            admin = self._admins.get(service_url)
            if admin is None:
                admin = self._admins[service_url] = AdminClient(
                    service_url,
                    operation_timeout_seconds=_TIMEOUT_S,
                    kafka_config=self._kafka_config,
                    instance=self._instance,
                )
            return admin

    def close(self) -> None:
        with self._lock:
            admins, self._admins = list(self._admins.values()), {}
        for admin in admins:
            admin.close()
