"""Values of PROTOBUF_NATIVE schemas are SQL. Fields have numbers, so who wrote a message does not matter.

Needs Spark's Protobuf functions (`org.apache.spark:spark-protobuf_2.13`), which no other type needs.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, SparkSession
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

from pulsar_on_kafka.schema.json import parsed as parsed_json
from pulsar_on_kafka.schema.protobuf import message_class
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.base.connector_jars import package
from pulsar_on_kafka_spark.base.errors import SparkNotReady
from pulsar_on_kafka_spark.values.value_codec import ValueCodec

_CLASS: Final = "org.apache.spark.sql.protobuf.ProtobufDataToCatalyst"

_OPTIONS: Final = {"mode": "PERMISSIVE", "emit.default.values": "true"}
"""A field of proto3 that is not there has its default, as in the SDK's messages."""


class ProtobufCodec(ValueCodec):
    """The codec reads messages of one definition. Raises ValueError: the definition is none."""

    def __init__(self, reader: SchemaInfo) -> None:
        self._fields = [field.name for field in message_class(reader).DESCRIPTOR.fields]
        data = parsed_json(reader.schema)
        self._files = base64.b64decode(data["fileDescriptorSet"])
        self._message = str(data["rootMessageTypeName"])

    def parse(self, payload: Column, version: Column | None) -> Column:
        """Raises SparkNotReady: Spark's Protobuf functions are not on the class path."""
        _require_functions()
        return from_protobuf(payload, self._message, options=dict(_OPTIONS), binaryDescriptorSet=self._files)

    def failed(self, payload: Column, parsed: Column) -> Column:
        return payload.isNotNull() & parsed.isNull()

    def columns(self, parsed: Column) -> list[Column]:
        return [parsed.getField(name).alias(name) for name in self._fields]


def protobuf_payload(info: SchemaInfo, value: Column) -> Column:
    """The payload of a struct. Raises as `ProtobufCodec` and its `parse`."""
    message_class(info)
    _require_functions()
    data = parsed_json(info.schema)
    files = base64.b64decode(data["fileDescriptorSet"])
    return to_protobuf(value, str(data["rootMessageTypeName"]), binaryDescriptorSet=files)


def has_protobuf_functions() -> bool:
    """Whether the session has Spark's Protobuf functions on its class path."""
    spark = SparkSession.getActiveSession()
    java: Any = None if spark is None else spark._jvm
    try:
        java.java.lang.Class.forName(_CLASS, False, java.java.lang.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError:
        return False
    return True


def _require_functions() -> None:
    if not has_protobuf_functions():
        raise SparkNotReady(
            f"Spark's Protobuf functions are not on the session's class path: add {package('spark-protobuf')} to "
            "spark.jars.packages before the session is made, or request unchanged payloads (schema='bytes')"
        )
