"""A producer's schema makes a message's payload, key and marks, which are the headers that most messages share.

Source: ProducerImpl and TypedMessageBuilderImpl of Java's client.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened
from pulsar_on_kafka.broker.schema_registry.model import StoredSchema
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.schema.generic import AutoProduceBytesSchema
from pulsar_on_kafka.schema.key_value import KeyValueEncodingType, KeyValueSchema
from pulsar_on_kafka.schema.plain import BytesSchema, Schema
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import FENCE, SCHEMA_VERSION
from pulsar_on_kafka_schema_compat import SchemaType


class RecordKey(bytes):
    """A partition key that is bytes already: of a separated KeyValue, of a copied message. Also an empty one counts."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


def key_bytes(partition_key: str | RecordKey) -> bytes:
    """The bytes of the Kafka key. Raises UnicodeEncodeError for lone surrogates."""
    return bytes(partition_key) if isinstance(partition_key, RecordKey) else partition_key.encode("utf-8")


LATEST_FOR_S: Final = 5.0
"""The lifetime of a topic's latest schema in the cache for AUTO_PRODUCE_BYTES."""
_LOOK_TIMEOUT_S: Final = 30.0

Marks = tuple[tuple[str, bytes], ...]
"""Headers that do not depend on the single message, made once."""
Shaped = tuple[bytes | None, str | RecordKey | None, Marks]
"""Payload, partition key and marks of one message."""


class LetterSchema(BytesSchema):
    """Producers of copies have this schema: each copy names the version that it was written with
    (`client.consumer.letters`)."""


class OutgoingSchema:
    """A schema whose messages all carry one version, and no more than a payload."""

    shapes: bool = False
    """Each message goes through `shape`; otherwise `schema.encode` gives all there is."""

    has_ids: bool = False
    """Records have the headers of Confluent's serializers: each message is a record of its own."""

    def __init__(self, schema: Schema, version: SchemaVersion | None, ids: Marks = ()) -> None:
        """`ids`: headers of Confluent's serializers."""
        self.schema = schema
        self.has_ids = bool(ids)
        self._fence: Marks = ()
        self.marks: Marks = self._with(version, ids)
        """The headers of every record of one producer, except its name and number."""

    def of_exclusive_producer(self) -> None:
        """Adds the header of exclusive producers to every record; call it before any record is made."""
        self._fence = ((FENCE, b""),)
        self.marks = (*self._fence, *self.marks)

    def shape(self, content: Any, partition_key: str | RecordKey | None) -> Shaped:
        """Payload, partition key and marks of a message with this content, for which a key was given or not.

        Raises: as the schema's `encode`; ValueError for a key that is not the sender's to give.
        """
        return None if content is None else self.schema.encode(content), partition_key, self.marks

    def _with(self, version: SchemaVersion | None, ids: Marks = ()) -> Marks:
        return self._fence if version is None else (*self._fence, version_header(version), *ids)


class SeparatedKeys(OutgoingSchema):
    """A key/value schema whose keys are the messages' keys."""

    shapes = True
    schema: KeyValueSchema

    def shape(self, content: Any, partition_key: str | RecordKey | None) -> Shaped:
        """Payload, key and marks of a message with this content; an empty key is a key, None is none. Raises as
        `OutgoingSchema.shape`."""
        if partition_key is not None:
            raise ValueError(f"partition_key is {partition_key!r:.60}, but the key of a separated KeyValue is the key")
        if content is None:
            return None, None, self.marks
        payload = self.schema.encode(content)
        key = self.schema.encode_key(content)
        return payload, None if key is None else RecordKey(key), self.marks


class TopicsLatest(OutgoingSchema):
    """AUTO_PRODUCE_BYTES takes payloads of whatever schema the topic has, and checks each against the latest one.

    Differs from Pulsar: Java's client takes the schema that is the latest one when the producer is made. Here a later
    one is taken up within `LATEST_FOR_S`, and at once when a payload does not fit; so one round trip in five seconds.
    """

    shapes = True
    schema: AutoProduceBytesSchema

    def __init__(
        self, schema: AutoProduceBytesSchema, topic: TopicName, schemas: SchemaRegistry, *, has_ids: bool = False
    ) -> None:
        super().__init__(schema, None)
        self.has_ids = has_ids
        self._topic = topic
        self._schemas = schemas
        self._latest: tuple[StoredSchema | None, Marks] = None, ()
        self._looked_s = 0.0
        self._looking = threading.Lock()

    def look(self, deadline: Deadline) -> tuple[StoredSchema | None, Marks]:
        """Requests the topic's latest schema; returns it with the headers of its messages. Raises the errors of
        `SchemaRegistry.latest`."""
        began_s = time.monotonic()
        latest = self._schemas.latest(self._topic, deadline)
        version = None if latest is None else latest.version
        ids: Marks = ()
        if self.has_ids and version is not None:
            ids = self._schemas.confluent_headers(self._topic, version, deadline)
        found = latest, self._with(version, ids)
        with self._looking:
            if began_s >= self._looked_s:
                self._latest, self._looked_s = found, began_s
        return found

    def shape(self, content: Any, partition_key: str | RecordKey | None) -> Shaped:
        """Payload, key and marks of a message with these bytes. Raises InvalidMessage for bytes that the topic's schema
        cannot read."""
        recent = time.monotonic() - self._looked_s < LATEST_FOR_S
        latest, marks = self._latest if recent else self._look_again()
        try:
            payload = self._checked(content, latest)
        except InvalidMessage:
            newer, marks = self._look_again() if recent else (latest, marks)
            if newer == latest:
                raise
            payload = self._checked(content, newer)
        return payload, partition_key, marks

    def _look_again(self) -> tuple[StoredSchema | None, Marks]:
        with pulsar_errors():
            return self.look(Deadline.after(_LOOK_TIMEOUT_S))

    def _checked(self, content: Any, latest: StoredSchema | None) -> bytes | None:
        if content is None:
            return None
        return self.schema.encode(content) if latest is None else self.schema.checked(content, latest.info)


def outgoing_schema(
    schema: Schema, topic: Topic, schemas: SchemaRegistry, deadline: Deadline, *, encrypts: bool = False
) -> OutgoingSchema:
    """The schema of a producer's messages on the topic; a new schema is registered.

    Args:
        encrypts: no deserializer can read the records; they do not name a schema for Confluent's.
    Raises:
        As `SchemaRegistry.for_producer`.
    """
    if isinstance(schema, LetterSchema):
        return OutgoingSchema(schema, None)
    info, policies = schema.schema_info(), policies_when_opened(topic)
    if isinstance(schema, AutoProduceBytesSchema) and info.type is SchemaType.AUTO_PUBLISH:
        has_ids = not encrypts and schemas.requires_confluent_ids(topic.name, deadline, policies)
        latest = TopicsLatest(schema, topic.name, schemas, has_ids=has_ids)
        latest.look(deadline)
        return latest
    version = schemas.for_producer(topic.name, info, deadline, policies)
    ids: Marks = ()
    if version is not None and not encrypts and schemas.requires_confluent_ids(topic.name, deadline, policies):
        ids = schemas.confluent_headers(topic.name, version, deadline)
    if isinstance(schema, KeyValueSchema) and schema.encoding_type is KeyValueEncodingType.SEPARATED:
        return SeparatedKeys(schema, version, ids)
    return OutgoingSchema(schema, version, ids)


def version_header(version: SchemaVersion) -> tuple[str, bytes]:
    return SCHEMA_VERSION, version.header()
