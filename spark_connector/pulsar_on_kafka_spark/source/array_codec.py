"""A codec of arrays turns the payloads of one schema into one Arrow array, without a JVM.

`values.value_codec` is its counterpart for SQL. Both give the same names, types and values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql.types import DataType

from pulsar_on_kafka_spark.source.arrow_columns import NO_VALUE, Column

Payloads = Sequence[bytes | None]
Versions = Sequence[int | None] | None
Decoded = tuple[Any, list[int]]
"""An Arrow array, and the ascending indexes of payloads that are no value of the schema; they are null in the array."""


class ArrayCodec(ABC):
    """The codec of one schema."""

    kind: DataType
    by_version: bool = False
    """`decode` looks at the versions that messages name."""
    is_record: bool = False
    """`kind` is a struct whose fields are the columns of the value."""

    @abstractmethod
    def decode(self, payloads: Payloads, versions: Versions, keys: Payloads | None = None) -> Decoded:
        """The values of `payloads`; a null payload is null.

        Args:
            versions: the schema version of each message, None for one without; None where `by_version` is False.
            keys: the keys of the records, which only key/value schemas use.
        """


def in_column(
    column: Column, values: list[Any], failed: list[int], again: Callable[[int], Any] | None = None
) -> Decoded:
    """The array of `values`, and the indexes of all that failed.

    Args:
        values: the list is changed; None at the indexes in `failed`.
        again: reads the value at an index more leniently, where Arrow does not take all values as they are.
    """
    try:
        return column.array(values), failed
    except NO_VALUE:
        pass
    found = set(failed)
    for at, value in enumerate(values):
        if value is not None:
            try:
                values[at] = column.value(value if again is None else again(at))
            except NO_VALUE:
                values[at] = None
                found.add(at)
    return column.array(values), sorted(found)
