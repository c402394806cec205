"""Schemas of messages, by the official names. Source: `pulsar.schema` of pulsar-client 3.13.0.

This version has `BytesSchema` and `StringSchema`; the others raise `NotSupported` when they are asked for.
"""

from __future__ import annotations

from typing import Any, Final

from layer.exceptions import NotSupported
from layer.schema.plain import BytesSchema, Schema, StringSchema

_LATER: Final = frozenset(
    {
        "Array",
        "AvroSchema",
        "Boolean",
        "Bytes",
        "CustomEnum",
        "Double",
        "Field",
        "Float",
        "Integer",
        "JsonSchema",
        "Long",
        "Map",
        "Null",
        "ProtobufNativeSchema",
        "Record",
        "String",
    }
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        raise NotSupported(f"layer.schema.{name} is not in this version; BytesSchema and StringSchema are")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["BytesSchema", "Schema", "StringSchema"]
