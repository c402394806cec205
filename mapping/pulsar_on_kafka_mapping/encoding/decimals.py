"""Decimal numbers that others wrote in headers, properties and paths are read in one guarded way.

One way to read them, because Python's own has traps: `int` refuses more than 4,300 digits with a ValueError of its own,
and takes blanks, underscores and any script's digits.
"""

from __future__ import annotations

from typing import Final

from pulsar_on_kafka_mapping.errors import MappingError

MAX_DIGITS: Final = 39
"""The digits of 2^128 - 1. A longer number is invalid."""
OFFSET_MAX: Final = 2**63 - 1
"""The highest number that Kafka has for an offset or a time."""
_SHOWN: Final = 40


class NoDecimal(MappingError):
    """The text is no decimal number, or one that is out of range."""


def decimal(text: bytes | str, least: int = 0, most: int = OFFSET_MAX) -> int:
    """The number that ASCII digits are, with a '-' before them when `least` is negative.

    Args:
        least, most: both inclusive; `most` is at most 2^128 - 1.
    Raises:
        NoDecimal: it is anything else, names the first 40 characters.
    """
    digits = text[1:] if least < 0 and text[:1] in (b"-", "-") else text
    if len(digits) <= MAX_DIGITS and digits.isdigit() and (isinstance(digits, bytes) or digits.isascii()):
        number = int(text)
        if least <= number <= most:
            return number
    more = "" if len(text) <= _SHOWN else f" and {len(text) - _SHOWN} more characters"
    raise NoDecimal(f"{text[:_SHOWN]!r}{more} is no decimal number of {least} to {most}")


def decimal_or_none(text: bytes | str, least: int = 0, most: int = OFFSET_MAX) -> int | None:
    """The same; None for anything else."""
    try:
        return decimal(text, least, most)
    except NoDecimal:
        return None
