"""Types of the commands that a server of Pulsar's protocol receives, for type checkers.

Each class names the fields of a message of `wire.commands` that the gateway reads. The messages themselves are
Protobuf's, so the types cost nothing at run time.
"""

# ruff: noqa: N815 - the names of Pulsar's fields

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Command(Protocol):
    def HasField(self, name: str, /) -> bool:  # noqa: N802 - Protobuf's name
        """Whether the client has set an optional field."""


class MessageIdField(Protocol):
    ledgerId: int
    entryId: int
    partition: int
    batch_index: int
    ack_set: Sequence[int]
    batch_size: int


class KeyValueField(Protocol):
    key: str
    value: str


class SchemaField(Protocol):
    name: str
    schema_data: bytes
    type: int
    properties: Sequence[KeyValueField]


class FeatureFlagsField(Protocol):
    supports_auth_refresh: bool


class AuthDataField(Protocol):
    auth_method_name: str
    auth_data: bytes


class ConnectCommand(Command, Protocol):
    client_version: str
    auth_method_name: str
    auth_data: bytes
    protocol_version: int
    original_principal: str
    feature_flags: FeatureFlagsField


class AuthResponseCommand(Command, Protocol):
    response: AuthDataField


class PartitionedTopicMetadataCommand(Command, Protocol):
    topic: str
    request_id: int
    metadata_auto_creation_enabled: bool


class LookupTopicCommand(Command, Protocol):
    topic: str
    request_id: int
    advertised_listener_name: str


class GetTopicsOfNamespaceCommand(Command, Protocol):
    request_id: int
    namespace: str
    mode: int
    topics_hash: str


class WatchTopicListCommand(Command, Protocol):
    request_id: int
    watcher_id: int
    namespace: str
    topics_pattern: str
    topics_hash: str


class WatchTopicListCloseCommand(Command, Protocol):
    request_id: int
    watcher_id: int


class GetSchemaCommand(Command, Protocol):
    request_id: int
    topic: str
    schema_version: bytes


class GetOrCreateSchemaCommand(Command, Protocol):
    request_id: int
    topic: str
    schema: SchemaField


class ProducerCommand(Command, Protocol):
    topic: str
    producer_id: int
    request_id: int
    producer_name: str
    metadata: Sequence[KeyValueField]
    schema: SchemaField
    user_provided_producer_name: bool
    producer_access_mode: int
    topic_epoch: int
    initial_subscription_name: str


class CloseProducerCommand(Command, Protocol):
    producer_id: int
    request_id: int


class SendCommand(Command, Protocol):
    producer_id: int
    sequence_id: int
    num_messages: int
    txnid_least_bits: int
    txnid_most_bits: int
    highest_sequence_id: int


class IntRangeField(Protocol):
    start: int
    end: int


class KeySharedMetaField(Protocol):
    keySharedMode: int
    hashRanges: Sequence[IntRangeField]
    allowOutOfOrderDelivery: bool
    entryBucketDispatch: bool


class SubscribeCommand(Command, Protocol):
    topic: str
    subscription: str
    subType: int
    consumer_id: int
    request_id: int
    consumer_name: str
    priority_level: int
    durable: bool
    start_message_id: MessageIdField
    metadata: Sequence[KeyValueField]
    read_compacted: bool
    schema: SchemaField
    initialPosition: int
    replicate_subscription_state: bool
    force_topic_creation: bool
    start_message_rollback_duration_sec: int
    keySharedMeta: KeySharedMetaField
    subscription_properties: Sequence[KeyValueField]
    consumer_epoch: int


class ConsumerCommand(Command, Protocol):
    """A request about one consumer."""

    consumer_id: int
    request_id: int


class UnsubscribeCommand(ConsumerCommand, Protocol):
    force: bool


class SeekCommand(ConsumerCommand, Protocol):
    message_id: MessageIdField
    message_publish_time: int


class FlowCommand(Command, Protocol):
    consumer_id: int
    messagePermits: int


class AckCommand(Command, Protocol):
    consumer_id: int
    request_id: int
    ack_type: int
    message_id: Sequence[MessageIdField]
    txnid_least_bits: int
    txnid_most_bits: int


class RedeliverCommand(Command, Protocol):
    consumer_id: int
    message_ids: Sequence[MessageIdField]
    consumer_epoch: int


class TcClientConnectCommand(Command, Protocol):
    request_id: int
    tc_id: int


class NewTxnCommand(Command, Protocol):
    request_id: int
    tc_id: int
    txn_ttl_seconds: int


class TxnCommand(Protocol):
    """A command that names its transaction."""

    txnid_least_bits: int
    txnid_most_bits: int


class AddPartitionToTxnCommand(TxnCommand, Command, Protocol):
    request_id: int
    partitions: Sequence[str]


class SubscriptionField(Protocol):
    topic: str
    subscription: str


class AddSubscriptionToTxnCommand(TxnCommand, Command, Protocol):
    request_id: int
    subscription: Sequence[SubscriptionField]


class EndTxnCommand(TxnCommand, Command, Protocol):
    request_id: int
    txn_action: int


class ScalableTopicLookupCommand(Command, Protocol):
    session_id: int
    topic: str
    create_if_missing: bool


class ScalableTopicCloseCommand(Command, Protocol):
    session_id: int


class ScalableTopicSubscribeCommand(Command, Protocol):
    request_id: int
    topic: str
    subscription: str
    consumer_name: str
    consumer_id: int
    consumer_type: int


class ScalableTopicUnsubscribeCommand(Command, Protocol):
    request_id: int
    consumer_id: int


class WatchScalableTopicsCommand(Command, Protocol):
    watch_id: int
    namespace: str
    property_filters: Sequence[KeyValueField]
    current_hash: str


class WatchScalableTopicsCloseCommand(Command, Protocol):
    watch_id: int


class WatchTcAssignmentsCommand(Command, Protocol):
    watch_id: int


class WatchTcAssignmentsCloseCommand(Command, Protocol):
    watch_id: int
