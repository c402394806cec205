"""Avro values are SQL: each message by the version it was written with, all into one reader's definition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro

from pulsar_on_kafka.mapping.ids.schema_version import SchemaVersion
from pulsar_on_kafka.schema.avro import avro_definition
from pulsar_on_kafka.schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka.spark.values.value_codec import Codec

DECODED: Final = "__pulsar_decoded"
"""Spark gives a record that it cannot read as one of nulls only. So the reader's record gets a field more, which no
writer has and whose default is true: null there means that the payload was not read."""


class AvroCodec(Codec):
    """Messages without a version, and with one whose definition is the reader's, are read as the reader's own."""

    def __init__(self, reader: SchemaInfo, writers: Mapping[SchemaVersion, SchemaInfo]) -> None:
        """Raises ValueError, TypeError: a definition is no JSON, or of a schema of another type."""
        own = avro_definition(reader)
        self._is_record = isinstance(own, dict) and own.get("type") == "record"
        self._fields = [field["name"] for field in own["fields"]] if self._is_record else []
        self._name = own.get("name") if self._is_record else None
        self._own = json.dumps(own)
        self._may_be_null = own == "null" or (isinstance(own, list) and "null" in own)
        self._options = {"avroSchema": json.dumps(_marked(own) if self._is_record else own), "mode": "PERMISSIVE"}
        self._others = self._grouped(writers)
        self._known = sorted(writers)
        self.by_version = bool(self._others)

    def parse(self, payload: Column, version: Column | None) -> Column:
        own = self._from_avro(payload, self._own)
        if version is None:
            return own
        found: Column | None = None
        for definition, versions in self._others.items():
            theirs = self._from_avro(payload, definition)
            named = version.isin([each.number for each in versions])
            found = F.when(named, theirs) if found is None else found.when(named, theirs)
        same = version.isNull()
        mine = [each for each in self._known if not any(each in versions for versions in self._others.values())]
        if mine:
            same = same | version.isin([each.number for each in mine])
        return F.when(same, own) if found is None else found.when(same, own)

    def failed(self, payload: Column, parsed: Column) -> Column:
        if self._is_record:
            return payload.isNotNull() & parsed[DECODED].isNull()
        if self._may_be_null:
            return F.lit(False)
        return payload.isNotNull() & parsed.isNull()

    def value(self, parsed: Column) -> Column:
        return parsed.dropFields(DECODED) if self._is_record else parsed

    def columns(self, parsed: Column) -> list[Column]:
        if not self._is_record:
            return super().columns(parsed)
        return [parsed.getField(name).alias(name) for name in self._fields]

    def _from_avro(self, payload: Column, writer: str) -> Column:
        return from_avro(payload, writer, self._options)

    def _grouped(self, writers: Mapping[SchemaVersion, SchemaInfo]) -> dict[str, list[SchemaVersion]]:
        """Versions by definition, as far as it is not the reader's."""
        found: dict[str, list[SchemaVersion]] = {}
        for version, info in sorted(writers.items()):
            definition = avro_definition(info)
            if isinstance(definition, dict) and self._name is not None:
                definition["name"] = self._name  # as the SDK: the root's name does not count
            text = json.dumps(definition)
            if text != self._own:
                found.setdefault(text, []).append(version)
        return found


def _marked(record: dict[str, Any]) -> dict[str, Any]:
    fields: Sequence[Any] = record["fields"]
    return {**record, "fields": [*fields, {"name": DECODED, "type": "boolean", "default": True}]}
