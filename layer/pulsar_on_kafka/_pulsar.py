"""The official C extension by its name, as far as its classes reach applications: `isinstance(id, _pulsar.MessageId)`.

Source: `_pulsar` of pulsar-client 3.13.0, which applications reach as `pulsar._pulsar`.
"""

from __future__ import annotations

from pulsar_on_kafka.client.receiving.batch_receive import BatchReceivePolicy
from pulsar_on_kafka.client.values.dead_letter_policy import DeadLetterPolicyBuilder
from pulsar_on_kafka.client.values.encryption import EncryptionContext, EncryptionKey
from pulsar_on_kafka.client.values.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    LoggerLevel,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pulsar_on_kafka.client.values.key_shared import KeySharedPolicy
from pulsar_on_kafka.client.values.message import Message, MessageBatch
from pulsar_on_kafka.client.values.service_info import ServiceInfo
from pulsar_on_kafka.exceptions import *  # noqa: F403 - the official exceptions
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka_mapping.ids.native_message_id import NativeMessageId as MessageId
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType

__all__ = [
    "BatchReceivePolicy",
    "BatchingType",
    "CompressionType",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "Message",
    "MessageBatch",
    "MessageId",
    "PartitionsRoutingMode",
    "ProducerAccessMode",
    "PulsarException",
    "RegexSubscriptionMode",
    "Result",
    "SchemaInfo",
    "SchemaType",
    "ServiceInfo",
]
