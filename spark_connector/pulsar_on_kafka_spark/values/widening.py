"""Widens a Spark type to another one where no value can be lost, as Spark's own upcasts do.

Source: `org.apache.spark.sql.types.UpCastRule`, which is available only in the driver's JVM. The nullability of parts
does not count here.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, AtomicType, DataType, DecimalType, MapType, NullType, StringType, StructType

_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")
"""Each is wider than those before it."""
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The largest number of digits of each type."""
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})


def widens(found: DataType, required: DataType) -> bool:
    """Whether each value of `found` is one of `required`."""
    match found, required:
        case NullType(), _:
            return True
        case ArrayType(), ArrayType():
            return widens(found.elementType, required.elementType)
        case MapType(), MapType():
            return widens(found.keyType, required.keyType) and widens(found.valueType, required.valueType)
        case StructType(), StructType():
            pairs = zip(found.fields, required.fields, strict=False)
            return len(found) == len(required) and all(widens(one.dataType, other.dataType) for one, other in pairs)
        case AtomicType(), StringType():
            return True
        case _:
            return _widens_alone(found, required)


def _widens_alone(found: DataType, required: DataType) -> bool:
    one, other = found.simpleString(), required.simpleString()
    if one == other:
        return True
    if isinstance(required, DecimalType):
        digits, places = (found.precision, found.scale) if isinstance(found, DecimalType) else (_DIGITS.get(one), 0)
        return (
            digits is not None and digits - places <= required.precision - required.scale and places <= required.scale
        )
    if isinstance(found, DecimalType):
        return found.scale == 0 and found.precision < _DIGITS.get(other, 0)
    if one in _NUMBERS and other in _NUMBERS:
        return _NUMBERS.index(one) < _NUMBERS.index(other)
    # Spark takes a number for seconds since 1970.
    return (other in _TIMES and one in {"date", *_TIMES}) or {one, other} == {"timestamp", "bigint"}
