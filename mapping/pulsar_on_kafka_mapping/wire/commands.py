"""The commands of Pulsar's binary protocol, as Protobuf messages.

`_MESSAGES` has the names, numbers and types of `PulsarApi.proto` (protocol version 21, Pulsar 4.0.7), as far as a
server for clients needs them; `SCALABLE_MESSAGES` has those that Pulsar 5 adds. Enumerations are plain numbers, so that
an unknown value can be named; `Type` and `ServerError` give their meaning. Needs the extra `gateway`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pulsar_on_kafka_mapping.encoding.varint import cached_varint, varint
from pulsar_on_kafka_mapping.errors import MappingError
from pulsar_on_kafka_mapping.wire.message_table import add_field, described
from pulsar_on_kafka_mapping.wire.scalable_messages import SCALABLE_MESSAGES

PROTOCOL_VERSION: Final = 21
"""The newest one of Pulsar 4.0 and 5.0."""

_PACKAGE: Final = "pulsar"
_MESSAGES: Final = """
KeyValue            1 string key!  2 string value!
KeyLongValue        1 string key!  2 uint64 value!
IntRange            1 int32 start!  2 int32 end!
Schema              1 string name!  3 bytes schema_data!  4 int32 type!  5 KeyValue properties*
MessageIdData       1 uint64 ledgerId!  2 uint64 entryId!  3 int32 partition=-1  4 int32 batch_index=-1
                    5 int64 ack_set*  6 int32 batch_size  7 MessageIdData first_chunk_message_id
FeatureFlags        1 bool supports_auth_refresh  2 bool supports_broker_entry_metadata
                    3 bool supports_partial_producer  4 bool supports_topic_watchers
                    5 bool supports_get_partitioned_metadata_without_auto_creation
                    6 bool supports_repl_dedup_by_lid_and_eid  7 bool supports_topic_watcher_reconcile
                    8 bool supports_scalable_topics  9 bool supports_tc_metadata_discovery
AuthData            1 string auth_method_name  2 bytes auth_data
Connect             1 string client_version!  2 int32 auth_method  5 string auth_method_name  3 bytes auth_data
                    4 int32 protocol_version  6 string proxy_to_broker_url  7 string original_principal
                    8 string original_auth_data  9 string original_auth_method  10 FeatureFlags feature_flags
Connected           1 string server_version!  2 int32 protocol_version  3 int32 max_message_size
                    4 FeatureFlags feature_flags
AuthResponse        1 string client_version  2 AuthData response  3 int32 protocol_version
AuthChallenge       1 string server_version  2 AuthData challenge  3 int32 protocol_version
KeySharedMeta       1 int32 keySharedMode!  3 IntRange hashRanges*  4 bool allowOutOfOrderDelivery
                    5 bool entryBucketDispatch
Subscribe           1 string topic!  2 string subscription!  3 int32 subType!  4 uint64 consumer_id!
                    5 uint64 request_id!  6 string consumer_name  7 int32 priority_level  8 bool durable=true
                    9 MessageIdData start_message_id  10 KeyValue metadata*  11 bool read_compacted
                    12 Schema schema  13 int32 initialPosition  14 bool replicate_subscription_state
                    15 bool force_topic_creation=true  16 uint64 start_message_rollback_duration_sec
                    17 KeySharedMeta keySharedMeta  18 KeyValue subscription_properties*  19 uint64 consumer_epoch
PartitionedTopicMetadata  1 string topic!  2 uint64 request_id!  3 string original_principal
                    4 string original_auth_data  5 string original_auth_method
                    6 bool metadata_auto_creation_enabled=true
PartitionedTopicMetadataResponse  1 uint32 partitions  2 uint64 request_id!  3 int32 response  4 int32 error
                    5 string message
LookupTopic         1 string topic!  2 uint64 request_id!  3 bool authoritative  4 string original_principal
                    5 string original_auth_data  6 string original_auth_method  7 string advertised_listener_name
                    8 KeyValue properties*
LookupTopicResponse 1 string brokerServiceUrl  2 string brokerServiceUrlTls  3 int32 response
                    4 uint64 request_id!  5 bool authoritative  6 int32 error  7 string message
                    8 bool proxy_through_service_url
Producer            1 string topic!  2 uint64 producer_id!  3 uint64 request_id!  4 string producer_name
                    5 bool encrypted  6 KeyValue metadata*  7 Schema schema  8 uint64 epoch
                    9 bool user_provided_producer_name=true  10 int32 producer_access_mode  11 uint64 topic_epoch
                    12 bool txn_enabled  13 string initial_subscription_name
Send                1 uint64 producer_id!  2 uint64 sequence_id!  3 int32 num_messages=1
                    4 uint64 txnid_least_bits  5 uint64 txnid_most_bits  6 uint64 highest_sequence_id
                    7 bool is_chunk  8 bool marker  9 MessageIdData message_id
SendReceipt         1 uint64 producer_id!  2 uint64 sequence_id!  3 MessageIdData message_id
                    4 uint64 highest_sequence_id
SendError           1 uint64 producer_id!  2 uint64 sequence_id!  3 int32 error!  4 string message!
Message             1 uint64 consumer_id!  2 MessageIdData message_id!  3 uint32 redelivery_count
                    4 int64 ack_set*  5 uint64 consumer_epoch
Ack                 1 uint64 consumer_id!  2 int32 ack_type!  3 MessageIdData message_id*  4 int32 validation_error
                    5 KeyLongValue properties*  6 uint64 txnid_least_bits  7 uint64 txnid_most_bits
                    8 uint64 request_id
AckResponse         1 uint64 consumer_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 int32 error
                    5 string message  6 uint64 request_id
ActiveConsumerChange  1 uint64 consumer_id!  2 bool is_active
Flow                1 uint64 consumer_id!  2 uint32 messagePermits!
Unsubscribe         1 uint64 consumer_id!  2 uint64 request_id!  3 bool force
Seek                1 uint64 consumer_id!  2 uint64 request_id!  3 MessageIdData message_id
                    4 uint64 message_publish_time
ReachedEndOfTopic   1 uint64 consumer_id!
CloseProducer       1 uint64 producer_id!  2 uint64 request_id!  3 string assignedBrokerServiceUrl
                    4 string assignedBrokerServiceUrlTls
CloseConsumer       1 uint64 consumer_id!  2 uint64 request_id!  3 string assignedBrokerServiceUrl
                    4 string assignedBrokerServiceUrlTls
RedeliverUnacknowledgedMessages  1 uint64 consumer_id!  2 MessageIdData message_ids*  3 uint64 consumer_epoch
Success             1 uint64 request_id!  2 Schema schema
ProducerSuccess     1 uint64 request_id!  2 string producer_name!  3 int64 last_sequence_id=-1
                    4 bytes schema_version  5 uint64 topic_epoch  6 bool producer_ready=true
Error               1 uint64 request_id!  2 int32 error!  3 string message!
Ping
Pong
ConsumerStats       1 uint64 request_id!  4 uint64 consumer_id!
ConsumerStatsResponse  1 uint64 request_id!  2 int32 error_code  3 string error_message  4 double msgRateOut
                    5 double msgThroughputOut  6 double msgRateRedeliver  7 string consumerName
                    8 uint64 availablePermits  9 uint64 unackedMessages  10 bool blockedConsumerOnUnackedMsgs
                    11 string address  12 string connectedSince  13 string type  14 double msgRateExpired
                    15 uint64 msgBacklog  16 double messageAckRate
GetLastMessageId    1 uint64 consumer_id!  2 uint64 request_id!
GetLastMessageIdResponse  1 MessageIdData last_message_id!  2 uint64 request_id!
                    3 MessageIdData consumer_mark_delete_position
GetTopicsOfNamespace  1 uint64 request_id!  2 string namespace!  3 int32 mode  4 string topics_pattern
                    5 string topics_hash
GetTopicsOfNamespaceResponse  1 uint64 request_id!  2 string topics*  3 bool filtered  4 string topics_hash
                    5 bool changed=true
WatchTopicList      1 uint64 request_id!  2 uint64 watcher_id!  3 string namespace!  4 string topics_pattern!
                    5 string topics_hash
WatchTopicListSuccess  1 uint64 request_id!  2 uint64 watcher_id!  3 string topic*  4 string topics_hash!
WatchTopicUpdate    1 uint64 watcher_id!  2 string new_topics*  3 string deleted_topics*  4 string topics_hash!
WatchTopicListClose 1 uint64 request_id!  2 uint64 watcher_id!
GetSchema           1 uint64 request_id!  2 string topic!  3 bytes schema_version
GetSchemaResponse   1 uint64 request_id!  2 int32 error_code  3 string error_message  4 Schema schema
                    5 bytes schema_version
GetOrCreateSchema   1 uint64 request_id!  2 string topic!  3 Schema schema!
GetOrCreateSchemaResponse  1 uint64 request_id!  2 int32 error_code  3 string error_message  4 bytes schema_version
TcClientConnectRequest  1 uint64 request_id!  2 uint64 tc_id!  3 bool scalable
TcClientConnectResponse  1 uint64 request_id!  2 int32 error  3 string message
NewTxn              1 uint64 request_id!  2 uint64 txn_ttl_seconds  3 uint64 tc_id  4 bool scalable
NewTxnResponse      1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 int32 error
                    5 string message
AddPartitionToTxn   1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 string partitions*
                    5 bool scalable
AddPartitionToTxnResponse  1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 int32 error
                    5 string message
Subscription        1 string topic!  2 string subscription!
AddSubscriptionToTxn  1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits
                    4 Subscription subscription*  5 bool scalable
AddSubscriptionToTxnResponse  1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 int32 error
                    5 string message
EndTxn              1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 int32 txn_action
                    5 bool scalable
EndTxnResponse      1 uint64 request_id!  2 uint64 txnid_least_bits  3 uint64 txnid_most_bits  4 int32 error
                    5 string message
TopicMigrated       1 uint64 resource_id!  2 int32 resource_type!  3 string brokerServiceUrl
                    4 string brokerServiceUrlTls
"""
"""A line for each message: its fields with number, type and name; `!` is required, `*` repeated, `=` has a default."""


class Type(IntEnum):
    """The type of a command; its number is also that of its field in BaseCommand, unless `_FIELDS` has another."""

    CONNECT = 2
    CONNECTED = 3
    SUBSCRIBE = 4
    PRODUCER = 5
    SEND = 6
    SEND_RECEIPT = 7
    SEND_ERROR = 8
    MESSAGE = 9
    ACK = 10
    FLOW = 11
    UNSUBSCRIBE = 12
    SUCCESS = 13
    ERROR = 14
    CLOSE_PRODUCER = 15
    CLOSE_CONSUMER = 16
    PRODUCER_SUCCESS = 17
    PING = 18
    PONG = 19
    REDELIVER_UNACKNOWLEDGED_MESSAGES = 20
    PARTITIONED_TOPIC_METADATA = 21
    PARTITIONED_TOPIC_METADATA_RESPONSE = 22
    LOOKUP_TOPIC = 23
    LOOKUP_TOPIC_RESPONSE = 24
    CONSUMER_STATS = 25
    CONSUMER_STATS_RESPONSE = 26
    REACHED_END_OF_TOPIC = 27
    SEEK = 28
    GET_LAST_MESSAGE_ID = 29
    GET_LAST_MESSAGE_ID_RESPONSE = 30
    ACTIVE_CONSUMER_CHANGE = 31
    GET_TOPICS_OF_NAMESPACE = 32
    GET_TOPICS_OF_NAMESPACE_RESPONSE = 33
    GET_SCHEMA = 34
    GET_SCHEMA_RESPONSE = 35
    AUTH_CHALLENGE = 36
    AUTH_RESPONSE = 37
    ACK_RESPONSE = 38
    GET_OR_CREATE_SCHEMA = 39
    GET_OR_CREATE_SCHEMA_RESPONSE = 40
    NEW_TXN = 50
    NEW_TXN_RESPONSE = 51
    ADD_PARTITION_TO_TXN = 52
    ADD_PARTITION_TO_TXN_RESPONSE = 53
    ADD_SUBSCRIPTION_TO_TXN = 54
    ADD_SUBSCRIPTION_TO_TXN_RESPONSE = 55
    END_TXN = 56
    END_TXN_RESPONSE = 57
    TC_CLIENT_CONNECT_REQUEST = 62
    TC_CLIENT_CONNECT_RESPONSE = 63
    WATCH_TOPIC_LIST = 64
    WATCH_TOPIC_LIST_SUCCESS = 65
    WATCH_TOPIC_UPDATE = 66
    WATCH_TOPIC_LIST_CLOSE = 67
    TOPIC_MIGRATED = 68
    SCALABLE_TOPIC_LOOKUP = 70
    SCALABLE_TOPIC_UPDATE = 71
    SCALABLE_TOPIC_CLOSE = 72
    SCALABLE_TOPIC_SUBSCRIBE = 73
    SCALABLE_TOPIC_SUBSCRIBE_RESPONSE = 74
    SCALABLE_TOPIC_ASSIGNMENT_UPDATE = 75
    WATCH_SCALABLE_TOPICS = 76
    WATCH_SCALABLE_TOPICS_UPDATE = 77
    WATCH_SCALABLE_TOPICS_CLOSE = 78
    WATCH_TC_ASSIGNMENTS = 79
    WATCH_TC_ASSIGNMENTS_UPDATE = 80
    WATCH_TC_ASSIGNMENTS_CLOSE = 81
    SCALABLE_TOPIC_UNSUBSCRIBE = 82

    @property
    def message(self) -> str:
        """The name of its message in `_MESSAGES`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def field(self) -> str:
        """Its field in BaseCommand."""
        return self.name.lower()


class ServerError(IntEnum):
    """Why a request failed, as Pulsar's clients understand it."""

    UNKNOWN = 0
    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    CHECKSUM = 9
    UNSUPPORTED_VERSION = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TXN_STATUS = 21
    NOT_ALLOWED = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25


class MalformedCommand(MappingError):
    """Bytes are no command of Pulsar's protocol."""


def _described() -> FileDescriptorProto:
    file = described("pulsar_commands.proto", _PACKAGE, _MESSAGES + SCALABLE_MESSAGES)
    base = file.message_type.add(name="BaseCommand")
    add_field(file, base, 1, "int32", "type!")
    for each in Type:
        add_field(file, base, each.value, each.message, each.field)
    return file


_POOL: Final = DescriptorPool()
_POOL.Add(_described())


def message_class(name: str) -> Any:
    """The class of one of `_MESSAGES` and `SCALABLE_MESSAGES`, or of BaseCommand. Raises KeyError."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


_BASE: Final = message_class("BaseCommand")
_CLASSES: Final = {each: message_class(each.message) for each in Type}


def parsed(data: bytes) -> tuple[Type, Any]:
    """A command's type, and its message.

    Raises:
        MalformedCommand: it is none, lacks what is required, or is of a type that is not among `Type`.
    """
    try:
        base = _BASE.FromString(data)
        kind = Type(base.type)
    except DecodeError as error:
        raise MalformedCommand(f"{data[:40]!r} is no command of Pulsar's protocol: {error}") from error
    except ValueError:
        raise MalformedCommand(
            f"a command is of type {base.type}, expected one of Pulsar 4.0's or 5.0's for clients"
        ) from None
    if not base.HasField(kind.field):
        raise MalformedCommand(f"a command of type {kind.name} lacks its message")
    found = getattr(base, kind.field)
    if not found.IsInitialized():
        raise MalformedCommand(f"a command of type {kind.name} lacks {', '.join(found.FindInitializationErrors())}")
    return kind, found


def command(kind: Type, **fields: Any) -> bytes:
    """A command with these fields; None leaves one out."""
    message = _CLASSES[kind](**{name: value for name, value in fields.items() if value is not None})
    made: bytes = _BASE(type=kind.value, **{kind.field: message}).SerializeToString()
    return made


def send_receipt(producer: bytes, number: bytes, ledger_id: int, entry_id: int, highest: int | None) -> bytes:
    """The frame of `command(Type.SEND_RECEIPT, ...)` by hand, in a fifth of its time: each message has one. `producer`
    and `number`, its sequence id, are varints. All lengths are below 128, since a varint has ten bytes."""
    ledger, entry = cached_varint(ledger_id), varint(entry_id)
    more = b"" if highest is None else b"\x20" + varint(highest)
    place = len(ledger) + len(entry) + 2
    size = len(producer) + len(number) + place + len(more) + 4
    return b"\0\0\0%c\0\0\0%c\x08\x07\x3a%c\x08%b\x10%b\x1a%c\x08%b\x10%b%b" % (
        size + 8, size + 4, size, producer, number, place, ledger, entry, more,
    )  # fmt: skip
