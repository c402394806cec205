"""JSON values are SQL, by the reader's definition alone: JSON names its fields, so who wrote a message does not matter.

As in the SDK's records: a field that is missing or null has the definition's default, names that are no fields are left
out, bytes are text in UTF-8. A member of an enum is given as it is written, which the Python client does by value.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from pulsar_on_kafka.schema.json import parsed as parsed_json
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.values.record_shapes import check_not_recursive
from pulsar_on_kafka_spark.values.value_codec import ValueCodec

_CORRUPT: Final = "__pulsar_corrupt"
_PLAIN: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
    "null": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_MAX_LEVELS: Final = 100


class JsonCodec(ValueCodec):
    """The codec reads JSON into a type of Spark's. Raises ValueError: the definition is none that Spark has a type
    for."""

    def __init__(self, reader: SchemaInfo) -> None:
        self._definition = definition = json_definition(reader)
        self.type = spark_type(definition)
        written = as_written(self.type)
        assert isinstance(written, StructType)  # noqa: S101 - of a record
        self._written = StructType([*written.fields, StructField(_CORRUPT, StringType())])

    def parse(self, payload: Column, version: Column | None) -> Column:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        return F.from_json(payload.cast("string"), self._written, options)

    def failed(self, payload: Column, parsed: Column) -> Column:
        return payload.isNotNull() & (parsed.isNull() | parsed[_CORRUPT].isNotNull())

    def value(self, parsed: Column) -> Column:
        return F.when(parsed.isNotNull(), F.struct(*self.columns(parsed)))

    def columns(self, parsed: Column) -> list[Column]:
        return [
            _with_default(parsed, field, self.type[field["name"]].dataType).alias(field["name"])
            for field in self._definition["fields"]
        ]


def json_definition(reader: SchemaInfo) -> dict[str, Any]:
    """The record of a JSON schema. Raises ValueError: the definition is no record, or contains itself."""
    definition = parsed_json(reader.schema)
    if not isinstance(definition, dict) or definition.get("type") != "record":
        raise ValueError(f"the JSON schema {reader.name!r:.60} is no record: {definition!r:.80}")
    check_not_recursive(definition)
    return definition


def spark_type(definition: object) -> Any:
    """The type of a value in JSON of an Avro definition, without logical types.

    Raises:
        ValueError: it is no Avro, refers to itself, or is a union of more than null and one type.
    """
    return _type_of(definition, {}, 0)


def _type_of(definition: object, named: dict[str, Any], level: int) -> DataType:
    if level > _MAX_LEVELS:
        raise ValueError(
            f"more than {_MAX_LEVELS} levels, or a type that refers to itself: {json.dumps(definition)[:80]}"
        )
    if isinstance(definition, list):
        return _type_of(_one_of(definition), named, level + 1)
    if isinstance(definition, str):
        if definition in _PLAIN:
            return _PLAIN[definition]
        if definition in named:
            return _type_of(named[definition], named, level + 1)
    if isinstance(definition, dict) and "type" in definition:
        _note_name(definition, named)
        return _structured(definition, named, level)
    raise ValueError(f"no type of Spark for {json.dumps(definition)[:80]}")


def _structured(definition: dict[str, Any], named: dict[str, Any], level: int) -> DataType:
    match definition["type"]:
        case "record":
            fields = definition["fields"]
            return StructType([StructField(each["name"], _type_of(each["type"], named, level + 1)) for each in fields])
        case "array":
            return ArrayType(_type_of(definition["items"], named, level + 1))
        case "map":
            return MapType(StringType(), _type_of(definition["values"], named, level + 1))
        case kind:
            return _type_of(kind, named, level + 1)


def _note_name(definition: dict[str, Any], named: dict[str, Any]) -> None:
    if definition["type"] in ("record", "enum", "fixed") and "name" in definition:
        named[definition["name"]] = definition
        if definition.get("namespace"):
            named[f"{definition['namespace']}.{definition['name']}"] = definition


def _one_of(union: list[Any]) -> Any:
    others = [branch for branch in union if branch != "null"]
    if len(others) > 1:
        raise ValueError(f"a union of several types has no type of Spark in JSON: {json.dumps(union)[:80]}")
    return others[0] if others else "null"


def as_written(kind: Any) -> DataType:
    """Give the type as it stands in JSON: bytes are text there."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, as_written(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(as_written(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(StringType(), as_written(kind.valueType))
    return StringType() if isinstance(kind, BinaryType) else kind


def _with_default(parsed: Column, field: dict[str, Any], kind: DataType) -> Column:
    value = parsed.getField(field["name"])
    found = value if as_written(kind) == kind else value.cast(kind)
    default = field.get("default")
    if default is None or isinstance(default, (dict, list)):
        return found
    return F.when(parsed.isNotNull(), F.coalesce(found, F.lit(default).cast(kind)))
