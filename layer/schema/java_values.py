"""Payloads of Pulsar's plain types, as the Java client writes them: big-endian, of a fixed size each.

Source: Pulsar 4.0.7, `ByteSchema`, `ShortSchema`, `IntSchema`, `LongSchema`, `FloatSchema`, `DoubleSchema`,
`BooleanSchema`, `DateSchema`, `TimeSchema`, `TimestampSchema`, `InstantSchema`, `LocalDateSchema`, `LocalTimeSchema`,
`LocalDateTimeSchema`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from typing import Any, Final

from pulsar_on_kafka.schema_compat.base.schema_model import SchemaType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_NS: Final = 86_400 * 10**9


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _instant(seconds: int, nanoseconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)


def _day(number: int) -> date:
    return date.fromordinal(_EPOCH_DAY + number)


def _time_of_day(nanoseconds: int) -> time:
    if not 0 <= nanoseconds < _DAY_NS:
        raise ValueError(f"a day has nanoseconds 0 to {_DAY_NS - 1}")
    seconds, rest = divmod(nanoseconds, 10**9)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, rest // 1000)


def _day_and_time(number: int, nanoseconds: int) -> datetime:
    return datetime.combine(_day(number), _time_of_day(nanoseconds))


def _itself(value: object) -> Any:
    return value


_FORMS: Final[Mapping[SchemaType, tuple[struct.Struct, Callable[..., Any]]]] = {
    SchemaType.BOOLEAN: (struct.Struct(">?"), _itself),
    SchemaType.INT8: (struct.Struct(">b"), _itself),
    SchemaType.INT16: (struct.Struct(">h"), _itself),
    SchemaType.INT32: (struct.Struct(">i"), _itself),
    SchemaType.INT64: (struct.Struct(">q"), _itself),
    SchemaType.FLOAT: (struct.Struct(">f"), _itself),
    SchemaType.DOUBLE: (struct.Struct(">d"), _itself),
    SchemaType.DATE: (struct.Struct(">q"), _moment),
    SchemaType.TIME: (struct.Struct(">q"), _moment),
    SchemaType.TIMESTAMP: (struct.Struct(">q"), _moment),
    SchemaType.INSTANT: (struct.Struct(">qi"), _instant),
    SchemaType.LOCAL_DATE: (struct.Struct(">q"), _day),
    SchemaType.LOCAL_TIME: (struct.Struct(">q"), _time_of_day),
    SchemaType.LOCAL_DATE_TIME: (struct.Struct(">qq"), _day_and_time),
}

PLAIN_TYPES: Final = frozenset(_FORMS)


def plain_reader(kind: SchemaType) -> Callable[[bytes], Any]:
    """How payloads of one of the `PLAIN_TYPES` are read.

    Numbers and booleans are Python's. DATE, TIME, TIMESTAMP (Java's Date and its subclasses, all a moment in
    milliseconds) and INSTANT are datetimes in UTC; LOCAL_DATE, LOCAL_TIME and LOCAL_DATE_TIME a date, time and
    datetime without a time zone. Differs from Pulsar: nanoseconds are cut to microseconds, Python has no finer ones.

    The reader raises ValueError for another number of bytes, and for a time that Python cannot say (years 1 to 9999).
    """
    form, make = _FORMS[kind]

    def read(data: bytes) -> Any:
        if len(data) != form.size:
            raise ValueError(f"{kind.name} has {form.size} bytes, got {len(data)}: {data!r:.60}")
        parts = form.unpack(data)
        try:
            return make(*parts)
        except (OverflowError, ValueError) as error:
            found = " and ".join(map(str, parts))
            raise ValueError(f"{found} is no {kind.name} from year 1 to 9999: {error}") from error

    return read
