"""Creates a tenant's namespaces, topics, schemas and subscriptions in Pulsar, by its admin API. Existing ones stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.broker.metadata.policy_json import FIELDS, REPLICATION
from pulsar_on_kafka.broker.metadata.subscriptions.subscription import Subscription
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin, PulsarTopic, TopicIsMigrated, path_of
from pulsar_on_kafka.clusters.migration.from_pulsar.cluster_migration import ClusterMigration
from pulsar_on_kafka_mapping.names.topic_name import TopicName

_ENABLED: Final = "Enabled"
_EARLIEST: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


def policies_body(own: Mapping[str, Any]) -> dict[str, Any]:
    """Pulsar's `Policies` for a new namespace, of the policies that are set here; replication stays Pulsar's."""
    found: dict[str, Any] = {}
    for place in FIELDS:
        value = place.write(own)
        if place is REPLICATION or value in place.unset:
            continue
        inner = found
        for step in place.path[:-1]:
            inner = inner.setdefault(step, {})
        inner[place.path[-1]] = value
    return found


class PulsarTopics:
    """Thread-safe. Every call raises StoreError or Refused: Pulsar cannot be reached, or rejects it."""

    def __init__(self, pulsar: PulsarAdmin) -> None:
        self._pulsar = pulsar
        self._migration = ClusterMigration(pulsar)

    def create_namespaces(self, tenant: str, namespaces: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Creates the tenant and the namespaces (policies by name) that Pulsar lacks, and returns the new ones.
        Existing ones are no longer marked as migrated. Deduplication is on afterwards."""
        path = f"/tenants/{quote(tenant, safe='')}"
        if self._lacks_tenant(tenant):
            self._pulsar.request("PUT", path, {"allowedClusters": [self._pulsar.cluster()]})
        known = self._pulsar.namespaces(tenant)
        created = [name for name in namespaces if name not in known]
        for name, policies in namespaces.items():
            if name in known:
                self._migration.unmark(name)
            else:
                self._pulsar.request("PUT", f"/namespaces/{name}", policies_body(policies))
            self._pulsar.request("POST", f"/namespaces/{name}/deduplication", True)
        return created

    def _lacks_tenant(self, tenant: str) -> bool:
        try:
            self._pulsar.request("GET", f"/tenants/{quote(tenant, safe='')}")
        except errors.Refused:
            return True
        return False

    def known(self, tenant: str) -> dict[str, int]:
        """The partitions of each of the tenant's topics, 0 for one that is not partitioned."""
        if self._lacks_tenant(tenant):
            return {}
        found: dict[str, int] = {}
        for namespace in self._pulsar.namespaces(tenant):
            found |= self._pulsar.topic_names(namespace)
        return found

    def create_topic(self, topic: PulsarTopic, known: int | None) -> None:
        """`known`: the partitions that it has in Pulsar, None if there is none. Raises Refused: they differ."""
        path = path_of(str(topic.name))
        if known is None and topic.partitions:
            self._pulsar.request("PUT", f"{path}/partitions", topic.partitions)
        elif known is None:
            self._pulsar.request("PUT", path)
        elif known != topic.partitions:
            raise errors.Refused(
                f"topic {topic.name} has {known} partitions in Pulsar and {topic.partitions} here (0: not partitioned)"
            )
        elif known:
            self._migration.create_missing_partitions(str(topic.name))

    def is_terminated(self, partition: str, deadline: Deadline) -> bool:
        return self._migration.is_terminated_once_loaded(partition, deadline)

    def problem_of(self, partition: str) -> str | None:
        """The reason for which Pulsar takes no message for a partition that it has, as far as it tells."""
        try:
            return "is terminated in Pulsar: delete it there" if self._migration.is_terminated(partition) else None
        except TopicIsMigrated:
            return "is not loaded by Pulsar, since its namespace is marked as migrated: run removes the mark"

    def await_deduplication(self, partition: str, deadline: Deadline) -> None:
        """Waits until Pulsar stores no sequence id of a producer twice. Raises DeadlineExceeded."""
        status = ""

        def is_enabled() -> bool:
            nonlocal status
            stats = self._pulsar.request("GET", f"{path_of(partition)}/stats")
            status = str(stats.get("deduplicationStatus") if isinstance(stats, dict) else stats)
            return status == _ENABLED

        if not wait_until(is_enabled, deadline):
            raise errors.DeadlineExceeded(f"deduplication of {partition} in Pulsar is {status}, expected {_ENABLED}")

    def upload_schemas(self, topic: TopicName, versions: Sequence[StoredSchema]) -> None:
        """Uploads those that Pulsar lacks, in their order. Raises Refused: Pulsar rejects one."""
        known = {(info.type, info.schema) for info in self._pulsar.schemas(str(topic)).values()}
        for stored in versions:
            if (stored.info.type, stored.info.schema) in known:
                continue
            rest = stored.rest()
            body = {"type": rest["type"], "schema": rest["data"], "properties": rest["properties"]}
            try:
                self._pulsar.request(
                    "POST", f"/schemas/{path_of(str(topic)).partition('/persistent/')[2]}/schema", body
                )
            except errors.Refused as rejected:
                raise errors.Refused(
                    f"schema version {stored.version} of {topic} is rejected by Pulsar (pulsar-admin namespaces "
                    f"set-schema-compatibility-strategy): {rejected}"
                ) from rejected

    def create_subscription(self, partition: str, subscription: Subscription) -> None:
        """Creates it at the earliest message. An existing one stays where it is."""
        path = f"{path_of(partition)}/subscription/{quote(subscription.name, safe='')}"
        replicated = "?replicated=true" if subscription.replicated else ""
        try:
            self._pulsar.request("PUT", path + replicated, {**_EARLIEST, "properties": dict(subscription.properties)})
        except errors.AlreadyExists:
            return
