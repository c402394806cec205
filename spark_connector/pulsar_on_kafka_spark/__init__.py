"""Spark reads and writes topics with Pulsar's semantics: a DataFrame is what a next consumer gets."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ImportError("pulsar_on_kafka_spark needs pyspark 4.0 to 4.2: pip install 'pulsar-on-kafka[spark]'")

from pulsar_on_kafka_spark.acknowledging.acknowledge import acknowledge
from pulsar_on_kafka_spark.base.connector_jars import packages
from pulsar_on_kafka_spark.base.errors import (
    DataLoss,
    InvalidReadOption,
    InvalidWriteOption,
    NotReadable,
    NotWritten,
    SparkConnectorError,
    SparkNotReady,
)
from pulsar_on_kafka_spark.batch_read import PulsarReader, read_pulsar
from pulsar_on_kafka_spark.ready_session import session
from pulsar_on_kafka_spark.source.data_source import register
from pulsar_on_kafka_spark.source.dead_letter import dead_letter
from pulsar_on_kafka_spark.streaming.stream import BatchContext, PulsarStream, stream_pulsar
from pulsar_on_kafka_spark.writing.writer import pulsar_batches, write_pulsar

__all__ = [
    "BatchContext",
    "DataLoss",
    "InvalidReadOption",
    "InvalidWriteOption",
    "NotReadable",
    "NotWritten",
    "PulsarReader",
    "PulsarStream",
    "SparkConnectorError",
    "SparkNotReady",
    "acknowledge",
    "dead_letter",
    "packages",
    "pulsar_batches",
    "read_pulsar",
    "register",
    "session",
    "stream_pulsar",
    "write_pulsar",
]
