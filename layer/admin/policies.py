"""Policies of the cluster, of namespaces and topics: the part of `AdminClient` that sets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.clusters import check_replication_clusters
from pulsar_on_kafka.metadata.namespaces import CLUSTER
from pulsar_on_kafka.metadata.policies import (
    REPLICATION_CLUSTERS,
    applied,
    check_level,
    policy_named,
    with_policy,
    without_policy,
)


@raising_pulsar_errors
class PolicyAdmin(AdminContext):
    """`where` is the cluster (`admin.CLUSTER`), a namespace (`tenant/namespace`) or a topic (`orders`,
    `persistent://tenant/namespace/topic`).

    Which policies there are, and what they take: `metadata.policies`. A topic's own value counts before that of
    its namespace, which counts before that of the cluster. Running producers follow `deduplication` within two seconds
    (`client.connection.session`); what says how schemas are judged counts for every producer and consumer that is
    opened afterwards.
    """

    def set_policy(self, where: str, name: str, value: object) -> None:
        """Set one policy; a second call with the same value changes nothing. Words are taken in any case.

        Raises:
            InvalidConfiguration: there is no such policy, or it does not take this value (replication_clusters takes
                names of registered clusters, where this one has a name), or it is one of the cluster alone.
            TopicNotFound: namespace or topic do not exist.
        """
        check_level(name, cluster=where == CLUSTER)
        if name == REPLICATION_CLUSTERS.name:
            names = REPLICATION_CLUSTERS.taken(value)
            check_replication_clusters(names, self.node.clusters.registry(self._deadline()))
        self._change(where, lambda policies: with_policy(policies, name, value))

    def get_policy(self, where: str, name: str, *, applied_value: bool = False) -> Any:
        """What is set here; None where nothing is. With `applied_value` what counts here, wherever it is set.

        Raises: as `set_policy`.
        """
        policy = policy_named(name)
        deadline = self._deadline()
        own = self._policies(where, deadline)
        if not applied_value:
            return own.get(name)
        levels = [own]
        if where != CLUSTER:
            if not _is_namespace(where):
                levels.append(self.node.namespaces.policies(TopicName.parse(where).namespace_name, deadline))
            levels.append(self.node.namespaces.policies(CLUSTER, deadline))
        return applied(policy, *levels)

    def policies(self, where: str) -> dict[str, Any]:
        """All that is set here, by name. Raises TopicNotFound."""
        return dict(self._policies(where, self._deadline()))

    def remove_policy(self, where: str, name: str) -> None:
        """What is set elsewhere, or the default, counts again; nothing happens when it was not set. Raises: as
        `set_policy`."""
        self._change(where, lambda policies: without_policy(policies, name))

    def _policies(self, where: str, deadline: Deadline) -> Mapping[str, Any]:
        if _is_namespace(where):
            return self.node.namespaces.policies(where, deadline)
        name = TopicName.parse(where)
        self.node.namespaces.require(name.namespace_name, deadline)
        return self.node.topics.policies(name, deadline)

    def _change(self, where: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        change({})  # a wish that makes no sense is refused before anything is asked
        deadline = self._deadline()
        if _is_namespace(where):
            self.node.namespaces.change_policies(where, change, deadline)
        else:
            name = TopicName.parse(where)
            self.node.namespaces.require(name.namespace_name, deadline)
            self.node.topics.change_policies(name, change, deadline)


def _is_namespace(where: str) -> bool:
    """Or the cluster."""
    # A topic's name has no slash, two, or a scheme.
    return where == CLUSTER or ("://" not in where and where.count("/") == 1)
