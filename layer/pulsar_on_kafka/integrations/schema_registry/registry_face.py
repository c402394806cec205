"""The registry's topics and schemas as subjects, versions and ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchNamespace, NoSuchTopic
from pulsar_on_kafka.broker.metadata.policies import CLUSTER
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.schema_registry.confluent_forms import ProtobufDefinition
from pulsar_on_kafka.broker.schema_registry.judging import schema_policies
from pulsar_on_kafka.broker.schema_registry.model import CatalogEntry, TopicLife
from pulsar_on_kafka.integrations.schema_registry.catalog import SchemaCatalog
from pulsar_on_kafka.integrations.schema_registry.errors import (
    NO_SUBJECT_CONFIG,
    RegistryError,
    invalid_version,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from pulsar_on_kafka.integrations.schema_registry.posted_schemas import PostedSchema
from pulsar_on_kafka.integrations.schema_registry.subjects import RegistrySubject, SubjectVersion, in_subject, level_of
from pulsar_on_kafka_mapping.errors import InvalidTopicName, MappingError
from pulsar_on_kafka_mapping.ids.confluent_ids import place_of_id
from pulsar_on_kafka_mapping.names.read_back import topic_from_kafka
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import CompatibilityStrategy, check_compatibility

LATEST: Final = ("latest", "-1")
_MAX_VERSION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _SubjectTopic:
    """The topic of a subject, as it is on record."""

    name: TopicName
    life: TopicLife


class RegistryFace:
    """Answers questions about subjects. Thread-safe. Every call raises RegistryError for what is not there, and
    StoreError.

    Memory: that of `SchemaCatalog`.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._catalog = SchemaCatalog(node)

    # Subjects ---------------------------------------------------------------------------------------------------------

    def subjects(self, deadline: Deadline, *, deleted: bool = False) -> list[str]:
        """Names of the subjects with live versions, or with any, in order."""
        kafka_topics = self._kafka_topics(deadline)
        found: set[str] = set()
        for each in self._catalog.read(deadline):
            topic = kafka_topics.get(each.life)
            if topic is not None and (each.is_live or deleted):
                found |= {str(RegistrySubject(topic, part)) for part in self._catalog.parts(each, deadline)}
        return sorted(found)

    def versions(self, subject: str, deadline: Deadline, *, deleted: bool = False) -> list[SubjectVersion]:
        """The live versions of a subject, or all that are there, oldest first; at least one."""
        named = RegistrySubject.parse(subject)
        topic = None if named is None else self._topic(named.kafka_topic, deadline)
        if named is None or topic is None:
            raise subject_not_found(subject)
        found = []
        kafka_topics = {topic.life: named.kafka_topic}
        for each in self._entries(topic, deadline, deleted=deleted):
            for version in self._catalog.versions(each, kafka_topics, deadline):
                if version.subject == named.own and _has_file(version, named.file):
                    found.append(replace(version, subject=named))
        if not found:
            raise subject_not_found(subject)
        return found

    def version(self, subject: str, number: str, deadline: Deadline, *, deleted: bool = False) -> SubjectVersion:
        """One version of a subject; `latest` and -1 are the newest one."""
        wanted = _number(number)
        found = self.versions(subject, deadline, deleted=deleted)
        if wanted is None:
            return found[-1]
        return next((each for each in found if each.number == wanted), None) or _no_version(wanted)

    def look_up(
        self, subject: str, posted: PostedSchema, deadline: Deadline, *, deleted: bool = False
    ) -> SubjectVersion:
        """The newest version of a subject that is this schema."""
        for version in reversed(self.versions(subject, deadline, deleted=deleted)):
            if posted.is_same(version):
                return version
        raise schema_not_found()

    def incompatibilities(
        self, subject: str, number: str | None, posted: PostedSchema, deadline: Deadline
    ) -> list[str]:
        """Reasons why a schema may not follow a version (all versions that count, for None) under the strategy of the
        subject's topic; none: it may. A subject without versions admits every schema. Registers nothing."""
        named = RegistrySubject.parse(subject)
        topic = None if named is None else self._topic(named.kafka_topic, deadline)
        try:
            found = self.versions(subject, deadline) if number is None else [self.version(subject, number, deadline)]
        except RegistryError as missing:
            if number in (None, *LATEST) and missing.status == 404 and named is not None:
                return []
            raise
        strategy = self._strategy(topic, deadline)
        return [
            str(each)
            for version in (found if strategy.is_transitive else found[-1:])
            for new, old in [posted.beside(version)]
            for each in check_compatibility(new, [old], strategy, first_version=version.number).incompatibilities
        ]

    # Ids --------------------------------------------------------------------------------------------------------------

    def with_id(self, number: int, deadline: Deadline) -> SubjectVersion:
        """The version with an integer id, also a deleted one."""
        try:
            place = place_of_id(number)
        except MappingError as wrong:
            raise schema_not_found(number) from wrong
        each = self._catalog.at(place, deadline)
        kafka_topics = self._kafka_topics(deadline)
        for version in () if each is None else self._catalog.versions(each, kafka_topics, deadline):
            if version.place == place:
                return version
        raise schema_not_found(number)

    def with_guid(self, guid: str, deadline: Deadline) -> list[SubjectVersion]:
        """The versions with a GUID, the newest of a live topic first; at least one."""
        try:
            wanted = UUID(guid)
        except ValueError as wrong:
            raise schema_not_found(guid[:60]) from wrong
        kafka_topics = self._kafka_topics(deadline)
        entries = self._catalog.with_guid(wanted, deadline)
        entries.sort(key=lambda each: (each.life in kafka_topics, each.is_live, each.entry.timestamp_ms), reverse=True)
        found = [
            version
            for each in entries
            for version in self._catalog.versions(each, kafka_topics, deadline)
            if version.guid == str(wanted)
        ]
        if not found:
            raise schema_not_found(guid[:60])
        return found

    # Policies ---------------------------------------------------------------------------------------------------------

    def level(self, subject: str | None, deadline: Deadline) -> str:
        """The level of a subject's topic, by its own policy or an inherited one; of the cluster for None."""
        if subject is None:
            return level_of(self._strategy(None, deadline))
        named = RegistrySubject.parse(subject)
        topic = None if named is None else self._topic(named.kafka_topic, deadline)
        if topic is None:
            raise RegistryError(
                NO_SUBJECT_CONFIG, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return level_of(self._strategy(topic, deadline))

    def _strategy(self, topic: _SubjectTopic | None, deadline: Deadline) -> CompatibilityStrategy:
        if topic is None:
            return schema_policies({}, self._node.namespaces.policies(CLUSTER, deadline)).strategy
        namespace = topic.name.namespace_name
        inherited = self._node.namespaces.policies_of({namespace}, deadline)[namespace]
        return schema_policies(self._node.topics.policies(topic.name, deadline), inherited).strategy

    # Topics -----------------------------------------------------------------------------------------------------------

    def _topic(self, kafka_topic: str, deadline: Deadline) -> _SubjectTopic | None:
        name = topic_from_kafka(kafka_topic)
        if name is not None:
            try:
                found = self._node.topics.find(name, deadline)
            except (NoSuchTopic, NoSuchNamespace, InvalidTopicName):
                found = None
            if found is not None and found.kafka_topic == kafka_topic:
                return _SubjectTopic(name, TopicLife(str(name.base), found.kafka_topic_id))
        lives = self._kafka_topics(deadline)
        life = next((each for each, kafka_name in lives.items() if kafka_name == kafka_topic), None)
        return None if life is None else _SubjectTopic(TopicName.parse(life.topic), life)

    def _kafka_topics(self, deadline: Deadline) -> dict[TopicLife, str]:
        records = self._node.topics.records.active(deadline)
        return {TopicLife(record.name, record.kafka_topic_id): record.kafka_topic for record in records}

    def _entries(self, topic: _SubjectTopic, deadline: Deadline, *, deleted: bool) -> list[CatalogEntry]:
        if deleted:
            return [each for each in self._catalog.read(deadline) if each.life == topic.life]
        return [CatalogEntry(topic.life, entry, True) for entry in self._node.schemas.index(topic.name, deadline)]


def _number(text: str) -> int | None:
    """The number of a version; None for the newest one."""
    if text in LATEST:
        return None
    if not text.isascii() or not text.isdecimal() or not 0 < int(text[:11]) <= _MAX_VERSION:
        raise invalid_version(text)
    return int(text)


def _no_version(number: int) -> SubjectVersion:
    raise version_not_found(number)


def _has_file(version: SubjectVersion, file: str) -> bool:
    if not file:
        return True
    return version.type_name == "PROTOBUF" and file in map(in_subject, ProtobufDefinition.of(version.schema).files)
