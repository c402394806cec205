"""A topic has the schemas of its messages, and one to read them by. Read on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.base.errors import NoSuchSchema
from pulsar_on_kafka.broker.schema_registry.registry import SchemaRegistry
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_spark.base.errors import InvalidReadOption, NotReadable
from pulsar_on_kafka_spark.options.read_options import ReadAs

LATEST: Final = "latest"
BYTES: Final = "bytes"
AS_BYTES: Final = SchemaInfo(SchemaType.BYTES, b"", "BYTES")
_WITHOUT_SCHEMA: Final = frozenset({SchemaType.BYTES, SchemaType.NONE})
_SAME_PAYLOADS: Final = frozenset({(SchemaType.PROTOBUF, SchemaType.PROTOBUF_NATIVE)})
"""(The topic's, the reader's): a PROTOBUF schema has no field numbers; its messages are Protobuf's all the same."""
_BY_VERSION: Final = frozenset({SchemaType.AVRO, SchemaType.KEY_VALUE})


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """A topic's messages are read by these. `writers` are there only where it matters who wrote a message."""

    topic: str
    reader: SchemaInfo
    version: SchemaVersion | None = None
    """The reader's, where it is one of the topic's."""
    writers: Mapping[SchemaVersion, SchemaInfo] = field(default_factory=dict)


def topic_schemas(registry: SchemaRegistry, topic: TopicName, read_as: ReadAs, deadline: Deadline) -> TopicSchemas:
    """The schemas for reading a topic. Call it after the end offsets were read: the schema version of every message
    below them is registered by then.

    A topic without schemas is read as bytes.

    Raises:
        InvalidReadOption: `read_as` is invalid; or of another type than the topic's schema.
        NotReadable: the version does not exist.
        LayerError: the registry cannot be read.
    """
    name = str(topic.base)
    if read_as == BYTES:
        return TopicSchemas(name, AS_BYTES)
    latest = registry.latest(topic, deadline)
    if isinstance(read_as, SchemaInfo):
        reader, version = read_as, None
        if latest is not None and not _fits(latest.info.type, reader.type):
            raise InvalidReadOption(
                f"the schema to read with is of type {reader.type.name}, that of topic {name} of type "
                f"{latest.info.type.name}"
            )
    elif isinstance(read_as, int) and not isinstance(read_as, bool):
        try:
            stored = registry.schema(topic, SchemaVersion(read_as), deadline)
        except NoSuchSchema as missing:
            raise NotReadable(str(missing)) from missing
        reader, version = stored.info, stored.version
    elif read_as == LATEST:
        if latest is None:
            return TopicSchemas(name, AS_BYTES)
        reader, version = latest.info, latest.version
    else:
        raise InvalidReadOption(f"schema is {read_as!r:.80}, expected a SchemaInfo, a version, {LATEST!r} or {BYTES!r}")
    if reader.type not in _BY_VERSION:
        return TopicSchemas(name, reader, version)
    return TopicSchemas(name, reader, version, _all_versions(registry, topic, deadline))


def together(schemas: Sequence[TopicSchemas], *, allowed: bool) -> list[TopicSchemas]:
    """The same, to be read into one DataFrame: with `allowed`, and different schemas, all as bytes.

    Raises:
        InvalidReadOption: they are different.
    """
    if len({(each.reader.type, each.reader.schema) for each in schemas}) <= 1:
        return list(schemas)
    if allowed:
        return [TopicSchemas(each.topic, AS_BYTES) for each in schemas]
    kinds = ", ".join(f"{each.topic} ({each.reader.type.name})" for each in schemas[:5])
    raise InvalidReadOption(
        f"the topics have different schemas: {kinds}; allowDifferentTopicSchemas=true gives their payloads as they are"
    )


def _fits(theirs: SchemaType, own: SchemaType) -> bool:
    return theirs is own or own in _WITHOUT_SCHEMA or (theirs, own) in _SAME_PAYLOADS


def _all_versions(registry: SchemaRegistry, topic: TopicName, deadline: Deadline) -> dict[SchemaVersion, SchemaInfo]:
    """Also those that were deleted: messages name them still. One that was removed for good cannot be read."""
    live = registry.versions(topic, deadline)
    found = {stored.version: stored.info for stored in live}
    newest = live[-1].version.number if live else -1
    for number in range(newest):
        version = SchemaVersion(number)
        if version not in found:
            try:
                found[version] = registry.schema(topic, version, deadline).info
            except NoSuchSchema:
                continue  # a deletion takes a number too
    return found
