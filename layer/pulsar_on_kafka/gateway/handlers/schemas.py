"""Schemas of the protocol and of the registry."""

from __future__ import annotations

from typing import Any, Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import InvalidOption, NoSuchSchema, NoSuchTopic
from pulsar_on_kafka.broker.metadata.topics import Topic
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.schema_registry.judging import policies_when_opened
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat import SchemaInfo, SchemaType

_AUTO_CONSUME: Final = 21
"""Its number in the protocol; all other kinds have that of `SchemaType`."""


def schema_info(said: Any) -> SchemaInfo:
    """A schema that a client names. Raises InvalidOption: it is of a type that nobody knows."""
    properties = {each.key: each.value for each in said.properties}
    if said.type == _AUTO_CONSUME:
        return SchemaInfo(SchemaType.AUTO_CONSUME, said.schema_data, said.name, properties)
    try:
        kind = SchemaType(said.type)
    except ValueError:
        raise InvalidOption(
            f"schema {said.name!r:.60} is of type {said.type}, which Pulsar 4.0 does not have"
        ) from None
    return SchemaInfo(kind, said.schema_data, said.name, properties)


def schema_fields(info: SchemaInfo) -> dict[str, Any]:
    """A schema as the protocol has it."""
    return {
        "name": info.name,
        "schema_data": info.schema,
        "type": _AUTO_CONSUME if info.type is SchemaType.AUTO_CONSUME else info.type.value,
        "properties": [{"key": key, "value": value} for key, value in info.properties.items()],
    }


def found_schema(node: Node, asked: Any, deadline: Deadline) -> tuple[SchemaInfo, bytes]:
    """The schema of a topic that a client asks for, the latest one where it names no version, and its version.

    Raises:
        NoSuchSchema: there is none. CorruptRecord: the version is none.
    """
    topic = TopicName.parse(asked.topic).base
    if asked.HasField("schema_version") and asked.schema_version:
        found = node.schemas.schema(topic, SchemaVersion.from_header(asked.schema_version), deadline)
        return found.info, found.version.header()
    latest = node.schemas.latest(topic, deadline)
    if latest is None:
        raise NoSuchSchema(f"topic {topic} has no schema")
    return latest.info, latest.version.header()


def producers_version(node: Node, topic: Topic, info: SchemaInfo | None, deadline: Deadline) -> bytes | None:
    """The version that messages of a producer with this schema carry, which is registered when it is new; None where
    they carry none. Raises as `SchemaRegistry.for_producer`."""
    version = node.schemas.for_producer(topic.name, info, deadline, policies_when_opened(topic))
    return None if version is None else version.header()


def made_schema(node: Node, asked: Any, deadline: Deadline) -> bytes:
    """The same of a schema that a producer wants to use besides its own; b'' for none. Raises NoSuchTopic, too."""
    name = TopicName.parse(asked.topic)
    topic = node.topics.find(name, deadline)
    if topic is None:
        raise NoSuchTopic(f"topic {name} does not exist")
    return producers_version(node, topic, schema_info(asked.schema), deadline) or b""
