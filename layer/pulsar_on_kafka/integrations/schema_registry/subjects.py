"""Versions of subjects as Confluent's API shows them. Pure.

A subject is `<Kafka topic>-value` or `<Kafka topic>-key`. Version n there is our version n - 1, since Confluent counts
from 1. A file that a Protobuf schema imports is a subject of its own, `<subject>:<file>`, with the same
version number; `/` is `:` in its name.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_on_kafka.broker.schema_registry.confluent_forms import (
    CONFLUENT_TYPES,
    ProtobufDefinition,
    RecordPart,
    confluent_parts,
    guid_of,
)
from pulsar_on_kafka.integrations.schema_registry.json_documents import json_document
from pulsar_on_kafka_mapping.ids.confluent_ids import SchemaPlace, schema_id
from pulsar_on_kafka_schema_compat import CompatibilityStrategy, SchemaInfo, SchemaType

FILE: Final = ":"
"""Before the name of an imported file; no Kafka topic has it in its name."""
_WELL_KNOWN: Final = "google/protobuf/"
"""Confluent's clients have these files."""


@dataclass(frozen=True, slots=True)
class RegistrySubject:
    """A subject's name: the Kafka topic, the part of its records, and the imported file, if it is one's."""

    kafka_topic: str
    part: RecordPart
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> RegistrySubject | None:
        """None for another text."""
        name, _, file = text.partition(FILE)
        topic, dash, part = name.rpartition("-")
        return cls(topic, RecordPart(part), file) if dash and topic and part in set(RecordPart) else None

    @property
    def own(self) -> RegistrySubject:
        """The subject whose schemas import the file."""
        return RegistrySubject(self.kafka_topic, self.part)

    def __str__(self) -> str:
        return f"{self.kafka_topic}-{self.part.value}{FILE + self.file if self.file else ''}"


def in_subject(file: str) -> str:
    """The name of an imported file in a subject, where `/` would end the address's part."""
    return file.replace("/", FILE)


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """One version of a subject."""

    subject: RegistrySubject
    number: int
    """Confluent's number, from 1."""
    place: SchemaPlace
    schema: SchemaInfo
    """The part of the registered schema that describes the subject's part of a record."""

    @property
    def guid(self) -> str:
        return str(guid_of(self.schema))

    @property
    def id(self) -> int:
        """Raises MappingError: see `schema_id`."""
        return schema_id(self.place)

    @property
    def type_name(self) -> str:
        return CONFLUENT_TYPES[self.schema.type]

    def text(self) -> str:
        """The definition in Confluent's form: Avro's JSON, a JSON Schema document, or the base64 of a
        FileDescriptorProto. Raises UnreadableSchema."""
        if self.schema.type is SchemaType.JSON:
            return json_document(self.schema)
        if self.schema.type is SchemaType.AVRO:
            return self.schema.schema.decode("utf-8", "replace")
        definition = ProtobufDefinition.of(self.schema)
        return base64.b64encode(definition.files[self._file(definition)]).decode()

    def rest(self) -> dict[str, Any]:
        """The JSON of `GET /subjects/{subject}/versions/{version}`; an imported file has no ids. Raises
        UnreadableSchema, MappingError."""
        ids = {} if self.subject.file else {"id": self.id, "guid": self.guid}
        return {"subject": str(self.subject), "version": self.number, **ids, **self._schema()}

    def schema_rest(self) -> dict[str, Any]:
        """The JSON of `GET /schemas/ids/{id}`. Raises UnreadableSchema."""
        return {"guid": self.guid, **self._schema()}

    def _schema(self) -> dict[str, Any]:
        if self.schema.type is SchemaType.AVRO:  # without a type, as Confluent's
            return {"schema": self.text()}
        found: dict[str, Any] = {"schemaType": self.type_name, "schema": self.text()}
        if self.schema.type is SchemaType.PROTOBUF_NATIVE:
            references = self._references(ProtobufDefinition.of(self.schema))
            if references:
                found["references"] = references
        return found

    def _file(self, definition: ProtobufDefinition) -> str:
        """The file that the subject is of."""
        return next((name for name in definition.files if in_subject(name) == self.subject.file), definition.root_file)

    def _references(self, definition: ProtobufDefinition) -> list[dict[str, Any]]:
        return [
            {"name": name, "subject": str(replace(self.subject, file=in_subject(name))), "version": self.number}
            for name in definition.imports(self._file(definition))
            if not name.startswith(_WELL_KNOWN)
        ]


def versions_of(
    kafka_topic: str, number: int, place: tuple[int, int], info: SchemaInfo
) -> dict[RecordPart, SubjectVersion]:
    """The subjects' versions that one registered schema is. `number` is our version, `place` partition and offset."""
    return {
        part: SubjectVersion(
            RegistrySubject(kafka_topic, part), number + 1, SchemaPlace(*place, of_key=part is RecordPart.KEY), schema
        )
        for part, schema in confluent_parts(info).items()
    }


LEVELS: Final = {
    CompatibilityStrategy.ALWAYS_COMPATIBLE: "NONE",
    CompatibilityStrategy.ALWAYS_INCOMPATIBLE: "FULL_TRANSITIVE",
    CompatibilityStrategy.UNDEFINED: "FULL",
}
"""Levels of the strategies that have another name, or none: ALWAYS_INCOMPATIBLE is stricter than any level."""


def level_of(strategy: CompatibilityStrategy) -> str:
    """Confluent's name of a strategy."""
    return LEVELS.get(strategy, strategy.name)


def page_of(found: Sequence[Any], offset: int, limit: int) -> list[Any]:
    """`limit` of them from `offset` on; a negative limit is none."""
    return list(found[offset:] if limit < 0 else found[offset : offset + limit])
