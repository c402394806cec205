"""The registry decides whether a consumer or reader may read a topic with its schema, which then makes values of
payloads, each read with the schema that it was written with.

Source: the Java client's MessageImpl.getValue and AutoConsumeSchema, and the Python client's AvroSchema.decode_message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.publishing.official_errors import pulsar_errors
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka.exceptions import InvalidMessage
from pulsar_on_kafka.schema.generic import AutoConsumeSchema, generic_schema
from pulsar_on_kafka.schema.key_value import KeyValueEncodingType, KeyValueSchema, encoding_of
from pulsar_on_kafka.schema.plain import BytesSchema, Schema
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType


def admit_reading(node: Node, topic: Topic, schema: Schema, deadline: Deadline) -> None:
    """Return when a consumer may read `topic` with `schema`; the first one of an idle topic registers it.

    Raises:
        IncompatibleSchema: it may not.
    """
    admit_schema(node, topic, schema.schema_info(), deadline)


def admit_schema(node: Node, topic: Topic, info: SchemaInfo, deadline: Deadline) -> None:
    """The same for a schema that is nothing but its description."""
    node.schemas.for_consumer(
        topic.name,
        info,
        deadline,
        policies_when_opened(topic),
        in_use=lambda: _in_use(node, topic, deadline),
    )


def _in_use(node: Node, topic: Topic, deadline: Deadline) -> bool:
    """Whether the topic has data, producers or consumers. Those that this process may not see do not count.

    Source: PersistentTopic.addSchemaIfIdleOrCheckCompatible. Differs from Pulsar: consumers with AUTO_CONSUME count as
    any other, and readers do not, because their groups do not record that.
    """
    partitions = range(topic.partitions)

    def has_data() -> bool:
        starts = node.admin.start_offsets(topic.kafka_topic, partitions, deadline)
        ends = node.admin.end_offsets(topic.kafka_topic, partitions, deadline)
        return any(ends[partition] > starts[partition] for partition in partitions)

    def has_producers() -> bool:
        return any(sign.publishers for sign in node.producers.heartbeats.publishers(str(topic.name), deadline))

    def has_consumers() -> bool:
        found = node.subscriptions.list(topic, deadline)
        return any(node.subscriptions.has_consumers(subscription, deadline) for subscription in found)

    return any(_known(question) for question in (has_data, has_producers, has_consumers))


def _known(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except errors.NotAuthorized:
        return False


VERSIONS: Final = 128
"""Writers' versions that a consumer keeps a way of reading for; the longest unused one makes room."""

_TEXT: Final = (SchemaType.BYTES, SchemaType.STRING)


class Written(Protocol):
    """A message, or what is kept of one."""

    def written_with(self) -> bytes | None:
        """The schema version that its record names; None: it was written without a schema."""
        ...

    def record_key(self) -> bytes | None: ...

    def payload(self) -> bytes | None: ...


class KeptMessage(NamedTuple):
    """A kept message has what its value is made of: 80 bytes besides key and payload."""

    version: bytes | None
    key: bytes | None
    content: bytes | None

    def written_with(self) -> bytes | None:
        return self.version

    def record_key(self) -> bytes | None:
        return self.key

    def payload(self) -> bytes | None:
        return self.content


Read = Callable[[Written], Any]


class IncomingValues:
    """The values of one topic's messages by one schema. Thread-safe.

    The schema of a version is requested when its first message is read; after that a value costs no request. Memory:
    `VERSIONS` decoders, besides those of the registry and the schema.
    """

    def __init__(self, schema: Schema, topic: TopicName, schemas: SchemaRegistry, timeout_s: float) -> None:
        self._schema = schema
        self._topic = topic
        self._schemas = schemas
        self._timeout_s = timeout_s
        reads_alike = type(schema).decode_as_written is Schema.decode_as_written  # for any writer of the payload
        self._by_writer = isinstance(schema, AutoConsumeSchema) or not reads_alike
        self._reader: Callable[[bytes | None], Read] = lru_cache(maxsize=VERSIONS)(self._reader_of)

    def value(self, message: Written) -> Any:
        """The message's value, None for a null one. What was written without a schema is read with the consumer's own.

        Raises:
            InvalidMessage: there is no such version, or its schema can never be read again.
            NotSupported: AUTO_CONSUME of a type that needs a class.
            Timeout, AuthorizationError, ...: the version's schema is not to be had now.
            What the schema raises for a payload that does not fit.
        """
        try:
            version = message.written_with() if self._by_writer else None
        except MappingError as corrupt:
            raise InvalidMessage(f"a message of {self._topic} cannot be decoded: {corrupt}") from corrupt
        return self._reader(version)(message)

    def _reader_of(self, version: bytes | None) -> Read:
        writer = None if version is None else self._writer(version)
        schema = self._schema
        if isinstance(schema, AutoConsumeSchema):
            # Without a version it is what Java's client makes of it: bytes.
            schema, writer = BytesSchema() if writer is None else generic_schema(writer), None
        if isinstance(schema, KeyValueSchema):
            encoding = schema.encoding_type if writer is None else encoding_of(writer)
            if encoding is KeyValueEncodingType.SEPARATED:
                return _separated(schema, writer)
        return _payload(schema, writer)

    def _writer(self, version: bytes) -> SchemaInfo:
        with pulsar_errors():
            try:
                number = SchemaVersion.from_header(version)
                return self._schemas.schema(self._topic, number, Deadline.after(self._timeout_s)).info
            except (errors.NoSuchSchema, errors.Corrupt) as gone:
                raise InvalidMessage(f"a message of {self._topic} cannot be decoded: {gone}") from gone


def incoming_values(
    schema: Schema, topic: TopicName, schemas: SchemaRegistry, timeout_s: float
) -> IncomingValues | None:
    """None where `schema.decode` of the payload, b'' for a null one, is all there is to it."""
    if schema.schema_info().type in _TEXT:
        return None
    return IncomingValues(schema, topic, schemas, timeout_s)


def _payload(schema: Schema, writer: SchemaInfo | None) -> Read:
    def read(message: Written) -> Any:
        payload = message.payload()
        if payload is None:
            return None
        return schema.decode(payload) if writer is None else schema.decode_as_written(payload, writer)

    return read


def _separated(schema: KeyValueSchema, writer: SchemaInfo | None) -> Read:
    def read(message: Written) -> Any:
        key, payload = message.record_key(), message.payload()
        if key is None and payload is None:
            return None
        return schema.decode_separated(key, payload, writer)

    return read
