"""Columns turn lists of Python values into Arrow arrays of a Spark type.

`array` takes a whole list and is fast. It raises for a list with a value that Arrow cannot take as it is. `value` then
takes the values one by one: it returns the form that `array` accepts, or raises for a value that is none of the type.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

NO_VALUE: Final = (ValueError, TypeError, OverflowError, LookupError, RecursionError, pa.ArrowException)
"""Errors of values that are none of their column's type, or have too many levels; a UnicodeError is a ValueError."""
_NONE: Final = type(None)
_UTC: Final[Mapping[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}
)
"""From pyspark 4.2 on the caller names the zone of timestamps. Before, UTC is the default."""


def arrow_type(kind: DataType) -> Any:
    """The Arrow type that Spark expects of a Python data source for `kind`."""
    return to_arrow_type(kind, **_UTC)


class Column(ABC):
    """A column of values of one Spark type; each of them may be None."""

    kind: DataType

    @abstractmethod
    def array(self, values: Sequence[Any]) -> Any:
        """The Arrow array of type `arrow_type(kind)`. Raises one of `NO_VALUE`."""

    @abstractmethod
    def value(self, value: Any) -> Any:
        """One value, not None, in the form that `array` takes. Raises one of `NO_VALUE`."""

    def optional(self, value: Any) -> Any:
        """As `value`, also for None."""
        return None if value is None else self.value(value)


class LeafColumn(Column):
    """Values without parts.

    Args:
        types: the Python types that `convert` takes without a look at each value.
        check: gives one value in the form of these types, or raises one of `NO_VALUE`.
        convert: makes the array of such values; Arrow's own conversion by default.
    """

    def __init__(
        self,
        kind: DataType,
        types: Iterable[type],
        check: Callable[[Any], Any] | None = None,
        convert: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        self.kind = kind
        self._arrow = arrow_type(kind)
        self._types = frozenset(types)
        self._natural = self._types | {_NONE}
        self._check = check
        self._convert = convert
        self._limit = 1 << (self._arrow.bit_width - 1) if self._types == {int} else None
        """The first whole number beyond the type."""

    def array(self, values: Sequence[Any]) -> Any:
        if not self._natural.issuperset(map(type, values)):
            raise TypeError(f"values are no {self.kind.simpleString()}")
        return pa.array(values, self._arrow) if self._convert is None else self._convert(values)

    def value(self, value: Any) -> Any:
        found = value if self._check is None else self._check(value)
        if type(found) not in self._types:
            raise TypeError(f"a value is no {self.kind.simpleString()}")
        if self._limit is not None and not -self._limit <= found < self._limit:
            raise OverflowError(f"{found} is no {self.kind.simpleString()}")
        if self._convert is not None:
            self._convert((found,))
        return found


class StructColumn(Column):
    """Dicts by the names of fields. A missing name is null, or has the default of its field."""

    def __init__(self, columns: Mapping[str, Column], defaults: Mapping[str, Any] | None = None) -> None:
        """`defaults` are values of the columns, for fields that are missing or null."""
        self._columns = dict(columns)
        self._defaults = dict(defaults or {})
        self.kind = StructType([StructField(name, column.kind) for name, column in self._columns.items()])
        self._arrow = arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> Any:
        kinds = set(map(type, values))
        if not kinds <= {dict, _NONE}:
            raise TypeError("a value is no record")
        some_null = _NONE in kinds
        arrays = [column.array(self._field(name, values, some_null)) for name, column in self._columns.items()]
        return struct_array(self._arrow, arrays, values, some_null)

    def value(self, value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"a record is required, got {type(value).__name__}")
        return {name: column.optional(value.get(name)) for name, column in self._columns.items()}

    def _field(self, name: str, values: Sequence[Any], some_null: bool) -> list[Any]:
        default = self._defaults.get(name)
        if not some_null and default is None:
            return [value.get(name) for value in values]
        if default is None:
            return [None if value is None else value.get(name) for value in values]
        found = (None if value is None else value.get(name) for value in values)
        return [
            default if field is None and value is not None else field
            for field, value in zip(found, values, strict=True)
        ]


class ListColumn(Column):
    """Lists of values of one column."""

    def __init__(self, items: Column) -> None:
        self._items = items
        self.kind = ArrayType(items.kind)
        self._arrow = arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> Any:
        if not {list, _NONE}.issuperset(map(type, values)):
            raise TypeError("a value is no array")
        items = self._items.array(list(chain.from_iterable(filter(None, values))))
        return pa.ListArray.from_arrays(offsets(values), items, type=self._arrow)

    def value(self, value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"an array is required, got {type(value).__name__}")
        return [self._items.optional(item) for item in value]


class MapColumn(Column):
    """Dicts with text as keys, and values of one column."""

    def __init__(self, items: Column) -> None:
        self._items = items
        self.kind = MapType(StringType(), items.kind)
        self._arrow = arrow_type(self.kind)

    def array(self, values: Sequence[Any]) -> Any:
        if not {dict, _NONE}.issuperset(map(type, values)):
            raise TypeError("a value is no map")
        entries = list(chain.from_iterable(value.items() for value in values if value))
        keys = pa.array([key for key, _ in entries], pa.string())
        items = self._items.array([item for _, item in entries])
        return pa.MapArray.from_arrays(offsets(values), keys, items, type=self._arrow)

    def value(self, value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"a map is required, got {type(value).__name__}")
        return {valid_text(key): self._items.optional(item) for key, item in value.items()}


def struct_array(kind: Any, arrays: Sequence[Any], values: Sequence[Any], some_null: bool) -> Any:
    """The struct array of `arrays`, null where a value is None."""
    if not arrays:
        return pa.array([None if value is None else {} for value in values], kind)
    mask = pa.array([value is None for value in values]) if some_null else None
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=mask)


def offsets(values: Sequence[Any]) -> Any:
    """The begin of each value's items and the end of the last one; null where a value is None."""
    at = list(accumulate((0 if value is None else len(value) for value in values), initial=0))
    begins: list[int | None] = [None if value is None else at[n] for n, value in enumerate(values)]
    return pa.array([*begins, at[-1]], pa.int32())


def valid_text(text: str) -> str:
    """The text with `?` for halves of characters, which UTF-8 cannot express. Source: Java's `String.getBytes`."""
    return text.encode("utf-8", "replace").decode()
