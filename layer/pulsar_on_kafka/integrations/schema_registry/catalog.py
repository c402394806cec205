"""Every registered schema by its ids."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchSchema, UnreadableSchemas
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.schema_registry.confluent_forms import CONFLUENT_TYPES, RecordPart
from pulsar_on_kafka.broker.schema_registry.model import CatalogEntry, TopicLife
from pulsar_on_kafka.integrations.schema_registry.subjects import SubjectVersion, versions_of
from pulsar_on_kafka_mapping.ids.confluent_ids import SchemaPlace, schema_guid
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.state_topics import SCHEMAS
from pulsar_on_kafka_schema_compat import SchemaType

_FORMS: Final = {kind.name for kind in CONFLUENT_TYPES}


@dataclass(frozen=True, slots=True)
class _Index:
    entries: tuple[CatalogEntry, ...] = ()
    by_place: dict[tuple[int, int], CatalogEntry] = field(default_factory=dict)
    by_guid: dict[UUID, list[CatalogEntry]] = field(default_factory=dict)


class SchemaCatalog:
    """The versions of all topics, deleted ones among them. Thread-safe.

    A version is immutable, so a known id is found without a request to Kafka. Memory: some 500 bytes for each version
    beside those of the registry's view.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._index = _Index()
        self._lock = threading.Lock()

    def read(self, deadline: Deadline) -> tuple[CatalogEntry, ...]:
        """All versions, read to the end first. Raises StoreError."""
        with self._lock:
            entries = tuple(self._node.schemas.catalog(deadline))
            by_guid: defaultdict[UUID, list[CatalogEntry]] = defaultdict(list)
            for each in entries:
                for guid in self._guids(each, deadline):
                    by_guid[guid].append(each)
            self._index = _Index(entries, {_place(each): each for each in entries}, dict(by_guid))
            return entries

    def _guids(self, each: CatalogEntry, deadline: Deadline) -> Iterator[UUID]:
        if each.entry.type_name in _FORMS:  # by the index alone
            yield schema_guid(each.entry.type_name, each.entry.sha256)
        elif each.entry.type_name == SchemaType.KEY_VALUE.name:
            for version in self.versions(each, {}, deadline):
                yield UUID(version.guid)

    def at(self, place: SchemaPlace, deadline: Deadline) -> CatalogEntry | None:
        """The version whose record is there; None without one."""
        where = (place.partition, place.offset)
        found = self._index.by_place.get(where)
        if found is None:
            self.read(deadline)
            found = self._index.by_place.get(where)
        return found

    def with_guid(self, guid: UUID, deadline: Deadline) -> list[CatalogEntry]:
        """The versions with a part of this GUID, in any order."""
        found = self._index.by_guid.get(guid)
        if found is None:
            self.read(deadline)
            found = self._index.by_guid.get(guid)
        return list(found or ())

    def parts(self, each: CatalogEntry, deadline: Deadline) -> list[RecordPart]:
        """The parts of a record that one version describes. Reads the definition of a KEY_VALUE schema alone."""
        if each.entry.type_name in _FORMS:
            return [RecordPart.VALUE] if each.entry.definition_bytes else []
        if each.entry.type_name != SchemaType.KEY_VALUE.name:
            return []
        return [version.subject.part for version in self.versions(each, {}, deadline)]

    def versions(
        self, each: CatalogEntry, kafka_topics: Mapping[TopicLife, str], deadline: Deadline
    ) -> list[SubjectVersion]:
        """The subjects' versions that one version is; none if it was removed meanwhile. `kafka_topics` names Kafka
        topics; the others have their topic's usual one."""
        try:
            stored = self._node.schemas.schema_of_life(each.life, each.entry.version, deadline)
        except (NoSuchSchema, UnreadableSchemas):
            return []
        usual = self._node.settings.instance.kafka_topic(TopicName.parse(each.life.topic))
        topic = kafka_topics.get(each.life, usual)
        return list(versions_of(topic, stored.version.number, _place(each), stored.info).values())


def _place(each: CatalogEntry) -> tuple[int, int]:
    return SCHEMAS.partition_for(each.life.topic), each.entry.kafka_offset
