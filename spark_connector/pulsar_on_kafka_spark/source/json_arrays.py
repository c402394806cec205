"""Arrays of JSON values, by the reader's definition alone.

Defaults and types are those of `values.json_values`. Spark's own JSON parser decides there, and its leniency is
repeated here: text in single quotes, INF and NaN, bytes behind the object, numbers and objects where text is required.
Differs from it: of a name that an object has twice, only the last value is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
import pyarrow as pa
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
    StructType,
)

from pulsar_on_kafka.schema.protobuf import java_number
from pulsar_on_kafka_schema_compat.base.schema_model import SchemaInfo
from pulsar_on_kafka_spark.source.array_codec import ArrayCodec, Decoded, Payloads, Versions, in_column
from pulsar_on_kafka_spark.source.arrow_columns import (
    NO_VALUE,
    Column,
    LeafColumn,
    ListColumn,
    MapColumn,
    StructColumn,
    valid_text,
)
from pulsar_on_kafka_spark.values.json_values import json_definition, spark_type

_INFINITE: Final = {
    "NaN": float("nan"),
    **dict.fromkeys(("+INF", "+Infinity", "Infinity"), float("inf")),
    **dict.fromkeys(("-INF", "-Infinity"), float("-inf")),
}
_LENIENT: Final = re.compile(r"""("(?:[^"\\]|\\.)*")|'((?:[^'\\]|\\.)*)'|([+-]INF\b|\+Infinity\b)""", re.DOTALL)
_DECODER: Final = json.JSONDecoder()
_BLANK: Final = " \t\r\n"


class JsonArrays(ArrayCodec):
    """The codec reads JSON objects. Raises ValueError: the definition is none that Spark has a type for."""

    is_record = True

    def __init__(self, reader: SchemaInfo) -> None:
        definition = json_definition(reader)
        kind = spark_type(definition)
        columns = {field.name: _column(field.dataType) for field in kind.fields}
        self._column = StructColumn(columns, _defaults(definition, columns))
        self.kind = self._column.kind

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        loads = orjson.loads
        try:
            values = [None if payload is None else loads(payload) for payload in payloads]
        except ValueError:
            values, failed = _one_by_one(payloads)
        else:
            failed = []
        if None in values:
            failed = [at for at, value in enumerate(values) if value is None and payloads[at] is not None]
        return in_column(self._column, values, failed, lambda at: _parsed(payloads[at]))


def _one_by_one(payloads: Payloads) -> tuple[list[Any], list[int]]:
    values: list[Any] = []
    failed = []
    for at, payload in enumerate(payloads):
        value = None
        if payload is not None:
            try:
                value = orjson.loads(payload)
            except ValueError:
                try:
                    value = _parsed(payload)
                except NO_VALUE:
                    failed.append(at)
        values.append(value)
    return values, failed


def _parsed(payload: bytes | None) -> Any:
    """The value as Spark's parser reads it. Raises ValueError."""
    text = (payload or b"").decode("utf-8", "replace").lstrip(_BLANK)
    try:
        try:
            return _DECODER.raw_decode(text)[0]
        except ValueError:
            return _DECODER.raw_decode(_LENIENT.sub(_strict, text))[0]
    except RecursionError:
        raise ValueError("too many levels of arrays and objects") from None


def _strict(found: re.Match[str]) -> str:
    double, single, number = found.groups()
    if double is not None:
        return str(double).replace("\\'", "'")
    if number is not None:
        return json.dumps(_INFINITE[number])
    inner = re.sub(r'\\.|"', lambda part: {"\\'": "'", '"': '\\"'}.get(part[0], part[0]), single)
    return f'"{inner}"'


def _column(kind: DataType) -> Column:
    match kind:
        case StructType():
            return StructColumn({field.name: _column(field.dataType) for field in kind.fields})
        case ArrayType():
            return ListColumn(_column(kind.elementType))
        case MapType():
            return MapColumn(_column(kind.valueType))
        case BinaryType():
            return LeafColumn(kind, (str,), _text, lambda texts: pa.array(texts, pa.string()).cast(pa.binary()))
        case StringType():
            return LeafColumn(kind, (str,), _text)
        case FloatType() | DoubleType():
            return LeafColumn(kind, (float, int), _floating)
        case IntegerType() | LongType():
            return LeafColumn(kind, (int,))
        case _:
            assert isinstance(kind, BooleanType)  # noqa: S101 - spark_type gives no other
            return LeafColumn(kind, (bool,))


def _defaults(definition: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    found = {}
    for field in definition["fields"]:
        default = field.get("default")
        if default is not None and not isinstance(default, dict | list):
            try:
                found[field["name"]] = columns[field["name"]].value(default)
            except NO_VALUE as error:
                raise ValueError(f"the default {default!r:.40} of field {field['name']} is none of its type") from error
    return found


def _floating(value: Any) -> float:
    if isinstance(value, str):
        return _INFINITE[value]
    if isinstance(value, bool):
        raise TypeError("a number is required, got a boolean")
    return float(value)


def _text(value: Any) -> str:
    """Text, or the JSON of another value as Jackson writes it."""
    return valid_text(value) if isinstance(value, str) else _written(value)


def _written(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{_written(name)}:{_written(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case float() if value - value == 0:
            return java_number(value, is_float=False)
        case float():
            return '"NaN"' if value != value else f'"{"-" if value < 0 else ""}Infinity"'
        case str():
            return json.dumps(valid_text(value), ensure_ascii=False)
        case _:
            return json.dumps(value)
