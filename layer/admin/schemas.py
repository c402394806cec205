"""Schemas of topics: the part of `AdminClient` that administers them."""

from __future__ import annotations

from pulsar_on_kafka.admin.context import raising_pulsar_errors
from pulsar_on_kafka.admin.policies import PolicyAdmin
from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka.mapping.names.topic_name import TopicName
from pulsar_on_kafka.metadata.policies import SCHEMA_COMPATIBILITY_STRATEGY
from pulsar_on_kafka.registry.model import SchemaEntry, StoredSchema
from pulsar_on_kafka.schema_compat import CompatibilityResult, CompatibilityStrategy, SchemaInfo


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

    def get_version_by_schema(self, topic: str, schema: SchemaInfo) -> int | None:
        """The live version that is this schema, by its bytes or by what it says; None when none is."""
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
        """Whether the topic's strategy would take this schema, and every reason why not. Registers nothing."""
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

    # Strategies ---------------------------------------------------------------------------------------------------

    def set_schema_compatibility_strategy(self, where: str, strategy: CompatibilityStrategy | str) -> None:
        """For a namespace or a topic; UNDEFINED is as if nothing were set. Raises: as `set_policy`."""
        self.set_policy(where, SCHEMA_COMPATIBILITY_STRATEGY.name, strategy)

    def get_schema_compatibility_strategy(self, where: str, *, applied: bool = False) -> CompatibilityStrategy:
        """What is set here, UNDEFINED where nothing is; with `applied` what counts here. Raises: as `get_policy`."""
        found = self.get_policy(where, SCHEMA_COMPATIBILITY_STRATEGY.name, applied_value=applied)
        if found is not None and found not in CompatibilityStrategy.__members__:
            raise errors.Corrupt(f"{SCHEMA_COMPATIBILITY_STRATEGY.name} of {where} is {found!r:.60}, no strategy")
        return CompatibilityStrategy.UNDEFINED if found is None else CompatibilityStrategy[found]

    # Inside -------------------------------------------------------------------------------------------------------

    def _existing(self, topic: str) -> tuple[TopicName, Deadline]:
        deadline = self._deadline()
        return self._topic_around(topic, deadline).name, deadline
