"""Apache Pulsar's Python client, on Apache Kafka.

    import pulsar_on_kafka as pulsar

    client = pulsar.Client("kafka://localhost:9092")

Names, parameters, defaults and exceptions are those of `pulsar-client`. What differs: docs/differences.md.
"""

# ruff: noqa: F405 - the official exceptions are named in `__all__`
from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING

from pulsar_on_kafka.broker import node as _node
from pulsar_on_kafka.exceptions import *  # noqa: F403 - the official exceptions
from pulsar_on_kafka.exceptions import PulsarException, Result

if TYPE_CHECKING:
    # Attributes that are not in `__all__`: `_pulsar`, as officially, and modules.
    from pulsar_on_kafka import _pulsar as _pulsar
    from pulsar_on_kafka import admin as admin
    from pulsar_on_kafka import asyncio as asyncio
    from pulsar_on_kafka import exceptions, functions, schema, tableview
    from pulsar_on_kafka import schema_compat as schema_compat
    from pulsar_on_kafka import testing as testing
    from pulsar_on_kafka.base.role_state import RunsRoles as _RunsRoles
    from pulsar_on_kafka.broker.node.node import Node as _Node
    from pulsar_on_kafka.broker.publishing.transactional_sends import Transaction
    from pulsar_on_kafka.broker.transactions.client_transaction import TransactionState
    from pulsar_on_kafka.client.client import Client
    from pulsar_on_kafka.client.consumer.consumer import Consumer
    from pulsar_on_kafka.client.producer.producer import Producer
    from pulsar_on_kafka.client.reader.reader import Reader
    from pulsar_on_kafka.client.reader.table_view import TableView
    from pulsar_on_kafka.client.receiving.batch_receive import BatchReceivePolicy, ConsumerBatchReceivePolicy
    from pulsar_on_kafka.client.values.authentication import (
        Authentication,
        AuthenticationAthenz,
        AuthenticationBasic,
        AuthenticationOauth2,
        AuthenticationTLS,
        AuthenticationToken,
    )
    from pulsar_on_kafka.client.values.dead_letter_policy import (
        ConsumerDeadLetterPolicy,
        DeadLetterPolicyBuilder,
        MultiplierRedeliveryBackoff,
    )
    from pulsar_on_kafka.client.values.encryption import EncryptionContext, EncryptionKey
    from pulsar_on_kafka.client.values.enums import (
        BatchingType,
        CompressionType,
        ConsumerCryptoFailureAction,
        ConsumerType,
        HashingScheme,
        InitialPosition,
        KeySharedMode,
        LoggerLevel,
        PartitionsRoutingMode,
        ProducerAccessMode,
        RegexSubscriptionMode,
        SubscriptionMode,
    )
    from pulsar_on_kafka.client.values.key_shared import ConsumerKeySharedPolicy, KeySharedPolicy
    from pulsar_on_kafka.client.values.logger import ConsoleLogger, FileLogger
    from pulsar_on_kafka.client.values.message import Message, MessageBatch
    from pulsar_on_kafka.client.values.message_id import MessageId
    from pulsar_on_kafka.client.values.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
    from pulsar_on_kafka.crypto.keys import CryptoKeyReader
    from pulsar_on_kafka.functions import Context, Function, IdentitySerDe, PickleSerDe, SerDe
    from pulsar_on_kafka.schema import BytesSchema
    from pulsar_on_kafka_mapping.ids.txn_id import TxnId

    __version__: str

_MODULES = {
    "Client": "pulsar_on_kafka.client.client",
    "Consumer": "pulsar_on_kafka.client.consumer.consumer",
    "Producer": "pulsar_on_kafka.client.producer.producer",
    "Reader": "pulsar_on_kafka.client.reader.reader",
    "TableView": "pulsar_on_kafka.client.reader.table_view",
    "BatchReceivePolicy": "pulsar_on_kafka.client.receiving.batch_receive",
    "ConsumerBatchReceivePolicy": "pulsar_on_kafka.client.receiving.batch_receive",
    "Authentication": "pulsar_on_kafka.client.values.authentication",
    "AuthenticationAthenz": "pulsar_on_kafka.client.values.authentication",
    "AuthenticationBasic": "pulsar_on_kafka.client.values.authentication",
    "AuthenticationOauth2": "pulsar_on_kafka.client.values.authentication",
    "AuthenticationTLS": "pulsar_on_kafka.client.values.authentication",
    "AuthenticationToken": "pulsar_on_kafka.client.values.authentication",
    "ConsumerDeadLetterPolicy": "pulsar_on_kafka.client.values.dead_letter_policy",
    "DeadLetterPolicyBuilder": "pulsar_on_kafka.client.values.dead_letter_policy",
    "MultiplierRedeliveryBackoff": "pulsar_on_kafka.client.values.dead_letter_policy",
    "EncryptionContext": "pulsar_on_kafka.client.values.encryption",
    "EncryptionKey": "pulsar_on_kafka.client.values.encryption",
    "BatchingType": "pulsar_on_kafka.client.values.enums",
    "CompressionType": "pulsar_on_kafka.client.values.enums",
    "ConsumerCryptoFailureAction": "pulsar_on_kafka.client.values.enums",
    "ConsumerType": "pulsar_on_kafka.client.values.enums",
    "HashingScheme": "pulsar_on_kafka.client.values.enums",
    "InitialPosition": "pulsar_on_kafka.client.values.enums",
    "KeySharedMode": "pulsar_on_kafka.client.values.enums",
    "LoggerLevel": "pulsar_on_kafka.client.values.enums",
    "PartitionsRoutingMode": "pulsar_on_kafka.client.values.enums",
    "ProducerAccessMode": "pulsar_on_kafka.client.values.enums",
    "RegexSubscriptionMode": "pulsar_on_kafka.client.values.enums",
    "SubscriptionMode": "pulsar_on_kafka.client.values.enums",
    "ConsumerKeySharedPolicy": "pulsar_on_kafka.client.values.key_shared",
    "KeySharedPolicy": "pulsar_on_kafka.client.values.key_shared",
    "ConsoleLogger": "pulsar_on_kafka.client.values.logger",
    "FileLogger": "pulsar_on_kafka.client.values.logger",
    "Message": "pulsar_on_kafka.client.values.message",
    "MessageBatch": "pulsar_on_kafka.client.values.message",
    "MessageId": "pulsar_on_kafka.client.values.message_id",
    "AutoClusterFailover": "pulsar_on_kafka.client.values.service_info",
    "ServiceInfo": "pulsar_on_kafka.client.values.service_info",
    "ServiceInfoProvider": "pulsar_on_kafka.client.values.service_info",
    "CryptoKeyReader": "pulsar_on_kafka.crypto.keys",
    "Context": "pulsar_on_kafka.functions",
    "Function": "pulsar_on_kafka.functions",
    "IdentitySerDe": "pulsar_on_kafka.functions",
    "PickleSerDe": "pulsar_on_kafka.functions",
    "SerDe": "pulsar_on_kafka.functions",
    "TxnId": "pulsar_on_kafka_mapping.ids.txn_id",
    "BytesSchema": "pulsar_on_kafka.schema",
    "Transaction": "pulsar_on_kafka.broker.publishing.transactional_sends",
    "TransactionState": "pulsar_on_kafka.broker.transactions.client_transaction",
    **dict.fromkeys(
        ("_pulsar", "admin", "asyncio", "functions", "schema", "schema_compat", "tableview", "testing"), ""
    ),
}
"""The module of each name that is loaded on first use (PEP 562); none where the name is a module.

Only `spark` is imported by its name alone: without pyspark the import fails.
"""

if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "__version__":
            found = _importlib.import_module(f"{__name__}.base.text").installed_version() or "(not installed)"
        elif name in _MODULES:
            module = _MODULES[name]
            found = (
                getattr(_importlib.import_module(module), name)
                if module
                else _importlib.import_module(f"{__name__}.{name}")
            )
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, found)

    def __dir__():
        own = [name for name in globals() if name.startswith("__")]
        return sorted({*__all__, *(name for name in _MODULES if not name.startswith("_")), *own, "__version__"})


def _stand_in(node: _Node) -> _RunsRoles:
    from pulsar_on_kafka.service.running import stand_in

    return stand_in(node)


_node.begin_standing_in = _stand_in

__all__ = [
    "AlreadyClosed",
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationError",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AuthorizationError",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "BytesSchema",
    "ChecksumError",
    "Client",
    "CompressionType",
    "ConnectError",
    "ConsoleLogger",
    "Consumer",
    "ConsumerAssignError",
    "ConsumerBatchReceivePolicy",
    "ConsumerBusy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "ConsumerType",
    "Context",
    "CryptoError",
    "CryptoKeyReader",
    "CumulativeAcknowledgementNotAllowedError",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "ErrorGettingAuthenticationData",
    "FileLogger",
    "Function",
    "HashingScheme",
    "IdentitySerDe",
    "IncompatibleSchema",
    "InitialPosition",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "LookupError",
    "MemoryBufferIsFull",
    "Message",
    "MessageBatch",
    "MessageId",
    "MessageTooBig",
    "MultiplierRedeliveryBackoff",
    "NotAllowedError",
    "NotConnected",
    "NotSupported",
    "OperationNotSupported",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "ServiceUnitNotReady",
    "SubscriptionMode",
    "SubscriptionNotFound",
    "TableView",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "Transaction",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "TransactionState",
    "TxnId",
    "UnknownError",
    "UnsupportedVersionError",
    "exceptions",
    "functions",
    "schema",
    "tableview",
]
