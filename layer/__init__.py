"""Apache Pulsar's Python client, on Apache Kafka.

    import layer as pulsar

    client = pulsar.Client("kafka://localhost:9092")

Names, parameters, defaults and exceptions are those of `pulsar-client`. What differs: docs/differences.md.
"""

from __future__ import annotations

from importlib import metadata as _metadata

from layer import _pulsar as _pulsar  # an attribute, as officially
from layer import exceptions, functions, schema, tableview
from layer.client.authentication import (
    Authentication,
    AuthenticationAthenz,
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
)
from layer.client.batch_receive import BatchReceivePolicy, ConsumerBatchReceivePolicy
from layer.client.client import Client
from layer.client.consumer import Consumer
from layer.client.dead_letter_policy import ConsumerDeadLetterPolicy, DeadLetterPolicyBuilder
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
    SubscriptionMode,
)
from layer.client.key_shared import ConsumerKeySharedPolicy, KeySharedPolicy
from layer.client.logger import ConsoleLogger, FileLogger
from layer.client.message import Message
from layer.client.message_batch import MessageBatch
from layer.client.message_id import MessageId
from layer.client.producer import Producer
from layer.client.reader import Reader
from layer.client.redelivery_backoff import MultiplierRedeliveryBackoff
from layer.client.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from layer.client.table_view import TableView
from layer.client.transaction import Transaction
from layer.crypto.keys import CryptoKeyReader
from layer.exceptions import *  # noqa: F403 - the official exceptions, listed in exceptions.__all__
from layer.exceptions import PulsarException, Result
from layer.functions import Context, Function, IdentitySerDe, PickleSerDe, SerDe
from layer.schema import BytesSchema
from layer.transactions.client_transaction import TransactionState
from mapping.txn_id import TxnId

try:
    __version__ = _metadata.version("pulsar-on-kafka")
except _metadata.PackageNotFoundError:  # run from its sources
    __version__ = "(not installed)"

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BytesSchema",
    "Client",
    "CompressionType",
    "ConsoleLogger",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "Context",
    "CryptoKeyReader",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "FileLogger",
    "Function",
    "IdentitySerDe",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "Message",
    "MessageBatch",
    "MessageId",
    "MultiplierRedeliveryBackoff",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "SubscriptionMode",
    "TableView",
    "Transaction",
    "TransactionState",
    "TxnId",
    "exceptions",
    "functions",
    "schema",
    "tableview",
]
