"""Spark reads and writes topics with Pulsar's semantics (the package `pulsar_on_kafka_spark`)."""

from pulsar_on_kafka_spark import *  # noqa: F403 - its names for users
from pulsar_on_kafka_spark import __all__ as __all__
