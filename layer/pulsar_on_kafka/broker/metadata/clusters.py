"""The clusters that one knows of: its own name, and how the others are reached. By compare-and-set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.entities import Entities, EntityKeys, Versioned
from pulsar_on_kafka.broker.metadata.policies import CLUSTER
from pulsar_on_kafka.kafka.settings import KafkaSettings
from pulsar_on_kafka_mapping.state.clusters.cluster_registry import (
    ClusterAddress,
    ClusterRegistry,
    decode_clusters,
    encode_clusters,
)
from pulsar_on_kafka_mapping.state.state_keys import ClusterRegistryKey

REGISTRY: Final = "registry of clusters"
REGISTRY_KEYS: Final[EntityKeys[str]] = EntityKeys(ClusterRegistryKey, lambda: REGISTRY, lambda _: (), CLUSTER)

_NAME: Final = re.compile(r"[-=:.\w]{1,100}", re.ASCII)
_SECRET: Final = re.compile(r"password|passphrase|secret|key\.pem|oauthbearer\.config|jaas")


def check_cluster_name(name: str) -> str:
    """Raises InvalidOption for what names no cluster. Source: Pulsar's NamedEntity."""
    if _NAME.fullmatch(name) is None:
        raise errors.InvalidOption(
            f"a cluster is named by 1 to 100 letters, digits, '-', '=', ':', '.', '_', got {name!r:.120}"
        )
    return name


def check_no_secrets(kafka_config: Mapping[str, str]) -> None:
    """Raises InvalidOption, naming the option and never its value: every user who may read topics can read the
    registry."""
    secret = sorted(name for name in kafka_config if _SECRET.search(name))
    if secret:
        raise errors.InvalidOption(
            f"{', '.join(secret)} would be a secret in a topic: give it to the process that connects "
            "(pok serve --cluster-config NAME:key=value)"
        )


class Clusters:
    """Thread-safe. Memory: the one record."""

    def __init__(self, entities: Entities[str]) -> None:
        """`entities`: of the `namespaces` state topic, with `REGISTRY_KEYS`."""
        self._entities = entities

    def registry(self, deadline: Deadline) -> ClusterRegistry:
        """The registry as it stands in the log now; an empty one where no cluster was ever registered."""
        return _registry(self._entities.read(REGISTRY, deadline))

    def create(self, name: str, address: ClusterAddress, deadline: Deadline) -> None:
        """Raises AlreadyExists, InvalidOption."""

        def created(known: ClusterRegistry) -> ClusterRegistry:
            if known.clusters.get(name, address) != address:
                raise errors.AlreadyExists(f"cluster {name} exists already, at {known.clusters[name].service_url}")
            return replace(known, clusters={**known.clusters, name: address})

        self._write(name, address, created, deadline)

    def update(self, name: str, address: ClusterAddress, deadline: Deadline) -> None:
        """Raises NoSuchCluster, InvalidOption."""

        def updated(known: ClusterRegistry) -> ClusterRegistry:
            self._require(known, name)
            return replace(known, clusters={**known.clusters, name: address})

        self._write(name, address, updated, deadline)

    def delete(self, name: str, deadline: Deadline) -> None:
        """Raises NoSuchCluster. Policies that name it stay, and wait for it."""

        def deleted(known: ClusterRegistry) -> ClusterRegistry:
            self._require(known, name)
            return replace(known, clusters={other: at for other, at in known.clusters.items() if other != name})

        self._change(deleted, deadline)

    def name_local(self, name: str, deadline: Deadline) -> None:
        """Sets the name of this cluster. Raises Refused when it has another name already: copies from this cluster
        carry that name."""
        check_cluster_name(name)

        def named(known: ClusterRegistry) -> ClusterRegistry:
            if known.local not in ("", name):
                raise errors.Refused(f"this cluster is called {known.local}, and cannot become {name}")
            return replace(known, local=name)

        self._change(named, deadline)

    def _write(
        self,
        name: str,
        address: ClusterAddress,
        change: Callable[[ClusterRegistry], ClusterRegistry],
        deadline: Deadline,
    ) -> None:
        check_cluster_name(name)
        check_no_secrets(address.kafka_config)
        KafkaSettings("", address.kafka_config).check()
        self._change(change, deadline)

    def _change(self, change: Callable[[ClusterRegistry], ClusterRegistry], deadline: Deadline) -> None:
        def changed(current: Versioned | None) -> bytes | None:
            known = _registry(current)
            requested = change(known)
            return None if requested == known and current is not None else encode_clusters(requested)

        self._entities.update(REGISTRY, changed, deadline)

    def require(self, name: str, deadline: Deadline) -> None:
        """Raises NoSuchCluster for one that is neither registered nor this one."""
        known = self.registry(deadline)
        if name != known.local:
            self._require(known, name)

    @staticmethod
    def _require(known: ClusterRegistry, name: str) -> None:
        if name not in known.clusters:
            there = ", ".join(sorted(known.clusters)) or "none"
            raise errors.NoSuchCluster(f"there is no cluster {name!r:.120}; there are: {there}")


def check_replication_clusters(names: Any, known: ClusterRegistry) -> None:
    """Raises InvalidOption for a cluster that is not registered, and where this one has no name itself."""
    unknown = [name for name in names if name != known.local and name not in known.clusters]
    if unknown:
        there = ", ".join(sorted({*known.clusters, known.local} - {""})) or "none"
        raise errors.InvalidOption(
            f"replication_clusters names {', '.join(unknown)}, which is not registered (pok clusters create); "
            f"there are: {there}"
        )
    if not known.local:
        raise errors.InvalidOption("this cluster has no name yet, by which others know it (pok clusters local NAME)")


def _registry(current: Versioned | None) -> ClusterRegistry:
    return ClusterRegistry() if current is None else decode_clusters(current.value)
