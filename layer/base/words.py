"""Words for people. Pure."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`, `1,000 entries`: `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
