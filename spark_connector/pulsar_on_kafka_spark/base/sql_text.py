"""Expressions are text, which Spark parses as a whole, while a Column costs the driver calls to the JVM for each part.

Pure.
"""

from __future__ import annotations

from typing import Final

_OF_MEANING: Final = frozenset("'\\$")


def text(value: str) -> str:
    """A literal. What the session's settings may give another meaning (backslashes, `${...}`) is spelt in bytes."""
    if not _OF_MEANING.intersection(value):
        return f"'{value}'"
    return f"cast({binary(value.encode())} as string)"


def binary(value: bytes) -> str:
    """A literal."""
    return f"X'{value.hex().upper()}'"


def column(name: str) -> str:
    """A column by its name."""
    return "`" + name.replace("`", "``") + "`"
