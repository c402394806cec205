"""Words for people. Pure."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`, `1,000 entries`: `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def eighths(share: float) -> int:
    """The share of a drawn thing in eighths, 0 to 8: 8 only for a full share, and 0 only for an empty one."""
    return 8 if share >= 1 else 0 if share <= 0 else max(1, min(7, round(share * 8)))
