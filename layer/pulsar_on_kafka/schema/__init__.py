"""Schemas of messages, by the official names. Source: `pulsar.schema` of pulsar-client 3.13.0; key/value schemas,
ProtobufSchema, AutoConsumeSchema and AutoProduceBytesSchema are the Java client's.
"""

from __future__ import annotations

from pulsar_on_kafka.schema.avro import AvroSchema
from pulsar_on_kafka.schema.definition import Array, CustomEnum, Map, Record
from pulsar_on_kafka.schema.fields import Boolean, Bytes, Double, Field, Float, Integer, Long, Null, String
from pulsar_on_kafka.schema.generic import AutoConsumeSchema, AutoProduceBytesSchema
from pulsar_on_kafka.schema.json import JsonSchema
from pulsar_on_kafka.schema.key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
from pulsar_on_kafka.schema.plain import BytesSchema, Schema, StringSchema
from pulsar_on_kafka.schema.protobuf import ProtobufNativeSchema, ProtobufSchema

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
