"""Metadata of whichever cluster has a tenant, for the lookup service."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from layer.admin import AdminClient
from layer.lookup.places import Place
from layer.registry.model import StoredSchema

_TIMEOUT_S: Final = 10.0


class ClusterMetadata:
    """Thread-safe. One connection for each cluster that was asked about, kept until `close`."""

    def __init__(self, kafka_config: Mapping[str, str]) -> None:
        self._kafka_config = kafka_config
        self._admins: dict[str, AdminClient] = {}
        self._lock = threading.Lock()

    def partitions(self, place: Place, topic: str) -> int:
        """0 for a topic that is not partitioned, as in Pulsar. Raises TopicNotFound and others, as AdminClient."""
        names = self._admin(place).list_partitions(topic)
        return 0 if names == [topic] else len(names)

    def schema(self, place: Place, topic: str, version: int | None) -> StoredSchema:
        """That version, or the latest. Raises TopicNotFound: there is none."""
        return self._admin(place).get_schema_info_with_version(topic, version)

    def close(self) -> None:
        with self._lock:
            admins, self._admins = list(self._admins.values()), {}
        for admin in admins:
            admin.close()

    def _admin(self, place: Place) -> AdminClient:
        with self._lock:
            admin = self._admins.get(place.service_url)
            if admin is None:
                admin = self._admins[place.service_url] = AdminClient(
                    place.service_url, operation_timeout_seconds=_TIMEOUT_S, kafka_config=self._kafka_config
                )
            return admin
