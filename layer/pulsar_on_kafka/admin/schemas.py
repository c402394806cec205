"""Schemas of topics, and policies: the parts of `AdminClient` that administer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pulsar_on_kafka.admin.context import AdminContext, raising_pulsar_errors
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.clusters import check_replication_clusters
from pulsar_on_kafka.broker.metadata.policies import (
    CLUSTER,
    POLICIES,
    REPLICATION_CLUSTERS,
    SCHEMA_COMPATIBILITY_STRATEGY,
    applied,
    check_level,
    is_tenant_level,
    policy_named,
    with_policies,
    without_policies,
)
from pulsar_on_kafka.broker.schema_registry.model import SchemaEntry, StoredSchema
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import CompatibilityResult, CompatibilityStrategy, SchemaInfo

MAX_VERSIONS: Final = 100
"""Versions of a topic's schemas that are listed together with deleted ones."""


class RegistrationState(str, Enum):
    """The state of a version of a topic's schemas."""

    LIVE = "live"
    DELETED = "deleted"
    """Messages that were written with it are still read with it."""
    DELETION = "deletion"
    """The deletion of all versions before it; or a version whose definition was removed."""
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a topic's schemas, without its definition. Type, size and time (Unix ms) are '' and 0 for a deletion
    and for an unreadable version."""

    number: int
    state: RegistrationState
    type_name: str = ""
    definition_bytes: int = 0
    timestamp_ms: int = 0


@raising_pulsar_errors
class PolicyAdmin(AdminContext):
    """`where` is the cluster (`admin.CLUSTER`), a namespace (`tenant/namespace`) or a topic (`orders`,
    `persistent://tenant/namespace/topic`). `tenant/*` is a tenant, which has `transaction_coordinator_enabled` only.

    The policies and their values: `metadata.policies`. A topic's own value takes precedence over that of its namespace,
    which takes precedence over that of the cluster. Running producers follow `deduplication` within two seconds
    (`client.connection.session`); policies about schemas count for every producer and consumer that is opened
    afterwards.
    """

    def set_policy(self, where: str, name: str, value: object) -> None:
        """Sets one policy. A second call with the same value changes nothing. Words are taken in any case.

        Raises:
            InvalidConfiguration: there is no such policy, or it does not take this value (replication_clusters takes
                names of registered clusters, where this one has a name), or it is one of the cluster alone.
            TopicNotFound: namespace, tenant or topic do not exist.
            NotAllowedError: the tenant may not use one of these clusters (`create_tenant`).
        """
        self.set_policies(where, {name: value})

    def set_policies(self, where: str, values: Mapping[str, object]) -> None:
        """Sets several policies at once. Raises the errors of `set_policy`, and then sets none of them."""
        self._check_policies(where, values)
        self._change(where, lambda policies: with_policies(policies, values))

    def _check_policies(self, where: str, values: Mapping[str, object]) -> None:
        for name in values:
            check_level(name, cluster=where == CLUSTER, topic=not _is_namespace(where), tenant=is_tenant_level(where))
        if is_tenant_level(where):
            self.node.tenant_infos.find(where.partition("/")[0], self._deadline())
        if REPLICATION_CLUSTERS.name in values:
            names = REPLICATION_CLUSTERS.taken(values[REPLICATION_CLUSTERS.name])
            check_replication_clusters(names, self.node.clusters.registry(self._deadline()))
            if where != CLUSTER:
                space = where if _is_namespace(where) else TopicName.parse(where).namespace_name
                self.node.tenant_infos.check_clusters(space.partition("/")[0], names, self._deadline())

    def get_policy(self, where: str, name: str, *, applied_value: bool = False) -> Any:
        """The value that is set here; None without one. With `applied_value` the effective value, wherever it is set.

        Raises the errors of `set_policy`.
        """
        policy = policy_named(name)
        if not applied_value:
            return self.policies(where).get(name)
        return applied(policy, *self._levels(where, self._deadline()))

    def policies(self, where: str) -> dict[str, Any]:
        """All that is set here, by name. Raises TopicNotFound."""
        return dict(self._policies(where, self._deadline()))

    def applied_policies(self, where: str) -> dict[str, Any]:
        """The effective value of every policy, by name. Raises TopicNotFound."""
        levels = self._levels(where, self._deadline())
        return {policy.name: applied(policy, *levels) for policy in POLICIES.values()}

    def remove_policy(self, where: str, *names: str) -> None:
        """Removes values here: the inherited values or the defaults count again. Does nothing without a value. Raises
        the errors of `set_policy`."""
        self._change(where, lambda policies: without_policies(policies, *names))

    def _levels(self, where: str, deadline: Deadline) -> list[Mapping[str, Any]]:
        """The policies that are set here, and those that are set above."""
        levels = [self._policies(where, deadline)]
        if where != CLUSTER:
            if not _is_namespace(where):
                levels.append(self.node.namespaces.policies(TopicName.parse(where).namespace_name, deadline))
            levels.append(self.node.namespaces.policies(CLUSTER, deadline))
        return levels

    def _policies(self, where: str, deadline: Deadline) -> Mapping[str, Any]:
        if _is_namespace(where):
            return self.node.namespaces.policies(where, deadline)
        name = TopicName.parse(where)
        self.node.namespaces.require(name.namespace_name, deadline)
        return self.node.topics.policies(name, deadline)

    def _change(self, where: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        change({})  # an invalid value is refused before any request
        deadline = self._deadline()
        if _is_namespace(where):
            self.node.namespaces.change_policies(where, change, deadline)
        else:
            name = TopicName.parse(where)
            self.node.namespaces.require(name.namespace_name, deadline)
            self.node.topics.change_policies(name, change, deadline)


def _is_namespace(where: str) -> bool:
    """Or the cluster, or a tenant."""
    # A topic's name has no slash, two, or a scheme.
    return where == CLUSTER or ("://" not in where and where.count("/") == 1)


@raising_pulsar_errors
class SchemaAdmin(PolicyAdmin):
    """A topic's partitions share its schemas, and any name of it may be given. The topic must exist (`create_schema`
    makes it).

    Every call raises `TopicNotFound` where it does not, and `BrokerMetadataError` when what is stored cannot be read;
    producers that bring a schema then start anew. Source of names: Pulsar's `Schemas` and `Namespaces` of its Java
    admin client.
    """

    def get_schema_info(self, topic: str, version: int | None = None) -> SchemaInfo:
        """The latest schema, or that version, also when it was deleted since. Raises TopicNotFound: there is none."""
        return self.get_schema_info_with_version(topic, version).info

    def get_schema_info_with_version(self, topic: str, version: int | None = None) -> StoredSchema:
        """The same with its version, who registered it, and when. Raises: as `get_schema_info`."""
        if version is not None and version < 0:
            raise errors.InvalidOption(f"a schema version is at least 0, got {version}")
        name, deadline = self._existing(topic)
        if version is not None:
            return self.node.schemas.schema(name, SchemaVersion(version), deadline)
        latest = self.node.schemas.latest(name, deadline)
        if latest is None:
            raise errors.NoSuchSchema(f"topic {name} has no schema")
        return latest

    def get_all_schemas(self, topic: str) -> list[StoredSchema]:
        """Every live version, oldest first, with definitions: memory for all of them is the caller's."""
        return list(self.node.schemas.versions(*self._existing(topic)))

    def list_schema_versions(self, topic: str) -> list[SchemaEntry]:
        """Every live version, oldest first, without definitions. Ours, not Pulsar's."""
        return list(self.node.schemas.index(*self._existing(topic)))

    def schema_history(self, topic: str, limit: int = MAX_VERSIONS) -> list[RegisteredSchema]:
        """The last `limit` versions, newest first, deleted ones and deletions among them. Each deleted one is read with
        its definition, which takes a request the first time. Ours, not Pulsar's."""
        if limit < 1:
            raise errors.InvalidOption(f"limit is {limit}, expected 1 or more")
        name, deadline = self._existing(topic)
        history = self.node.schemas.history(name, deadline)
        newest = -1 if history.newest is None else history.newest.number
        live = {each.version.number: each for each in history.live}
        return [
            self._live(live[number]) if number in live else self._deleted(name, number, deadline)
            for number in range(newest, max(-1, newest - limit), -1)
        ]

    @staticmethod
    def _live(entry: SchemaEntry) -> RegisteredSchema:
        number, size = entry.version.number, entry.definition_bytes
        return RegisteredSchema(number, RegistrationState.LIVE, entry.type_name, size, entry.timestamp_ms)

    def _deleted(self, topic: TopicName, number: int, deadline: Deadline) -> RegisteredSchema:
        try:
            found = self.node.schemas.schema(topic, SchemaVersion(number), deadline)
        except errors.NoSuchSchema:
            return RegisteredSchema(number, RegistrationState.DELETION)
        except errors.UnreadableSchemas:
            return RegisteredSchema(number, RegistrationState.UNREADABLE)
        size = len(found.info.schema)
        return RegisteredSchema(number, RegistrationState.DELETED, found.info.type.name, size, found.timestamp_ms)

    def get_version_by_schema(self, topic: str, schema: SchemaInfo) -> int | None:
        """The live version of this schema, by its bytes or by its meaning; None without one."""
        name, deadline = self._existing(topic)
        found = self.node.schemas.version_of(name, schema, deadline)
        return None if found is None else found.number

    def create_schema(self, topic: str, schema: SchemaInfo) -> int:
        """Register a schema, also where `is_allow_auto_update_schema` is false, and give its version; of one that is
        live already, the version that it has. A topic that does not exist is made, as by its first producer.

        Raises:
            TopicNotFound: neither does its namespace; or the name has the suffix of a partition.
            IncompatibleSchema: it may not follow the topic's schemas, or is none of its type.
            InvalidConfiguration: its definition is above 5 MiB.
        """
        name, deadline = TopicName.parse(topic), self._deadline()
        if self.node.topics.find(name.base, deadline) is None:
            self.node.schemas.check_storable(name, schema)  # before a topic is made for what will be refused
            self.node.topics.open(name, deadline)
        return self.node.schemas.upload(name.base, schema, deadline).number

    def test_compatibility(self, topic: str, schema: SchemaInfo) -> CompatibilityResult:
        """Whether the topic's strategy would accept this schema, and every reason why not. Registers nothing."""
        name, deadline = self._existing(topic)
        return self.node.schemas.compatibility(name, schema, deadline)

    def delete_schema(self, topic: str, *, force: bool = False) -> int | None:
        """End the topic's live schemas, and give the deletion's own version; None when there were none.

        Messages that were written with them are still read with them, unless `force` removes the definitions, those of
        earlier deletions as well. Differs from Pulsar: with `force` versions go on where they were, so that old
        messages never seem to be of a new schema.
        """
        name, deadline = self._existing(topic)
        deleted = self.node.schemas.delete(name, deadline, forced=force)
        return None if deleted is None else deleted.number

    def set_schema_compatibility_strategy(self, where: str, strategy: CompatibilityStrategy | str) -> None:
        """Sets the strategy of a namespace or a topic; UNDEFINED removes it. Raises the errors of `set_policy`."""
        self.set_policy(where, SCHEMA_COMPATIBILITY_STRATEGY.name, strategy)

    def get_schema_compatibility_strategy(self, where: str, *, applied: bool = False) -> CompatibilityStrategy:
        """The strategy that is set here, UNDEFINED without one; with `applied` the effective one. Raises the errors of
        `get_policy`."""
        found = self.get_policy(where, SCHEMA_COMPATIBILITY_STRATEGY.name, applied_value=applied)
        if found is not None and found not in CompatibilityStrategy.__members__:
            raise errors.Corrupt(f"{SCHEMA_COMPATIBILITY_STRATEGY.name} of {where} is {found!r:.60}, no strategy")
        return CompatibilityStrategy.UNDEFINED if found is None else CompatibilityStrategy[found]

    def _existing(self, topic: str) -> tuple[TopicName, Deadline]:
        deadline = self._deadline()
        return self._topic_around(topic, deadline).name, deadline
