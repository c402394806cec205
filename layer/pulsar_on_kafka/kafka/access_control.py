"""ACLs of the cluster, and the rights of the user that this process logs in as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.forks import OfOneProcess
from pulsar_on_kafka.kafka import acls as acl_values
from pulsar_on_kafka.kafka.acls import Acl
from pulsar_on_kafka.kafka.admin_requests import budget, result, translated
from pulsar_on_kafka.kafka.consumer_groups import GroupRequests
from pulsar_on_kafka.kafka.rights import on_cluster, on_group, on_topic


class AccessControl(OfOneProcess):
    """Thread-safe. Uses the handles of `KafkaAdmin`, which closes them."""

    def __init__(self, handle: AdminClient, groups: GroupRequests) -> None:
        self._handle = handle
        self._groups = groups

    def allowed_on_topics(self, topics: Sequence[str], deadline: Deadline) -> dict[str, frozenset[str]]:
        """This user's operations on each topic, in the words of `kafka-acls` (Read, DescribeConfigs). A missing topic
        is left out. A topic that the user may not describe has none."""
        request = TopicCollection(list(topics))
        futures = self._handle.describe_topics(request, include_authorized_operations=True, **budget(deadline))
        found: dict[str, frozenset[str]] = {}
        for topic, future in futures.items():
            try:
                described = result(future, deadline, f"describing topic {topic}", on_topic("Describe", topic))
            except errors.NotAuthorized:
                found[topic] = frozenset()
            except errors.NoSuchTopic:
                continue
            else:
                found[topic] = _operations(described.authorized_operations)
        return found

    def allowed_on_group(self, group_id: str, deadline: Deadline) -> frozenset[str]:
        """This user's operations on a group, which need not exist."""
        try:
            with translated(f"describing group {group_id}", on_group("Describe", group_id)):
                described = self._groups.describe(group_id, deadline, with_rights=True)
        except errors.NotAuthorized:
            return frozenset()
        return _operations(described.authorized_operations)

    def acls(self, deadline: Deadline) -> list[Acl] | None:
        """ACLs of topics, groups and transactional ids; None if the cluster has no authorizer.

        Raises:
            NotAuthorized: this user may not read them (Describe on the cluster).
        """
        found: list[Acl] = []
        for each in acl_values.filters():
            future = self._handle.describe_acls(each, **budget(deadline))
            try:
                bindings = result(future, deadline, "reading ACLs", on_cluster("Describe"))
            except errors.NotSupportedYet:
                return None
            found += [acl for binding in bindings if (acl := acl_values.read(binding)) is not None]
        return found

    def create_acls(self, acls: Sequence[Acl], deadline: Deadline) -> None:
        """Raises NotAuthorized: this user may not create them (Alter on the cluster); some may be created."""
        bindings = [acl_values.binding(each) for each in acls]
        for future in self._handle.create_acls(bindings, **budget(deadline)).values():
            result(future, deadline, "creating ACLs", on_cluster("Alter"))


def _operations(operations: Sequence[Any] | None) -> frozenset[str]:
    return frozenset("".join(word.title() for word in each.name.split("_")) for each in operations or ())
