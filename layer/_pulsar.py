"""The official C extension by its name, as far as its classes reach applications: `isinstance(id, _pulsar.MessageId)`.

Source: `_pulsar` of pulsar-client 3.13.0, which applications reach as `pulsar._pulsar`.
"""

from __future__ import annotations

from layer.client.batch_receive import BatchReceivePolicy
from layer.client.dead_letter_policy import DeadLetterPolicyBuilder
from layer.client.encryption import EncryptionContext, EncryptionKey
from layer.client.enums import (
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
from layer.client.key_shared import KeySharedPolicy
from layer.client.message import Message
from layer.client.message_batch import MessageBatch
from layer.client.message_id import NativeMessageId as MessageId
from layer.client.service_info import ServiceInfo
from layer.exceptions import *  # noqa: F403 - the official exceptions, listed in exceptions.__all__
from layer.exceptions import PulsarException, Result
from schema_compat.model import SchemaInfo, SchemaType

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
