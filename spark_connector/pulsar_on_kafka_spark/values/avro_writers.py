"""Versions of a topic's AVRO schema are grouped by their definitions, as far as these are not the reader's. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pulsar_on_kafka.schema.avro import avro_definition
from pulsar_on_kafka_mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.values.record_shapes import check_not_recursive


class AvroWriters:
    """Messages without a version, and with one whose definition is the reader's, are read as the reader's own. Messages
    of an unknown version cannot be read."""

    def __init__(self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo]) -> None:
        """Raises ValueError, TypeError: a definition is no JSON, of a schema of another type, or recursive."""
        self.definition: Any = avro_definition(reader)
        """The reader's."""
        check_not_recursive(self.definition)
        self.is_record = isinstance(self.definition, dict) and self.definition.get("type") == "record"
        self.own = json.dumps(self.definition)
        """The reader's definition as text."""
        self.others: dict[str, list[int]] = {}
        """The numbers of versions by their definition, where it is not the reader's."""
        self.same: list[int] = []
        """The numbers of versions with the reader's definition."""
        name = self.definition.get("name") if self.is_record else None
        for version, info in sorted(writers.items()):
            definition = avro_definition(info)
            if isinstance(definition, dict) and name is not None:
                definition["name"] = name  # as the SDK: the root's name does not count
            text = json.dumps(definition)
            numbers = self.same if text == self.own else self.others.setdefault(text, [])
            numbers.append(version.number)
