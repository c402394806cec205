"""The official module `pulsar.schema.schema_avro` by its name."""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka.schema.avro import AvroSchema
from pulsar_on_kafka.schema.definition import Record
from pulsar_on_kafka.schema.plain import Schema

HAS_AVRO: Final = True
"""Officially False where fastavro is not installed; here it always is."""

__all__ = ["HAS_AVRO", "AvroSchema", "Record", "Schema"]
