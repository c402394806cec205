"""The first schema of a topic follows nothing, and must be one that can be read nevertheless."""

from __future__ import annotations

from pulsar_on_kafka.schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka.schema_compat.checkers import BUILT_IN


def check_readable(schema: SchemaInfo) -> None:
    """Ask the built-in checkers. Raises UnreadableSchema, as `Checkers.check_readable`."""
    BUILT_IN.check_readable(schema)
