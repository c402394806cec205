"""Spark reads topics with Pulsar's semantics: what a subscription's next consumer would get, as a DataFrame."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark") is None:
    raise ImportError("spark_connector needs pyspark 4.0: pip install 'pulsar-on-kafka[spark]'")

from spark_connector.errors import (
    DataLoss,
    InvalidReadOption,
    NotReadable,
    SparkConnectorError,
    SparkNotReady,
)
from spark_connector.reader import PulsarReader, read_pulsar
from spark_connector.session import PACKAGES, session

__all__ = [
    "PACKAGES",
    "DataLoss",
    "InvalidReadOption",
    "NotReadable",
    "PulsarReader",
    "SparkConnectorError",
    "SparkNotReady",
    "read_pulsar",
    "session",
]
