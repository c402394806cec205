"""Texts for people: numbers with their nouns, drawn shares, hosts, and the versions of distributions."""

from __future__ import annotations

from functools import cache


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`, `1,000 entries`: `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def eighths(share: float) -> int:
    """The share of a drawn thing in eighths, 0 to 8: 8 only for a full share, and 0 only for an empty one."""
    return 8 if share >= 1 else 0 if share <= 0 else max(1, min(7, round(share * 8)))


def url_host(host: str) -> str:
    """The host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


@cache
def installed_version(distribution: str = "pulsar-on-kafka") -> str | None:
    """The version of an installed distribution; None if it is not installed, as when a program runs from sources."""
    from importlib import metadata  # late: it takes some milliseconds, and few programs need a version

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
