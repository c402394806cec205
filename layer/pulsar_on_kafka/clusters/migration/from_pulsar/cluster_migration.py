"""Pulsar's own cluster migration (PIP-188), by its admin API: it sends the programs of a namespace to another cluster.

What Pulsar 4.0.7 does with a marked namespace:

* At the brokers' next check the loaded topics are terminated, for good. Their producers are sent away; so are the
  consumers of each subscription that has no backlog. Such a subscription is deleted when they have left.
* A topic that is not loaded is not loaded any more, until the mark is removed. A program that comes for one can block
  the broker's metadata thread for a minute (`AbstractTopic.getMigratedClusterUrl`). So nothing is unloaded here while
  there is a mark.
* Some publishing that was under way at the termination never ends. Then the topic takes no reader until it is unloaded.

Source: PersistentTopic.checkClusterMigration, BrokerService.checkTopicAlreadyMigrated, 4.0.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline, wait_until
from pulsar_on_kafka.clusters.migration.from_pulsar.admin import PulsarAdmin, TopicIsMigrated, path_of

_CHECK: Final = "clusterMigrationCheckDurationSeconds"
_TERMINATED: Final = "Terminated"


@dataclass(frozen=True, slots=True)
class MigrationTarget:
    """Addresses that Pulsar sends its programs to: `pulsar://` or `pulsar+ssl://`, and `http://` or `https://`."""

    broker_url: str
    web_url: str

    def body(self) -> dict[str, str]:
        """Pulsar's ClusterUrl."""
        broker = "brokerServiceUrlTls" if self.broker_url.startswith("pulsar+ssl://") else "brokerServiceUrl"
        web = "serviceUrlTls" if self.web_url.startswith("https://") else "serviceUrl"
        return {broker: self.broker_url, web: self.web_url}


class ClusterMigration:
    """Thread-safe. Every call raises StoreError: Pulsar rejects it, or cannot be reached."""

    def __init__(self, admin: PulsarAdmin) -> None:
        self._admin = admin

    def require_checks(self) -> None:
        """Raises Refused: the brokers do not look for marks."""
        settings = self._admin.request("GET", "/brokers/configuration/runtime")
        found = str(settings.get(_CHECK, "0")) if isinstance(settings, dict) else "0"
        if not found.isdigit() or int(found) < 1:
            raise errors.Refused(
                f"Pulsar's brokers have {_CHECK}={found}, and so never send programs elsewhere: set it to 1 in "
                "broker.conf and restart them, one after the other"
            )

    def mark(self, namespace: str, cluster: str, target: MigrationTarget) -> None:
        """Have Pulsar send a namespace's programs to `target`. A second call changes nothing.

        Raises:
            Refused: the cluster sends programs to another address already.
        """
        path = f"/clusters/{quote(cluster, safe='')}/migrate"
        try:
            known = self._admin.request("GET", path)
        except errors.Refused:
            known = {}  # it never had an address
        now: Mapping[str, Any] = known if isinstance(known, dict) else {}
        before = {name: url for name, url in (now.get("migratedClusterUrl") or {}).items() if name != "empty" and url}
        if before and before != target.body():
            raise errors.Refused(
                f"Pulsar sends programs of cluster {cluster} to {before} already, and has one address for all: clear "
                "it with pulsar-admin clusters update-cluster-migration, or give the same"
            )
        if not before:
            migrated = "true" if now.get("migrated") else "false"
            self._admin.request("POST", f"{path}?migrated={migrated}", target.body())
        self._admin.request("POST", f"/namespaces/{namespace}/migration", True)

    def unmark(self, namespace: str) -> None:
        """Have Pulsar load the namespace's topics again. A second call changes nothing."""
        self._admin.request("POST", f"/namespaces/{namespace}/migration", False)

    def create_missing_partitions(self, topic: str) -> None:
        """Create partitions that had no program yet: one that is created later would be terminated later."""
        self._admin.request("POST", f"{path_of(topic)}/createMissedPartitions")

    def is_terminated(self, partition: str) -> bool:
        """Loads the topic. True also for one that Pulsar has deleted: it had no subscription. Raises TopicIsMigrated:
        it is not loaded, and its namespace is marked."""
        return str(self._stats(partition).get("state", _TERMINATED)) == _TERMINATED

    def is_terminated_once_loaded(self, partition: str, deadline: Deadline) -> bool:
        """Wait until Pulsar loads it: a broker may not know yet that the mark is gone. Raises DeadlineExceeded."""
        found: list[bool] = []

        def replied() -> bool:
            try:
                found.append(self.is_terminated(partition))
            except TopicIsMigrated:
                return False
            return True

        if not wait_until(replied, deadline):
            raise errors.DeadlineExceeded(f"Pulsar does not load {partition}: its namespace is marked as migrated")
        return found[0]

    def is_stuck(self, partition: str) -> bool:
        """Whether publishing has not ended, so that the topic takes no reader."""
        return bool(self._stats(partition).get("pendingAddEntriesCount"))

    def unload(self, partition: str) -> None:
        """Disconnect the programs, which then connect again. Does nothing without the topic."""
        try:
            self._admin.request("PUT", f"{path_of(partition)}/unload")
        except errors.Refused:
            return

    def clear_backlog(self, partition: str, subscription: str) -> None:
        """Acknowledge everything, so that Pulsar sends the consumers away at its next check."""
        try:
            self._admin.request("POST", f"{path_of(partition)}/subscription/{quote(subscription, safe='')}/skip_all")
        except (errors.Refused, TopicIsMigrated):
            return  # deleted meanwhile, so it was empty; or the topic is not loaded, and takes no consumer

    def _stats(self, partition: str) -> Mapping[str, Any]:
        """Empty without the topic."""
        try:
            found = self._admin.request("GET", f"{path_of(partition)}/internalStats")
        except errors.Refused:
            return {}
        return found if isinstance(found, dict) else {}
