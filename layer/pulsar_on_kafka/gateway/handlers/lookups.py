"""Lookups of partitions, of the gateway that serves a topic, and of the topics of a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar, Final

import google_crc32c

from pulsar_on_kafka.base import errors
from pulsar_on_kafka.base.deadline import Deadline
from pulsar_on_kafka.broker.node.node import Node
from pulsar_on_kafka.broker.node.role_rights import Operation, Requirement, on_topic
from pulsar_on_kafka.gateway.handlers.client_moves import address_field
from pulsar_on_kafka.gateway.handlers.topic_owners import TopicOwners
from pulsar_on_kafka.gateway.handlers.transactions import COORDINATORS
from pulsar_on_kafka.gateway.login.client_rights import ClientRights
from pulsar_on_kafka.gateway.protocol.error_codes import error_code_of
from pulsar_on_kafka.gateway.protocol.replies import Replies
from pulsar_on_kafka.gateway.protocol.request_queue import Commands, operation_deadline
from pulsar_on_kafka.gateway.tenants.metadata_requests import MetadataRequests
from pulsar_on_kafka.gateway.tenants.served_tenants import ServedTenants
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.names.topic_name import TopicName
from pulsar_on_kafka_mapping.state.metadata.metadata_records import TopicRecord
from pulsar_on_kafka_mapping.wire.command_types import (
    GetTopicsOfNamespaceCommand,
    LookupTopicCommand,
    PartitionedTopicMetadataCommand,
)
from pulsar_on_kafka_mapping.wire.commands import ServerError, Type

PERSISTENT: Final = 0
NON_PERSISTENT: Final = 1
ALL: Final = 2
"""The modes in which a client lists the topics of a namespace."""
_SUCCESS: Final = 0
_FAILED: Final = 1
_LOOKUP_REDIRECT: Final = 0
_LOOKUP_CONNECT: Final = 1
_LOOKUP_FAILED: Final = 2


class LookupHandler:
    """Handles the lookups of one connection."""

    def __init__(
        self,
        tenants: ServedTenants,
        replies: Replies,
        metadata: MetadataRequests,
        rights: ClientRights,
        owners: TopicOwners,
    ) -> None:
        self._tenants = tenants
        self._replies = replies
        self._metadata = metadata
        self._rights = rights
        self._owners = owners

    def count_partitions(self, command: PartitionedTopicMetadataCommand) -> None:
        request_id, kind = command.request_id, Type.PARTITIONED_TOPIC_METADATA_RESPONSE

        def refused(code: ServerError, reason: str) -> None:
            self._replies.send(kind, request_id=request_id, response=_FAILED, error=code, message=reason)

        def count(node: Node) -> int:
            may_be_made = command.metadata_auto_creation_enabled
            return partitions_of(node, command.topic, operation_deadline(), may_be_made=may_be_made)

        def reply(found: int) -> None:
            self._replies.send(kind, request_id=request_id, partitions=found, response=_SUCCESS)

        try:
            name = TopicName.parse(command.topic)
        except MappingError as failure:
            refused(*error_code_of(failure))
            return
        words = "Client is not authorized to Get Partition Metadata"
        operation = None if _is_of_coordinators(name) else on_topic(Requirement.LOOKUP, name, words)
        self._metadata.begin(name.tenant, operation, count, reply, refused)

    def find_gateway(self, command: LookupTopicCommand) -> None:
        kind, request_id = Type.LOOKUP_TOPIC_RESPONSE, command.request_id

        def refused(code: ServerError, reason: str) -> None:
            self._replies.send(kind, request_id=request_id, response=_LOOKUP_FAILED, error=code, message=reason)

        def found(bundle: int, url: str) -> None:
            address = address_field("brokerServiceUrl", url)
            self._replies.send(kind, request_id=request_id, response=_LOOKUP_CONNECT, authoritative=True, **address)

        if command.advertised_listener_name:
            reason = f"this gateway has no listener {command.advertised_listener_name!r:.60}: it has one address"
            refused(ServerError.NOT_ALLOWED, reason)
            return
        try:
            name = TopicName.parse(command.topic)
        except MappingError as failure:
            refused(*error_code_of(failure))
            return
        urls = self._tenants.of(name.tenant).urls
        if urls.serves:  # a gateway there checks the rights
            address = {"brokerServiceUrl": urls.plain, "brokerServiceUrlTls": urls.tls}
            given = {field: url for field, url in address.items() if url}
            self._replies.send(kind, request_id=request_id, response=_LOOKUP_REDIRECT, authoritative=False, **given)
            return
        allowed = partial(self._owners.find, command.topic, found, refused)
        if _is_of_coordinators(name):
            allowed()
        else:
            words = "Client is not authorized to Lookup"
            self._rights.require(on_topic(Requirement.LOOKUP, name, words), allowed, refused)

    def list_topics(self, command: GetTopicsOfNamespaceCommand) -> None:
        def reply(names: list[str]) -> None:
            found = topics_hash(names)
            changed = not command.HasField("topics_hash") or command.topics_hash != found
            self._replies.send(
                Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                request_id=command.request_id,
                topics=names if changed else (),
                filtered=False,
                topics_hash=found,
                changed=changed,
            )

        def names(node: Node) -> list[str]:
            return topics_if_any(node, command.namespace, command.mode, operation_deadline())

        words = "Client is not authorized to GetTopicsOfNamespace"
        operation = Operation(Requirement.GET_TOPICS, command.namespace, words)
        tenant = command.namespace.partition("/")[0]
        self._metadata.begin(tenant, operation, names, reply, self._replies.failure(command.request_id))

    COMMANDS: ClassVar[Commands] = {
        Type.PARTITIONED_TOPIC_METADATA: count_partitions,
        Type.LOOKUP_TOPIC: find_gateway,
        Type.GET_TOPICS_OF_NAMESPACE: list_topics,
    }


def _is_of_coordinators(name: TopicName) -> bool:
    """Every role finds the coordinators of transactions, as with Pulsar's
    AllowSystemTransactionTopicLookupAuthorizationProvider: transactions have owners."""
    return str(name.base) == COORDINATORS


def partitions_of(node: Node, topic: str, deadline: Deadline, *, may_be_made: bool) -> int:
    """The number of partitions, 0 for a topic without partitions. The topic of coordinators has one for each.

    With `may_be_made`, a missing topic has 0: its first producer or consumer creates it without partitions. It is
    created now if the policies of its namespace want it partitioned. Source:
    BrokerService.fetchPartitionedTopicMetadataCheckAllowAutoCreationAsync, 4.0.7.

    Raises:
        NoSuchTopic: the topic is missing, without `may_be_made`, or clients may not create it. InvalidTopicName.
    """
    name = TopicName.parse(topic)
    if name.partition >= 0:
        return 0
    if str(name) == COORDINATORS:
        return node.coordinator_count.known()
    node.namespaces.require(name.namespace_name, deadline)
    found = node.topics.find(name, deadline)
    if found is None:
        if not may_be_made:
            raise errors.NoSuchTopic(f"topic {name} does not exist")
        if node.topics.check_openable(name, deadline):
            found = node.topics.open(name, deadline)
    return found.partitions if found is not None and found.partitioned else 0


def topics_of(node: Node, namespace: str, mode: int, deadline: Deadline) -> list[str]:
    """Names of topics. A partitioned topic is listed by its partitions, as in Pulsar. Raises NoSuchNamespace."""
    return names_of(node.topics.list(namespace, deadline), mode)


def names_of(records: Iterable[TopicRecord], mode: int) -> list[str]:
    """The names of `topics_of`, for the topics of these records."""
    names: list[str] = []
    for record in records:
        name = TopicName.parse(record.name)
        if mode != ALL and name.is_persistent is (mode == NON_PERSISTENT):
            continue
        if record.partitions:
            names += (str(name.with_partition(partition)) for partition in range(record.partitions))
        else:
            names.append(str(name))
    return sorted(names)


def topics_if_any(node: Node, namespace: str, mode: int, deadline: Deadline) -> list[str]:
    """`topics_of`, or no topic of a missing namespace, as Pulsar's brokers reply."""
    return names_of(records_if_any(node, namespace, deadline), mode)


def records_if_any(node: Node, namespace: str, deadline: Deadline) -> Sequence[TopicRecord]:
    """The topics of a namespace, none of a missing one."""
    try:
        return node.topics.list(namespace, deadline)
    except errors.NoSuchNamespace:
        return []


def topics_hash(names: Iterable[str]) -> str:
    """Equal for equal lists. Source: TopicList.calculateHash: CRC-32C of the sorted names, joined, in hex."""
    return f"{google_crc32c.value(','.join(sorted(names)).encode()):x}"
