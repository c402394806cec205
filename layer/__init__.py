"""Apache Pulsar's Python client, on Apache Kafka.

    import layer as pulsar

    client = pulsar.Client("kafka://localhost:9092")

Names, parameters, defaults and exceptions are those of `pulsar-client`. What differs: docs/differences.md.
"""

from __future__ import annotations

from layer import exceptions, schema
from layer.client.client import Client
from layer.client.consumer import Consumer
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
from layer.client.logger import ConsoleLogger, FileLogger
from layer.client.message import Message
from layer.client.message_id import MessageId
from layer.client.producer import Producer
from layer.exceptions import *  # noqa: F403 - the official exceptions, listed in exceptions.__all__
from layer.exceptions import PulsarException, Result
from layer.schema import BytesSchema

__all__ = [
    "BatchingType",
    "BytesSchema",
    "Client",
    "CompressionType",
    "ConsoleLogger",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "FileLogger",
    "InitialPosition",
    "KeySharedMode",
    "LoggerLevel",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "RegexSubscriptionMode",
    "Result",
    "exceptions",
    "schema",
]
