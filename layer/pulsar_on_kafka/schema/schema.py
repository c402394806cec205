"""The official module `pulsar.schema.schema` by its name."""

from __future__ import annotations

from pulsar_on_kafka.schema.json import JsonSchema
from pulsar_on_kafka.schema.plain import BytesSchema, Schema, StringSchema

__all__ = ["BytesSchema", "JsonSchema", "Schema", "StringSchema"]
