"""A codec expresses the values of one schema as SQL: the parsing of a payload, the detection of a failure, and the
columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from pyspark.sql import Column

VALUE: Final = "value"
"""The column of a value that has no fields."""


class ValueCodec(ABC):
    """A codec gives expressions that run in the JVM, row by row without Python.

    `parse` is costly, and its result is needed more than once: users of a codec first give that result a column of its
    own (`value_decoding`), which Spark then does not merge into the expressions over it.
    """

    by_version: bool = False
    """`parse` looks at the version that a message names."""

    @abstractmethod
    def parse(self, payload: Column, version: Column | None) -> Column:
        """The content of a payload (binary); an unreadable one becomes null, and never raises.

        Args:
            version: the number of the record's schema version, null for a message without one; None where `by_version`
                is False.
        """

    @abstractmethod
    def failed(self, payload: Column, parsed: Column) -> Column:
        """Whether `parse` could not read the payload; never null, False for a null payload."""

    def value(self, parsed: Column) -> Column:
        """The value as one column: a struct where there are fields."""
        return parsed

    def columns(self, parsed: Column) -> list[Column]:
        """The value as columns: its fields, or one called `value`."""
        return [self.value(parsed).alias(VALUE)]
