"""Schemas of the protocol, and their place in the registry."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption, NoSuchSchema, NoSuchTopic
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import Requirement, on_topic
from pulsar_on_kafka.broker.schema_registry.confluent_forms import ConfluentHeaders
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, OnError, RequestQueue, operation_deadline
from pulsar_on_kafka.gateway.tenants.metadata_requests import MetadataRequests
from pulsar_on_kafka_mapping.errors import CorruptRecord, MappingError
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.records.record_headers import BATCH, CHUNK, COMPRESSION, ENCRYPTION, SCHEMA_VERSION
from pulsar_on_kafka_mapping.wire.command_types import GetOrCreateSchemaCommand, GetSchemaCommand, SchemaField
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type
from pulsar_on_kafka_mapping.wire.stored_entries import EntryRecord
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType

_AUTO_CONSUME: Final = 21
"""AUTO_CONSUME in the protocol. All other types have the number of `SchemaType`."""


class SchemaHandler:
    """Handles requests of one connection for schemas."""

    def __init__(
        self, node: Node, replies: Replies, requests: RequestQueue, metadata: MetadataRequests, rights: ClientRights
    ) -> None:
        self._node = node
        self._replies = replies
        self._requests = requests
        self._metadata = metadata
        self._rights = rights

    def get(self, command: GetSchemaCommand) -> None:
        kind, request_id = Type.GET_SCHEMA_RESPONSE, command.request_id

        def find(node: Node) -> tuple[SchemaInfo, bytes]:
            return _find_schema(node, command, operation_deadline())

        def reply(found: tuple[SchemaInfo, bytes]) -> None:
            schema, version = _schema_fields(found[0]), found[1]
            self._replies.send(kind, request_id=request_id, schema=schema, schema_version=version)

        refused = self._failure(kind, request_id)
        try:
            name = TopicName.parse(command.topic)
        except MappingError as failure:
            refused(*error_code_of(failure))
            return
        operation = on_topic(Requirement.LOOKUP, name, "Client is not authorized to get the schema")
        self._metadata.begin(name.tenant, operation, find, reply, refused)

    def register(self, command: GetOrCreateSchemaCommand) -> None:
        kind, request_id = Type.GET_OR_CREATE_SCHEMA_RESPONSE, command.request_id

        def allowed() -> None:
            self._requests.begin(
                lambda: _register_schema(self._node, command, operation_deadline()),
                lambda version: self._replies.send(kind, request_id=request_id, schema_version=version),
                refused,
            )

        refused = self._failure(kind, request_id)
        words = "Client is not authorized to Produce"
        self._rights.require_on(Requirement.PRODUCE, command.topic, words, allowed, refused)

    def _failure(self, kind: Type, request_id: int) -> OnError:
        def refused(code: ServerError, reason: str) -> None:
            self._replies.send(kind, request_id=request_id, error_code=code, error_message=reason)

        return refused

    COMMANDS: ClassVar[Commands] = {Type.GET_SCHEMA: get, Type.GET_OR_CREATE_SCHEMA: register}


def schema_info(field: SchemaField) -> SchemaInfo:
    """The schema in a command. Raises InvalidOption: its type is unknown."""
    properties = {each.key: each.value for each in field.properties}
    if field.type == _AUTO_CONSUME:
        return SchemaInfo(SchemaType.AUTO_CONSUME, field.schema_data, field.name, properties)
    try:
        kind = SchemaType(field.type)
    except ValueError:
        raise InvalidOption(
            f"schema {field.name!r:.60} is of type {field.type}, which Pulsar 5.0 does not have"
        ) from None
    return SchemaInfo(kind, field.schema_data, field.name, properties)


def _schema_fields(info: SchemaInfo) -> dict[str, Any]:
    """The fields of a schema in a command."""
    return {
        "name": info.name,
        "schema_data": info.schema,
        "type": _AUTO_CONSUME if info.type is SchemaType.AUTO_CONSUME else info.type.value,
        "properties": [{"key": key, "value": value} for key, value in info.properties.items()],
    }


def _find_schema(node: Node, command: GetSchemaCommand, deadline: Deadline) -> tuple[SchemaInfo, bytes]:
    """The schema and its version: the latest one, unless the client names a version.

    Raises:
        NoSuchSchema: the topic has no such schema. CorruptRecord: the version is malformed.
    """
    topic = TopicName.parse(command.topic).base
    if command.HasField("schema_version") and command.schema_version:
        found = node.schemas.schema(topic, SchemaVersion.from_header(command.schema_version), deadline)
        return found.info, found.version.header()
    latest = node.schemas.latest(topic, deadline)
    if latest is None:
        raise NoSuchSchema(f"topic {topic} has no schema")
    return latest.info, latest.version.header()


def producers_version(node: Node, topic: Topic, info: SchemaInfo | None, deadline: Deadline) -> bytes | None:
    """The schema version for messages of a producer, None for messages without one. A new schema is registered. Raises
    as `SchemaRegistry.for_producer`."""
    version = node.schemas.for_producer(topic.name, info, deadline, policies_when_opened(topic))
    return None if version is None else version.header()


def _register_schema(node: Node, command: GetOrCreateSchemaCommand, deadline: Deadline) -> bytes:
    """`producers_version` of another schema of a producer, b'' for none. Raises NoSuchTopic, too."""
    name = TopicName.parse(command.topic)
    topic = node.topics.find(name, deadline)
    if topic is None:
        raise NoSuchTopic(f"topic {name} does not exist")
    return producers_version(node, topic, schema_info(command.schema), deadline) or b""


_LOOK_S: Final = 30.0
_UNREADABLE: Final = frozenset((BATCH, CHUNK, COMPRESSION, ENCRYPTION))
"""Headers of records whose value is not one message's payload."""


class SchemaIds:
    """The headers of one producer's records, by the schema version that each message names: a Java producer may use
    several. None unless the topic's policy `confluent_schema_ids` required them when the producer was opened.

    Memory: some 200 bytes for each version that its client used.
    """

    def __init__(self, node: Node, topic: Topic, deadline: Deadline) -> None:
        """Raises LayerError."""
        self._schemas = node.schemas
        self._topic = topic.name
        self.required = node.schemas.requires_confluent_ids(topic.name, deadline, policies_when_opened(topic))
        self._known: dict[bytes, ConfluentHeaders] = {}

    def unknown(self, record: EntryRecord) -> bytes | None:
        """The schema version of the record, if `learn` has to look it up first."""
        if not self.required:
            return None
        version = _version(record)
        return version if version is not None and version not in self._known else None

    def learn(self, version: bytes) -> None:
        """Blocks. Raises LayerError: Kafka did not reply."""
        try:
            found = SchemaVersion.from_header(version)
        except CorruptRecord:
            self._known[version] = ()
            return
        self._known[version] = self._schemas.confluent_headers(self._topic, found, Deadline.after(_LOOK_S))

    def named(self, record: EntryRecord) -> EntryRecord:
        """The record with its headers, as far as they are known."""
        if not self.required:
            return record
        version = _version(record)
        ids = () if version is None else self._known.get(version, ())
        return record._replace(headers=[*record.headers, *ids]) if ids else record


def _version(record: EntryRecord) -> bytes | None:
    """The schema version of a record whose value is the payload of one message."""
    found = None
    for name, value in record.headers:
        if name in _UNREADABLE:
            return None
        if name == SCHEMA_VERSION:
            found = value
    return found
