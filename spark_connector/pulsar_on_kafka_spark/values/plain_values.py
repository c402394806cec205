"""Values of Pulsar's plain types are SQL, both ways: bytes, text, and the Java client's big-endian numbers and times.

Java's Date, Time and Timestamp are moments in milliseconds. Spark has no time of day, so LOCAL_TIME is a bigint of
nanoseconds. Finer than microseconds nothing is kept in a timestamp. See `schema.generic` for the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from pulsar_on_kafka_schema_compat.base.schema_model import SchemaType
from pulsar_on_kafka_spark.values.value_codec import ValueCodec

_BITS: Final = 64
DAY_NANOS: Final = 86_400 * 10**9
_LONG: Final = 8
MAX_DAYS: Final = 100_000_000
MAX_SECONDS: Final = MAX_DAYS * 86_400
"""Either side of 1970: what Spark's times, 64 bits of microseconds, have room for. Beyond that there is no value."""
_NTZ_EPOCH: Final = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"


class BytesCodec(ValueCodec):
    """The codec gives payloads as they are."""

    def parse(self, payload: Column, version: Column | None) -> Column:
        return payload

    def failed(self, payload: Column, parsed: Column) -> Column:
        return F.lit(False)


class TextCodec(ValueCodec):
    """The codec gives payloads as UTF-8."""

    def parse(self, payload: Column, version: Column | None) -> Column:
        return payload.cast("string")

    def failed(self, payload: Column, parsed: Column) -> Column:
        return F.coalesce(~F.is_valid_utf8(parsed), F.lit(False))


@dataclass(frozen=True, slots=True)
class _Form:
    """A value takes `size` bytes; `read` gets a column of exactly so many, and may give null for bytes that are no
    value."""

    size: int
    read: Callable[[Column], Column]
    write: Callable[[Column], Column]
    spark_type: str


class PlainCodec(ValueCodec):
    """The codec gives payloads as one of the types in `PLAIN_TYPES`."""

    def __init__(self, kind: SchemaType) -> None:
        self._form = _FORMS[kind]

    def parse(self, payload: Column, version: Column | None) -> Column:
        return F.when(F.octet_length(payload) == self._form.size, self._form.read(payload))

    def failed(self, payload: Column, parsed: Column) -> Column:
        return payload.isNotNull() & parsed.isNull()


def plain_payload(kind: SchemaType, value: Column) -> Column:
    """The payload of a value of one of the `PLAIN_TYPES`, of text or of bytes; null for null."""
    if kind in (SchemaType.BYTES, SchemaType.NONE):
        return value.cast("binary")
    if kind is SchemaType.STRING:
        return value.cast("string").cast("binary")
    form = _FORMS[kind]
    return form.write(value.cast(form.spark_type))


def plain_spark_type(kind: SchemaType) -> DataType:
    """The Spark type of `PlainCodec` and `plain_payload` for one of the `PLAIN_TYPES`."""
    return _TYPES[_FORMS[kind].spark_type]


def number(payload: Column, at: int = 0, size: int = _LONG) -> Column:
    """The big-endian signed integer in `size` bytes from `at` on, as a bigint."""
    digits = F.hex(F.substring(payload, at + 1, size))
    found = F.conv(digits, 16, -10).cast("bigint")
    unused = _BITS - 8 * size
    return F.shiftright(F.shiftleft(found, unused), unused) if unused else found


def number_bytes(value: Column, size: int = _LONG) -> Column:
    """The inverse of `number`."""
    digits = F.lpad(F.hex(value.cast("bigint")), 2 * _LONG, "0")
    return F.unhex(F.right(digits, F.lit(2 * size)))


def _integer(size: int, spark_type: str) -> _Form:
    return _Form(size, lambda p: number(p, 0, size).cast(spark_type), lambda v: number_bytes(v, size), spark_type)


def _floating(size: int, spark_type: str) -> _Form:
    """Avro has the same bytes in the other order."""
    definition = f'"{spark_type}"'
    return _Form(
        size,
        lambda payload: from_avro(_reversed(payload, size), definition, {"mode": "PERMISSIVE"}),
        lambda value: _reversed(to_avro(value, definition), size),
        spark_type,
    )


def _reversed(data: Column, size: int) -> Column:
    return F.concat(*(F.substring(data, at, 1) for at in range(size, 0, -1)))


def _wall_clock(day: Column, nanos: Column) -> Column:
    """A timestamp without time zone."""
    seconds = (F.call_function("div", nanos, F.lit(1000)) / F.lit(1_000_000)).cast("decimal(18,6)")
    known = F.when(F.abs(day) <= MAX_DAYS, day).cast("int")
    return F.expr(_NTZ_EPOCH) + F.make_dt_interval(known, F.lit(0), F.lit(0), seconds)


def _moment(millis: Column) -> Column:
    return F.timestamp_millis(F.when(millis.between(-MAX_SECONDS * 1000, MAX_SECONDS * 1000), millis))


def _instant(seconds: Column, nanos: Column) -> Column:
    known = F.when(seconds.between(-MAX_SECONDS, MAX_SECONDS), seconds)
    return F.timestamp_micros(known * 1_000_000 + F.call_function("div", nanos, F.lit(1000)))


def _time_of_day(nanos: Column) -> Column:
    return F.when((nanos >= 0) & (nanos < DAY_NANOS), nanos)


def _instant_bytes(moment: Column) -> Column:
    micros = F.unix_micros(moment)
    nanos = F.pmod(micros, F.lit(1_000_000)) * 1000
    return F.concat(
        number_bytes(F.call_function("div", micros - F.pmod(micros, F.lit(1_000_000)), F.lit(1_000_000))),
        number_bytes(nanos, 4),
    )


def _wall_clock_bytes(wall_clock: Column) -> Column:
    micros = F.timestamp_diff("MICROSECOND", F.expr(_NTZ_EPOCH), wall_clock)
    day_micros = DAY_NANOS // 1000
    within = F.pmod(micros, F.lit(day_micros))
    day = F.call_function("div", micros - within, F.lit(day_micros))
    return F.concat(number_bytes(day), number_bytes(within * 1000))


_MOMENT: Final = _Form(_LONG, lambda p: _moment(number(p)), lambda v: number_bytes(F.unix_millis(v)), "timestamp")
_FORMS: Final[Mapping[SchemaType, _Form]] = {
    SchemaType.BOOLEAN: _Form(
        1,
        lambda p: p != F.lit(b"\x00"),
        lambda v: F.when(v, F.lit(b"\x01")).when(~v, F.lit(b"\x00")),
        "boolean",
    ),
    SchemaType.INT8: _integer(1, "tinyint"),
    SchemaType.INT16: _integer(2, "smallint"),
    SchemaType.INT32: _integer(4, "int"),
    SchemaType.INT64: _integer(8, "bigint"),
    SchemaType.FLOAT: _floating(4, "float"),
    SchemaType.DOUBLE: _floating(8, "double"),
    SchemaType.DATE: _MOMENT,
    SchemaType.TIME: _MOMENT,
    SchemaType.TIMESTAMP: _MOMENT,
    SchemaType.INSTANT: _Form(
        12,
        lambda p: _instant(number(p), number(p, 8, 4)),
        _instant_bytes,
        "timestamp",
    ),
    SchemaType.LOCAL_DATE: _Form(
        _LONG,
        lambda p: F.date_from_unix_date(number(p).try_cast("int")),
        lambda v: number_bytes(F.unix_date(v)),
        "date",
    ),
    SchemaType.LOCAL_TIME: _Form(_LONG, lambda p: _time_of_day(number(p)), number_bytes, "bigint"),
    SchemaType.LOCAL_DATE_TIME: _Form(
        2 * _LONG, lambda p: _wall_clock(number(p), _time_of_day(number(p, 8))), _wall_clock_bytes, "timestamp_ntz"
    ),
}
_TYPES: Final[Mapping[str, DataType]] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}
PLAIN_TYPES: Final = frozenset(_FORMS)
