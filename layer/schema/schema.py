"""The official module `pulsar.schema.schema` by its name."""

from __future__ import annotations

from layer.schema.json import JsonSchema
from layer.schema.plain import BytesSchema, Schema, StringSchema

__all__ = ["BytesSchema", "JsonSchema", "Schema", "StringSchema"]
