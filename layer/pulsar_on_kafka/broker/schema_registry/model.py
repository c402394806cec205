"""Values of the registry: a topic's schemas, their versions and policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.state.metadata.schema_records import SchemaRecord
from pulsar_on_kafka_schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.key_value import rest_form


@dataclass(frozen=True, slots=True)
class TopicLife:
    """One life of a topic has schemas of its own: they last as long as its Kafka topic, which holds the messages that
    name them. A topic that is deleted and made again begins at version 0."""

    topic: str
    """Full name of the partitioned topic."""
    kafka_topic_id: str

    def __str__(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """One version, without its definition. Pulsar's `IndexEntry`."""

    version: SchemaVersion
    kafka_offset: int
    """The offset of its record in the topic's partition of the `schemas` state topic."""
    type_name: str
    sha256: str
    """Hexadecimal, of the definition's bytes."""
    record_bytes: int
    """The bytes of the record: definition, name, properties and the rest."""
    definition_bytes: int
    """The bytes of the definition alone."""
    timestamp_ms: int
    """The time of its registration, in Unix milliseconds of the registering process."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One version in the list of all topics' versions."""

    life: TopicLife
    entry: SchemaEntry
    is_live: bool
    """False: it was deleted, and messages may still name it."""


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version with its definition. Pulsar's `SchemaEntry`."""

    version: SchemaVersion
    kafka_offset: int
    info: SchemaInfo
    sha256: str
    user: str
    timestamp_ms: int

    def rest(self) -> dict[str, Any]:
        """Pulsar's `GetSchemaResponse`, in the JSON of its REST API. Raises UnreadableSchema: its two parts cannot be
        separated."""
        parts = self.info.type is SchemaType.KEY_VALUE
        return {
            "version": self.version.number,
            "type": self.info.type.name,
            "timestamp": self.timestamp_ms,
            "data": rest_form(self.info) if parts else self.info.schema.decode("utf-8", "replace"),
            "properties": dict(self.info.properties),
        }


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """A topic's schemas at one moment, without their definitions.

    `newest` is the last version there is, a deletion included; None before the first one. `live` are the schemas since
    the last deletion, oldest first: their versions are consecutive and end at `newest`.
    """

    newest: SchemaVersion | None
    live: tuple[SchemaEntry, ...]

    @property
    def latest(self) -> SchemaEntry | None:
        """The schema that counts now."""
        return self.live[-1] if self.live else None


NOTHING_REGISTERED = SchemaHistory(None, ())


@dataclass(frozen=True, slots=True)
class SchemaPolicies:
    """Schema policies of one topic. The defaults are Pulsar's."""

    strategy: CompatibilityStrategy = CompatibilityStrategy.FULL
    validation_enforced: bool = False
    """Producers without a schema are refused where there is one."""
    auto_update: bool = True
    """Producers and consumers may register new versions."""
    confluent_ids: bool = False
    """Records name their schema in the headers of Confluent's serializers."""


def record_of(info: SchemaInfo, user: str, timestamp_ms: int) -> SchemaRecord:
    return SchemaRecord(info.type.name, info.schema, info.name, dict(info.properties), user, timestamp_ms)


def info_of(record: SchemaRecord) -> SchemaInfo:
    """Raises KeyError for a type that this version does not know."""
    return SchemaInfo(SchemaType[record.type], record.schema, record.name, dict(record.properties))
