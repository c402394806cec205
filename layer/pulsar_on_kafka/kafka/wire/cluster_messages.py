"""Requests about the cluster: ApiVersions, Metadata, FindCoordinator. Names as in Kafka's protocol. No I/O."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from dataclasses import dataclass
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from pulsar_on_kafka.kafka.wire.fields import (
    NO_TAGS,
    Api,
    FieldReader,
    compact_array,
    compact_nullable_string,
    compact_string,
)

NO_TOPIC_ID: Final = bytes(16)
_API_RANGE: Final = Struct(">hhh")
_TOPIC_ID_AND_INTERNAL: Final = Struct(">16s?")
_PARTITION: Final = Struct(">hiii")


def topic_id_bytes(text: str) -> bytes | None:
    """A topic id from the form in which Kafka's tools show it; None for an empty text."""
    return urlsafe_b64decode(f"{text}==") if text else None


class ApiRange(NamedTuple):
    """The versions of one kind of request that a broker knows."""

    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(NamedTuple):
    error_code: int
    api_keys: tuple[ApiRange, ...]
    throttle_time_ms: int


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """Kafka takes letters, digits, '-' and '.' in both fields, with a letter or digit at each end."""

    API: ClassVar = Api("ApiVersions", 18, 3, True)

    client_software_name: str
    client_software_version: str

    def encode(self) -> bytes:
        return compact_string(self.client_software_name) + compact_string(self.client_software_version) + NO_TAGS

    @staticmethod
    def decode_response(reader: FieldReader) -> ApiVersionsResponse:
        error_code = reader.int16()
        if error_code:  # a broker without this version answers in version 0
            reader.skip_rest()
            return ApiVersionsResponse(error_code, (), 0)
        ranges = []
        for _ in reader.compact_array(7):
            ranges.append(ApiRange._make(reader.numbers(_API_RANGE)))
            reader.skip_tagged()
        throttle_time_ms = reader.int32()
        reader.skip_tagged()
        return ApiVersionsResponse(error_code, tuple(ranges), throttle_time_ms)


class BrokerAddress(NamedTuple):
    node_id: int
    host: str
    port: int


class PartitionMetadata(NamedTuple):
    error_code: int
    partition_index: int
    leader_id: int
    """-1 without a leader."""
    leader_epoch: int


class TopicMetadata(NamedTuple):
    error_code: int
    name: str | None
    topic_id: bytes
    """16 bytes; `NO_TOPIC_ID` on a cluster that gives none."""
    partitions: tuple[PartitionMetadata, ...]


class MetadataResponse(NamedTuple):
    throttle_time_ms: int
    brokers: tuple[BrokerAddress, ...]
    cluster_id: str | None
    controller_id: int
    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """Topics by name or by id. Without any, the response has the brokers only. No topic is created by it."""

    API: ClassVar = Api("Metadata", 3, 12, True)

    names: tuple[str, ...] = ()
    topic_ids: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        named = [NO_TOPIC_ID + compact_nullable_string(name) + NO_TAGS for name in self.names]
        ids = [topic_id + compact_nullable_string(None) + NO_TAGS for topic_id in self.topic_ids]
        return compact_array([*named, *ids]) + b"\0\0" + NO_TAGS

    @staticmethod
    def decode_response(reader: FieldReader) -> MetadataResponse:
        throttle_time_ms = reader.int32()
        brokers = []
        for _ in reader.compact_array(11):
            brokers.append(BrokerAddress(reader.int32(), reader.compact_string(), reader.int32()))
            reader.compact_nullable_string()  # the rack
            reader.skip_tagged()
        cluster_id, controller_id = reader.compact_nullable_string(), reader.int32()
        topics = tuple([_topic(reader) for _ in reader.compact_array(26)])
        reader.skip_tagged()
        return MetadataResponse(throttle_time_ms, tuple(brokers), cluster_id, controller_id, topics)


def _topic(reader: FieldReader) -> TopicMetadata:
    error_code, name = reader.int16(), reader.compact_nullable_string()
    topic_id, _ = reader.numbers(_TOPIC_ID_AND_INTERNAL)
    partitions = []
    for _ in reader.compact_array(18):
        partitions.append(PartitionMetadata._make(reader.numbers(_PARTITION)))
        for _ in range(3):  # replicas: all, in sync, offline
            reader.compact_int32s()
        reader.skip_tagged()
    reader.int32()  # authorized operations
    reader.skip_tagged()
    return TopicMetadata(error_code, name, topic_id, tuple(partitions))


class GroupCoordinator(NamedTuple):
    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None


class FindCoordinatorResponse(NamedTuple):
    throttle_time_ms: int
    coordinators: tuple[GroupCoordinator, ...]


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """The coordinators of groups."""

    API: ClassVar = Api("FindCoordinator", 10, 4, True)

    group_ids: tuple[str, ...]

    def encode(self) -> bytes:
        return b"\0" + compact_array(map(compact_string, self.group_ids)) + NO_TAGS

    @staticmethod
    def decode_response(reader: FieldReader) -> FindCoordinatorResponse:
        throttle_time_ms = reader.int32()
        coordinators = []
        for _ in reader.compact_array(14):
            key, node_id, host, port = reader.compact_string(), reader.int32(), reader.compact_string(), reader.int32()
            error_code, error_message = reader.int16(), reader.compact_nullable_string()
            coordinators.append(GroupCoordinator(key, node_id, host, port, error_code, error_message))
            reader.skip_tagged()
        reader.skip_tagged()
        return FindCoordinatorResponse(throttle_time_ms, tuple(coordinators))
