"""Apache Pulsar's Python client, on Apache Kafka.

    import pulsar_on_kafka as pulsar

    client = pulsar.Client("kafka://localhost:9092")

Names, parameters, defaults and exceptions are those of `pulsar-client`. What differs: docs/differences.md.
"""

from __future__ import annotations

if __name__ == "layer":
    from pulsar_on_kafka.base.folder_names import redirect

    redirect(__name__)

from importlib import metadata as _metadata

from pulsar_on_kafka import (
    _pulsar as _pulsar,  # an attribute, as officially
)
from pulsar_on_kafka import (
    exceptions,
    functions,
    schema,
    tableview,
)
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
from pulsar_on_kafka.exceptions import *  # noqa: F403 - the official exceptions
from pulsar_on_kafka.exceptions import PulsarException, Result
from pulsar_on_kafka.functions import Context, Function, IdentitySerDe, PickleSerDe, SerDe
from pulsar_on_kafka.mapping.ids.txn_id import TxnId
from pulsar_on_kafka.node.node import Node as _Node
from pulsar_on_kafka.schema import BytesSchema
from pulsar_on_kafka.sending.transactional_sends import Transaction
from pulsar_on_kafka.service.running import stand_in as _stand_in
from pulsar_on_kafka.transactions.client_transaction import TransactionState

try:
    __version__ = _metadata.version("pulsar-on-kafka")
except _metadata.PackageNotFoundError:  # run from its sources
    __version__ = "(not installed)"

_Node.begin_standing_in = _stand_in

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
