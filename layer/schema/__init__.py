"""Schemas of messages, by the official names. Source: `pulsar.schema` of pulsar-client 3.13.0; key/value schemas,
ProtobufSchema, AutoConsumeSchema and AutoProduceBytesSchema are the Java client's.
"""

from __future__ import annotations

from layer.schema.avro import AvroSchema
from layer.schema.definition import Array, CustomEnum, Map, Record
from layer.schema.fields import Boolean, Bytes, Double, Field, Float, Integer, Long, Null, String
from layer.schema.generic import AutoConsumeSchema, AutoProduceBytesSchema
from layer.schema.json import JsonSchema
from layer.schema.key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
from layer.schema.plain import BytesSchema, Schema, StringSchema
from layer.schema.protobuf import ProtobufNativeSchema, ProtobufSchema

__all__ = [
    "Array",
    "AutoConsumeSchema",
    "AutoProduceBytesSchema",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "KeyValue",
    "KeyValueEncodingType",
    "KeyValueSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "ProtobufSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]
