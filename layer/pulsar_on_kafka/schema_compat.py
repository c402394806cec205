"""Pulsar's schema compatibility checks (the package `pulsar_on_kafka_schema_compat`)."""

from pulsar_on_kafka_schema_compat import *  # noqa: F403 - its names for users
from pulsar_on_kafka_schema_compat import __all__ as __all__
