"""Spark reads and writes topics with Pulsar's semantics: a DataFrame is what a next consumer gets."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ImportError("spark_connector needs pyspark 4.0: pip install 'pulsar-on-kafka[spark]'")

from spark_connector.acknowledge import acknowledge
from spark_connector.errors import (
    DataLoss,
    InvalidReadOption,
    InvalidWriteOption,
    NotReadable,
    NotWritten,
    SparkConnectorError,
    SparkNotReady,
)
from spark_connector.reader import PulsarReader, read_pulsar
from spark_connector.session import PACKAGES, session
from spark_connector.stream import BatchContext, PulsarStream, stream_pulsar
from spark_connector.writer import pulsar_batches, write_pulsar

__all__ = [
    "PACKAGES",
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
    "pulsar_batches",
    "read_pulsar",
    "session",
    "stream_pulsar",
    "write_pulsar",
]
