"""Metadata of whichever cluster has a tenant, for the lookup service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_on_kafka.admin.stats import SubscriptionStats
from pulsar_on_kafka.broker.lookup.tenant_locations import TenantPlace
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.clusters.cluster_admins import ClusterAdmins


class ClusterMetadata:
    """Metadata of clusters. Thread-safe. One connection for each cluster in use, kept until `close`."""

    def __init__(self, kafka_config: Mapping[str, str], instance: str) -> None:
        """`instance`: the instance whose state is read, in each cluster; that of the following clients."""
        self._admins = ClusterAdmins(kafka_config, instance)

    def partitions(self, place: TenantPlace, topic: str) -> int:
        """0 for a topic that is not partitioned, as in Pulsar. Raises TopicNotFound and others, as AdminClient."""
        names = self._admins.at(place.service_url).list_partitions(topic)
        return 0 if names == [topic] else len(names)

    def schema(self, place: TenantPlace, topic: str, version: int | None) -> StoredSchema:
        """That version of the schema, or the latest. Raises TopicNotFound: there is none."""
        return self._admins.at(place.service_url).get_schema_info_with_version(topic, version)

    def state(self, place: TenantPlace, topic: str) -> dict[str, Any]:
        """The topic's partitions with their offsets, and of each subscription where its cursor is in each of them, as
        saved last, which process owns it, and whether a consumer is served there. Raises TopicNotFound and others."""
        admin = self._admins.at(place.service_url)
        stats = admin.topic_stats(topic)
        return {
            "partitions": [
                {"partition": number, "start": start, "end": stats.end_offsets[number]}
                for number, start in sorted(stats.start_offsets.items())
            ],
            "subscriptions": {
                name: self._cursors(admin.subscription_stats(topic, name)) for name in sorted(stats.subscriptions)
            },
        }

    def _cursors(self, stats: SubscriptionStats) -> dict[str, Any]:
        return {
            "type": stats.type,
            "consumers": list(stats.consumers),
            "partitions": [
                {
                    "partition": each.partition,
                    "mark_delete": each.mark_delete,
                    "individually_deleted": each.individually_deleted,
                    "backlog": each.backlog,
                    "owner": each.owner,
                    "served": bool(each.owner),
                }
                for each in stats.partitions
            ],
        }

    def close(self) -> None:
        self._admins.close()
