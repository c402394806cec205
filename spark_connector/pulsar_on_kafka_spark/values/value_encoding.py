"""Columns of a DataFrame become payloads (and keys) of a schema, inside the JVM; the way back from `value_decoding`.

Columns are found by the names of the schema's fields, also inside structs. A type is widened where nothing can be lost
(int to long, float to double, anything to text); every other difference is refused before anything is written. A field
without a column gets its default, or null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import DataType, StructType

from pulsar_on_kafka.schema.json import parsed as parsed_json
from pulsar_on_kafka.schema.key_value import KeyValueEncodingType, encoding_of
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo, SchemaType
from pulsar_on_kafka_schema_compat.key_value import split
from pulsar_on_kafka_spark.base.errors import InvalidWriteOption
from pulsar_on_kafka_spark.base.spark_session import require_classic
from pulsar_on_kafka_spark.base.sql_text import column as quoted
from pulsar_on_kafka_spark.values.json_values import as_written, spark_type
from pulsar_on_kafka_spark.values.key_values import inline_payload
from pulsar_on_kafka_spark.values.plain_values import PLAIN_TYPES, plain_payload, plain_spark_type
from pulsar_on_kafka_spark.values.protobuf_values import protobuf_payload
from pulsar_on_kafka_spark.values.record_shapes import check_not_recursive
from pulsar_on_kafka_spark.values.widening import widens

VALUE: Final = "value"
KEY: Final = "key"
_TEXT_OR_BYTES: Final = frozenset({SchemaType.BYTES, SchemaType.NONE, SchemaType.STRING})


class Encoded(NamedTuple):
    """A row becomes a value, and a `key` where the schema separates keys."""

    payload: Column
    key: Column | None


def encoded(rows: DataFrame, info: SchemaInfo, others: frozenset[str]) -> Encoded:
    """The payload of each row by `info`. Columns in `others` need not belong to the value.

    Raises:
        InvalidWriteOption: the columns are not those of the schema.
    """
    if info.type is SchemaType.KEY_VALUE:
        return _key_value(rows, info, others)
    return Encoded(_value(rows, info, others), None)


def _value(rows: DataFrame, info: SchemaInfo, others: frozenset[str]) -> Column:
    match info.type:
        case SchemaType.AVRO | SchemaType.JSON:
            return _record_payload(_Source(rows.schema, spare=others), info)
        case SchemaType.PROTOBUF_NATIVE:
            names = [name for name in rows.columns if name not in others]
            return protobuf_payload(info, F.struct(*(F.col(quoted(name)) for name in names)))
        case _:
            pass
    _check_only(rows, {VALUE}, others, info)
    return _plain(F.col(VALUE), rows.schema[VALUE].dataType, info, VALUE)


def _key_value(rows: DataFrame, info: SchemaInfo, others: frozenset[str]) -> Encoded:
    _check_only(rows, {KEY, VALUE}, others, info)
    parts = {
        part: _part(F.col(part), rows.schema[part].dataType, of_part, part) for part, of_part in split(info).items()
    }
    if encoding_of(info) is KeyValueEncodingType.SEPARATED:
        return Encoded(parts[VALUE], parts[KEY])
    return Encoded(inline_payload(parts[KEY], parts[VALUE]), None)


def _part(column: Column, found: DataType, info: SchemaInfo, name: str) -> Column:
    if info.type in (SchemaType.AVRO, SchemaType.JSON):
        if not isinstance(found, StructType):
            raise InvalidWriteOption(f"column {name} is {found.simpleString()}, the schema has a record")
        return _record_payload(_Source(found, column, name), info)
    if info.type is SchemaType.PROTOBUF_NATIVE:
        return protobuf_payload(info, column)
    return _plain(column, found, info, name)


def _plain(column: Column, found: DataType, info: SchemaInfo, name: str) -> Column:
    if info.type not in PLAIN_TYPES and info.type not in _TEXT_OR_BYTES:
        raise InvalidWriteOption(f"values of type {info.type.name} are not written by Spark")
    if info.type in (SchemaType.BYTES, SchemaType.NONE) and found.typeName() not in ("binary", "string"):
        raise InvalidWriteOption(f"column {name} is {found.simpleString()}, expected bytes (binary or string)")
    if info.type is SchemaType.STRING and found.typeName() != "string":
        raise InvalidWriteOption(f"column {name} is {found.simpleString()}, expected text")
    if info.type in PLAIN_TYPES:
        required = plain_spark_type(info.type)
        column = _fitted(column, found, required, name)
    return plain_payload(info.type, column)


class _Source:
    """A struct's fields make a record, or (without `struct`) a row's columns, which are never null together."""

    def __init__(
        self, kind: StructType, struct: Column | None = None, path: str = "", spare: frozenset[str] = frozenset()
    ) -> None:
        self.types: Mapping[str, DataType] = {field.name: field.dataType for field in kind.fields}
        self.spare = spare
        self.path = f"{path}." if path else ""
        self._struct = struct

    def field(self, name: str) -> Column:
        return F.col(quoted(name)) if self._struct is None else self._struct.getField(name)

    def guarded(self, record: Column) -> Column:
        return record if self._struct is None else F.when(self._struct.isNotNull(), record)


def _record_payload(source: _Source, info: SchemaInfo) -> Column:
    definition = parsed_json(info.schema)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise InvalidWriteOption(f"the {info.type.name} schema is no record: {definition!r:.80}")
    try:
        check_not_recursive(definition)
    except ValueError as error:
        raise InvalidWriteOption(f"the {info.type.name} schema cannot be written by Spark: {error}") from error
    text = json.dumps(definition)
    required = spark_type(definition) if info.type is SchemaType.JSON else _avro_type(text)
    record = source.guarded(_record(source, required, {field["name"]: field for field in definition["fields"]}))
    if info.type is SchemaType.AVRO:
        return to_avro(record, text)
    return F.to_json(record.cast(as_written(required)), {"ignoreNullFields": "false"}).cast("binary")


def _record(source: _Source, required: StructType, fields: Mapping[str, Any]) -> Column:
    strange = sorted(set(source.types) - set(required.names) - source.spare)
    if strange:
        raise InvalidWriteOption(
            f"the schema has no fields for the columns {', '.join(source.path + name for name in strange)}; it has "
            f"{', '.join(required.names)}"
        )
    columns = []
    for field in required.fields:
        if field.name in source.types:
            column = _fitted(
                source.field(field.name), source.types[field.name], field.dataType, source.path + field.name
            )
        else:
            column = _absent(fields.get(field.name), field.dataType, source.path + field.name)
        columns.append(column.alias(field.name))
    return F.struct(*columns)


def _absent(field: Any, kind: DataType, name: str) -> Column:
    if field is None:  # below the root
        return F.lit(None).cast(kind)
    default = field.get("default")
    if default is not None and not isinstance(default, dict | list):
        return F.lit(default).cast(kind)
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    if "null" not in branches:
        raise InvalidWriteOption(f"there is no column {name}, for which the schema has no default and no null")
    return F.lit(None).cast(kind)


def _fitted(column: Column, found: DataType, required: DataType, name: str) -> Column:
    """`column` as the wanted type. Raises InvalidWriteOption where a value could be lost."""
    if found.simpleString() == required.simpleString():
        return column
    if isinstance(found, StructType) and isinstance(required, StructType):
        source = _Source(found, column, name)
        return source.guarded(_record(source, required, {}))
    if not widens(found, required):
        raise InvalidWriteOption(
            f"column {name} is {found.simpleString()}, the schema has {required.simpleString()}: cast it if that is so"
        )
    return column.cast(required)


def _avro_type(definition: str) -> Any:
    spark: Any = SparkSession.getActiveSession()
    return spark.range(0).select(from_avro(F.lit(None).cast("binary"), definition)).schema.fields[0].dataType


def _check_only(rows: DataFrame, required: set[str], others: frozenset[str], info: SchemaInfo) -> None:
    missing = sorted(required - set(rows.columns))
    strange = sorted(set(rows.columns) - required - others)
    if missing or strange:
        there = f"there is no {', '.join(missing)}" if missing else f"there are also {', '.join(strange)}"
        raise InvalidWriteOption(
            f"the value of a schema of type {info.type.name} is in {' and '.join(sorted(required))}, and {there}"
        )


def derived_schema(rows: DataFrame, kind: SchemaType, others: frozenset[str], name: str) -> SchemaInfo:
    """AVRO or JSON, with a field for each column that is not in `others`; what may be null is a union with null first,
    whose default is null, so that later versions may leave it out."""
    columns = rows.select(*(quoted(column) for column in rows.columns if column not in others))
    if not columns.columns:
        raise InvalidWriteOption("there is no column for the value")
    spark: Any = rows.sparkSession
    require_classic(spark, f"a schema is made of columns in the driver's JVM (schema={kind.name.lower()!r})")
    converters = spark._jvm.org.apache.spark.sql.avro.SchemaConverters
    java: Any = columns
    record = re.sub("[^A-Za-z0-9_]", "_", re.sub("^(?=[0-9])", "_", name))
    try:
        text = converters.toAvroType(java._jdf.schema(), False, record, "").toString()
    except Py4JJavaError as refused:
        raise InvalidWriteOption(f"the columns make no schema: {refused.java_exception.getMessage()}") from refused
    definition = _null_first(json.loads(text))
    return SchemaInfo(kind, json.dumps(definition).encode(), kind.name)


def _null_first(definition: object) -> Any:
    if isinstance(definition, list):
        branches = [_null_first(branch) for branch in definition]
        return ["null", *(branch for branch in branches if branch != "null")] if "null" in branches else branches
    if not isinstance(definition, dict):
        return definition
    found = {
        name: _null_first(part) if name in ("type", "items", "values") else part for name, part in definition.items()
    }
    if "fields" in found:
        found["fields"] = [_null_first(field) for field in definition["fields"]]
    kind = found.get("type")
    if isinstance(kind, list) and "name" in found and "default" not in found:
        found["default"] = None
    return found
