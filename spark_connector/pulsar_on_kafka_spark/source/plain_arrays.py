"""Arrays of Pulsar's plain types: bytes, text, and the Java client's big-endian numbers and times.

`values.plain_values` has the same types and limits in SQL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType

from pulsar_on_kafka_schema_compat.base.schema_model import SchemaType
from pulsar_on_kafka_spark.source.array_codec import ArrayCodec, Decoded, Payloads, Versions, in_column
from pulsar_on_kafka_spark.source.arrow_columns import LeafColumn, arrow_type
from pulsar_on_kafka_spark.values.plain_values import DAY_NANOS, MAX_DAYS, MAX_SECONDS, plain_spark_type

_DAY_MICROS: Final = DAY_NANOS // 1000
_MAX_DATE: Final = 2**31
"""Spark's dates are days in 32 bits."""


class BytesArrays(ArrayCodec):
    """The codec gives payloads as they are."""

    kind = BinaryType()

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        return pa.array(payloads, pa.binary()), []


class TextArrays(ArrayCodec):
    """The codec gives payloads as UTF-8."""

    kind = StringType()

    def __init__(self) -> None:
        self._column = LeafColumn(self.kind, (str,), bytes.decode)

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        binary = pa.array(payloads, pa.binary())
        try:
            return binary.cast(pa.string()), []
        except pa.ArrowInvalid:
            return in_column(self._column, list(payloads), [])


class PlainArrays(ArrayCodec):
    """The codec gives payloads as one of `plain_values.PLAIN_TYPES`."""

    def __init__(self, kind: SchemaType) -> None:
        self.kind = plain_spark_type(kind)
        self._arrow = arrow_type(self.kind)
        self._form, self._make = _FORMS[kind]

    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        size, make = self._form.size, self._make
        there = [payload is not None and len(payload) == size for payload in payloads]
        joined = b"".join([payload for payload, good in zip(payloads, there, strict=True) if payload and good])
        parts = self._form.iter_unpack(joined)
        found = iter([value for (value,) in parts] if make is None else [make(*each) for each in parts])
        values = [next(found) if good else None for good in there]
        failed = [at for at, value in enumerate(values) if value is None and payloads[at] is not None]
        return pa.array(values, self._arrow), failed


def _moment(millis: int) -> int | None:
    return millis * 1000 if abs(millis) <= MAX_SECONDS * 1000 else None


def _instant(seconds: int, nanos: int) -> int | None:
    return seconds * 1_000_000 + int(nanos / 1000) if abs(seconds) <= MAX_SECONDS else None


def _date(day: int) -> int | None:
    return day if -_MAX_DATE <= day < _MAX_DATE else None


def _time_of_day(nanos: int) -> int | None:
    return nanos if 0 <= nanos < DAY_NANOS else None


def _wall_clock(day: int, nanos: int) -> int | None:
    return day * _DAY_MICROS + nanos // 1000 if abs(day) <= MAX_DAYS and 0 <= nanos < DAY_NANOS else None


_MOMENT: Final = (struct.Struct(">q"), _moment)
_FORMS: Final[Mapping[SchemaType, tuple[struct.Struct, Callable[..., Any] | None]]] = {
    SchemaType.BOOLEAN: (struct.Struct(">?"), None),
    SchemaType.INT8: (struct.Struct(">b"), None),
    SchemaType.INT16: (struct.Struct(">h"), None),
    SchemaType.INT32: (struct.Struct(">i"), None),
    SchemaType.INT64: (struct.Struct(">q"), None),
    SchemaType.FLOAT: (struct.Struct(">f"), None),
    SchemaType.DOUBLE: (struct.Struct(">d"), None),
    SchemaType.DATE: _MOMENT,
    SchemaType.TIME: _MOMENT,
    SchemaType.TIMESTAMP: _MOMENT,
    SchemaType.INSTANT: (struct.Struct(">qi"), _instant),
    SchemaType.LOCAL_DATE: (struct.Struct(">q"), _date),
    SchemaType.LOCAL_TIME: (struct.Struct(">q"), _time_of_day),
    SchemaType.LOCAL_DATE_TIME: (struct.Struct(">qq"), _wall_clock),
}
"""The bytes of a value, and what makes Arrow's number of its parts; None for one outside of Spark's range."""
